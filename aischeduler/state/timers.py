"""Timers by key.

Invariant: memory grows with the number of keys, however often their times change.
"""

import sys
from heapq import heapify, heappop, heappush
from typing import Final

HEAP_SHARE: Final = 2
HEAP_SPARE: Final = 64
"""The heap may have twice as many entries as there are keys, plus these; beyond that, old entries are dropped."""


class Timers:
    """One time per key; due keys come in the order of time, then of key."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __contains__(self, key: str) -> bool:
        return key in self._at

    def __len__(self) -> int:
        return len(self._at)

    def at(self, key: str) -> float:
        """Return the time of a key that is there."""
        return self._at[key]

    def names(self) -> tuple[str, ...]:
        """Return all keys, sorted."""
        return tuple(sorted(self._at))

    def set(self, key: str, at: float) -> None:
        """Set the time of a key."""
        if self._at.get(key) == at:
            return
        self._at[key] = at
        if len(self._heap) > HEAP_SHARE * len(self._at) + HEAP_SPARE:
            self._heap = [(at, key) for key, at in self._at.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (at, key))

    def drop(self, key: str) -> bool:
        """Remove a key; return whether it was there."""
        return self._at.pop(key, None) is not None

    def next(self) -> float | None:
        """Return the earliest time; None where there is none."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float, most: int = sys.maxsize) -> list[str]:
        """Remove and return the keys whose time has come, at most `most`."""
        due: list[str] = []
        while len(due) < most and (first := self.next()) is not None and first <= now:
            _, key = heappop(self._heap)
            if self.drop(key):
                due.append(key)
        return due
