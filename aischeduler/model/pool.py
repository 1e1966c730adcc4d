"""Pools: the nodes of one team, and how it shares them."""

from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from aischeduler.model.elastic import PriorityLevel
from aischeduler.model.resources import ResourceList
from aischeduler.model.selectors import Labels, LabelSelector


class Namespace(Struct, frozen=True):
    """A namespace: a Pool may allow pods from some namespaces only, by their labels.

    `levels` are those that its elastic jobs may have, None where it does not restrict them.
    """

    name: str
    labels: Labels
    levels: tuple[PriorityLevel, ...] | None = None


class PlacementStrategy(StrEnum):
    """Which of the nodes that fit a Pool prefers."""

    SPREAD = "Spread"
    """The emptiest first."""
    PACK = "Pack"
    """The fullest first."""
    FRAGMENTATION = "Fragmentation"
    """The node first on which the fewest GPUs become useless to jobs of several GPUs."""


class MakeRoomOrder(StrEnum):
    """What a home pod that fits on no node of its pool tries first."""

    PREEMPT_THEN_BORROW = "PreemptThenBorrow"
    BORROW_THEN_PREEMPT = "BorrowThenPreempt"


class ReclaimPolicy(StrEnum):
    """When the pool takes lent room back."""

    ON_DEMAND = "OnDemand"
    """When a pod of the pool needs it."""
    EVICT = "Evict"
    """Also as soon as the spec no longer allows the loan."""


WHOLE_LOAD: Final = 1000


class GroupRule(Struct, frozen=True):
    """The namespaces whose pods may name a machine group."""

    name: str
    namespaces: LabelSelector


class Pool(Struct, frozen=True):
    """One Pool object.

    A Pool whose `selector` is None owns no nodes. With `placement` None, GPU pods are packed and others spread.
    `borrowing_pools` are the pools that its pods may borrow from; None means all. A limit bounds the sum of what all
    running loans ask for, per resource; a resource that it does not name is unlimited. With `make_room` None the
    scheduler's profile decides. `allowed_namespaces` None means all.
    `rare_types` are the full names of card types whose nodes in this pool are closed to pods that do not name them;
    with `lend_rare_types` they are lent to pods that do. `machine_groups` say who may name a group, in any pool.
    `profile` names the profile whose plugins judge the pool's pods; empty leaves that to their scheduler names.
    Elastic jobs grow on its nodes until `max_load_thousandths` of its CPU and GPUs are used, by whomever.
    Pods of the `non_preemptible_namespaces` may say that no home pod evicts them; with None none may.
    `invalid` says why the spec is refused, with the field; such a Pool owns no nodes. `generation` is the version of
    the spec that the conditions describe.
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
    make_room: MakeRoomOrder | None = None
    reclaim_policy: ReclaimPolicy = ReclaimPolicy.ON_DEMAND
    allowed_namespaces: LabelSelector | None = None
    rare_types: tuple[str, ...] = ()
    lend_rare_types: bool = False
    machine_groups: tuple[GroupRule, ...] = ()
    profile: str = ""
    non_preemptible_namespaces: LabelSelector | None = None
    max_load_thousandths: int = WHOLE_LOAD
    invalid: str = ""
