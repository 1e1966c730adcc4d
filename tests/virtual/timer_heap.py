"""Timers in virtual time: functions to call, ordered by time, then by the order in which they were added."""

from collections.abc import Callable
from heapq import heappop, heappush

Callback = Callable[[], None]


class TimerHeap:
    """A heap by (time, sequence number): a total order, so that the same calls give the same run."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callback]] = []
        self._sequence = 0

    def put(self, time: float, callback: Callback) -> None:
        """Call a function at a time."""
        heappush(self._heap, (time, self._sequence, callback))
        self._sequence += 1

    @property
    def next_time(self) -> float | None:
        """The time of the first timer; None without timers."""
        return self._heap[0][0] if self._heap else None

    def run_due(self, now: float) -> bool:
        """Run the timers that are due and return whether there was one; timers that they add run at the next call."""
        due: list[Callback] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heappop(self._heap)[2])
        for callback in due:
            callback()
        return bool(due)
