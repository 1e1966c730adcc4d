"""What a pod takes of a node beside amounts: its host ports."""

from typing import Final

from msgspec import Struct

from aischeduler.model.pod import HostPort, PodSpec


class Allocation(Struct, frozen=True, gc=False):
    """The parts of a node that a pod has for itself."""

    host_ports: tuple[HostPort, ...] = ()


NO_ALLOCATION: Final = Allocation()


def allocation_of(spec: PodSpec) -> Allocation:
    """Return what every pod of this spec takes, on whatever node: its host ports."""
    return Allocation(spec.host_ports) if spec.host_ports else NO_ALLOCATION
