"""Claims of pods that do not allow any node, and changes of the objects of storage.

Invariants:
- A claim, class or volume that was not seen holds the pod, and only that: nothing that cannot be undone follows.
- The reason has kube-scheduler's words, after the path of the field.

Source: PreFilter of kube-scheduler's VolumeRestrictions, VolumeBinding and VolumeZone, in this order.
"""

from collections.abc import Callable

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.view import View
from aischeduler.model.pod import Pod
from aischeduler.model.storage_objects import CsiNode, StorageObject, VolumeAttachment
from aischeduler.model.volumes import Volume, VolumeClaim, VolumeClaimUse
from aischeduler.plugins.volume_binding import VolumeBinding
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.storage import Storage

UNBOUND: str = "pod has unbound immediate PersistentVolumeClaims"


def unusable_claim(cluster: View, pod: Pod) -> str:
    """Return why a claim of the pod allows no node, with the path of its field; empty where each allows some.

    So it is too where the profile of the pod does not have VolumeBinding.
    """
    storage = cluster.nodes.storage
    if all(rule.name != VolumeBinding.name for rule in cluster.profile.plugins_of(pod).cross_row):
        return ""
    uses = [(use, storage.claims.get((pod.namespace, use.name))) for use in pod.volume_claims]
    rules: tuple[Callable[[Storage, Pod, VolumeClaimUse, VolumeClaim | None], str], ...]
    rules = (_missing, _unusable, _unbound, _without_volume)
    for rule in rules:
        for use, claim in uses:
            why = rule(storage, pod, use, claim)
            if why:
                return f"{use.field}: {why}"
    return ""


def storage_object_seen(cluster: Cluster, stored: VolumeClaim | Volume | StorageObject) -> tuple[PodRecord, ...]:
    """Store an object of storage as it is now; return the pods that this may help or hinder."""
    storage = cluster.nodes.storage
    if isinstance(stored, VolumeClaim):
        return storage.see_claim(stored)
    if isinstance(stored, Volume):
        return storage.see_volume(stored)
    users = storage.see(stored)
    if isinstance(stored, CsiNode | VolumeAttachment):
        _offer(cluster, stored.name if isinstance(stored, CsiNode) else stored.node)
    return users


def storage_object_gone(cluster: Cluster, kind: type, key: tuple[str, ...]) -> tuple[PodRecord, ...]:
    """Remove an object of storage; return the pods that this may help or hinder."""
    storage = cluster.nodes.storage
    if kind is VolumeClaim:
        return storage.forget_claim((key[0], key[1]))
    if kind is Volume:
        return storage.forget_volume(key[0])
    namespace, name = key
    node = storage.node_of(kind.__name__, name)
    users = storage.forget(kind.__name__, namespace, name)
    _offer(cluster, node)
    return users


def _offer(cluster: Cluster, node: str) -> None:
    """Offer the room of a node that may take more volumes."""
    if cluster.nodes.has(node):
        cluster.row_changed(cluster.nodes.rows[node])


def _missing(storage: Storage, pod: Pod, use: VolumeClaimUse, claim: VolumeClaim | None) -> str:  # noqa: ARG001 - as the other rules
    return f'persistentvolumeclaim "{use.name}" not found' if claim is None and not use.owned else ""


def _unusable(storage: Storage, pod: Pod, use: VolumeClaimUse, claim: VolumeClaim | None) -> str:  # noqa: ARG001
    if claim is None:
        return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
    if claim.lost:
        return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{claim.volume}"'
    if claim.terminating:
        return f'persistentvolumeclaim "{use.name}" is being deleted'
    if use.owned and claim.controller != pod.uid:
        whose = f"PVC {claim.namespace}/{claim.name} was not created for pod {pod.namespace}/{pod.name}"
        return f"{whose} (pod is not owner)"
    return ""


def _unbound(storage: Storage, pod: Pod, use: VolumeClaimUse, claim: VolumeClaim | None) -> str:  # noqa: ARG001
    waits = claim is not None and (claim.bound or storage.waits_for_consumer(claim))
    return "" if waits else UNBOUND


def _without_volume(storage: Storage, pod: Pod, use: VolumeClaimUse, claim: VolumeClaim | None) -> str:  # noqa: ARG001
    if claim is None or use.owned or not claim.volume or claim.volume in storage.volumes:
        return ""
    return f'persistentvolume "{claim.volume}" not found'
