"""Packing: a bounded search for rows that hold all pods of a unit at once, by amounts.

Invariants:
- Pods that ask for the same are one kind; the kind that finds room on the fewest places comes first, whatever the order
  of the pods. Rows that few of the kinds behind it can use come first, then the `preferred` ones, then the fullest.
- Rows with equal room, open to the same kinds, are tried once. Each row looked at counts; there are `LOOKS_MAX` looks.
- The result depends on the amounts, and on the order of names, alone.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from aischeduler.state.label_index import Mask, Rows
from aischeduler.state.node_table import Column

LOOKS_MAX: Final = 2**14
"""The most rows that one search looks at, a row each time that it does."""
LOOKS_PER_ORDER: Final = 2**7
"""What it counts that the rows are put into an order for a kind."""
PERMILLE: Final = 1000
"""The share of the largest room in which rows are compared."""


class Kind(Struct, frozen=True):
    """`count` pods that ask for these amounts, by column, and may run on the `allowed` rows."""

    asked: Column
    allowed: Mask
    count: int


class Places(Struct, frozen=True):
    """Rows with their free amounts `room` [column, row].

    `preferred` [row] is less for rows that are rather taken, `ranks` [row] is the order of their names.
    """

    room: Column
    preferred: Column
    ranks: Column


def pack(kinds: Sequence[Kind], places: Places) -> list[list[int]] | None:
    """Return for each kind the places of its pods; None where the search finds no way."""
    return _Packing(kinds, places).found()


class _Packing:
    """A search. `turns` are its pods in the order of placing: the number of the kind, and of the pod in it."""

    def __init__(self, kinds: Sequence[Kind], places: Places) -> None:
        columns = np.flatnonzero(np.logical_or.reduce([kind.asked > 0 for kind in kinds]))
        self._places, self._room = places, places.room[columns]
        asked = np.stack([kind.asked[columns] for kind in kinds])
        fits = np.stack([self._fitting(kind.allowed, amounts) for kind, amounts in zip(kinds, asked, strict=True)])
        capacity = [self._capacity(amounts, mask) for amounts, mask in zip(asked, fits, strict=True)]
        slack = [PERMILLE * held // kind.count for held, kind in zip(capacity, kinds, strict=True)]
        self._possible = all(held >= kind.count for held, kind in zip(capacity, kinds, strict=True))
        self._unit = np.maximum(self._room.max(axis=1, initial=0) // PERMILLE, 1)
        order = sorted(range(len(kinds)), key=lambda number: (slack[number], (-asked[number]).tolist(), number))
        self._kinds, self._asked, self._amounts = kinds, asked, asked.tolist()
        self._turns = [(number, pod) for number in order for pod in range(kinds[number].count)]
        behind = np.cumsum(fits[order][::-1], axis=0)[::-1]
        self._wanted = {number: behind[turn] - fits[number] for turn, number in enumerate(order)}
        """Kind -> by row, how many of the kinds behind it can use the row."""
        self._open = [mask.tobytes() for mask in fits.T]
        self._free = self._room.T.tolist()
        self._looks = LOOKS_MAX

    def found(self) -> list[list[int]] | None:
        """Return the places of the pods of each kind."""
        if not self._possible:
            return None
        taken: list[tuple[int, int]] = []
        """The position in the order of its kind, and the row, of each pod so far."""
        stack = [self._rows(0, [], 0)]
        while len(taken) < len(self._turns):
            found = next(stack[-1], None)
            if found is None:
                stack.pop()
                if not stack:
                    return None
                self._count(self._turns[len(stack) - 1][0], taken.pop()[1], 1)
                continue
            at, row, order = found
            self._count(self._turns[len(taken)][0], row, -1)
            taken.append((at, row))
            if len(taken) < len(self._turns):
                stack.append(self._rows(len(taken), order, at))
        rows: list[list[int]] = [[] for _ in self._kinds]
        for (number, _), (_, row) in zip(self._turns, taken, strict=True):
            rows[number].append(row)
        return rows

    def _rows(self, turn: int, order: list[int], start: int) -> Iterator[tuple[int, int, list[int]]]:
        """Yield the rows that the pod of this turn may take: none before that of the last pod of its kind."""
        number, pod = self._turns[turn]
        if not pod:
            order, start = self._order(number), 0
        asked, seen = self._amounts[number], set[tuple[bytes, tuple[int, ...]]]()
        for at in range(start, len(order)):
            self._looks -= 1
            if self._looks < 0:
                return
            row = order[at]
            free = self._free[row]
            if any(has < amount for has, amount in zip(free, asked, strict=True)):
                continue
            alike = (self._open[row], tuple(free))
            if alike not in seen:
                seen.add(alike)
                yield at, row, order

    def _order(self, number: int) -> list[int]:
        """Return the rows that hold a pod of this kind now, the best first."""
        self._looks -= LOOKS_PER_ORDER
        asked = self._asked[number]
        rows = np.flatnonzero(self._fitting(self._kinds[number].allowed, asked))
        left = ((self._room[:, rows] - asked[:, None]) // self._unit[:, None]).sum(axis=0)
        keys = (self._places.ranks[rows], left, self._places.preferred[rows], self._wanted[number][rows])
        found: list[int] = rows[np.lexsort(keys)].tolist()
        return found

    def _fitting(self, allowed: Mask, asked: Column) -> Mask:
        fitting: Mask = allowed & (self._room >= asked[:, None]).all(axis=0)
        return fitting

    def _capacity(self, asked: Column, fits: Mask) -> int:
        """Return how many such pods all rows hold, each by itself."""
        used = np.flatnonzero(asked)
        return int((self._room[used][:, fits] // asked[used, None]).min(axis=0, initial=2**31).sum())

    def _count(self, number: int, row: int, sign: int) -> None:
        """Take what a pod of this kind asks for from the room of a row (-1), or put it back (1)."""
        self._room[:, row] += sign * self._asked[number]
        self._free[row] = self._room[:, row].tolist()


def preferring(order: Sequence[int], rows: Rows) -> Column:
    """Return by row of `rows` its position in an order of rows; those that are not in it come last."""
    preferred = np.full(len(rows), len(order), dtype=np.int64)
    preferred[np.searchsorted(rows, np.array(order, dtype=np.intp))] = np.arange(len(order))
    return preferred
