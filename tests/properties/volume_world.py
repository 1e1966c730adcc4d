"""A world with gangs whose pods use volumes: a volume controller binds claims, or refuses what the engine writes."""

from typing import Final

from aischeduler.model.actions import Action, BindVolumes
from aischeduler.model.events import Event, Seen, VolumesRefused, VolumesWritten, gone
from aischeduler.model.storage_objects import StorageClass
from aischeduler.model.volumes import ClaimRef, Volume, VolumeClaim, VolumeClaimUse
from tests.build import a_term, expression, replace
from tests.properties.test_gangs import GangWorld
from tests.properties.wishes import HOST

LOCAL: Final = StorageClass("local", "kubernetes.io/no-provisioner", waits=True)
CLOUD: Final = StorageClass("cloud", "csi.example", waits=True)
CLAIMS: Final = [f"data-{number}" for number in range(4)]
VOLUMES: Final = [f"disk-{number}" for number in range(3)]


def using(claim: str) -> tuple[VolumeClaimUse, ...]:
    """Return the use of this claim by a pod."""
    return (VolumeClaimUse("spec.volumes[0].persistentVolumeClaim", claim),)


class VolumeWorld(GangWorld):
    """A world of gangs with claims and volumes by name; every second write of volumes is refused while `refuses`."""

    def __init__(self, *, often: bool = False) -> None:
        self.claims: dict[str, VolumeClaim] = {}
        self.volumes: dict[str, Volume] = {}
        self.refuses = False
        self._made = 0
        super().__init__(often=often)

    def put_claim(self, name: str, of: str, mode: str) -> None:
        """Make a claim; one of this name that exists stays as it is."""
        if name not in self.claims:
            self._made += 1
            uid = f"uid-{name}-{self._made}"
            claim = VolumeClaim("default", name, uid=uid, storage_class=of, request_bytes=5, version=str(self._made))
            self.claims[name] = replace(claim, access_modes=(mode,))
            self._happens(Seen(self.claims[name]))

    def end_claim(self, name: str) -> None:
        """Delete a claim, and free its volume."""
        claim = self.claims.pop(name, None)
        if claim is not None:
            self._happens(gone(VolumeClaim, "default", name))
            for volume in [one for one in self.volumes.values() if one.claim is not None and one.claim.name == name]:
                if volume.storage_class == LOCAL.name:
                    self._see(replace(volume, claim=None, available=True))
                else:
                    self.end_volume(volume.name)

    def put_volume(self, name: str, node: str, size: int) -> None:
        """Make a free volume of a node, or of every node; one of this name that exists stays as it is."""
        if name not in self.volumes:
            affinity = (a_term(expression(HOST, "In", node)),) if node else None  # type: ignore[arg-type]
            free = Volume(name, affinity, storage_class=LOCAL.name, capacity_bytes=size, available=True)
            self._see(replace(free, access_modes=("ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")))

    def end_volume(self, name: str) -> None:
        """Delete a volume."""
        if self.volumes.pop(name, None) is not None:
            self._happens(gone(Volume, name))

    def _see(self, volume: Volume) -> None:
        self._made += 1
        self.volumes[volume.name] = replace(volume, version=str(self._made))
        self._happens(Seen(self.volumes[volume.name]))

    def _everything(self) -> list[Event]:
        return [
            *(Seen(one) for one in (LOCAL, CLOUD)),
            *(Seen(one) for _, one in sorted(self.volumes.items())),
            *(Seen(one) for _, one in sorted(self.claims.items())),
            *super()._everything(),
        ]

    def _take(self, action: Action) -> None:
        super()._take(action)
        if isinstance(action, BindVolumes) and not action.withdraw:
            self._write(action)

    def _write(self, asked: BindVolumes) -> None:
        """Carry out what the engine asks for, and let the volume controller bind the claims at once."""
        self._made += 1
        if self.refuses and self._made % 2:
            self._tell(VolumesRefused(asked.pod.uid, asked.decision, "no"))
            return
        self._tell(VolumesWritten(asked.pod.uid, asked.decision, (str(self._made),) * len(asked.writes)))
        for one in asked.writes:
            claim = self.claims.get(one.choice.claim[1])
            if claim is None or claim.bound or claim.uid != one.choice.claim_uid:
                continue
            name = one.choice.volume or f"made-{self._made}"
            volume = self.volumes.get(name) or Volume(name, storage_class=CLOUD.name, capacity_bytes=5)
            if volume.claim is None:
                self._see(replace(volume, claim=ClaimRef("default", claim.name, claim.uid), available=False))
                bound = replace(claim, volume=name, bound=True, version=str(self._made))
                self.claims[claim.name] = bound
                self._happens(Seen(bound))
