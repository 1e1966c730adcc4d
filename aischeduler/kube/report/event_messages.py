"""The Kubernetes Events that users read on their objects: the texts, and the request that creates an Event.

Invariants:
- Pure functions: the daemon and the simulator write the same texts.
- A note is never longer than the API server accepts.

Source: Kubernetes events.k8s.io/v1; reasons and actions are kube-scheduler's.
"""

from typing import Final

import msgspec
from msgspec import Struct

from aischeduler.kube.elastic_kinds import COLLECTIONS, Collections
from aischeduler.kube.http.paths import collection_path
from aischeduler.model.actions import Bind, Evict, ObjectRef, ReportWaiting, Resize, Warn
from aischeduler.model.event_reasons import ConditionReason, EventReason
from aischeduler.model.names import GROUP, VERSION
from aischeduler.model.pod import Pod
from aischeduler.model.user_text import one_line
from aischeduler.model.workload import ON_EVICTION_KEY, JobRef

NOTE_BYTES_MAX: Final = 1024
NAME_PREFIX_MAX: Final = 220
"""How many characters of the object's name begin the Event's name; a number follows, and 253 are allowed."""
EVENT_NAMESPACE: Final = "default"
"""The namespace of Events about objects without a namespace."""

_ABOUT_NODES: Final = ("0/", "no nodes available")
"""How kube-scheduler's messages about nodes begin. There they count all nodes of the cluster, here the pool's nodes."""
_API_VERSIONS: Final = {
    "Pool": f"{GROUP}/{VERSION}",
    "Queue": f"{GROUP}/{VERSION}",
    "Queue.scheduling.volcano.sh": "scheduling.volcano.sh/v1beta1",
    "PodDisruptionBudget": "policy/v1",
    "Device": "scheduling.koordinator.sh/v1alpha1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "PodGroup.scheduling.x-k8s.io": "scheduling.x-k8s.io/v1alpha1",
    "PodGroup.scheduling.volcano.sh": "scheduling.volcano.sh/v1beta1",
    "PodGroup.scheduling.k8s.io": "scheduling.k8s.io/v1alpha2",
    "PodGroup.v1alpha2.scheduling.k8s.io": "scheduling.k8s.io/v1alpha2",
    "PodGroup.v1beta1.scheduling.k8s.io": "scheduling.k8s.io/v1beta1",
}
"""The group and version of a kind other than those of core, and those that may be elastic.

After a dot the kind has its group, as in kubectl.
"""


class EventMessage(Struct, frozen=True):
    """The content of an Event; `controller` is the name of its sender, empty where that is the scheduler's own."""

    regarding: ObjectRef
    reason: EventReason
    action: str
    text: str
    controller: str = ""


class ReportingController(Struct, frozen=True):
    """The sender of Events: the scheduler's name, the name of this process, and the elastic kinds that it knows."""

    controller: str
    instance: str
    collections: Collections = COLLECTIONS


def scheduled(bind: Bind) -> EventMessage:
    """Return the Event of a bound pod; for a loan it names the pool that may take the room back."""
    pod = bind.pod
    text = f"Successfully assigned {pod.namespace}/{pod.name} to {bind.node}"
    if bind.borrowed:
        text += f" on loan from pool {bind.pool}, which may take the room back"
    return EventMessage(_ref(pod), EventReason.SCHEDULED, "Binding", text, pod.scheduler_name)


def preempted(action: Evict, not_suspended: str = "") -> EventMessage:
    """Return the Event of an evicted pod; its sender is the scheduler of the pod that gets the room, if any does.

    `not_suspended` says why its Job, which was not to start again, could not be suspended.
    """
    sender, text, job = (action.beneficiary or action.victim).scheduler_name, action.message, action.suspends
    if not_suspended and job is not None:
        text += f". The {job.kind} {job.name} could not be suspended, and may start again: {one_line(not_suspended)}"
    return EventMessage(_ref(action.victim), EventReason.PREEMPTED, "Preempting", text, sender)


def suspended(action: Evict, job: JobRef) -> EventMessage:
    """Return the Event of a Job or a JobSet that was suspended to evict its pods, of which this is one."""
    ends = "It is resumed once they are gone"
    if job.aborts:
        ends = f"It stays suspended, as its {ON_EVICTION_KEY} says, until spec.suspend is set to false"
    text = f"Suspended to evict all its pods. {ends}. {action.victim.name}: {action.message}"
    sender = (action.beneficiary or action.victim).scheduler_name
    about = ObjectRef(job.kind, job.name, job.uid, job.namespace)
    return EventMessage(about, EventReason.PREEMPTED, "Preempting", text, sender)


def resized(action: Resize) -> EventMessage:
    """Return the Event of an elastic job with another size."""
    text = f"Resized from {action.before} to {action.instances} instances: {action.message}"
    about = ObjectRef(action.kind, action.name, action.uid, action.namespace)
    return EventMessage(about, EventReason.RESIZED, "Resizing", text)


def failed_scheduling(report: ReportWaiting) -> EventMessage:
    """Return the Event of a pending pod."""
    text, sender = waiting_message(report), report.pod.scheduler_name
    return EventMessage(_ref(report.pod), report.reason, "Scheduling", text, sender)


def condition_reason(report: ReportWaiting) -> str:
    """Return the reason of the condition of a pending pod.

    Autoscalers buy nodes for pods that are `Unschedulable`, and must not for those that a quota holds.
    """
    return ConditionReason.UNSCHEDULABLE if report.reason is EventReason.FAILED_SCHEDULING else report.reason


def waiting_message(report: ReportWaiting) -> str:
    """Return why a pod is pending; a message about nodes begins with the pool."""
    message = report.message
    return f"pool {report.pool}: {message}" if message.startswith(_ABOUT_NODES) else message


def warning(warn: Warn) -> EventMessage:
    """Return the Event of a warning."""
    return EventMessage(warn.about, warn.reason, "Scheduling", warn.message, warn.scheduler_name)


def event(message: EventMessage, number: int, sender: ReportingController, time_text: str) -> tuple[bytes, bytes]:
    """Return path and body of an Event; `number` makes its name unique, `time_text` is RFC 3339 with microseconds."""
    about = message.regarding
    namespace = about.namespace or EVENT_NAMESPACE
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{_name_prefix(about.name)}.{number:x}", "namespace": namespace},
        "eventTime": time_text,
        "reportingController": message.controller or sender.controller,
        "reportingInstance": sender.instance[:128],
        "action": message.action,
        "reason": message.reason,
        "type": message.reason.type,
        "note": truncate(message.text),
        "regarding": {
            "apiVersion": _API_VERSIONS.get(about.kind) or sender.collections.get(about.kind, ("v1", ""))[0],
            "kind": about.kind.partition(".")[0],
            "name": about.name,
            "uid": about.uid,
            **({"namespace": about.namespace} if about.namespace else {}),
        },
    }
    return collection_path("events.k8s.io/v1", "events", namespace).encode(), msgspec.json.encode(body)


def truncate(text: str) -> str:
    """Return the text within the length of a note, with dots at the end if it is truncated."""
    if len(text.encode()) <= NOTE_BYTES_MAX:
        return text
    return text.encode()[: NOTE_BYTES_MAX - 4].decode(errors="ignore") + " ..."


def _name_prefix(name: str) -> str:
    """Return the prefix of an Event's name, which must be a valid name itself."""
    return name[:NAME_PREFIX_MAX].rstrip("-.")


def _ref(pod: Pod) -> ObjectRef:
    return ObjectRef("Pod", pod.name, pod.uid, pod.namespace)
