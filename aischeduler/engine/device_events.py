"""Handling of Device objects: the devices of nodes.

Invariant: once a Device object was seen, each pod on a row that asks for devices holds some there, as it says itself,
or unknown ones.
"""

from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.framework.allocating import bound_allocation
from aischeduler.model.actions import ObjectRef, Warn
from aischeduler.model.device import NodeDevices
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.state.pod_records import PodRecord


def devices_seen(cluster: Cluster, found: NodeDevices) -> None:
    """Store the devices of a node as they are now, and wake the pods that they may help."""
    row = cluster.nodes.rows.get(found.node)
    if row is not None and cluster.nodes.devices.of(row) == found:
        return
    for fault in found.faults:
        if cluster.warned(f"Device/{found.uid}/{fault}", fault):
            about = ObjectRef("Device", found.node, found.uid)
            cluster.say(cluster.pool_of(row) if row is not None else DEFAULT_POOL, _invalid(about, fault))
    row, anew = cluster.nodes.see_devices(found.node, found)
    if anew:
        _hold_anew(cluster)
    cluster.row_changed(row)


def devices_gone(cluster: Cluster, name: str) -> None:
    """Forget the devices of a node; what its pods hold counts again once they are back."""
    row = cluster.nodes.rows.get(name)
    if row is not None and cluster.nodes.devices.of(row) is not None:
        cluster.nodes.see_devices(name, None)
        if row in cluster.nodes.rows.values():
            cluster.row_changed(row)


def _invalid(about: ObjectRef, fault: str) -> Warn:
    return Warn(about, EventReason.INVALID_DEVICE, fault)


def _hold_anew(cluster: Cluster) -> None:
    """Let all pods on rows hold the devices that they ask for, which were no devices before."""
    for record in [record for record in cluster.records.values() if record.counted is not None]:
        if record.counted is not None and record.counted.devices is not None:
            _hold(cluster, record)


def _hold(cluster: Cluster, record: PodRecord) -> None:
    assert record.counted is not None, "the pod is on a row"
    pod = record.pod if record.pod.spec is record.counted else replace(record.pod, spec=record.counted)
    allocation = bound_allocation(cluster.profile.plugins_of(record.pod), pod, cluster.nodes)
    if allocation.parts != record.allocation.parts:
        cluster.nodes.remove(record.assigned)
        record.allocation = replace(record.allocation, parts=allocation.parts)
        cluster.nodes.add(record.assigned)
