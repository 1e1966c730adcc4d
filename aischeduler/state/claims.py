"""Claims: room that a pod has been promised on a node until it can take it.

Laws:
- A claim counts in the node table as its owner would; those who leave still count there too, so that a row can be
  more than full until they are gone.
- A pod owns at most one claim. Only pods ahead of the owner in the pool's order may look at the row without it.
"""

from dataclasses import dataclass
from typing import TypeVar

from aischeduler.model.pod import PodSpec
from aischeduler.state.nodes import NodeTable
from aischeduler.state.records import PodRecord

K = TypeVar("K", int, str)


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """Room for `owner` on `row` of `pool`, which `victims` (uids) had to leave; `since` on the engine's clock."""

    owner: PodRecord
    spec: PodSpec
    row: int
    pool: str
    victims: tuple[str, ...]
    since: float


class Claims:
    """All claims, by owner, row and pool."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._by_owner: dict[str, Claim] = {}
        self._by_row: dict[int, dict[str, Claim]] = {}
        self._by_pool: dict[str, dict[str, Claim]] = {}

    def __len__(self) -> int:
        return len(self._by_owner)

    def of(self, uid: str) -> Claim | None:
        """Return the claim that this pod owns."""
        return self._by_owner.get(uid)

    def on_row(self, row: int) -> tuple[Claim, ...]:
        """Return the claims on a row, by the order of their owners."""
        return _ordered(self._by_row.get(row, {}))

    def in_pool(self, pool: str) -> tuple[Claim, ...]:
        """Return the claims in a pool, by the order of their owners."""
        return _ordered(self._by_pool.get(pool, {}))

    def make(self, claim: Claim) -> None:
        """Count the claim from now on."""
        self._nodes.add(claim.spec, claim.row)
        uid = claim.owner.pod.uid
        self._by_owner[uid] = claim
        self._by_row.setdefault(claim.row, {})[uid] = claim
        self._by_pool.setdefault(claim.pool, {})[uid] = claim

    def end(self, claim: Claim) -> None:
        """Count the claim no more."""
        self.forget(claim)
        self._nodes.remove(claim.spec, claim.row)

    def forget(self, claim: Claim) -> None:
        """Forget a claim that a committed trial has already taken off its row."""
        uid = claim.owner.pod.uid
        del self._by_owner[uid]
        _drop(self._by_row, claim.row, uid)
        _drop(self._by_pool, claim.pool, uid)


def _drop(index: dict[K, dict[str, Claim]], key: K, uid: str) -> None:
    del index[key][uid]
    if not index[key]:
        del index[key]


def _ordered(claims: dict[str, Claim]) -> tuple[Claim, ...]:
    if len(claims) < 2:
        return tuple(claims.values())
    return tuple(sorted(claims.values(), key=lambda claim: claim.owner.order))
