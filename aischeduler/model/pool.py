"""Pools: nodes that one business owns."""

from dataclasses import dataclass, field
from enum import StrEnum

from aischeduler.model.resources import ResourceList
from aischeduler.model.selectors import LabelSelector


class PlacementStrategy(StrEnum):
    """Which of the nodes that fit a pool prefers."""

    SPREAD = "Spread"
    """The emptiest first."""
    PACK = "Pack"
    """The fullest first."""
    FRAGMENTATION = "Fragmentation"
    """First where the fewest GPUs become useless to the jobs that ask for several of them."""


class MakeRoom(StrEnum):
    """What a home pod that fits nowhere in its pool tries first."""

    PREEMPT_THEN_BORROW = "PreemptThenBorrow"
    BORROW_THEN_PREEMPT = "BorrowThenPreempt"


class ReclaimPolicy(StrEnum):
    """When lent room is taken back."""

    ON_DEMAND = "OnDemand"
    """When a pod of the pool needs it."""
    EVICT = "Evict"
    """Also as soon as the spec allows the loan no more."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One Pool object.

    `selector` None owns no nodes. `placement` None chooses by what a pod asks for: GPU pods pack, others spread.
    `borrowing_pools` are the only ones that its pods may borrow from; None: all. Limits bound, resource by resource,
    what all running loans ask for; what they do not name is unlimited. `make_room` None: as the scheduler's profile
    says. `allowed_namespaces` None: all.
    `invalid` says why the spec is refused, naming the field; such a pool owns no nodes. `generation` is the
    version of the spec that conditions speak of.
    """

    name: str
    uid: str = ""
    generation: int = 0
    selector: LabelSelector | None = None
    placement: PlacementStrategy | None = None
    disable_preemption: bool = False
    disable_borrowing: bool = False
    disable_sharing: bool = False
    borrowing_pools: tuple[str, ...] | None = None
    lending_limit: ResourceList = field(default_factory=dict)
    borrowing_limit: ResourceList = field(default_factory=dict)
    make_room: MakeRoom | None = None
    reclaim_policy: ReclaimPolicy = ReclaimPolicy.ON_DEMAND
    allowed_namespaces: LabelSelector | None = None
    invalid: str = ""
