"""Deferred work: the decisions of pools do work that events cause, so that handling an event stays cheap.

Beside it stands what waits for reads: the data of `unknown_pools` and `freshness`.

Invariant: endless changes delay an update of the reasons of waiting pods by a limited time; one change causes one.
"""

from collections import OrderedDict
from enum import IntEnum, auto
from typing import Final

from msgspec import Struct, field

from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.state.pod_records import OrderKey, PodRecord
from aischeduler.state.scheduling_queue import QueueChanges

REST_SECONDS: Final = 10.0
"""The pause after the last change before an update."""
UNREST_SECONDS_MAX: Final = 60.0
"""The longest delay of an update by further changes."""

Versions = tuple[int, ...]
"""The versions of everything that reasons depend on: nodes, running pods, pools, loans and queues."""


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


class Unrest(Struct):
    """When to update the reasons of waiting pods: some seconds after the last change of what reasons depend on.

    `versions` are the last ones, `since` is when they began to change, and `until` when an update is due.
    """

    versions: Versions = ()
    since: float = 0.0
    until: float | None = None

    def note(self, versions: Versions, now: float) -> None:
        """Note the versions of now."""
        if versions == self.versions:
            return
        if self.until is None:
            self.since = now
        self.versions, self.until = versions, min(now + REST_SECONDS, self.since + UNREST_SECONDS_MAX)

    def ended(self, now: float) -> bool:
        """Return whether an update is due, once per change."""
        if self.until is None or self.until > now:
            return False
        self.until = None
        return True


class DeferredWork(Struct):
    """The deferred work, of which each decision does a part; keys and members are pools."""

    rows: dict[str, OrderedDict[int, RowWork]] = field(default_factory=dict)
    """These rows of it changed: their claims are to be checked, their room is to be offered; in this order."""
    held_up: dict[str, int] = field(default_factory=dict)
    """Rows are left of it -> in how many slices after each other no pod of it was tried."""
    review: set[str] = field(default_factory=set)
    """Its loans, or the rules for them, changed: loans that are no longer allowed are to be ended."""
    affected: dict[str, Affected] = field(default_factory=dict)
    """Something changed for many pods of it."""
    waking: dict[str, OrderedDict[str, PodRecord]] = field(default_factory=dict)
    """It gained rows, or its spec changed: these pods, by uid, are to be tried."""
    rechecking: dict[str, OrderedDict[str, PodRecord]] = field(default_factory=dict)
    """What holds, or may hold, these pods (by uid) changed: they are to be tried."""
    dividing: dict[str, OrderedDict[str, PodRecord]] = field(default_factory=dict)
    """A term of affinity reads another label: these parked pods, by uid, may change their classes."""
    rewording: dict[str, Rewording] = field(default_factory=dict)
    """The reasons of its parked pods are to be updated."""
    regrouped: set[str] = field(default_factory=set)
    """Nodes joined or left it, and the reasons of its parked pods do not show that yet."""
    unrest: Unrest = field(default_factory=Unrest)
    """When the reasons of all parked pods are to be updated."""
    relook: dict[str, int] = field(default_factory=dict)
    """It did not lend because its own pods wait for the room -> the version of its queue then."""
    lending: dict[str, OrderKey] = field(default_factory=dict)
    """Its room is being offered to other pools -> the turn after which to continue."""
    seeking: dict[str, OrderKey | None] = field(default_factory=dict)
    """It may borrow more: lenders for its pods are searched -> the turn after which to continue; None at the start."""
    seek_again: set[str] = field(default_factory=set)
    """The pools in `seeking` that may borrow even more since the search began."""
    sought: set[str] = field(default_factory=set)
    """Its pods were sent to lenders: lenders are searched again once none of them is in a lender's queue."""
    counted: dict[str, dict[bytes, OrderKey | None]] = field(default_factory=dict)
    """Its waiting classes (keys) whose cross-row filters count differently: they are to be checked, those of its
    nominated pods that come after this turn."""
    domains: tuple[int, ...] = ()
    """The versions of labels and pools of nodes at the last check of counts."""
    promised: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Unit, by the uid of its lead, that was woken for room and not tried yet -> the pool, and how many pods start."""
    offers: dict[int, dict[str, PodSpec]] = field(default_factory=dict)
    """Row -> the pods that were woken for its room and not tried yet, with their specs."""
    queue_changes: QueueChanges = field(default_factory=QueueChanges)
    """What changed in the queues of all pools."""
    failed: dict[str, PodRecord] = field(default_factory=dict)
    """Uid -> a pod whose check raised: it is put into backoff at the end of the step."""

    def cancel(self, pool: str) -> None:
        """Drop the work of a pool that is gone."""
        on_pods = (self.rows, self.affected, self.waking, self.counted, self.rechecking, self.dividing, self.rewording)
        for work in (*on_pods, self.held_up, self.relook, self.lending, self.seeking):
            work.pop(pool, None)
        for pools in (self.review, self.regrouped, self.seek_again, self.sought):
            pools.discard(pool)

    def affect(self, pool: str) -> Affected:
        """Return what changed for many pods of this pool, to add to it."""
        return self.affected.setdefault(pool, Affected())

    def on_row(self, pool: str, row: int, *, offers: bool, loans: bool = False) -> None:
        """Have the claims on a row of this pool checked, from the first; with `offers`, have its room offered.

        With `loans`, have the loans of the pool checked.
        """
        if loans:
            self.review.add(pool)
        rows = self.rows.get(pool)
        if rows is None:
            rows = self.rows[pool] = OrderedDict()
        known = rows.get(row)
        rows[row] = RowWork(offers or (known is not None and known.offers))

    def concern(self, pools: tuple[str, ...]) -> bool:
        """Return whether pods of one of these pools, or borrowers from it, are still to be tried."""
        tried = (self.rows, self.affected, self.counted, self.waking)
        found = (*tried, self.relook, self.lending, self.seeking, self.sought)
        return any(pool in work for work in found for pool in pools)

    def pools(self) -> set[str]:
        """Return the pools whose next decision has deferred work."""
        tried = (self.rows, self.affected, self.counted, self.waking, self.rechecking)
        found = (*tried, self.review, self.dividing, self.rewording, self.lending, self.seeking)
        return {pool for work in found for pool in work}


class LateNode(Struct):
    """A new node that no known Pool selects: it is added after a list of the Pools, or when it is due."""

    node: Node
    due: float
    asked: bool = False
    """Whether the list that is under way was requested after the node came."""


class UnknownPools(Struct):
    """Pods by uid that name a Pool which was not shown, and new nodes that may belong to one."""

    asked: dict[str, PodRecord] = field(default_factory=dict)
    """The pods that were held when the list of Pools began that is under way."""
    wanted: dict[str, PodRecord] = field(default_factory=dict)
    """The pods of the next list."""
    missing: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Uid of a pod -> the Pool that it names and that a read did not find, and when it was read."""
    late: dict[str, LateNode] = field(default_factory=dict)
    """New nodes by name."""
    listing: bool = False
    """Whether a list of the Pools is under way."""
    begun: bool = False
    """Whether Pools are read: from the first decision, and while this scheduler leads."""


class Freshness(Struct):
    """When each pool was refreshed last, when its refresh was requested, and what waits for it."""

    refreshed_at: dict[str, float] = field(default_factory=dict)
    asked_at: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, dict[str, PodRecord]] = field(default_factory=dict)
    """Pool -> the pods, by uid, that would evict in the pool."""
    loans: set[str] = field(default_factory=set)
    """The pools that would end loans."""
    units: dict[str, dict[str, None]] = field(default_factory=dict)
    """Pool -> the units that are to be given up, some of whose pods are there."""
    problems: dict[str, str] = field(default_factory=dict)
    """Pool -> why its last refresh failed."""

    def forget(self, pool: str) -> None:
        """Drop a pool that is gone."""
        for known in (self.refreshed_at, self.asked_at, self.waiting, self.units, self.problems):
            known.pop(pool, None)
        self.loans.discard(pool)
