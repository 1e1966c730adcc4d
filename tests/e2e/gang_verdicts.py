"""What an oracle says of the gangs that two schedulers have started, and why they differ.

Invariant: gangs are judged in queue order, the highest priority first. No two gangs of a day have the same priority.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.e2e.gang_cases import Cluster, Gang, left_of
from tests.e2e.gang_stage import SIDES, Outcome, Outcomes
from tests.packing_oracle import Amounts, count_that_fit, fits

FOLLOWS = "of an earlier gang there are more or fewer pods on this side than on the other"
IN_PIECES = "earlier gangs are on other nodes, and what they leave is in other pieces"
NOT_FOUND = "it fits, and the scheduler that puts pod after pod on the best node does not find the way"


def in_queue_order(found: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes, the highest priority first."""
    return sorted(found, key=lambda one: (-one.gang.priority, one.gang.name))


def left_over(cluster: Cluster, found: Sequence[Outcome]) -> list[Amounts]:
    """Return the room of each node beside all pods."""
    return left_of(cluster.free(), [pod for one in found for pod in one.pods])


def in_part(found: Sequence[Outcome]) -> list[str]:
    """Return the gangs of which some pods are on nodes, and fewer than start together."""
    return [one.gang.name for one in found if one.placed and not one.whole]


def beside_room(cluster: Cluster, found: Sequence[Outcome]) -> list[Gang]:
    """Return the waiting gangs that fit into the room that is left at the end."""
    left = left_over(cluster, found)
    return [one.gang for one in found if not one.placed and fits(left, one.gang.required)]


def passed_over(cluster: Cluster, found: Sequence[Outcome]) -> list[Gang]:
    """Return the waiting gangs that fitted at their turn in the queue, beside the gangs before them."""
    free, over = cluster.free(), list[Gang]()
    for one in in_queue_order(found):
        if not one.placed and fits(free, one.gang.required):
            over.append(one.gang)
        free = left_of(free, one.pods)
    return over


def cause_of(gang: Gang, side: str, cluster: Cluster, outcomes: Outcomes) -> str:
    """Return why a gang waits on this side that has started on the other."""
    if gang in passed_over(cluster, outcomes[side]):
        return NOT_FOUND
    before = [[len(one.placed) for one in found if one.gang.priority > gang.priority] for found in outcomes.values()]
    return IN_PIECES if before[0] == before[1] else FOLLOWS


def by_queue_order(cluster: Cluster, gangs: Sequence[Gang]) -> dict[str, int]:
    """Return gang -> number of its pods that queue order puts on nodes, where all pods of all gangs are equal."""
    (shape,) = {pod for gang in gangs for pod in gang.pods}
    slots, counts = count_that_fit(cluster.free(), shape), dict[str, int]()
    for gang in sorted(gangs, key=lambda one: -one.priority):
        counts[gang.name] = min(slots, len(gang.pods)) if slots >= gang.minimum else 0
        slots -= counts[gang.name]
    return counts


@dataclass
class Tally:
    """The counts of all days: gangs compared, and those that started on one side alone, by cause."""

    compared: Counter[str] = field(default_factory=Counter)
    equal: Counter[str] = field(default_factory=Counter)
    started: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)

    def note(self, scenario: str, outcomes: Outcomes) -> None:
        """Count the gangs of an outcome."""
        for ours, theirs in zip(*(outcomes[side] for side in SIDES), strict=True):
            self.compared[scenario] += 1
            self.equal[scenario] += ours.whole == theirs.whole
            self.started[scenario] += ours.whole and theirs.whole

    def differs(self, where: str, gang: Gang, side: str, cause: str) -> None:
        """Note a gang that waits on one side alone."""
        self.causes[f"it waits on the side {side}: {cause}"] += 1
        self.differences.append(f"{where}: {gang} waits on the side {side}: {cause}")

    def __str__(self) -> str:
        compared = [
            f"{scenario}: {total} gangs compared, {self.equal[scenario]} equal,"
            f" of which {self.started[scenario]} started"
            for scenario, total in self.compared.items()
        ]
        causes = [f"{total} differ: {cause}" for cause, total in self.causes.items()]
        return "\n".join(["", *compared, *causes, *self.differences])
