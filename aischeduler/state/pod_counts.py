"""The numbers of pods on rows that a selector matches, for rules whose answer for a row depends on other rows.

Invariants:
- A selector is counted while a pod of this scheduler has it in a constraint. Pods on rows and, apart from
  them, owners of claims count; terminating pods do not.
- A trial changes the counts and puts them back. Its changes are not noted: no version grows.
- While `apart` is set, the pods of each row that a search for victims has removed count as gone for that row alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from aischeduler.model.pod import Pod
from aischeduler.model.topology_spread import PodSelector
from aischeduler.state.change_log import ChangeLog
from aischeduler.state.groups import SelectorIndex

CHANGES_MAX: Final = 4096
"""The most changes that a count keeps for its readers; a reader that comes later reads all rows."""

VERSIONS_EACH: Final = 2**40
"""More versions than a count ever has."""

Change = tuple[int, int, bool]
"""A row, the change of its number of pods, and whether these pods own claims there."""
Gone = npt.NDArray[np.int64]


class PodCount:
    """The pods that one selector matches: `rows` has the number by row, without rows that have none.

    `claimed` has the owners of claims by row, which are not in `rows`.
    """

    def __init__(self, selector: PodSelector, version: int) -> None:
        self.selector = selector
        self.rows: Counter[int] = Counter()
        self.claimed: Counter[int] = Counter()
        self.specs: Counter[bytes] = Counter()
        """Key of a spec with this selector -> the number of pods that have it."""
        self._changes: ChangeLog[Change] = ChangeLog(CHANGES_MAX, version)
        self._members: dict[str, tuple[int, bool]] = {}

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._changes.version

    def __contains__(self, uid: str) -> bool:
        return uid in self._members

    def since(self, version: int) -> list[Change] | None:
        """Return the changes after this version; None where they are no longer kept."""
        return self._changes.since(version)

    def all(self) -> list[Change]:
        """Return what is counted, as changes of an empty count."""
        pods = [(row, number, False) for row, number in self.rows.items()]
        return pods + [(row, number, True) for row, number in self.claimed.items()]

    def add(self, pod: Pod, row: int, *, claims: bool, noted: bool) -> bool:
        """Count a pod on a row if the selector matches it; return whether it does."""
        uid = pod.uid
        if pod.terminating or uid in self._members or not self.selector.matches(pod.namespace, pod.labels):
            return False
        self._members[uid] = (row, claims)
        self._change(row, 1, claims=claims, noted=noted)
        return True

    def remove(self, uid: str, *, noted: bool) -> bool:
        """Stop counting a pod; return whether it counted."""
        member = self._members.pop(uid, None)
        if member is None:
            return False
        self._change(member[0], -1, claims=member[1], noted=noted)
        return True

    def _change(self, row: int, by: int, *, claims: bool, noted: bool) -> None:
        numbers = self.claimed if claims else self.rows
        numbers[row] += by
        if not numbers[row]:
            del numbers[row]
        if noted:
            self._changes.note((row, by, claims))


class PodCounts:
    """All counts. `pods_on_rows` returns the pods that count on rows, their rows, and whether they own claims there."""

    def __init__(self) -> None:
        self.pods_on_rows: Callable[[], Iterable[tuple[Pod, int, bool]]] = tuple
        self.apart: dict[PodSelector, Gone] | None = None
        """Selector -> per row of the table how many pods of the row a search has removed."""
        self.changed: dict[PodSelector, None] = {}
        """The selectors whose counts changed since a reader took them out."""
        self._begun = 0
        self._counts: dict[PodSelector, PodCount] = {}
        self._index: SelectorIndex[PodCount] = SelectorIndex()

    @property
    def used(self) -> bool:
        """Whether a selector is in use."""
        return bool(self._counts)

    def of(self, selector: PodSelector) -> PodCount:
        """Return the count of a selector that is in use."""
        return self._counts[selector]

    def all(self) -> tuple[PodCount, ...]:
        """Return every count, in the order in which they came into use."""
        return tuple(self._counts.values())

    def use(self, key: bytes, selectors: tuple[PodSelector, ...]) -> None:
        """Note that one more pod has the spec of this key, and count the pods that its constraints select."""
        for selector in selectors:
            count = self._counts.get(selector) or self._new(selector)
            count.specs[key] += 1

    def disuse(self, key: bytes, selectors: tuple[PodSelector, ...]) -> None:
        """Note that one pod less has the spec of this key."""
        for selector in selectors:
            count = self._counts[selector]
            count.specs[key] -= 1
            if not count.specs[key]:
                del count.specs[key]
            if not count.specs:
                del self._counts[selector]
                self._index.drop(selector.namespace, selector.labels, count)
                self.changed.pop(selector, None)

    def add(self, pod: Pod, row: int, *, claims: bool = False, noted: bool = True) -> bool:
        """Count a pod that came to a row; return whether a selector matches it."""
        counts = self._index.candidates(pod.namespace, pod.labels)
        return self._note([one for one in counts if one.add(pod, row, claims=claims, noted=noted)], noted=noted)

    def remove(self, pod: Pod, *, noted: bool = True) -> bool:
        """Stop counting a pod that left its row; return whether it counted."""
        counts = self._index.candidates(pod.namespace, pod.labels)
        return self._note([one for one in counts if one.remove(pod.uid, noted=noted)], noted=noted)

    def change(self, before: Pod, after: Pod, row: int, *, claims: bool) -> bool:
        """Count a pod that stays on its row as it is now; return whether it counted or counts."""
        left = self.remove(before)
        return self.add(after, row, claims=claims) or left

    def recount(self) -> None:
        """Count all pods anew."""
        for selector, count in tuple(self._counts.items()):
            self._index.drop(selector.namespace, selector.labels, count)
            self._new(selector).specs = count.specs
            self.changed[selector] = None

    def _note(self, counts: list[PodCount], *, noted: bool) -> bool:
        if noted:
            self.changed.update((count.selector, None) for count in counts)
        return bool(counts)

    def _new(self, selector: PodSelector) -> PodCount:
        """Begin a count; no version of it is one of an earlier count of the selector."""
        self._begun += 1
        count = PodCount(selector, self._begun * VERSIONS_EACH)
        self._counts[selector] = count
        self._index.put(selector.namespace, selector.labels, count)
        for pod, row, claims in self.pods_on_rows():
            count.add(pod, row, claims=claims, noted=False)
        return count
