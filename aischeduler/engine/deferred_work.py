"""Deferred work: the agendas of pools, and what concerns all of them.

Beside it stands what waits for reads: the data of `unknown_pools` and `freshness`.

Invariant: endless changes delay an update of the reasons of waiting pods by a limited time; one change causes one.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from aischeduler.engine.agenda import NOTHING, Affected, Agenda, RowWork
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.scheduling_queue import QueueChanges

REST_SECONDS: Final = 10.0
"""The pause after the last change before an update."""
UNREST_SECONDS_MAX: Final = 60.0
"""The longest delay of an update by further changes."""

Versions = tuple[int, ...]
"""The versions of everything that reasons depend on: nodes, running pods, pools, loans and queues."""


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


class Promise(Struct):
    """A unit was woken for room of a pool, and is not tried yet.

    `withholds` is whether others were refused for what it takes; `rows` were offered to others meanwhile.
    """

    pool: str
    pods: int
    withholds: bool = False
    rows: dict[int, None] = field(default_factory=dict)


class DeferredWork(Struct):
    """The work that events leave to decisions: the agendas by pool, of pools that have one, and what is common."""

    agendas: dict[str, Agenda] = field(default_factory=dict)
    unrest: Unrest = field(default_factory=Unrest)
    """When the reasons of all parked pods are to be updated."""
    domains: tuple[int, ...] = ()
    """The versions of labels and pools of nodes at the last check of counts."""
    promised: dict[str, Promise] = field(default_factory=dict)
    """What units wait for that were woken for room and not tried yet, by the uids of their leads."""
    offers: dict[int, dict[str, PodSpec]] = field(default_factory=dict)
    """Row -> the pods that were woken for its room and not tried yet, with their specs."""
    queue_changes: QueueChanges = field(default_factory=QueueChanges)
    """What changed in the queues of all pools."""
    failed: dict[str, PodRecord] = field(default_factory=dict)
    """Uid -> a pod whose check raised: it is put into backoff at the end of the step."""

    def agenda(self, pool: str) -> Agenda:
        """Return the agenda of a pool, to add to it."""
        found = self.agendas.get(pool)
        if found is None:
            found = self.agendas[pool] = Agenda()
        return found

    def look_at(self, pool: str) -> Agenda:
        """Return the agenda of a pool, to read it."""
        return self.agendas.get(pool, NOTHING)

    def slice_ends(self, pool: str) -> None:
        """Drop the agenda of a pool if nothing is left."""
        if pool in self.agendas and self.agendas[pool].is_empty():
            del self.agendas[pool]

    def review(self, pools: Iterable[str]) -> None:
        """Have the loans of these pools checked."""
        for pool in pools:
            self.agenda(pool).review = True

    def affect(self, pool: str) -> Affected:
        """Return what changed for many pods of this pool, to add to it."""
        agenda = self.agenda(pool)
        if agenda.affected is None:
            agenda.affected = Affected()
        return agenda.affected

    def on_row(self, pool: str, row: int, *, offers: bool, loans: bool = False) -> None:
        """Have the claims on a row of this pool checked, from the first; with `offers`, have its room offered.

        With `loans`, have the loans of the pool checked.
        """
        agenda = self.agendas.get(pool) or self.agenda(pool)
        agenda.review |= loans
        known = agenda.rows.get(row)
        agenda.rows[row] = RowWork(offers or (known is not None and known.offers))

    def concern(self, pools: tuple[str, ...]) -> bool:
        """Return whether pods of one of these pools, or borrowers from it, are still to be tried."""
        found = [self.agendas[pool] for pool in pools if pool in self.agendas]
        return any(agenda.wakes() or agenda.sought or agenda.relook is not None for agenda in found)


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
