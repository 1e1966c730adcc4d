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

    def see(self, gang: Gang) -> bool:
        """Store a gang as its object says it now; return whether that differs from before."""
        differs = self.by_key.get(gang.key) != gang
        self.by_key[gang.key] = gang
        return differs

    def forget(self, key: GangKey) -> bool:
        """Remove the gang of a deleted object; return whether it was known."""
        self.reported.pop(key, None)
        return self.by_key.pop(key, None) is not None

    def of(self, pod: Pod) -> Gang | None:
        """Return the gang of a pod; None where it names none, or none that is known."""
        claim = pod.gang
        return None if claim is None else claim.said or self.by_key.get(claim.key)
