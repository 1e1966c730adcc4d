"""What a case of the benchmark is: sides that do the same work, figures of each run, and goals for some of them.

Laws:
- A run counts only when its evidence is without fault: every awaited pod placed once, nobody else, no node too full.
- The first side is ours. Sides run in turn, so that what disturbs one run disturbs its neighbours as well.
- The name of a figure holds its unit.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

FAULTS_SHOWN = 3
OURS = "ai-scheduler"


class VoidRunError(Exception):
    """A run without a figure; the text is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What became of the pods of a run. Pods are named by uid.

    `placements` are all Bindings that were taken, as (pod, node); `overfull` says of each node too full what it had.
    """

    awaited: Collection[str] = ()
    placements: Sequence[tuple[str, str]] = ()
    overfull: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: what became of the pods, and the figures by name."""

    evidence: Evidence
    figures: Mapping[str, float]


Measure = Callable[[str], Measured]
"""Let the side of this name do the work once."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure of ours should reach: `bound` times the peer's, or without a `peer` the `bound` itself.

    The peer's figure is the same one, or else the one that `of` names.
    """

    figure: str
    bound: float
    at_least: bool = True
    peer: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One question. `open` prepares what all runs share; what it yields measures a side.

    `short` cases belong to the short set. `needs_server` cases need the programs of the real control plane.
    """

    name: str
    about: str
    sides: tuple[str, ...]
    open: Callable[[], AbstractContextManager[Measure]]
    rounds: int = 3
    goals: tuple[Goal, ...] = ()
    short: bool = False
    needs_server: bool = False


def faults(evidence: Evidence) -> list[str]:
    """Return what is wrong with a run, a sentence each; nothing when its figures count."""
    found = []
    times_bound = Counter(pod for pod, _ in evidence.placements)
    twice = [pod for pod, times in times_bound.items() if times > 1]
    awaited = set(evidence.awaited)
    lost = [pod for pod in evidence.awaited if pod not in times_bound]
    strange = [pod for pod in times_bound if pod not in awaited]
    for what, pods in (("were not bound", lost), ("were bound twice", twice), ("should not have been bound", strange)):
        if pods:
            found.append(f"{len(pods)} pods {what}: {shown(pods)}")
    if evidence.overfull:
        found.append(f"{len(evidence.overfull)} times a full node was used: {shown(evidence.overfull)}")
    return found


def shown(texts: Sequence[str]) -> str:
    """Return the first few of many texts."""
    return "; ".join(texts[:FAULTS_SHOWN]) + (" …" if len(texts) > FAULTS_SHOWN else "")


def overfull(
    room: Mapping[str, Mapping[str, int]],
    asked: Mapping[str, Mapping[str, int]],
    placements: Sequence[tuple[str, str]],
) -> list[str]:
    """Return each node on which the placed pods ask for more than its room; amounts by resource, as integers."""
    used: dict[str, Counter[str]] = {}
    for pod, node in placements:
        used.setdefault(node, Counter()).update(asked[pod])
    return [
        f"{node} has {room.get(node, {}).get(resource, 0)} {resource}, {total} are used"
        for node, amounts in used.items()
        for resource, total in amounts.items()
        if total > room.get(node, {}).get(resource, 0)
    ]
