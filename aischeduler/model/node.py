"""The part of a Node that scheduling reads."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from aischeduler.model.device import Device
from aischeduler.model.images import NodeImage
from aischeduler.model.resources import ResourceList

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"


class Taint(Struct, frozen=True, order=True):
    """A taint: `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = NO_SCHEDULE


class Node(Struct, frozen=True):
    """One node. Equal nodes are the same to every decision: heartbeats change nothing here.

    `images` are those that it reports to have. `features` are the features that it declares, sorted. `hami_gpus` are
    the GPUs that HAMi registers on it, by minor, and `hami_links` the NVLinks of pairs of these (`NodeDevices.links`).
    `invalid` names the fields that could not be read, whose amounts count as zero; else it is empty.
    """

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: ResourceList = field(default_factory=dict)
    capacity: ResourceList = field(default_factory=dict)
    invalid: str = ""
    images: tuple[NodeImage, ...] = ()
    features: tuple[str, ...] = ()
    hami_gpus: tuple[Device, ...] = ()
    hami_links: tuple[tuple[str, int], ...] = ()


def only_opens(before: Node, after: Node) -> bool:
    """Return whether a node only loses taints or its cordon, so that what fitted there still fits."""
    alike = replace(after, taints=before.taints, unschedulable=before.unschedulable) == before
    return alike and set(after.taints) <= set(before.taints) and after.unschedulable <= before.unschedulable
