"""What we write about pods to an API server, as bytes ready to send, and what its answers to a Binding mean.

Laws:
- Pure: the daemon's binder and the simulator use the same functions.
- Every write carries the uid of the object it means, so that it can never hit a later one of the same name.
- The answer to a Binding is definite, or it is `Unknown` and says nothing about the pod. What is read here was said by
  an API server: `connections` raises for any other answer.

Source: Kubernetes pods/binding and pods/status.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from aischeduler.kube.api_types import read_status, retry_after_seconds
from aischeduler.model.actions import Bind, ReadPod
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.events import BindRefusal, BindRefused
from aischeduler.model.names import MARK_BORROWED, MARK_DECISION, MARK_EPOCH, MARK_HOME_POOL, MARK_POOL
from aischeduler.model.pod import Pod

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
POD_SCHEDULED: Final = "PodScheduled"
"""The condition that says whether a pod has a node."""
BIND_TRIES_MAX: Final = 5
"""Bindings of one decision that may end without a definite answer before we give it up."""
RETRY_AFTER_SECONDS: Final = 1.0
"""How long we wait when the server is tired and does not say for how long."""

_encode = msgspec.json.Encoder().encode
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*", re.ASCII).fullmatch
_ASSIGNED = re.compile(r'is already assigned to node "([^"]*)"')


@dataclass(frozen=True, slots=True)
class BindAccepted:
    """The API server took our Binding (or an earlier try of it). The core hears of it by the watch alone."""

    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Throttled:
    """The API server is tired: everybody waits so long, then the Binding goes out again."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows whether the Binding took effect; only reading the pod tells."""

    message: str


@dataclass(frozen=True, slots=True)
class Unauthenticated:
    """The API server does not know us: the credentials have to be read again."""


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
    """Return path and body of the Binding: the pod's uid, our marks, the node; `epoch` is the term of an election."""
    pod = action.pod
    marks = {MARK_POOL: action.pool, MARK_HOME_POOL: action.home_pool, MARK_DECISION: action.decision}
    if action.borrowed:
        marks[MARK_BORROWED] = "true"
    if epoch is not None:
        marks[MARK_EPOCH] = str(epoch)
    body = _encode(_Binding(_BindingMetadata(pod.name, pod.namespace, pod.uid, marks), _Target(action.node)))
    return f"{pod_path(pod)}/binding".encode(), body


def pod_path(pod: Pod) -> str:
    """Return the path of a pod."""
    return f"/api/v1/namespaces/{quoted(pod.namespace)}/pods/{quoted(pod.name)}"


def quoted(name: str) -> str:
    """Return a name as part of a path; real names need no quoting, and finding that out is cheaper than doing it."""
    return name if _PLAIN(name) else quote(name, safe="")


def read_bind_answer(action: Bind, status: int, retry_after: str | None, body: bytes) -> BindAnswer:
    """Say what an HTTP answer to a Binding means."""
    uid, node = action.pod.uid, action.node
    if status in (200, 201, 202):
        return BindAccepted(uid, node)
    said = read_status(body)
    message = said.message or f"the API server answered {status}"
    match status:
        case 401:
            return Unauthenticated()
        case 408 | 429:
            return Throttled(retry_after_seconds(retry_after) or RETRY_AFTER_SECONDS)
        case 409:
            return _conflict(action, said.message)
        case 404:
            return BindRefused(uid, node, BindRefusal.GONE, message)
        case 403:
            return BindRefused(uid, node, BindRefusal.FORBIDDEN, message)
        case 400 | 405 | 413 | 415 | 422:
            return BindRefused(uid, node, BindRefusal.INVALID, message)
        case 500 | 502 | 503 | 504 if (seconds := retry_after_seconds(retry_after)) is not None:
            return Throttled(seconds)
        case _:
            return Unknown(message)


def settle(action: Bind | ReadPod, pod: Pod | None, why: str) -> BindAccepted | BindRefused | None:
    """Say what a pod that was read tells about its Binding; None: it is not bound, so it may be sent again.

    `pod` is None where no pod of this name exists; `why` is what made us read it.
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


def unavailable(action: Bind | ReadPod, why: str) -> BindRefused:
    """Return the refusal of a Binding that was tried in vain, of a pod that was read to be unbound."""
    return BindRefused(action.pod.uid, action.node, BindRefusal.UNAVAILABLE, why)


def stale(action: Bind, why: str) -> BindRefused:
    """Return the refusal of a Binding of which nothing is in effect and that is not sent any more."""
    return BindRefused(action.pod.uid, action.node, BindRefusal.STALE, f"not sent: {why}")


def waiting_condition(pod: Pod, message: str, since: str) -> tuple[bytes, bytes]:
    """Return path and strategic merge patch that say in a pod's status why it waits, `since` where it does not yet."""
    return _scheduled_condition(pod, since, reason=ConditionReason.UNSCHEDULABLE, message=message)


def probe(pod: Pod, time_text: str, since: str) -> tuple[bytes, bytes]:
    """Return path and strategic merge patch that change nothing of a pod but when its scheduling was last looked at.

    Where its status does not yet say that it waits, it says so from here on, and `since` when.

    Source: `lastProbeTime` of a pod condition; nothing in Kubernetes reads it.
    """
    return _scheduled_condition(pod, since, lastProbeTime=time_text)


def _scheduled_condition(pod: Pod, since: str, **fields: str) -> tuple[bytes, bytes]:
    """Return what changes the condition PodScheduled; the merge keeps what is left out.

    `lastTransitionTime` moves with the condition's status alone: it is left out where that stands already.
    """
    condition = {"type": POD_SCHEDULED, "status": "True" if pod.node_name else "False", **fields}
    if not (pod.node_name or pod.said_to_wait):
        condition["lastTransitionTime"] = since
    body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
    return f"{pod_path(pod)}/status".encode(), _encode(body)


def nomination(pod: Pod, node: str) -> tuple[bytes, bytes]:
    """Return path and merge patch that write the node for which a waiting pod holds room; an empty one clears it."""
    body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node or None}}
    return f"{pod_path(pod)}/status".encode(), _encode(body)


def time_text(unix_seconds: float, precision: str) -> str:
    """Return a time in RFC 3339, to `seconds` or `microseconds`."""
    return datetime.fromtimestamp(unix_seconds, UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def _conflict(action: Bind, message: str) -> BindAnswer:
    """Tell apart the conflicts that the pods/binding endpoint has."""
    uid, node = action.pod.uid, action.node
    assigned = _ASSIGNED.search(message)
    if assigned is not None:
        if assigned.group(1) == node:
            return BindAccepted(uid, node)
        return BindRefused(uid, node, BindRefusal.TAKEN, message)
    if "Precondition failed: UID" in message:
        return BindRefused(uid, node, BindRefusal.GONE, message)
    if "is being deleted" in message or "schedulingGates" in message:
        return BindRefused(uid, node, BindRefusal.HELD, message)
    return Unknown(message)
