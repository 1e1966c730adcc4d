"""Parts of the state that `cluster` owns: pods that leave their nodes, edits of Pools, and what was said of pools.

Invariants:
- An announcement comes before each wake-up for room. So a pod that only the five-minute flush brought back, and that
  gets room without an announcement since, missed an event.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from cachetools import LRUCache
from msgspec import Struct, field

from aischeduler.model.actions import Action, ReportPool
from aischeduler.model.pool import Pool
from aischeduler.state.ledger import Loan
from aischeduler.state.timers import Timers


class Announcements:
    """Numbered announcements. `count` grows with each; the last of each row and pool is kept."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: dict[int, int] = {}
        self._pools: dict[str, int] = {}

    def of_rows(self, rows: Iterable[int]) -> None:
        """Announce the room of rows."""
        self.count += 1
        self._rows.update(dict.fromkeys(rows, self.count))

    def of_pool(self, pool: str) -> None:
        """Announce that pods of this pool, or borrowers from it, are tried."""
        self.count += 1
        self._pools[pool] = self.count

    def forget(self, pool: str) -> None:
        """Drop a pool that is gone."""
        self._pools.pop(pool, None)

    def since(self, count: int, rows: Iterable[int], pools: Iterable[str]) -> bool:
        """Return whether one of the rows, or of the pools, was announced after this count."""
        of_rows = any(self._rows.get(row, 0) > count for row in rows)
        return of_rows or any(self._pools.get(pool, 0) > count for pool in pools)


WARNINGS_MAX: Final = 4096
"""The most objects of which the last warning is kept."""


class Asked(Struct, frozen=True):
    """A requested eviction: its decision, and its beneficiary (uid, empty where a loan ended).

    `number` is the number of the decision. `read_at` is when to read the victim if the watch shows no effect by then.
    """

    beneficiary: str
    decision: str
    number: int
    read_at: float


class LeavingPods(Struct):
    """The pods on nodes that leave, or were to leave, by uid."""

    asked: OrderedDict[str, Asked] = field(default_factory=OrderedDict)
    """Pods with a requested eviction that are not terminating yet; in the order of `read_at`."""
    evicted_for: dict[str, str] = field(default_factory=dict)
    """Pods that were asked to leave, or are terminating since -> the pod (uid) for which they were evicted."""
    terminating: Timers = field(default_factory=Timers)
    """Terminating pods, and until when they count as leaving."""
    overstayed: set[str] = field(default_factory=set)
    """Terminating pods that no longer count as leaving, because they outlived their grace period."""
    spared: Timers = field(default_factory=Timers)
    """Pods whose eviction was refused, and until when they are no victims again."""

    def has(self, uid: str) -> bool:
        """Return whether the pod is terminating, or its eviction is requested."""
        return uid in self.asked or uid in self.terminating

    def forget(self, uid: str) -> None:
        """Drop what is kept of a pod that is on no node."""
        self.asked.pop(uid, None)
        self.evicted_for.pop(uid, None)
        self.terminating.drop(uid)
        self.overstayed.discard(uid)
        self.spared.drop(uid)

    def stays(self, uid: str) -> bool:
        """Return whether an eviction of the pod was refused just now, or it does not terminate."""
        return uid in self.overstayed or uid in self.spared


class Edits(Struct):
    """Edits of Pools that are not all in force, and what they turned."""

    last: dict[str, Pool] = field(default_factory=dict)
    """The last version of Pools that were edited too often to handle each edit."""
    windows: Timers = field(default_factory=Timers)
    """Edited Pools, and when the count of their edits starts again."""
    counts: dict[str, int] = field(default_factory=dict)
    turned: dict[str, Loan | None] = field(default_factory=dict)
    """Uid of a running pod whose loan changed by an edit -> its loan when the log was written last."""


class Said(Struct):
    """What was said of pools and objects, and what is to be said."""

    reported: dict[str, ReportPool] = field(default_factory=dict)
    """Pool -> its last reported status."""
    outbox: dict[str, list[Action]] = field(default_factory=dict)
    """Pool -> the actions that its next decision returns."""
    announcements: Announcements = field(default_factory=Announcements)
    warnings: LRUCache[str, str] = field(default_factory=lambda: LRUCache(WARNINGS_MAX))
    """Object -> the last warning about it."""

    def is_new(self, about: str, message: str) -> bool:
        """Return whether this warning is new for the object, and keep it."""
        news = self.warnings.get(about) != message
        self.warnings[about] = message
        return news

    def forget(self, pool: str) -> list[Action]:
        """Drop a pool that is gone; return what was to be said of it."""
        self.announcements.forget(pool)
        self.reported.pop(pool, None)
        return self.outbox.pop(pool, [])
