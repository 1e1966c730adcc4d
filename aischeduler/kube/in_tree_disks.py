"""Disks of in-tree plugins as the CSI drivers know them that replaced the plugins.

Invariant: only the plugins are here that every supported release has replaced.

Source: k8s.io/csi-translation-lib.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.kube.storage_types import DiskPart
from aischeduler.model.selectors import Labels, NodeSelectorTerm, Operator, Requirement
from aischeduler.model.volumes import DiskKind, DriverVolume

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
ZONES_APART: Final = "__"
"""What is between the zones of a label."""
UNKNOWN: Final = "UNSPECIFIED"
_EBS_VOLUME = re.compile(r"^vol-[^/]*$")
_ZONE_PARTS = 3


class Plugin(Struct, frozen=True):
    """An in-tree plugin and the CSI driver that replaced it; `zone_label` is the driver's label of nodes, or empty."""

    name: str
    driver: str
    zone_label: str = ""


PLUGINS: Final[Mapping[DiskKind, Plugin]] = {
    DiskKind.GCE_PD: Plugin("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone"),
    DiskKind.EBS: Plugin("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    DiskKind.AZURE_DISK: Plugin("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    DiskKind.CINDER: Plugin(
        "kubernetes.io/cinder", "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"
    ),
    DiskKind.PORTWORX: Plugin("kubernetes.io/portworx-volume", "pxd.portworx.com"),
}
DRIVERS: Final[Mapping[str, str]] = {plugin.name: plugin.driver for plugin in PLUGINS.values()}
"""In-tree plugin -> the CSI driver that replaced it, for the provisioners of classes."""
NOT_REPLACED: Final = frozenset(("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"))
"""The in-tree plugins whose volumes kube-scheduler does not count."""


def driver_of(provisioner: str) -> str:
    """Return the CSI driver of the volumes that a provisioner creates; empty where they do not count."""
    return "" if provisioner in NOT_REPLACED else DRIVERS.get(provisioner, provisioner)


def disk_name(kind: DiskKind, part: DiskPart) -> str:
    """Return which disk of its kind it is."""
    match kind:
        case DiskKind.GCE_PD:
            return part.pd_name
        case DiskKind.ISCSI:
            return part.iqn
        case DiskKind.RBD:
            return f"{part.pool or 'rbd'}/{part.image}"
        case DiskKind.AZURE_DISK:
            return part.disk_uri
        case DiskKind.EBS | DiskKind.CINDER | DiskKind.PORTWORX:
            return part.volume_id


def driver_volume(kind: DiskKind, part: DiskPart, labels: Labels) -> DriverVolume | None:
    """Return a disk as the CSI driver knows it, None where none does; `labels` are those of its PersistentVolume."""
    plugin, handle = PLUGINS.get(kind), disk_name(kind, part)
    if kind is DiskKind.GCE_PD:
        handle = _gce_handle(part.pd_name, labels.get(BETA_ZONE) or labels.get(ZONE, ""))
    elif kind is DiskKind.EBS:
        handle = _ebs_volume(handle)
    elif kind is DiskKind.AZURE_DISK and part.kind is not None and part.kind.lower() != "managed":
        return None
    return DriverVolume(plugin.driver, handle) if plugin is not None and handle else None


def migrated_terms(
    kind: DiskKind, terms: tuple[NodeSelectorTerm, ...] | None, labels: Labels
) -> tuple[NodeSelectorTerm, ...] | None:
    """Return the node affinity of a volume as it holds on nodes that use the CSI driver."""
    key = PLUGINS[kind].zone_label
    if not key:
        return terms
    used = {one.key for term in terms or () for one in term.expressions}
    beta = ZONE not in used and (BETA_ZONE in used or (ZONE not in labels and BETA_ZONE in labels))
    zone, region = (BETA_ZONE, BETA_REGION) if beta else (ZONE, REGION)
    if any(one.key == zone and one.values for term in terms or () for one in term.expressions):
        terms = _renamed(terms or (), zone, key)
    elif zone in labels:
        values = sorted({text.strip() for text in labels[zone].split(ZONES_APART)} - {""})
        if values:
            added = Requirement(key, Operator.IN, tuple(values))
            terms = tuple(replace(one, expressions=(*one.expressions, added)) for one in terms or (NodeSelectorTerm(),))
    return _renamed(terms, region, REGION) if beta and terms else terms


def _renamed(terms: tuple[NodeSelectorTerm, ...], old: str, new: str) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        replace(term, expressions=tuple(replace(one, key=new) if one.key == old else one for one in term.expressions))
        for term in terms
    )


def _gce_handle(name: str, zones: str) -> str:
    """Return the handle of a disk in one zone, or in several of a region; empty where they are in none."""
    found = zones.split(ZONES_APART)
    if len(found) == 1:
        return f"projects/{UNKNOWN}/zones/{found[0] or UNKNOWN}/disks/{name}"
    parts = [zone.split("-") for zone in found]
    regions = {"-".join(part[:2]) for part in parts if len(part) == _ZONE_PARTS}
    if len(regions) != 1 or any(len(part) != _ZONE_PARTS for part in parts):
        return ""
    return f"projects/{UNKNOWN}/regions/{regions.pop()}/disks/{name}"


def _ebs_volume(name: str) -> str:
    """Return the id of a volume that is named by its id, or as aws://ZONE/ID; empty for another form."""
    if not name.startswith("aws://"):
        return name
    found = urlsplit(name).path.strip("/")
    return found if _EBS_VOLUME.match(found) else ""
