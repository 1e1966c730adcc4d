"""The agenda of a pool: the work that events leave to its decisions, so that handling an event stays cheap.

Invariants:
- An agenda has at most one task of each kind, with all that is left of it. What comes later is added to the task.
- A slice does the tasks in the order of `tasks.TASKS`, within one budget of checks, and a part of each in any case: no
  task waits for the end of another. What is left stays on the agenda, and the pool decides again.
"""

from collections import OrderedDict
from enum import IntEnum, auto
from typing import Final

from msgspec import Struct, field

from aischeduler.state.pod_records import PodRecord
from aischeduler.state.scheduling_queue import OrderKey

CHECKS_MAX: Final = 64
"""The budget of a slice in checks whether a pod can use some room; one for victims, or of a unit, counts as several.

A wake-up without a check, which causes an attempt, costs as much.
"""
BOUNDS_PER_CHECK: Final = 2
"""So many looks at what rows could hold of a unit by amounts cost as much as a check."""
PIECES: Final = 32
"""The smallest pieces of work, of which so many cost as much as a check."""


class Checks(Struct):
    """How many checks are left in a slice; the last one may exceed it. `of_units` were of units of several pods."""

    left: int = CHECKS_MAX
    of_units: int = 0
    spent: int = 0
    pieces: int = 0
    """The pieces of a check that were spent beside whole ones."""

    def spend(self, checks: int, *, unit: bool = False) -> None:
        """Count checks."""
        self.left -= checks
        self.spent += checks
        if unit:
            self.of_units += checks

    def spend_part(self, per_check: int, times: int = 1) -> None:
        """Count pieces of work of which `per_check` cost as much as a check."""
        whole, self.pieces = divmod(self.pieces + times * (PIECES // per_check), PIECES)
        self.spend(whole)

    def allow_one(self) -> None:
        """Allow the next task a part, although others may have spent the budget."""
        self.left = max(self.left, 1)


class Rewording(Struct, frozen=True):
    """The progress of updating the reasons of a pool's parked pods: how many classes are left, and after which turn.

    With `counts`, a reason that differs only in its numbers is new too.
    """

    left: int
    counts: bool
    after: OrderKey | None = None


class Stage(IntEnum):
    """The steps of the work on a changed row."""

    CLAIMS = auto()
    """Its claims are checked."""
    OWNERS = auto()
    """Nominated units with claims there are tried elsewhere too."""
    NOMINATED = auto()
    """Its room is offered to nominated pods with claims elsewhere."""
    HOME = auto()
    """Its room is offered to pods of its pool."""
    ABROAD = auto()
    """Its free room is offered to parked pods of other pools."""
    DONE = auto()


class RowWork(Struct):
    """The work that a changed row causes; with `offers`, its room is offered too.

    `stage` is the next step; the claims or classes up to the turn `after` are done.
    """

    offers: bool
    stage: Stage = Stage.CLAIMS
    after: OrderKey | None = None


class Affected(Struct):
    """What changed for many pods of a pool; its next decision finds the pods."""

    parked: bool = False
    """The first pod of each parked class is to be tried."""
    nominated: bool = False
    """All nominated pods are to be tried."""
    held: bool = False
    """All held pods are to be tried."""
    namespaces: dict[str, None] = field(default_factory=dict)
    """Waiting pods of these namespaces are to be tried; empty means all namespaces."""
    groups: dict[tuple[str, str], None] = field(default_factory=dict)
    """Waiting pods that name this machine group in this namespace, or in any (empty), are to be tried."""
    rows: dict[int, None] = field(default_factory=dict)
    """It gained these rows."""
    first_rows: bool = False
    """It had no rows before."""


class LenderSearch(Struct):
    """A search for lenders, because the pool may borrow more: the turn `after` which to continue; None at the start.

    It begins `again` once it has ended where the pool may borrow even more since it began.
    """

    after: OrderKey | None = None
    again: bool = False


class Agenda(Struct):
    """The tasks of a pool, in the order in which a slice does them, and what is noted for tasks to come."""

    rows: OrderedDict[int, RowWork] = field(default_factory=OrderedDict)
    """These rows changed: their claims are to be checked, their room is to be offered; in this order."""
    sought: bool = False
    """Its pods were sent to lenders: lenders are searched again once none of them is in a lender's queue."""
    review: bool = False
    """Its loans, or the rules for them, changed: loans that are no longer allowed are to be ended."""
    affected: Affected | None = None
    """Something changed for many of its pods: they are to be found."""
    dividing: OrderedDict[str, PodRecord] = field(default_factory=OrderedDict)
    """A term of affinity reads another label: these parked pods, by uid, may change their classes."""
    rechecking: OrderedDict[str, PodRecord] = field(default_factory=OrderedDict)
    """What holds, or may hold, these pods (by uid) changed: they are to be tried."""
    waking: OrderedDict[str, PodRecord] = field(default_factory=OrderedDict)
    """It gained rows, or its spec changed: these pods, by uid, are to be tried."""
    counted: dict[bytes, OrderKey | None] = field(default_factory=dict)
    """Its waiting classes (keys) whose cross-row filters count differently: they are to be checked, those of its
    nominated pods that come after this turn."""
    seeking: LenderSearch | None = None
    """It may borrow more: lenders for its pods are searched."""
    rewording: Rewording | None = None
    """The reasons of its parked pods are to be updated."""
    lending: OrderKey | None = None
    """Its room is being offered to other pools: the turn after which to continue."""
    relook: int | None = None
    """It did not lend because its own pods wait for the room: the version of its queue then."""
    held_up: int = 0
    """Rows are left: in how many slices after each other no pod was tried."""
    regrouped: bool = False
    """Nodes joined or left it, and the reasons of its parked pods do not show that yet."""

    def is_due(self) -> bool:
        """Return whether the next decision has a task; `sought` and `relook` wait for something else first."""
        return bool(self.wakes() or self.review or self.dividing or self.rechecking or self.rewording)

    def wakes(self) -> bool:
        """Return whether pods of the pool, or borrowers from it, are still to be tried."""
        return bool(
            self.rows or self.affected or self.counted or self.waking or self.seeking or self.lending is not None
        )

    def is_empty(self) -> bool:
        """Return whether nothing is left, and nothing is noted."""
        return not (self.is_due() or self.sought or self.relook is not None or self.held_up or self.regrouped)


NOTHING: Final = Agenda()
"""The agenda of a pool that has none; nobody changes it."""
