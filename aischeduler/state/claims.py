"""Claims: room on a node that is reserved for a nominated pod until its victims are gone.

Invariants:
- A claim counts in the node table like its owner. The victims count there too until they are gone, so that a row can
  be more than full.
- A pod owns at most one claim. Only a pod ahead of the owner in the pool's order may use the claimed room.
"""

from dataclasses import dataclass

from sortedcontainers import SortedKeyList

from aischeduler.model.allocation import NO_ALLOCATION, Allocation
from aischeduler.model.pod import PodSpec
from aischeduler.state.assigned_pod import AssignedPod
from aischeduler.state.nodes import NodeTable
from aischeduler.state.records import OrderKey, PodRecord


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """Room for `owner` on `row` of `pool`, from which `victims` (uids) were evicted; `since` on the engine's clock."""

    owner: PodRecord
    spec: PodSpec
    row: int
    pool: str
    victims: tuple[str, ...]
    since: float
    allocation: Allocation = NO_ALLOCATION

    @property
    def assigned(self) -> AssignedPod:
        """The owner on the claimed row."""
        return AssignedPod(self.owner.pod, self.spec, self.row, self.allocation, claims=True)

    @property
    def turn(self) -> OrderKey:
        """The owner's position in the order of its home pool, which does not change while it waits."""
        pod = self.owner.pod
        return (False, -pod.priority, pod.created_seconds, self.owner.arrival, pod.uid)


class Claims:
    """All claims, by owner, row and pool."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._by_owner: dict[str, Claim] = {}
        self._by_row: dict[int, dict[str, Claim]] = {}
        self._by_pool: dict[str, SortedKeyList[Claim, OrderKey]] = {}

    def __len__(self) -> int:
        return len(self._by_owner)

    def of(self, uid: str) -> Claim | None:
        """Return the claim that this pod owns."""
        return self._by_owner.get(uid)

    def all(self) -> tuple[Claim, ...]:
        """Return every claim, in the order in which they were made."""
        return tuple(self._by_owner.values())

    def on_row(self, row: int) -> tuple[Claim, ...]:
        """Return the claims on a row, by the order of their owners."""
        return _ordered(self._by_row.get(row, {}))

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
        """Add a claim; it counts in the node table."""
        self._nodes.add(claim.assigned)
        uid = claim.owner.pod.uid
        self._by_owner[uid] = claim
        self._by_row.setdefault(claim.row, {})[uid] = claim
        if claim.pool not in self._by_pool:
            self._by_pool[claim.pool] = SortedKeyList(key=_turn)
        self._by_pool[claim.pool].add(claim)

    def end(self, claim: Claim) -> None:
        """Remove a claim; it no longer counts in the node table."""
        self._nodes.remove(claim.assigned)  # first: if this raises, the row is known to have changed
        self.forget(claim)

    def forget(self, claim: Claim) -> None:
        """Remove a claim that no longer counts in the node table."""
        uid = claim.owner.pod.uid
        del self._by_owner[uid]
        del self._by_row[claim.row][uid]
        if not self._by_row[claim.row]:
            del self._by_row[claim.row]
        self._by_pool[claim.pool].remove(claim)
        if not self._by_pool[claim.pool]:
            del self._by_pool[claim.pool]


def _turn(claim: Claim) -> OrderKey:
    return claim.turn


def _ordered(claims: dict[str, Claim]) -> tuple[Claim, ...]:
    return tuple(sorted(claims.values(), key=_turn))
