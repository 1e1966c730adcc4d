"""The Jobs and JobSets by whether they ask for a gang: what their pods cannot show themselves.

Invariants:
- The pods of a known owner that asks for no gang have no claim, and the engine hears nothing of it.
- A pending pod whose owner is unknown has a claim, so that no pod starts before its Job is seen. If the Job turns up
  and asks for no gang, or does not turn up in time, the engine is told that the gang has the minimum 1.
- Nothing waits for a kind that is not listed: it is not served, or the right is missing.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from aischeduler.model.events import Event, Gone, Seen, gone
from aischeduler.model.gang import Gang, GangKey, GangSource

UNSEEN_SECONDS_MAX: Final = 30.0
"""How long pods wait for the Job or JobSet that controls them to be seen."""
RELEASED_MAX: Final = 10_000
"""How many gangs of owners that did not turn up are remembered, and how many of deleted owners."""


class Known(Struct, frozen=True):
    """An owner: its uid, whether it asks for a gang, and whether the engine knows that gang."""

    uid: str
    asks: bool
    told: bool


class GangOwners:
    """Jobs by uid and JobSets by name.

    `listed` says of a kind whether all its objects are known; pods of a kind without an entry wait for nothing.
    `plain_jobs` are the uids of Jobs that ask for no gang and of which the engine knows nothing: almost all.
    """

    def __init__(self) -> None:
        self.plain_jobs: set[str] = set()
        self.listed: dict[GangSource, Callable[[], bool]] = {}
        self._jobs: dict[str, Known] = {}
        self._job_sets: dict[str, Known] = {}
        self._awaited: dict[GangKey, float | None] = {}
        """Gangs of unknown owners -> when `overdue` first found them; None before."""
        self._released: OrderedDict[GangKey, None] = OrderedDict()
        self._ended: OrderedDict[GangKey, None] = OrderedDict()
        """Gangs of deleted owners: pods of an owner that is made again may still have their claim."""

    @property
    def silent(self) -> bool:
        """Whether no kind is listed and no owner known, so that no pod has a claim because of its owner."""
        return not (self.listed or self._jobs or self._job_sets)

    def asks(self, key: GangKey, uid: str, *, pending: bool) -> bool:
        """Say whether a pod with this owner has a claim; `uid` is that of a Job, empty for a JobSet."""
        if uid in self.plain_jobs:
            return False
        known = self._jobs.get(uid) if uid else self._job_sets.get(str(key))
        if known is not None:
            return known.asks
        if not pending or not self.listed:
            return False
        if key in self._released:
            return True
        listed = self.listed.get(key.source)
        if listed is None or not listed():
            return False
        self._awaited.setdefault(key, None)
        return True

    def seen(self, gang: Gang, *, asks: bool) -> Seen | None:
        """Record an owner as it is now; return what the engine needs to know."""
        owners, owner = self._owner(gang.key, gang.uid)
        before = owners.get(owner)
        awaited = gang.key in self._awaited or gang.key in self._released or gang.key in self._ended
        for gangs in (self._awaited, self._released, self._ended):
            gangs.pop(gang.key, None)
        told = asks or awaited or (before is not None and before.told)
        if not told and gang.key.source is GangSource.JOB:
            self.plain_jobs.add(gang.uid)
            return None
        self.plain_jobs.discard(gang.uid)
        owners[owner] = Known(gang.uid, asks, told)
        if asks:
            return Seen(gang)
        if awaited or (before is not None and (before.asks or (before.told and before.uid != gang.uid))):
            return Seen(Gang(gang.key, min_member=1, uid=gang.uid))
        return None

    def gone(self, key: GangKey, uid: str) -> Gone | None:
        """Forget a deleted owner, unless another one of its name is known; return what the engine needs to know."""
        self.plain_jobs.discard(uid)
        owners, owner = self._owner(key, uid)
        before = owners.get(owner)
        if before is None or before.uid != uid:
            return None
        del owners[owner]
        if not before.told:
            return None
        self._ended[key] = None
        if len(self._ended) > RELEASED_MAX:
            self._ended.popitem(last=False)
        return gone(Gang, *astuple(key))

    def overdue(self, now: float) -> list[Event]:
        """Return what the engine needs to know of owners that did not turn up; `now` is in seconds, never goes back."""
        events: list[Event] = []
        for key, since in list(self._awaited.items()):
            if since is None:
                self._awaited[key] = now
            elif now - since >= UNSEEN_SECONDS_MAX:
                del self._awaited[key]
                self._released[key] = None
                events.append(Seen(Gang(key, min_member=1)))
        while len(self._released) > RELEASED_MAX:
            events.append(gone(Gang, *astuple(self._released.popitem(last=False)[0])))
        return events

    def _owner(self, key: GangKey, uid: str) -> tuple[dict[str, Known], str]:
        return (self._jobs, uid) if key.source is GangSource.JOB else (self._job_sets, str(key))
