"""Handling of Device objects: the devices of nodes.

Invariants:
- Once a Device object was seen, each pod on a row that asks for devices holds some there, or unknown ones.
- What a pod got with its Binding stays while it runs. What another source says of it may change.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.holds import recheck_later
from aischeduler.engine.pod_counting import hold_parts
from aischeduler.framework.allocating import bound_allocation
from aischeduler.model.actions import ObjectRef, Warn
from aischeduler.model.device import DEVICES, Amounts, HeldDevices, HolderSource, NodeDevices
from aischeduler.model.device_request import DEVICE_ALLOCATED_KEY
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.node import Node
from aischeduler.state.devices import DELIVERY_LABEL, HAMI_LABEL
from aischeduler.state.pod_records import PodRecord, PodState


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
    _hold_anew(cluster, cluster.records.values() if anew else cluster.on_row(row))
    cluster.row_changed(row)


def devices_gone(cluster: Cluster, name: str) -> None:
    """Forget the devices of a node; what its pods hold counts again once they are back."""
    row = cluster.nodes.rows.get(name)
    if row is not None and cluster.nodes.devices.of(row) is not None:
        cluster.nodes.see_devices(name, None)
        if row in cluster.nodes.rows.values():
            cluster.row_changed(row)
        if (node := cluster.nodes.node(name)) is not None:
            follow_hami(cluster, node)


def follow_hami(cluster: Cluster, node: Node | None, name: str = "") -> None:
    """Follow the GPUs that HAMi registers on a node: they are its devices where it has no Device object.

    A node that is gone has its `name` alone.
    """
    name = node.name if node is not None else name
    row = cluster.nodes.rows.get(name)
    found = cluster.nodes.devices.of(row) if row is not None else None
    if found is not None and not found.registered:
        return
    if node is not None and node.hami_gpus and node.labels.get(DELIVERY_LABEL, HAMI_LABEL) == HAMI_LABEL:
        devices_seen(cluster, NodeDevices(name, node.hami_gpus, links=dict(node.hami_links), registered=True))
    elif found is not None:
        devices_gone(cluster, name)


def _invalid(about: ObjectRef, fault: str) -> Warn:
    return Warn(about, EventReason.INVALID_DEVICE, fault)


def devices_listed(cluster: Cluster, *, listed: bool) -> None:
    """Note whether all Device objects are known; once they are, the pods that were held for it are tried again."""
    if cluster.devices_listed != listed:
        cluster.devices_listed = listed
        for queue in cluster.queues.values():
            recheck_later(cluster, queue.in_state(PodState.HELD))


def said_anew(cluster: Cluster, record: PodRecord, said: HeldDevices | None) -> None:
    """Follow a bound pod that says for the first time which devices it has; what it said with its Binding stays."""
    held = record.allocation.part(DEVICES)
    if not isinstance(held, HeldDevices):
        return
    if held.source is not HolderSource.ALLOCATED:
        _hold(cluster, record)
        cluster.row_changed(record.row)
    elif said is None or _amounts(said) != _amounts(held):
        pod = record.pod
        text = (
            f"The annotation {DEVICE_ALLOCATED_KEY} was changed after the pod was bound. "
            "The devices that it got with its Binding count."
        )
        if cluster.warned(f"Pod/{pod.uid}/devices", text):
            about = ObjectRef("Pod", pod.name, pod.uid, pod.namespace)
            pool = cluster.pool_of(record.row) or DEFAULT_POOL
            cluster.say(pool, Warn(about, EventReason.DEVICES_EDITED, text, pod.scheduler_name))


def _amounts(held: HeldDevices) -> dict[tuple[str, int], Amounts]:
    return {(device.type, device.minor): device.amounts for device in held.devices}


def _hold_anew(cluster: Cluster, on: Iterable[PodRecord]) -> None:
    """Let pods on rows hold what they ask for, or what another source says now; not those that said it themselves."""
    for record in [*on]:
        held = record.allocation.part(DEVICES)
        if record.counted is None or record.counted.devices is None:
            continue
        chosen = isinstance(held, HeldDevices) and held.source is HolderSource.ALLOCATED
        if held is None or (record.pod.node_name and not chosen):  # that of a Binding in flight stays
            _hold(cluster, record)


def _hold(cluster: Cluster, record: PodRecord) -> None:
    assert record.counted is not None, "the pod is on a row"
    pod = record.pod if record.pod.spec is record.counted else replace(record.pod, spec=record.counted)
    allocation = bound_allocation(cluster.profile.plugins_of(record.pod), pod, cluster.nodes)
    if allocation.parts != record.allocation.parts:
        hold_parts(cluster, record, allocation.parts)
