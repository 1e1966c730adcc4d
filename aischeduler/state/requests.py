"""The requests of a class of pods, in the form of the node table.

Invariant: they are computed once per class and do not depend on rows.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[np.int64]

ANY_AMOUNT: Final = int(np.iinfo(np.int64).min)
"""Below every amount."""
AMOUNT_MAX: Final = 2**53
"""The largest allocatable amount; a larger one counts as this."""


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """The requests of one pod. Arrays with a last axis of 1 broadcast over rows.

    `each` has the column and the amount of each resource, with one of `pods`, in the order of `PodRequest.taken`;
    `columns` [each] and `amounts` [each, 1] are the same as vectors.
    `offered` is True where each resource has a column of its own.
    `least` [column, 1] is what must be free in each column; ANY_AMOUNT where the pod requests nothing of it.
    `cpu_and_memory` and `scored` [2, 1] are the CPU and memory that it requests, and that scores count.
    `with_and_without` [2, 2, 1] is `cpu_and_memory`, and zero.
    """

    each: tuple[tuple[int, int], ...]
    columns: npt.NDArray[np.intp]
    amounts: Amounts
    least: Amounts
    cpu_and_memory: Amounts
    with_and_without: Amounts
    scored: Amounts
    scored_cpu_milli: int
    scored_memory_bytes: int
    offered: bool


def requested(amount: int) -> int:
    """Return a requested amount as the table counts it: an amount above AMOUNT_MAX stays above every allocatable."""
    return min(amount, AMOUNT_MAX + 1)
