"""The volumes of a placed pod: written, awaited, and given up.

Invariants:
- A pod is bound to its node only once all its claims are seen bound.
- Nothing is awaited before it is written, and no object counts that is older than what was written.
- A pod whose volumes fail is taken back and tried again: its choices no longer count, whatever was written.

Source: PreBind of kube-scheduler's VolumeBinding. After a timeout the node is taken out of the claims again, so that
another node may be chosen.
"""

from typing import Final

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.holds import recheck_later
from aischeduler.engine.reservations import VolumeWork
from aischeduler.engine.volume_claims import storage_object_gone, storage_object_seen
from aischeduler.framework.plugin import Delayed, Vetoed
from aischeduler.model.actions import Action, Bind, BindVolumes
from aischeduler.model.events import VolumesRefused, VolumesWritten
from aischeduler.model.storage_objects import StorageObject
from aischeduler.model.volumes import Volume, VolumeChoice, VolumeClaim, VolumeWrite
from aischeduler.state.pod_records import PodRecord

LOOK_SECONDS: Final = 5.0
"""How often volumes are looked at without an event: a list may have shown an object that has not changed."""
FAILED: Final = 'running PreBind plugin "VolumeBinding": '


def begin_volumes(cluster: Cluster, bind: Bind, actions: list[Action]) -> Delayed | None:
    """Have the volumes of a placed pod written; None where its claims are bound since, or its profile binds none."""
    longest = cluster.profile.plugins_of(bind.pod).volume_seconds
    if longest is None:
        return None
    writes = tuple(_write(cluster, choice) for choice in bind.allocation.choices)
    work = VolumeWork(bind.decision, writes, cluster.now)
    if all(_is_bound(cluster, write.choice) for write in writes):
        return None
    cluster.reservations.volumes[bind.pod.uid] = work
    actions.append(BindVolumes(bind.pod, bind.node, bind.decision, writes))
    return Delayed(min(LOOK_SECONDS, longest))


def await_volumes(cluster: Cluster, bind: Bind, actions: list[Action]) -> Delayed | Vetoed | None:
    """Return what stops a Binding that waits for volumes; None where they are bound, or where it needs none."""
    if not bind.allocation.choices:
        return None
    work = cluster.reservations.volumes.get(bind.pod.uid)
    if work is None:
        return begin_volumes(cluster, bind, actions)
    if work.refused:
        return Vetoed(FAILED + work.refused)
    missing = False
    for number, write in enumerate(work.writes):
        version = work.versions[number] if work.versions is not None else None
        why = _failed(cluster, bind.node, write.choice, version)
        if why:
            return Vetoed(f"{FAILED}binding volumes: {why}")
        missing = missing or version is None or not _is_shown(cluster, write.choice, version)
    if not missing:
        return None
    longest = cluster.profile.plugins_of(bind.pod).volume_seconds or 0.0
    left = work.since + longest - cluster.now
    if left > 0:
        return Delayed(min(LOOK_SECONDS, left))
    actions.append(BindVolumes(bind.pod, bind.node, bind.decision, work.writes, withdraw=True))
    waited = f"its volumes are not bound after {longest:g} s"
    return Vetoed(f"{FAILED}binding volumes: context deadline exceeded: {waited}")


def volumes_answered(cluster: Cluster, event: VolumesWritten | VolumesRefused) -> None:
    """Note what became of a `BindVolumes`, and have its Binding looked at."""
    work = cluster.reservations.volumes.get(event.uid)
    if work is None or work.decision != event.decision:
        return
    if isinstance(event, VolumesWritten):
        work.versions = event.versions
    else:
        work.refused = event.message
    cluster.reservations.asked_at.set(event.uid, cluster.now)


def storage_seen(cluster: Cluster, stored: VolumeClaim | Volume | StorageObject) -> None:
    """Store an object of storage as it is now; look again at the pods that it may help or hinder."""
    _look_again(cluster, storage_object_seen(cluster, stored))


def storage_gone(cluster: Cluster, kind: type, key: tuple[str, ...]) -> None:
    """Remove an object of storage; look again at the pods that it may help or hinder."""
    _look_again(cluster, storage_object_gone(cluster, kind, key))


def _look_again(cluster: Cluster, records: tuple[PodRecord, ...]) -> None:
    """Have these pods rechecked, and their Bindings that wait for volumes."""
    recheck_later(cluster, records)
    for record in records:
        if record.pod.uid in cluster.reservations.volumes:
            cluster.reservations.asked_at.set(record.pod.uid, cluster.now)


def _write(cluster: Cluster, choice: VolumeChoice) -> VolumeWrite:
    claim, volume = cluster.nodes.storage.claims.get(choice.claim), cluster.nodes.storage.volumes.get(choice.volume)
    claim_version = claim.version if claim is not None else ""
    if volume is None:
        return VolumeWrite(choice, claim_version, claim_version)
    return VolumeWrite(choice, volume.version, claim_version, prebound=volume.claim is not None)


def _failed(cluster: Cluster, node: str, choice: VolumeChoice, version: str | None) -> str:
    """Return why the claim will not be bound as it was chosen; empty where it may be.

    Before it is written (`version` None), only the end of the claim or the volume counts.
    """
    storage = cluster.nodes.storage
    claim, volume = storage.claims.get(choice.claim), storage.volumes.get(choice.volume)
    if claim is None or claim.uid != choice.claim_uid:
        return f'persistentvolumeclaim "{choice.claim[1]}" not found'
    if choice.volume and volume is None:
        return f'persistentvolume "{choice.volume}" not found'
    if not choice.volume:
        if version is None or _older(claim.version, version):
            return ""
        if claim.selected_node != node:
            return f'provisioning failed for PVC "{claim.name}"'
        volume = storage.volumes.get(claim.volume)
    elif volume is not None:
        if version is None or _older(volume.version, version):
            return ""
        if volume.claim is None or not volume.claim.uid:
            return f'ClaimRef got reset for pv "{volume.name}"'
    row = cluster.nodes.rows.get(node)
    if volume is not None and row is not None and not storage.topology.mask(volume.affinity, cluster.nodes)[row]:
        return f'pv "{volume.name}" node affinity doesn\'t match node "{node}": no matching NodeSelectorTerms'
    return ""


def _is_shown(cluster: Cluster, choice: VolumeChoice, version: str) -> bool:
    """Return whether the claim is seen bound, after it was written."""
    claim, volume = cluster.nodes.storage.claims[choice.claim], cluster.nodes.storage.volumes.get(choice.volume)
    seen = volume.version if volume is not None else claim.version
    return not _older(seen, version) and _is_bound(cluster, choice)


def _is_bound(cluster: Cluster, choice: VolumeChoice) -> bool:
    """Return whether the claim is seen bound to a volume that is seen too."""
    claim = cluster.nodes.storage.claims.get(choice.claim)
    bound = claim is not None and claim.uid == choice.claim_uid and claim.bound
    return bound and claim is not None and claim.volume in cluster.nodes.storage.volumes


def _older(version: str, other: str) -> bool:
    """Return whether a resource version is older than another; versions that are no numbers are not compared."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)
