"""The gangs that objects declare, by key.

Invariants:
- A gang that its pods declare by labels is not here: each of them says all of it.
"""

from aischeduler.model.gang import Gang, GangKey, GangStatus
from aischeduler.model.pod import Pod


class GangTable:
    """The gangs of objects: PodGroups, Jobs and JobSets."""

    def __init__(self) -> None:
        self.by_key: dict[GangKey, Gang] = {}
        self.reported: dict[GangKey, tuple[Gang, GangStatus]] = {}
        """The last reported status of each, and the gang that it was about."""
        self._strangers: dict[GangKey, dict[str, str]] = {}
        """The pods that name a gang and another scheduler: uid -> that scheduler."""
        self._named: dict[str, GangKey] = {}
        """The gang that each of these pods names, by uid."""

    def see(self, gang: Gang) -> bool:
        """Store a gang as its object says it now; return whether that differs from before."""
        differs = self.by_key.get(gang.key) != gang
        self.by_key[gang.key] = gang
        return differs

    def forget(self, key: GangKey) -> bool:
        """Remove the gang of a deleted object; return whether it was known."""
        self.reported.pop(key, None)
        return self.by_key.pop(key, None) is not None

    def note_stranger(self, pod: Pod) -> None:
        """Note a pod of another scheduler that names a gang. It does not count: it starts without the others."""
        if pod.gang is not None and self._named.get(pod.uid) != pod.gang.key:
            self.drop_stranger(pod.uid)
            self._named[pod.uid] = pod.gang.key
            self._strangers.setdefault(pod.gang.key, {})[pod.uid] = pod.scheduler_name

    def drop_stranger(self, uid: str) -> GangKey | None:
        """Forget such a pod; return the gang that it named."""
        key = self._named.pop(uid, None)
        if key is not None:
            del self._strangers[key][uid]
            if not self._strangers[key]:
                del self._strangers[key]
        return key

    def strangers(self, key: GangKey) -> str:
        """Return a sentence about the pods of other schedulers that name the gang; empty where there is none."""
        found = self._strangers.get(key, {})
        names = ", ".join(sorted({*found.values()}))
        return f"{len(found)} pod(s) of another scheduler do not count: {names}." if found else ""

    def of(self, pod: Pod) -> Gang | None:
        """Return the gang of a pod; None where it names none, or none that is known."""
        claim = pod.gang
        return None if claim is None else claim.said or self.by_key.get(claim.key)
