"""What a pool has, uses, lends and waits for, in numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

GPU: Final = "gpu"
"""The name under which the amounts of all GPU resources are summed up, beside their own names."""


@dataclass(frozen=True, slots=True)
class PoolSummary:
    """One pool in numbers: cpu in milli, memory and ephemeral-storage in bytes, everything else in units.

    Amounts go by resource name; `pods` counts pods, or pod slots where it is capacity and allocatable; GPU sums up
    all GPU resources. Every mapping has cpu, memory, ephemeral-storage, pods and GPU; others where they are not 0.
    used = own + shared + system: what unfinished pods on its nodes ask for, as home pods, as borrowers, and as pods of
    other schedulers. `borrowed` is what its own pods ask for on nodes of others; free = allocatable - used - claims,
    never below 0; `pending` what waits in its queue, borrowers there included, gated pods not. The switches say what
    is in force: none is on where the spec is refused, nor preemption where nobody in the cluster may preempt.
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
