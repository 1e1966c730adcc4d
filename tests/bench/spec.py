"""A case of the benchmarks: sides that do the same work, the figures of each run, and goals for some figures.

Invariants:
- A run counts only if its evidence has no fault: every awaited pod is bound once, no other pod is bound, and no node is
  overcommitted.
- The first side is ours. The sides run in turn, so that a disturbance affects all of them.
- The name of a figure contains its unit.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

FAULTS_SHOWN = 3
OURS = "ai-scheduler"


class VoidRunError(Exception):
    """A run has no figures; the text is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the pods of a run were bound. Pods are named by UID.

    `placements` are all accepted Bindings as (pod, node); `overfull` has one sentence for each overcommitted node.
    """

    awaited: Collection[str] = ()
    placements: Sequence[tuple[str, str]] = ()
    overfull: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: its evidence and its figures by name."""

    evidence: Evidence
    figures: Mapping[str, float]


Measure = Callable[[str], Measured]
"""Runs the side of this name once."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a figure: `bound` times the peer's figure, or without a `peer` the `bound` itself.

    The peer's figure has the same name, or the name `of`.
    """

    figure: str
    bound: float
    at_least: bool = True
    peer: str = ""
    of: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `open` prepares what all runs share and yields the function that runs a side.

    `short` cases are in the short set. `needs_server` cases need the programs of the real control plane.
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
    """Return the faults of a run, one sentence each."""
    found = []
    times_bound = Counter(pod for pod, _ in evidence.placements)
    twice = [pod for pod, times in times_bound.items() if times > 1]
    awaited = set(evidence.awaited)
    lost = [pod for pod in evidence.awaited if pod not in times_bound]
    strange = [pod for pod in times_bound if pod not in awaited]
    for what, pods in (("were not bound", lost), ("were bound twice", twice), ("must not be bound", strange)):
        if pods:
            found.append(f"{len(pods)} pods {what}: {shown(pods)}")
    if evidence.overfull:
        found.append(f"{len(evidence.overfull)} nodes were overcommitted: {shown(evidence.overfull)}")
    return found


def shown(texts: Sequence[str]) -> str:
    """Return the first few texts."""
    return "; ".join(texts[:FAULTS_SHOWN]) + (" …" if len(texts) > FAULTS_SHOWN else "")


def overfull(
    room: Mapping[str, Mapping[str, int]],
    asked: Mapping[str, Mapping[str, int]],
    placements: Sequence[tuple[str, str]],
) -> list[str]:
    """Return a sentence for each node whose pods request more than `room`, which is by node and resource."""
    used: dict[str, Counter[str]] = {}
    for pod, node in placements:
        used.setdefault(node, Counter()).update(asked[pod])
    return [
        f"{node} has {room.get(node, {}).get(resource, 0)} {resource}, {total} are used"
        for node, amounts in used.items()
        for resource, total in amounts.items()
        if total > room.get(node, {}).get(resource, 0)
    ]
