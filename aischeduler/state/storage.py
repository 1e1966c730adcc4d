"""The volume claims and volumes of the cluster, and the pods of this scheduler that use them.

Invariant: `use` and `drop` come in pairs, so that a change of a claim or volume finds its pods without a search.
"""

from collections.abc import Iterator

from aischeduler.model.volumes import Volume, VolumeClaim, VolumeClaimKey
from aischeduler.state.groups import Groups
from aischeduler.state.pod_records import PodRecord


class Storage:
    """The volume claims and volumes. A method that changes one returns the pods that use it."""

    def __init__(self) -> None:
        self.claims: dict[VolumeClaimKey, VolumeClaim] = {}
        self.volumes: dict[str, Volume] = {}
        self._users: Groups[VolumeClaimKey, str, PodRecord] = Groups()
        self._claims_of: Groups[str, VolumeClaimKey, None] = Groups()
        """Volume -> the claims that name it."""

    def users(self) -> dict[VolumeClaimKey, tuple[str, ...]]:
        """Return the uids of the pods that use each claim, sorted."""
        return {key: tuple(sorted(users)) for key, users in self._users.items()}

    def use(self, record: PodRecord) -> None:
        """Add a pod to the users of its claims."""
        for key in _keys(record):
            self._users.put(key, record.pod.uid, record)

    def drop(self, record: PodRecord) -> None:
        """Remove a pod from the users of its claims."""
        for key in _keys(record):
            self._users.drop(key, record.pod.uid)

    def see_claim(self, claim: VolumeClaim) -> tuple[PodRecord, ...]:
        """Store a claim as it is now."""
        before = self.claims.get(claim.key)
        if before == claim:
            return ()
        if before is not None:
            self._claims_of.drop(before.volume, before.key)
        self.claims[claim.key] = claim
        if claim.volume:
            self._claims_of.put(claim.volume, claim.key, None)
        return self._using(claim.key)

    def forget_claim(self, key: VolumeClaimKey) -> tuple[PodRecord, ...]:
        """Remove a claim."""
        before = self.claims.pop(key, None)
        if before is None:
            return ()
        self._claims_of.drop(before.volume, before.key)
        return self._using(key)

    def see_volume(self, volume: Volume) -> tuple[PodRecord, ...]:
        """Store a volume as it is now."""
        if self.volumes.get(volume.name) == volume:
            return ()
        self.volumes[volume.name] = volume
        return tuple(self._using_volume(volume.name))

    def forget_volume(self, name: str) -> tuple[PodRecord, ...]:
        """Remove a volume."""
        known = self.volumes.pop(name, None) is not None
        return tuple(self._using_volume(name)) if known else ()

    def _using(self, key: VolumeClaimKey) -> tuple[PodRecord, ...]:
        return tuple(self._users.get(key, {}).values())

    def _using_volume(self, name: str) -> Iterator[PodRecord]:
        for key in self._claims_of.get(name, {}):
            yield from self._using(key)


def _keys(record: PodRecord) -> Iterator[VolumeClaimKey]:
    return ((record.pod.namespace, use.name) for use in record.pod.volume_claims)
