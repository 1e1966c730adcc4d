"""The numbers of a pool: what it has, uses and lends, and what waits."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from aischeduler.model.card_shares import CARD
from aischeduler.model.names import GPU_SHARE
from aischeduler.model.quantity import quantity_text

GPU: Final = "gpu"
"""The name of the sum of all GPU resources, beside their own names."""


CARD_TYPES_MAX: Final = 16
"""The most card types of a pool that are counted by name; further ones share an entry."""
OTHER_TYPES: Final = "other"
"""The name of that entry."""


def gpus(amounts: Mapping[str, int]) -> int:
    """Return the sum of all GPUs with their shares, in hundredths."""
    return amounts.get(GPU, 0) * CARD + amounts.get(GPU_SHARE, 0)


class CardCount(Struct, frozen=True):
    """The GPUs of one card type: what nodes offer, and what unfinished pods on them ask for."""

    type: str
    total: int
    used_hundredths: int

    @property
    def used(self) -> str:
        """How many GPUs pods ask for, as 2.5."""
        return quantity_text(GPU_SHARE, self.used_hundredths)


class PoolSummary(Struct, frozen=True):
    """The numbers of one pool: cpu in milli, memory and ephemeral-storage in bytes, everything else in units.

    Amounts are by resource name. `pods` counts pods, in capacity and allocatable the pods that nodes take; GPU is the
    sum of all whole GPUs, and GPU_SHARE that of parts of GPUs. Every mapping has cpu, memory, ephemeral-storage, pods
    and GPU; others where not 0.
    used = own + shared + system: what unfinished pods on its nodes ask for, as home pods, as borrowers, and as pods of
    other schedulers. `borrowed` is what its own pods ask for on nodes of other pools; free = allocatable - used -
    claims, never below 0; `pending` is what the pods in its queue ask for, with borrowers, without those that have
    scheduling gates. The switches show what is in force: none where the spec is refused, preemption only where the
    scheduler allows it.
    `cards` are the GPUs of the nodes whose labels have a card type, the most first, then by type.
    """

    name: str
    nodes: int
    pods: int
    pending_pods: int
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    used: Mapping[str, int]
    own: Mapping[str, int]
    shared: Mapping[str, int]
    system: Mapping[str, int]
    borrowed: Mapping[str, int]
    free: Mapping[str, int]
    pending: Mapping[str, int]
    preemption: bool
    borrowing: bool
    sharing: bool
    cards: tuple[CardCount, ...] = ()
