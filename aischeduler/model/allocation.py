"""What a pod takes of a node beside amounts: its host ports and volumes."""

from collections.abc import Hashable
from typing import Final

from msgspec import Struct

from aischeduler.model.pod import HostPort, PodSpec
from aischeduler.model.volumes import PodVolumes, VolumeChoice


class Allocation(Struct, frozen=True, gc=False):
    """The parts of a node that a pod has for itself, and the volumes that it uses there.

    `choices` are the volumes that were chosen for its unbound claims when it was placed; `parts` has by name what
    plugins chose for it.
    """

    host_ports: tuple[HostPort, ...] = ()
    volumes: PodVolumes | None = None
    choices: tuple[VolumeChoice, ...] = ()
    parts: tuple[tuple[str, Hashable], ...] = ()

    def part(self, name: str) -> Hashable:
        """Return what was chosen for this part; None where nothing was."""
        return next((chosen for part, chosen in self.parts if part == name), None)


NO_ALLOCATION: Final = Allocation()


def allocation_of(spec: PodSpec) -> Allocation:
    """Return what every pod of this spec takes, on whatever node: its host ports and volumes."""
    return Allocation(spec.host_ports, spec.volumes) if spec.host_ports or spec.volumes else NO_ALLOCATION
