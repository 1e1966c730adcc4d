"""What a class of pods asks for, as the node table counts it and in shapes that sums over rows take.

Law: it is made once per class and read for each pod, so nothing here depends on the rows.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[np.int64]

AMOUNT_MAX: Final = 2**53
"""The largest allocatable amount; what nodes say beyond it counts as this."""


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Amounts of one pod; the first axis is the resource, the second is there to be spread over rows.

    `columns` and `amounts` [k, 1]: the table's columns and how much of each, with one place among the pods, in the
    order of `Request.taken`. `offered`: each resource has a column of its own.
    `cpu_and_memory` [2, 1]: what it asks for; `scored` [2, 1]: what it counts as in scores.
    """

    columns: npt.NDArray[np.intp]
    amounts: Amounts
    cpu_and_memory: Amounts
    scored: Amounts
    offered: bool


def requested(amount: int) -> int:
    """Return an asked amount as the table counts it: one beyond the largest allocatable stays beyond it."""
    return min(amount, AMOUNT_MAX + 1)
