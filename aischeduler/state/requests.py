"""The requests of a class of pods, in the form of the node table.

Invariant: they are computed once per class and do not depend on rows.
"""

from collections.abc import Hashable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from aischeduler.model.names import CPU, MEMORY
from aischeduler.model.pod import PodSpec
from aischeduler.model.resources import PodRequest

Amounts = npt.NDArray[np.int64]

WANTED_MAX: Final = 4096
"""The most classes whose requests are kept; beyond that all are dropped and made again."""
ANY_AMOUNT: Final = int(np.iinfo(np.int64).min)
"""Below every amount."""
AMOUNT_MAX: Final = 2**53
"""The largest allocatable amount; a larger one counts as this."""


class Wanted(Struct, frozen=True, eq=False):
    """The requests of one pod. Arrays with a last axis of 1 broadcast over rows.

    `each` has the column and the amount of each resource, with one of `pods`, in the order of `PodRequest.taken`;
    `columns` [each] and `amounts` [each, 1] are the same as vectors.
    `offered` is True where each resource has a column of its own.
    `least` [column, 1] is what must be free in each column; ANY_AMOUNT where the pod requests nothing of it.
    `cpu_and_memory` and `scored` [2, 1] are the CPU and memory that it requests, and that scores count for it;
    `counted` [2, 1] is what they count once it is on a row.
    `with_and_without` [2, 2, 1] is `cpu_and_memory`, and zero.
    """

    each: tuple[tuple[int, int], ...]
    columns: npt.NDArray[np.intp]
    amounts: Amounts
    least: Amounts
    cpu_and_memory: Amounts
    with_and_without: Amounts
    scored: Amounts
    counted: Amounts
    scored_cpu_milli: int
    scored_memory_bytes: int
    offered: bool


class WantedRequests:
    """The requests of classes in the form of one table; classes with equal requests share one form."""

    def __init__(self) -> None:
        self.by_class: dict[bytes, Wanted] = {}
        """Key of a spec -> its requests, where they are made; read at once, because each pod needs it several times."""
        self._by_request: dict[Hashable, Wanted] = {}

    def make(self, spec: PodSpec, columns: Mapping[str, int], unoffered: int, width: int) -> Wanted:
        """Return the requests of a class, made as `wanted_of` makes them, and keep them."""
        if len(self.by_class) >= WANTED_MAX:
            self.by_class.clear()
            self._by_request.clear()
        request = spec.request
        key = (*request.amounts.items(), request.score_cpu_milli, request.score_memory_bytes, request.scored_alone)
        wanted = self._by_request.get(key) or wanted_of(request, columns, unoffered, width)
        self.by_class[spec.key] = self._by_request[key] = wanted
        return wanted

    def forget(self) -> None:
        """Drop all, because columns changed their places."""
        self.by_class, self._by_request = {}, {}

    def forget_unoffered(self) -> None:
        """Drop the requests of a resource that had no column."""
        self.by_class = {key: wanted for key, wanted in self.by_class.items() if wanted.offered}
        self._by_request = {key: wanted for key, wanted in self._by_request.items() if wanted.offered}


def requested(amount: int) -> int:
    """Return a requested amount as the table counts it: an amount above AMOUNT_MAX stays above every allocatable."""
    return min(amount, AMOUNT_MAX + 1)


def wanted_of(request: PodRequest, columns: Mapping[str, int], unoffered: int, width: int) -> Wanted:
    """Return the requests of a pod in the form of a table of `width` columns.

    `columns` has the column of each resource; `unoffered` is that of the others.
    """
    amounts = {resource: requested(amount) for resource, amount in request.taken.items()}
    places = [columns.get(resource, unoffered) for resource in amounts]
    cpu_milli, memory_bytes = requested(request.score_cpu_milli), requested(request.score_memory_bytes)
    alone = request.scored_alone or (cpu_milli, memory_bytes)
    each = tuple(zip(places, amounts.values(), strict=True))
    least = np.full((width, 1), ANY_AMOUNT, dtype=np.int64)
    for column, amount in each:
        least[column] = max(least[column, 0], amount)
    cpu_and_memory = np.array([[amounts.get(CPU, 0)], [amounts.get(MEMORY, 0)]], dtype=np.int64)
    return Wanted(
        each=each,
        columns=np.array(places, dtype=np.intp),
        amounts=np.array([[amount] for amount in amounts.values()], dtype=np.int64),
        least=least,
        cpu_and_memory=cpu_and_memory,
        with_and_without=np.stack((cpu_and_memory, np.zeros_like(cpu_and_memory))),
        scored=np.array([[requested(amount)] for amount in alone], dtype=np.int64),
        counted=np.array([[cpu_milli], [memory_bytes]], dtype=np.int64),
        scored_cpu_milli=cpu_milli,
        scored_memory_bytes=memory_bytes,
        offered=unoffered not in places,
    )
