"""What is going to happen, in order of time; what is due at the same time happens in the order of its arrival."""

from collections.abc import Callable
from heapq import heappop, heappush

Step = Callable[[], None]


class TimerHeap:
    """A heap keyed by (time, sequence): a total order, so that the same calls give the same run."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Step]] = []
        self._sequence = 0

    def put(self, time: float, step: Step) -> None:
        """Have something happen at a time."""
        heappush(self._heap, (time, self._sequence, step))
        self._sequence += 1

    @property
    def next_time(self) -> float | None:
        """When the first thing is due; None when nothing is."""
        return self._heap[0][0] if self._heap else None

    def run_due(self, now: float) -> bool:
        """Let everything happen that is due, and say whether anything was; what it brings about waits for its turn."""
        due: list[Step] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[2])
        for step in due:
            step()
        return bool(due)
