"""Proposals: what an attempt to schedule a pod would do, as a closed union of values. Nothing of it is done yet.

Invariants:
- A proposal has everything that its explanation needs, and names objects by name or uid.
- It holds for the state of the moment at which it was made.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from msgspec import Struct

from aischeduler.model.allocation import NO_ALLOCATION, Allocation
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.unsupported_constraints import ConstraintKind

LENDERS_NAMED_MAX: Final = 8
"""The most lenders that a message names for one reason; the others are counted."""


class LenderRefusal(StrEnum):
    """Why a pool does not lend to a pod; the value is a label of metrics."""

    NOT_ACCEPTED = "NotAccepted"
    NOT_BORROWING = "NotBorrowing"
    NOT_SHARING = "NotSharing"
    NOT_LISTED = "NotListed"
    BORROWING_LIMIT = "BorrowingLimit"
    LENDING_LIMIT = "LendingLimit"
    NO_ROOM = "NoRoom"
    RARE_TYPES = "RareTypes"
    HOME_PODS = "HomePods"
    VISITED = "Visited"


_TEXTS: Final = {
    LenderRefusal.NOT_SHARING: "not sharing",
    LenderRefusal.NOT_LISTED: "not in borrowingPools",
    LenderRefusal.LENDING_LIMIT: "over its lending limit",
    LenderRefusal.NO_ROOM: "no node fits",
    LenderRefusal.RARE_TYPES: "rare GPU types are not lent",
    LenderRefusal.HOME_PODS: "own pods wait for that room",
    LenderRefusal.VISITED: "tried",
}


class Lender(Struct, frozen=True):
    """The pool that lends; `refused` are the pools that do not, with the reason."""

    name: str
    refused: tuple[tuple[str, LenderRefusal], ...]

    @property
    def blocked(self) -> tuple[str, ...]:
        """The pools whose own pods wait for the room."""
        return _blocked(self.refused)

    @property
    def refusals(self) -> Counter[LenderRefusal]:
        """How many pools refused, by reason."""
        return _counted(self.refused)


@dataclass(frozen=True)
class NoLender:
    """No pool lends: `refused` has the reasons by pool.

    `home` is set where the home pool may not borrow at all; `resource` is the one that its borrowingLimit excludes. All
    pods of a class get the same value, so what is read of it is computed once.
    """

    refused: tuple[tuple[str, LenderRefusal], ...]
    home: LenderRefusal | None = None
    resource: str = ""

    @cached_property
    def blocked(self) -> tuple[str, ...]:
        """The pools whose own pods wait for the room."""
        return _blocked(self.refused)

    @cached_property
    def refusals(self) -> Counter[LenderRefusal]:
        """How many pools refused, by reason; the home pool counts where it may not borrow."""
        return _counted(self.refused) + Counter(() if self.home is None else (self.home,))

    @cached_property
    def message(self) -> str:
        """The clause of the pod's message; empty where there is no other pool."""
        match self.home:
            case LenderRefusal.NOT_ACCEPTED:
                return "the spec of its pool is refused; see the condition Accepted"
            case LenderRefusal.NOT_BORROWING:
                return "its pool does not borrow"
            case LenderRefusal.BORROWING_LIMIT:
                return f"its pool has reached its borrowing limit of {self.resource}"
        groups: dict[LenderRefusal, list[str]] = {}
        for name, refusal in self.refused:
            groups.setdefault(refusal, []).append(name)
        return "; ".join(
            f"{_TEXTS[refusal]}: {_names(groups[refusal])}" for refusal in LenderRefusal if refusal in groups
        )


class Search(Struct, frozen=True):
    """How a proposal was found: the searches for a lender, in their order.

    `blocked` are the lenders whose own pods wait for room that the pod could use.
    """

    lenders: tuple[Lender | NoLender, ...] = ()
    blocked: tuple[str, ...] = ()


NO_SEARCH: Final = Search()


class Placement(Struct, frozen=True):
    """A pod (uid) of a unit, and the node that it gets."""

    pod: str
    node: str
    allocation: Allocation = NO_ALLOCATION


class Place(Struct, frozen=True, gc=False):
    """Bind the pod to this node, the best of `feasible` nodes; `others` are the other pods of its unit.

    `displaced` are the pods behind it (uids, in queue order) whose claims on the node end for it.
    """

    node: str
    feasible: int
    displaced: tuple[str, ...]
    search: Search = NO_SEARCH
    allocation: Allocation = NO_ALLOCATION
    others: tuple[Placement, ...] = ()


class MakeRoom(Struct, frozen=True):
    """Evict the victims (uids, the least important first), and hold their room on this node for the pod.

    `others` are the other pods of its unit, with their nodes. Victims of one unit that are lost together may be on any
    node. Without victims, pods that are leaving already make the room. `violations` victims are protected by a budget.
    """

    node: str
    victims: tuple[str, ...]
    violations: int
    displaced: tuple[str, ...]
    message: str
    search: Search = NO_SEARCH
    allocation: Allocation = NO_ALLOCATION
    others: tuple[Placement, ...] = ()


class Borrow(Struct, frozen=True):
    """Join the queue of a lender."""

    lender: str
    search: Search = NO_SEARCH


class WaitFor(StrEnum):
    """What a pod that waits waits for."""

    ROOM = "Room"
    """An event that can help it."""
    CLAIM = "Claim"
    """The room that it claims."""
    REFRESH = "Refresh"
    """A refresh of its pool: an unseen change may make an eviction unnecessary."""
    BACKOFF = "Backoff"
    """The end of its backoff: a lender that it has already left has room now, and no event announces that."""
    HOME = "Home"
    """Its turn in its home pool: no other pool lends to it."""


class Wait(Struct, frozen=True):
    """No node for now. `message` is why, where the pod is told; `preemption` why no eviction helps, where one could.

    With `by_quota` quotas close nodes to it that it could use.
    """

    waits_for: WaitFor
    message: str = ""
    search: Search = NO_SEARCH
    preemption: str = ""
    by_quota: bool = False


class Hold(Struct, frozen=True):
    """Not to be tried until what holds it changes: its spec, a constraint, its namespace.

    With `unknown_pool` it waits for a read of the Pool that it names. `reason` is the word for it in events.
    """

    message: str
    constraint: ConstraintKind | None = None
    unknown_pool: bool = False
    search: Search = NO_SEARCH
    reason: EventReason = EventReason.FAILED_SCHEDULING


Proposal = Place | MakeRoom | Borrow | Wait | Hold


def _blocked(refused: tuple[tuple[str, LenderRefusal], ...]) -> tuple[str, ...]:
    return tuple(name for name, refusal in refused if refusal is LenderRefusal.HOME_PODS)


def _counted(refused: tuple[tuple[str, LenderRefusal], ...]) -> Counter[LenderRefusal]:
    return Counter(refusal for _, refusal in refused if refusal is not LenderRefusal.VISITED)


def _names(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - LENDERS_NAMED_MAX} more" if len(found) > LENDERS_NAMED_MAX else ""
    return ", ".join(found[:LENDERS_NAMED_MAX]) + more
