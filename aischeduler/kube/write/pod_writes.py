"""The request bodies of writes to pods, and the meaning of the answers to a Binding.

Invariants:
- Pure functions: the daemon's binder and the simulator use the same ones.
- Every write carries the uid of its pod, so it never changes a later pod of the same name.
- The answer to a Binding is definite, or it is `Unknown`. Only answers of an API server arrive here: the connection
  pool raises for any other.
- No answer ends the placing of a pod for good, because a policy or a webhook can send each of them. Only a read of the
  pod does, in `settle`.

Source: Kubernetes pods/binding and pods/status; `tooManyRequests` and `WithRetryAfter` of the API server's filters.
"""

from typing import Final

import msgspec
from msgspec import Struct

from aischeduler.kube.decode.meta_types import StatusDocument, read_status, retry_after_seconds
from aischeduler.kube.decode.pod_devices import gpu_ids, write_allocated
from aischeduler.kube.http.paths import object_path
from aischeduler.model.actions import Bind, ReadPod
from aischeduler.model.device import DEVICES, HeldDevices
from aischeduler.model.device_request import DEVICE_ALLOCATED_KEY, GPU_UUIDS_KEY
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.events import BindRefusal, BindRefused
from aischeduler.model.names import MARK_BORROWED, MARK_DECISION, MARK_EPOCH, MARK_HOME_POOL, MARK_POOL
from aischeduler.model.pod import Pod

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
POD_SCHEDULED: Final = "PodScheduled"
"""The condition that says whether a pod has a node."""
BIND_TRIES_MAX: Final = 5
"""How many Bindings of one decision may end without a definite answer before the binder gives up."""
RETRY_AFTER_SECONDS: Final = 1.0
"""How long to wait if an overloaded server names no time."""
REFUSED_SECONDS_MAX: Final = 60.0
"""The longest time until the next try that the refusal of a Binding may ask for."""
_ANOTHER_UID: Final = ("metadata.uid: Invalid value", "UID in precondition", "the UID in the precondition")
"""What the API server answers if the name belongs to another object now: to a patch, an eviction and a delete."""

_encode = msgspec.json.Encoder().encode


class BindAccepted(Struct, frozen=True):
    """The API server accepted the Binding, or an earlier try. The engine learns it from the watch alone."""

    uid: str
    node: str


class Throttled(Struct, frozen=True):
    """The API server, or a proxy in front of it, is overloaded: after this long the same request is sent again."""

    seconds: float


class Unknown(Struct, frozen=True):
    """The outcome of the request is unknown; only reading the object tells.

    If the API server `answered`, it does nothing more; the next try may follow after `retry_after_seconds`.
    """

    message: str
    answered: bool = False
    retry_after_seconds: float = 0.0


class Unauthenticated(Struct, frozen=True):
    """The API server answered 401: the credentials must be read again."""


BindAnswer = BindAccepted | BindRefused | Throttled | Unknown | Unauthenticated


class _BindingMetadata(Struct):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str]


class _Target(Struct):
    name: str
    apiVersion: str = "v1"  # noqa: N815 - the field's name in the API
    kind: str = "Node"


class _Binding(Struct):
    metadata: _BindingMetadata
    target: _Target
    apiVersion: str = "v1"  # noqa: N815 - the field's name in the API
    kind: str = "Binding"


def binding(action: Bind, epoch: int | None = None) -> tuple[bytes, bytes]:
    """Return path and body of a Binding with the scheduler's annotations; `epoch` is the leader's term."""
    pod = action.pod
    annotations = {MARK_POOL: action.pool, MARK_HOME_POOL: action.home_pool, MARK_DECISION: action.decision}
    if action.borrowed:
        annotations[MARK_BORROWED] = "true"
    if epoch is not None:
        annotations[MARK_EPOCH] = str(epoch)
    held = action.allocation.part(DEVICES)
    if isinstance(held, HeldDevices) and held.devices:
        annotations |= {DEVICE_ALLOCATED_KEY: write_allocated(held.devices), GPU_UUIDS_KEY: gpu_ids(held.devices)}
    elif pod.devices is not None or isinstance(held, HeldDevices):  # what the pod says itself does not hold
        annotations[DEVICE_ALLOCATED_KEY] = write_allocated(())
    body = _encode(_Binding(_BindingMetadata(pod.name, pod.namespace, pod.uid, annotations), _Target(action.node)))
    return pod_path(pod, "binding").encode(), body


def pod_path(pod: Pod, subresource: str = "") -> str:
    """Return the path of a pod, or of its subresource."""
    return object_path("v1", "pods", pod.name, pod.namespace, subresource)


def read_bind_answer(action: Bind, status: int, retry_after: str | None, body: bytes) -> BindAnswer:
    """Return the meaning of an HTTP answer to a Binding."""
    uid, node = action.pod.uid, action.node
    if status in (200, 201, 202):
        return BindAccepted(uid, node)
    document = read_status(body)
    if (unhandled := read_unhandled(status, retry_after, document)) is not None:
        return unhandled
    message = document.message or f"the API server answered {status}"
    seconds = min(retry_after_seconds(retry_after) or 0.0, REFUSED_SECONDS_MAX)
    match status:
        case 403:
            return BindRefused(uid, node, BindRefusal.FORBIDDEN, message, seconds)
        case 400 | 405 | 413 | 415 | 422:
            return BindRefused(uid, node, BindRefusal.INVALID, message, seconds)
        case 429:
            return BindRefused(uid, node, BindRefusal.UNAVAILABLE, message, seconds or RETRY_AFTER_SECONDS)
        case _:
            return Unknown(message, answered=True, retry_after_seconds=seconds)


def is_another_uid(message: str) -> bool:
    """Return whether the API server says that the name belongs to another object now."""
    return any(words in message for words in _ANOTHER_UID)


def read_unhandled(
    status: int, retry_after: str | None, document: StatusDocument
) -> Throttled | Unauthenticated | None:
    """Return the pause of an overloaded server, or that it knows no such client; None if it handled the request.

    What rejects a request before it is handled answers in plain text: a limit on requests in flight, an API server that
    stops, or a proxy. A Status comes from what handled the request, such as a webhook.
    """
    if status == 401:
        return Unauthenticated()
    seconds = retry_after_seconds(retry_after)
    if document.kind == "Status" or not (status in (408, 429) or (status >= 500 and seconds is not None)):
        return None
    return Throttled(seconds or RETRY_AFTER_SECONDS)


def settle(action: Bind | ReadPod, pod: Pod | None, why: str) -> BindAccepted | BindRefused | None:
    """Return the outcome of a Binding as its pod shows it; None if it is not bound: the Binding may be sent again.

    `pod` is None if no pod of this name exists; `why` is the reason of the read.
    """
    uid, node = action.pod.uid, action.node
    if pod is None or pod.uid != uid:
        return BindRefused(uid, node, BindRefusal.GONE, f"the pod is gone; before: {why}")
    if pod.node_name == node:
        return BindAccepted(uid, node)
    if pod.finished:
        return BindRefused(uid, node, BindRefusal.GONE, f"the pod has finished; before: {why}")
    if pod.node_name:
        return BindRefused(uid, node, BindRefusal.TAKEN, f"the pod is on node {pod.node_name}; before: {why}")
    if pod.terminating or pod.gates:
        return BindRefused(uid, node, BindRefusal.HELD, f"the pod is terminating or gated; before: {why}")
    return None


def unavailable(action: Bind | ReadPod, why: str, retry_after_seconds: float = 0.0) -> BindRefused:
    """Return the refusal of a Binding that is not sent again; its pod was read and is not bound."""
    return BindRefused(action.pod.uid, action.node, BindRefusal.UNAVAILABLE, why, retry_after_seconds)


def stale(action: Bind, why: str) -> BindRefused:
    """Return the refusal of a Binding that was not sent."""
    return BindRefused(action.pod.uid, action.node, BindRefusal.STALE, f"not sent: {why}")


def waiting_condition(
    pod: Pod, message: str, since: str, reason: str = ConditionReason.UNSCHEDULABLE
) -> tuple[bytes, bytes]:
    """Return path and strategic merge patch that set PodScheduled to False with a message, first so at `since`.

    `lastTransitionTime` is left out if the condition already has this status.
    """
    condition = {"type": POD_SCHEDULED, "status": "True" if pod.node_name else "False"}
    condition |= {"reason": reason, "message": message}
    if not (pod.node_name or pod.said_to_wait):
        condition["lastTransitionTime"] = since
    body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
    return pod_path(pod, "status").encode(), _encode(body)


def nomination(pod: Pod, node: str) -> tuple[bytes, bytes]:
    """Return path and merge patch that set the node for which a pending pod is nominated; an empty node clears it."""
    body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node or None}}
    return pod_path(pod, "status").encode(), _encode(body)
