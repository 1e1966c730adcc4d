"""The requests for GPUs of recent pods, by shape: how often each came.

Invariants:
- At most `SHAPES_MAX` shapes have weights; a further one replaces that of the smallest weight.
- Weights are whole numbers, of a sum of at most `WEIGHT_MAX`: above it all are halved, and a shape of none is dropped.
- What `shapes` returns changes after 1, 2, 4 ... `STEP` requests, then after every `STEP`, and `version` with it, so
  that scores are kept in between.
- The same requests in the same order give the same shapes.

Source: the typical pods of fragmentation gradient descent (Weng et al., USENIX ATC 2023), which are known beforehand
there and learned here.
"""

from typing import Final

from msgspec import Struct

SHAPES_MAX: Final = 64
WEIGHT_MAX: Final = 1024
STEP: Final = 256


class RequestShape(Struct, frozen=True, order=True):
    """What a pod asks for: `gpus` of which it gets `hundredths` of each, CPU and memory."""

    gpus: int
    hundredths: int
    cpu_milli: int
    memory_bytes: int


WeightedShapes = tuple[tuple[RequestShape, int], ...]
"""Shapes and their weights, sorted by shape."""


class RecentRequests:
    """A bounded histogram of the shapes of requests, in which old ones fade."""

    def __init__(self) -> None:
        self._weights: dict[RequestShape, int] = {}
        self._noted = 0
        self._sum = 0
        self._shapes: WeightedShapes = ()
        self.version = 0
        """Changes with what `shapes` returns."""

    def note(self, shape: RequestShape) -> None:
        """Count the request of a new pod, once a pod; one without GPUs is not counted, as no GPU is wasted for it."""
        if not shape.gpus:
            return
        if shape not in self._weights and len(self._weights) == SHAPES_MAX:
            rarest = min(self._weights, key=lambda known: (self._weights[known], known))
            self._sum -= self._weights.pop(rarest)
        self._weights[shape] = self._weights.get(shape, 0) + 1
        self._sum += 1
        if self._sum > WEIGHT_MAX:
            self._weights = {known: weight // 2 for known, weight in self._weights.items() if weight > 1}
            self._sum = sum(self._weights.values())
        self._noted += 1
        if self._noted % STEP == 0 or (self._noted < STEP and self._noted.bit_count() == 1):
            self._shapes = tuple(sorted(self._weights.items()))
            self.version += 1

    def shapes(self) -> WeightedShapes:
        """Return the shapes that are expected to come again, with their weights; none before the first request."""
        return self._shapes
