"""What a class of pods asks for, as the node table counts it.

Law: it is made once per class and read for each pod, so nothing here depends on the rows.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[np.int64]

ANY_AMOUNT: Final = int(np.iinfo(np.int64).min)
"""No amount is below it."""
AMOUNT_MAX: Final = 2**53
"""The largest allocatable amount; what nodes say beyond it counts as this."""


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """What one pod asks for.

    `each`: a column of the table and how much of it, for one place among the pods and each resource, in the order of
    `Request.taken`; the same as vectors, `columns` [each] and `amounts` [each, 1] to be spread over rows.
    `offered`: each resource has a column of its own.
    `least` [column, 1], to be spread over rows: how much must be left of each column that there was when this was made;
    of what it does not ask for, any amount will do.
    `cpu_and_memory` and `scored` [2, 1], to be spread over rows: what it asks for, and what it counts as in scores.
    `with_and_without` [2, 2, 1]: `cpu_and_memory`, and nothing.
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
    """Return an asked amount as the table counts it: one beyond the largest allocatable stays beyond it."""
    return min(amount, AMOUNT_MAX + 1)
