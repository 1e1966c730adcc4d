"""Events that users read on their objects: what each says, and the request that writes it.

Laws:
- Pure: the daemon and the simulator say the same in the same words.
- A note is never longer than the API server takes.

Source: Kubernetes events.k8s.io/v1; reasons and actions are kube-scheduler's.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from aischeduler.kube.pod_writes import path_segment
from aischeduler.model.actions import Bind, Evict, ObjectRef, ReportWaiting, Warn
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.names import GROUP, VERSION
from aischeduler.model.pod import Pod

NOTE_BYTES_MAX: Final = 1024
"""Longest note of an event that the API server takes."""
NAME_PREFIX_MAX: Final = 220
"""Letters of an object's name in the names of its events; a number follows, and 253 are allowed."""
EVENT_NAMESPACE: Final = "default"
"""Where events about objects without a namespace live."""

_ABOUT_NODES: Final = ("0/", "no nodes available")
"""How kube-scheduler's sentences about nodes begin; it speaks of all nodes of the cluster, and we of a pool's."""
_API_VERSIONS: Final = {"Pool": f"{GROUP}/{VERSION}", "PodDisruptionBudget": "policy/v1"}


@dataclass(frozen=True, slots=True)
class EventMessage:
    """What is said about an object."""

    regarding: ObjectRef
    reason: EventReason
    action: str
    text: str


@dataclass(frozen=True, slots=True)
class ReportingController:
    """Who speaks: the name of the scheduler and of this process."""

    controller: str
    instance: str


def scheduled(bind: Bind) -> EventMessage:
    """Say that a pod was bound, and on a loan who may end it."""
    pod = bind.pod
    text = f"Successfully assigned {pod.namespace}/{pod.name} to {bind.node}"
    if bind.borrowed:
        text += f" on loan from pool {bind.pool}, which may take the room back"
    return EventMessage(_ref(pod), EventReason.SCHEDULED, "Binding", text)


def preempted(action: Evict) -> EventMessage:
    """Say for whom a pod was evicted."""
    return EventMessage(_ref(action.victim), EventReason.PREEMPTED, "Preempting", action.message)


def failed_scheduling(report: ReportWaiting) -> EventMessage:
    """Say why a pod waits."""
    return EventMessage(_ref(report.pod), EventReason.FAILED_SCHEDULING, "Scheduling", waiting_message(report))


def waiting_message(report: ReportWaiting) -> str:
    """Return why a pod waits, in the words for people: a sentence about nodes begins with the pool that they are of."""
    message = report.message
    return f"pool {report.pool}: {message}" if message.startswith(_ABOUT_NODES) else message


def warning(warn: Warn) -> EventMessage:
    """Say what is wrong with an object."""
    return EventMessage(warn.about, warn.reason, "Scheduling", warn.message)


def event(note: EventMessage, number: int, reporter: ReportingController, time_text: str) -> tuple[bytes, bytes]:
    """Return path and body of an event; `number` makes its name unique, `time_text` is RFC 3339 with microseconds."""
    about = note.regarding
    namespace = about.namespace or EVENT_NAMESPACE
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{_name_prefix(about.name)}.{number:x}", "namespace": namespace},
        "eventTime": time_text,
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance[:128],
        "action": note.action,
        "reason": note.reason,
        "type": note.reason.type,
        "note": truncate(note.text),
        "regarding": {
            "apiVersion": _API_VERSIONS.get(about.kind, "v1"),
            "kind": about.kind,
            "name": about.name,
            "uid": about.uid,
            **({"namespace": about.namespace} if about.namespace else {}),
        },
    }
    return f"/apis/events.k8s.io/v1/namespaces/{path_segment(namespace)}/events".encode(), msgspec.json.encode(body)


def truncate(text: str) -> str:
    """Return the text as long as an event's note may be; what is cut ends in dots."""
    if len(text.encode()) <= NOTE_BYTES_MAX:
        return text
    return text.encode()[: NOTE_BYTES_MAX - 4].decode(errors="ignore") + " ..."


def _name_prefix(name: str) -> str:
    """Return the beginning of an event's name, which has to be one itself."""
    return name[:NAME_PREFIX_MAX].rstrip("-.")


def _ref(pod: Pod) -> ObjectRef:
    return ObjectRef("Pod", pod.name, pod.uid, pod.namespace)
