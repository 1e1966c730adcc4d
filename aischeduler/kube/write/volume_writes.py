"""The requests that bind the claims of a placed pod to volumes, and the meaning of their answers.

Invariants:
- Pure functions: the daemon and the simulator use the same ones.
- A write is made at the resource version of the decision. Where the object changed since, it is read: a volume or a
  claim that has what was to be written is as good as written, one that has something else is a refusal.

Source: PreBind of kube-scheduler's VolumeBinding, and what the volume controller expects of a volume that is bound.
"""

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.kube.decode.meta_types import UNREADABLE, PartialObjectMetadata, read_status, retry_after_seconds
from aischeduler.kube.decode.storage_types import ClaimDocument, VolumeDocument
from aischeduler.kube.http.errors import is_answer
from aischeduler.kube.http.paths import object_path
from aischeduler.kube.write.pod_writes import Throttled, Unauthenticated, Unknown, read_unhandled
from aischeduler.model.volumes import ClaimRef, VolumeChoice, VolumeWrite

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
_CLAIM: Final = msgspec.json.Decoder(ClaimDocument)
_VOLUME: Final = msgspec.json.Decoder(VolumeDocument)


class Written(Struct, frozen=True):
    """The object has what was to be written, at this resource version."""

    version: str


class Refused(Struct, frozen=True):
    """What was to be written cannot be."""

    message: str


class Changed(Struct, frozen=True):
    """The object changed since the decision: it is to be read."""


VolumeAnswer = Written | Refused | Changed | Throttled | Unauthenticated | Unknown


def write_path(choice: VolumeChoice) -> str:
    """Return the path of the object that is written: the chosen volume, or the claim."""
    if choice.volume:
        return object_path("v1", "persistentvolumes", choice.volume)
    namespace, name = choice.claim
    return object_path("v1", "persistentvolumeclaims", name, namespace)


def write_body(write: VolumeWrite, *, withdraw: bool = False) -> bytes:
    """Return the merge patch of a write; to `withdraw` is to take the node out of the claim again."""
    choice = write.choice
    namespace, name = choice.claim
    if not choice.volume:
        annotations = {SELECTED_NODE: None if withdraw else choice.node}
        metadata = {"uid": choice.claim_uid, "resourceVersion": write.version, "annotations": annotations}
        return msgspec.json.encode({"metadata": metadata})
    ref = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": name,
        "uid": choice.claim_uid,
        "resourceVersion": write.claim_version,
    }
    marked = {} if write.prebound else {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
    return msgspec.json.encode({"metadata": {"resourceVersion": write.version, **marked}, "spec": {"claimRef": ref}})


def read_answer(status: int, retry_after: str | None, body: bytes) -> VolumeAnswer:
    """Return the meaning of the answer to a write."""
    if status < 300:
        try:
            return Written(msgspec.json.decode(body, type=PartialObjectMetadata).metadata.resource_version)
        except UNREADABLE:
            return Changed()
    document = read_status(body)
    if (unhandled := read_unhandled(status, retry_after, document)) is not None:
        return unhandled
    message = document.message or f"the API server answered {status}"
    match status:
        case 409:
            return Changed()
        case 400 | 403 | 404 | 405 | 413 | 415 | 422:
            return Refused(message)
        case _:
            return Unknown(message, answered=True, retry_after_seconds=retry_after_seconds(retry_after) or 0.0)


def read_object(write: VolumeWrite, status: int, body: bytes) -> Written | Refused | Unknown | VolumeWrite:
    """Return what a read of the object shows; a write that may still be made has the new resource version."""
    choice = write.choice
    kind, name = ("persistentvolume", choice.volume) if choice.volume else ("persistentvolumeclaim", choice.claim[1])
    if is_answer(status):
        return Refused(f'{kind} "{name}" not found')
    if status >= 300:
        return Unknown(read_status(body).message or f"the API server answered {status}")
    try:
        return _read_volume(write, body) if choice.volume else _read_claim(write, body)
    except UNREADABLE as error:
        return Unknown(f'{kind} "{name}" cannot be read: {error}')


def _read_volume(write: VolumeWrite, body: bytes) -> Written | Refused | VolumeWrite:
    document, choice = _VOLUME.decode(body), write.choice
    part = document.spec.claim_ref if document.spec is not None else None
    ref = ClaimRef(part.namespace, part.name, part.uid) if part is not None else None
    version = document.metadata.resource_version
    if ref == ClaimRef(*choice.claim, choice.claim_uid):
        return Written(version)
    if ref is not None and ref != ClaimRef(*choice.claim):
        return Refused(f'persistentvolume "{choice.volume}" belongs to the claim {ref.namespace}/{ref.name}')
    return replace(write, version=version, prebound=ref is not None)


def _read_claim(write: VolumeWrite, body: bytes) -> Written | Refused | VolumeWrite:
    metadata, choice = _CLAIM.decode(body).metadata, write.choice
    if metadata.uid != choice.claim_uid:
        return Refused(f'persistentvolumeclaim "{choice.claim[1]}" not found')
    selected = metadata.annotations.selected_node if metadata.annotations is not None else None
    if selected == choice.node:
        return Written(metadata.resource_version)
    if selected:
        return Refused(f'persistentvolumeclaim "{choice.claim[1]}" is to be created for the node {selected}')
    return replace(write, version=metadata.resource_version)
