"""Pools: nodes that one business owns."""

from dataclasses import dataclass
from enum import StrEnum

from aischeduler.model.selectors import LabelSelector


class Placement(StrEnum):
    """Which of the nodes that fit a pool prefers."""

    SPREAD = "Spread"
    """The emptiest first."""
    PACK = "Pack"
    """The fullest first."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One Pool object.

    `selector` None owns no nodes. `placement` None chooses by what a pod asks for: GPU pods pack, others spread.
    `invalid` says why the spec is refused, naming the field; such a pool owns no nodes. `generation` is the
    version of the spec that conditions speak of.
    """

    name: str
    uid: str = ""
    generation: int = 0
    selector: LabelSelector | None = None
    placement: Placement | None = None
    disable_preemption: bool = False
    disable_borrowing: bool = False
    disable_sharing: bool = False
    invalid: str = ""
