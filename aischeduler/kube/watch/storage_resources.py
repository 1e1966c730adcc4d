"""The watched resources of storage: claims, volumes, and the objects of storage.k8s.io that volume rules read.

Invariants:
- An object of storage.k8s.io that is not served, or that the scheduler may not list, does not stop it: a pod whose
  claim has no known class waits, and a limit that is not known is none.
- The engine hears of an object only if what it reads of the object may have changed.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from aischeduler.kube.decode.meta_types import Page, WatchEvent
from aischeduler.kube.decode.storage import (
    read_attachment,
    read_capacity,
    read_claim,
    read_class,
    read_csi_driver,
    read_csi_node,
    read_volume,
)
from aischeduler.kube.decode.storage_types import (
    AttachmentDocument,
    CapacityDocument,
    ClaimDocument,
    ClassDocument,
    CsiDriverDocument,
    CsiNodeDocument,
    VolumeDocument,
)
from aischeduler.kube.watch.watched_resources import ApiObject, WatchedResource
from aischeduler.model.events import Event, Gone, Seen, gone
from aischeduler.model.storage_objects import (
    CsiDriver,
    CsiNode,
    StorageCapacity,
    StorageClass,
    StorageObject,
    VolumeAttachment,
)
from aischeduler.model.volumes import Volume, VolumeClaim

D = TypeVar("D", bound=ApiObject)
STORAGE: Final = "/apis/storage.k8s.io/v1"


def storage_resources() -> Sequence[WatchedResource[Any]]:
    """Return all resources of storage, in the order in which the engine observes them at the start."""
    return (
        _of_storage(ClassDocument, "StorageClass", "storageclasses", read_class, StorageClass),
        _of_storage(CsiNodeDocument, "CSINode", "csinodes", read_csi_node, CsiNode),
        _of_storage(CsiDriverDocument, "CSIDriver", "csidrivers", read_csi_driver, CsiDriver),
        _of_storage(CapacityDocument, "CSIStorageCapacity", "csistoragecapacities", read_capacity, StorageCapacity),
        volumes(),
        claims(),
        _of_storage(AttachmentDocument, "VolumeAttachment", "volumeattachments", read_attachment, VolumeAttachment),
    )


def claims() -> WatchedResource[ClaimDocument]:
    """All PersistentVolumeClaims."""
    return WatchedResource(
        kind="PersistentVolumeClaim",
        path="/api/v1/persistentvolumeclaims",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[ClaimDocument]),
        page_decoder=msgspec.json.Decoder(Page[ClaimDocument]),
        object_decoder=msgspec.json.Decoder(ClaimDocument),
        seen_event=lambda document: Seen(read_claim(document)),
        gone_event=lambda namespace, name, _uid: gone(VolumeClaim, namespace, name),
        rarely_changes=True,
    )


def volumes() -> WatchedResource[VolumeDocument]:
    """All PersistentVolumes."""
    return WatchedResource(
        kind="PersistentVolume",
        path="/api/v1/persistentvolumes",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[VolumeDocument]),
        page_decoder=msgspec.json.Decoder(Page[VolumeDocument]),
        object_decoder=msgspec.json.Decoder(VolumeDocument),
        seen_event=lambda document: Seen(read_volume(document)),
        gone_event=lambda _namespace, name, _uid: gone(Volume, name),
        rarely_changes=True,
    )


def _of_storage(
    document: type[D], kind: str, plural: str, read: Callable[[D], StorageObject | None], model: type[StorageObject]
) -> WatchedResource[D]:
    def seen(document: D) -> Event | None:
        found = read(document)
        return Seen(found) if found is not None else None

    return WatchedResource(
        kind=kind,
        path=f"{STORAGE}/{plural}",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[document]),  # type: ignore[valid-type]
        page_decoder=msgspec.json.Decoder(Page[document]),  # type: ignore[valid-type]
        object_decoder=msgspec.json.Decoder(document),
        seen_event=seen,
        gone_event=lambda namespace, name, _uid: Gone(model.__name__, (namespace, name)),
        optional=True,
        needed=False,
        rarely_changes=True,
    )
