"""The requests that write the size of an elastic job, and the meaning of their answers.

Invariants:
- Pure functions: the daemon and the simulator use the same ones.
- One request writes the size and what is noted of it. It carries uid and resource version, so it never changes another
  object of the name, nor one that has changed since the decision.
- Sent twice it takes effect once: the second one finds the object changed.

Source: merge patches of RFC 7386, and RFC 6902 for JobSets, of which a merge patch would replace all ReplicatedJobs;
batch/v1 with elastic Indexed Jobs (KEP-3715); JobSet of jobset.x-k8s.io/v1alpha2 (KEP-463).
"""

from typing import Any, Final

import msgspec
from msgspec import Struct

from aischeduler.kube.decode.elastic_terms import FIXED, FOLLOW
from aischeduler.kube.decode.meta_types import StatusDocument, read_status, retry_after_seconds
from aischeduler.kube.elastic_kinds import COLLECTIONS, Collections
from aischeduler.kube.http.paths import object_path
from aischeduler.kube.write.pod_writes import (
    JSON_PATCH,
    MERGE_PATCH,
    Throttled,
    Unauthenticated,
    Unknown,
    is_another_uid,
    read_unhandled,
)
from aischeduler.model.actions import Resize, ResizeReason
from aischeduler.model.elastic import COMPLETIONS_KEY, RESIZE_REASON_KEY, RESIZED_AT_KEY, SERVICE_KEY, SIZE_KEY
from aischeduler.model.events import ResizeRefused
from aischeduler.model.times import time_text

REFUSED_SECONDS: Final = 300.0
"""How long a job is left alone whose size may not be written: rights and policies change rarely."""
UNANSWERED_SECONDS: Final = 10.0
"""The same for one of which no answer came."""
JOB: Final = "Job"
JOB_SET: Final = "JobSet"
WITH_COMPLETIONS: Final = (JOB, JOB_SET)
"""The kinds that end after so many instances."""
_DENIED: Final = "admission webhook "
"""How the message of a refusal by a webhook begins."""


class Resized(Struct, frozen=True):
    """The size is written."""


ResizeAnswer = Resized | ResizeRefused | Throttled | Unauthenticated | Unknown


def resize_path(action: Resize, collections: Collections = COLLECTIONS) -> str:
    """Return the path of the object; raises KeyError for a kind without a collection."""
    version, plural = collections[action.kind]
    return object_path(version, plural, action.name, action.namespace)


def content_type(action: Resize) -> str:
    """Return the type of the patch."""
    return JSON_PATCH if action.kind == JOB_SET else MERGE_PATCH


def resize_patch(action: Resize) -> bytes:
    """Return the patch: a JSON patch of a JobSet, else a merge patch."""
    return msgspec.json.encode(_json_patch(action) if action.kind == JOB_SET else _merge_patch(action))


def annotations(action: Resize) -> dict[str, str]:
    """Return what is noted of the size; what is not in it stays as it is."""
    at = time_text(action.now_seconds, "microseconds")
    noted = {SIZE_KEY: str(action.instances), SERVICE_KEY: f"{action.service} {at}"}
    if action.starts_window:
        noted[RESIZED_AT_KEY] = at
    if action.reason is not ResizeReason.NOTED:
        noted[RESIZE_REASON_KEY] = action.message
    if action.completions_follow is not None and action.kind in WITH_COMPLETIONS:
        noted[COMPLETIONS_KEY] = FOLLOW if action.completions_follow else FIXED
    return noted


def _merge_patch(action: Resize) -> dict[str, Any]:
    metadata = {"uid": action.uid, "resourceVersion": action.version, "annotations": annotations(action)}
    return {"metadata": metadata, "spec": _sizes(action)}


def _json_patch(action: Resize) -> list[dict[str, Any]]:
    """Return the JSON patch of a JobSet.

    The version is written rather than tested: where the object has another one, the API server answers 409, as to a
    merge patch.
    """
    part = f"/spec/replicatedJobs/{action.part_index}"
    return [
        {"op": "replace", "path": "/metadata/uid", "value": action.uid},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": action.version},
        {"op": "test", "path": f"{part}/name", "value": action.part},
        *(
            {"op": "add", "path": f"/metadata/annotations/{_pointer(key)}", "value": text}
            for key, text in annotations(action).items()
        ),
        *(
            {"op": "add", "path": f"{part}/template/spec/{field}", "value": number}
            for field, number in _sizes(action).items()
        ),
    ]


def _sizes(action: Resize) -> dict[str, int]:
    """Return the fields that have the size."""
    if action.kind not in WITH_COMPLETIONS:
        return {"replicas": action.instances}
    followed = {"completions": action.instances} if action.completions_follow else {}
    return {"parallelism": action.instances, **followed}


def _pointer(key: str) -> str:
    """Return a key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def read_answer(action: Resize, status: int, retry_after: str | None, body: bytes) -> ResizeAnswer:
    """Return the meaning of the answer to a resize."""
    if status < 300:
        return Resized()
    document = read_status(body)
    if (unhandled := read_unhandled(status, retry_after, document)) is not None:
        return unhandled
    message = document.message or f"the API server answered {status}"
    match status:
        case 404 | 409:
            return changed(action, message)
        case 422 if is_another_uid(message) or _fits_no_more(action, document):
            return changed(action, message)
        case 400 | 403 | 405 | 413 | 415 | 422:
            return refused(action, message, REFUSED_SECONDS)
        case _:
            return Unknown(message, answered=True, retry_after_seconds=retry_after_seconds(retry_after) or 0.0)


def changed(action: Resize, message: str) -> ResizeRefused:
    """Return the refusal of a resize whose object is not what it was."""
    return ResizeRefused(action.kind, action.namespace, action.name, action.uid, message, changed=True)


def refused(action: Resize, message: str, seconds: float) -> ResizeRefused:
    """Return the refusal of a resize that is not tried again before so many seconds."""
    return ResizeRefused(action.kind, action.namespace, action.name, action.uid, message, retry_after_seconds=seconds)


def _fits_no_more(action: Resize, document: StatusDocument) -> bool:
    """Return whether a JSON patch found another ReplicatedJob in its place, or none: such a refusal names no field."""
    return action.kind == JOB_SET and not document.causes and not document.message.startswith(_DENIED)
