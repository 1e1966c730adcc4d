"""How often each size occurred: what a Prometheus histogram shows.

Laws:
- Adding costs a search in a short tuple, however many occurrences are added at once.
- Nothing is ever forgotten but by throwing the whole distribution away.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class Distribution:
    """Counts of values up to each of `bounds` (ascending), and of those above; and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._names = (*(str(float(bound)) for bound in bounds), "+Inf")
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value that occurred so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def lines(self, name: str, labels: dict[str, str]) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield the lines of a histogram of this name: one a bound, cumulative, then count and sum."""
        total = 0
        for bound, count in zip(self._names, self._counts, strict=True):
            total += count
            yield f"{name}_bucket", {**labels, "le": bound}, total
        yield f"{name}_count", labels, total
        yield f"{name}_sum", labels, self._sum
