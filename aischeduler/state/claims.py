"""Claims: room on nodes that is reserved for a nominated unit until its victims are gone.

Invariants:
- A claim counts in the node table like the pods of its owner, on one row or on several. The victims count there too
  until they are gone, so that a row can be more than full.
- A unit owns at most one claim, in the name of its lead. Only a pod ahead of the owner in the pool's order may use the
  claimed room.
- A victim that is only planned is asked when those are on their way whose eviction may be refused. It counts as leaving
  while the claim exists.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace
from sortedcontainers import SortedKeyList

from aischeduler.model.allocation import NO_ALLOCATION, Allocation
from aischeduler.model.card_shares import gpu_share
from aischeduler.model.pod import PodSpec
from aischeduler.state.groups import Groups
from aischeduler.state.ledger import Account, Ledger
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod, PodRecord
from aischeduler.state.running_pods import RunningTable
from aischeduler.state.scheduling_queue import OrderKey, queue_order
from aischeduler.state.timers import Timers

_turn: Final = attrgetter("turn")


class ClaimedRoom(Struct, frozen=True, eq=False):
    """Room on `row` for one pod, with the requests of `spec`; it counts in these `accounts`."""

    record: PodRecord
    spec: PodSpec
    row: int
    allocation: Allocation = NO_ALLOCATION
    accounts: tuple[Account, ...] = ()

    @property
    def assigned(self) -> AssignedPod:
        """The pod on the claimed row."""
        return AssignedPod(self.record.pod, self.spec, self.row, self.allocation, claims=True)


class Claim(Struct, frozen=True, eq=False):
    """Room in `pool` for `owner` and the pods that are placed with it, in that order.

    `victims` (uids) are evicted for it, those that are `planned` later; `since` is on the engine's clock.
    """

    owner: PodRecord
    rooms: tuple[ClaimedRoom, ...]
    pool: str
    victims: tuple[str, ...]
    since: float
    planned: dict[str, bool] = field(default_factory=dict)
    """Uid of a planned victim -> whether it is of no use any more, because a pod of its unit was evicted."""
    evicted: RunningTable | None = None
    """The victims as they were when they were chosen, where tenant queues say for whom they go; else None."""

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows on which it has room, ascending."""
        return tuple(sorted({room.row for room in self.rooms}))

    def on(self, row: int) -> tuple[ClaimedRoom, ...]:
        """Return its room on one row."""
        return tuple(room for room in self.rooms if room.row == row)

    @property
    def assigned(self) -> tuple[AssignedPod, ...]:
        """The pods on the claimed rows."""
        return tuple(room.assigned for room in self.rooms)

    @property
    def outdated(self) -> bool:
        """Whether it is for another spec than one of its pods has now."""
        return any(room.spec.key != room.record.pod.spec.key for room in self.rooms)

    @property
    def turn(self) -> OrderKey:
        """The owner's position in the order of its home pool, which does not change while it waits."""
        return (False, *queue_order(self.owner)[1:])


class Claims:
    """All claims, by owner, row and pool. `on_planned` is called with a victim that becomes planned, or is released."""

    def __init__(self, nodes: NodeTable, ledger: Ledger, on_planned: Callable[[str], None]) -> None:
        self._nodes, self._ledger, self._on_planned = nodes, ledger, on_planned
        self.planned: dict[str, str] = {}
        """Uid of a planned victim -> the owner (uid) of the claim."""
        self.stalled = Timers()
        """Owners of claims whose next victims a budget forbids, and until when they wait for it."""
        self._by_owner: dict[str, Claim] = {}
        self._by_row: Groups[int, str, Claim] = Groups()
        self._by_pool: dict[str, SortedKeyList[Claim, OrderKey]] = {}

    def __len__(self) -> int:
        return len(self._by_owner)

    def of(self, uid: str) -> Claim | None:
        """Return the claim that this pod owns."""
        return self._by_owner.get(uid)

    def room_of(self, record: PodRecord) -> ClaimedRoom | None:
        """Return the claimed room of this pod, in its own claim or that of the lead of its unit."""
        lead = record.unit.lead if record.unit is not None else None
        claim = self._by_owner.get((lead or record).pod.uid)
        return next((room for room in claim.rooms if room.record is record), None) if claim is not None else None

    def all(self) -> tuple[Claim, ...]:
        """Return every claim, in the order in which they were made."""
        return tuple(self._by_owner.values())

    def on_row(self, row: int) -> tuple[Claim, ...]:
        """Return the claims on a row, by the order of their owners."""
        return tuple(sorted(self._by_row.get(row, {}).values(), key=_turn))

    def on_rows(self, rows: Iterable[int]) -> set[Claim]:
        """Return the claims on these rows, in no order."""
        return {claim for row in rows for claim in self._by_row.get(row, {}).values()}

    def in_pool(self, pool: str) -> tuple[Claim, ...]:
        """Return the claims in a pool, by the order of their owners."""
        return tuple(self._by_pool.get(pool, ()))

    def count_in(self, pool: str) -> int:
        """Return how many claims there are in a pool."""
        return len(self._by_pool.get(pool, ()))

    def not_ahead(self, pool: str, order: OrderKey) -> tuple[Claim, ...]:
        """Return the claims in a pool whose owners do not come before this position in the order."""
        claims = self._by_pool.get(pool)
        return tuple(claims.irange_key(order)) if claims is not None else ()

    def make(self, claim: Claim) -> None:
        """Add a claim; it counts in the node table and in the ledger."""
        for room in claim.rooms:
            self._nodes.add(room.assigned)
        self._book(claim, 1)
        uid = claim.owner.pod.uid
        self._by_owner[uid] = claim
        for row in claim.rows:
            self._by_row.put(row, uid, claim)
        if claim.pool not in self._by_pool:
            self._by_pool[claim.pool] = SortedKeyList(key=_turn)
        self._by_pool[claim.pool].add(claim)
        for victim in claim.planned:
            self.planned[victim] = uid
            self._on_planned(victim)

    def plan_no_more(self, uid: str) -> str:
        """Note that a planned victim is asked, or leaves by itself; return the owner (uid) of the claim, or empty."""
        owner = self.planned.pop(uid, "")
        if owner:
            self._by_owner[owner].planned.pop(uid)
        return owner

    def end(self, claim: Claim) -> None:
        """Remove a claim; it no longer counts in the node table and in the ledger."""
        for room in claim.rooms:
            self._nodes.remove(room.assigned)  # first: if this raises, the row is known to have changed
        self.forget(claim)

    def renew(self, claim: Claim, accounts_of: Callable[[PodRecord, int], tuple[Account, ...]]) -> None:
        """Let a claim be for the specs, and count in the accounts, that its pods have now."""
        rooms = tuple(
            replace(room, spec=room.record.pod.spec, accounts=accounts_of(room.record, room.row))
            for room in claim.rooms
        )
        self.end(claim)
        self.make(replace(claim, rooms=rooms))

    def forget(self, claim: Claim) -> None:
        """Remove a claim that no longer counts in the node table."""
        self._book(claim, -1)
        uid = claim.owner.pod.uid
        del self._by_owner[uid]
        for row in claim.rows:
            self._by_row.drop(row, uid)
        self._by_pool[claim.pool].remove(claim)
        if not self._by_pool[claim.pool]:
            del self._by_pool[claim.pool]
        self.stalled.drop(uid)
        for victim in claim.planned:
            del self.planned[victim]
            self._on_planned(victim)

    def _book(self, claim: Claim, sign: int) -> None:
        """Count a claim in the ledger, or no longer, before it is added or removed here: neither is half done."""
        for room in claim.rooms:
            self._ledger.book(room.accounts, room.spec, sign, gpu_share(room.spec, room.allocation))
