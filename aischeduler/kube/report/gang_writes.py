"""The requests that write the status of a gang into its PodGroup, and the Events about it.

Invariants:
- Pure functions: the daemon and the simulator use the same ones.
- A status is written only if it differs from the stored one, and only at the resource version that was read. Fields and
  conditions of other writers stay; a condition with the same status keeps its transition time.
- Jobs and JobSets have no status for this, and a gang of labels has no object: they get Events, or nothing.

Source: phases and conditions of Coscheduling, Volcano and `scheduling.k8s.io`; merge patches of RFC 7386.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from aischeduler.kube.decode.gang_objects import NATIVE_CONDITION
from aischeduler.kube.http.paths import object_path
from aischeduler.kube.report.event_messages import EventMessage
from aischeduler.kube.watch.gang_resources import NATIVE_VERSIONS
from aischeduler.model.actions import ObjectRef, ReportGang
from aischeduler.model.event_reasons import ConditionReason, EventReason
from aischeduler.model.gang import Gang, GangPhase, GangSource, GangStatus

MESSAGE_LENGTH_MAX: Final = 1024
SCHEDULED: Final = "Scheduled"
"""The condition of Coscheduling and Volcano; Volcano has `UNSCHEDULABLE` too, with the other status."""
UNSCHEDULABLE: Final = "Unschedulable"
ON_NODES: Final = frozenset((GangPhase.SCHEDULED, GangPhase.RUNNING))
"""The phases in which at least the minimum is on nodes."""
_GROUP_VERSIONS: Final = {
    GangSource.COSCHEDULING: ("scheduling.x-k8s.io/v1alpha1",),
    GangSource.VOLCANO: ("scheduling.volcano.sh/v1beta1",),
    GangSource.NATIVE: tuple(f"scheduling.k8s.io/{version}" for version in NATIVE_VERSIONS),
}
_KINDS: Final = {
    GangSource.COSCHEDULING: "PodGroup.scheduling.x-k8s.io",
    GangSource.VOLCANO: "PodGroup.scheduling.volcano.sh",
    GangSource.NATIVE: "PodGroup.scheduling.k8s.io",
    GangSource.JOB: "Job",
    GangSource.JOB_SET: "JobSet",
}
_COSCHEDULING_PHASES: Final = {
    GangPhase.PENDING: "Pending",
    GangPhase.SCHEDULING: "Pending",
    GangPhase.SCHEDULED: "Scheduling",
    GangPhase.RUNNING: "Running",
    GangPhase.FAILED: "Failed",
}
"""In Coscheduling "Scheduling" means that the minimum is on nodes and does not run yet."""
_VOLCANO_PHASES: Final = {
    GangPhase.PENDING: "Inqueue",
    GangPhase.SCHEDULING: "Inqueue",
    GangPhase.SCHEDULED: "Running",
    GangPhase.RUNNING: "Running",
    GangPhase.FAILED: "Inqueue",
}
"""Controllers create no pods of a group in the phase "Pending"; Volcano calls a group running once it is on nodes."""


def object_paths(gang: Gang) -> tuple[str, ...]:
    """Return where the object of a gang may be, newest version first; empty for a gang without a status."""
    key = gang.key
    return tuple(
        object_path(version, "podgroups", key.name, key.namespace) for version in _GROUP_VERSIONS.get(key.source, ())
    )


def status_paths(path: str, source: GangSource) -> tuple[str, ...]:
    """Return where the status of the PodGroup at this path is patched: in the first of these places that exists."""
    return (f"{path}/status", path) if source is GangSource.VOLCANO else (f"{path}/status",)


def status_patch(report: ReportGang, document: Mapping[str, Any], now_text: str) -> bytes | None:
    """Return the merge patch that updates the status of a PodGroup; None if it is current, or its uid is another.

    `document` is the PodGroup as read, `now_text` the time in RFC 3339 to seconds.
    """
    metadata, before = document.get("metadata") or {}, document.get("status") or {}
    if metadata.get("uid") != report.gang.uid:
        return None
    after = _status(report, before, now_text)
    patch = {
        name: value for name, value in after.items() if value != before.get(name, 0 if name == "running" else None)
    }
    # The definition of Coscheduling has no conditions: the server drops them, and they cannot be compared.
    unread = report.gang.key.source is GangSource.COSCHEDULING and "conditions" not in before and before.get("phase")
    if not patch.keys() - ({"conditions"} if unread else ()):
        return None
    return msgspec.json.encode({"metadata": {"resourceVersion": metadata.get("resourceVersion")}, "status": patch})


def phase_event(report: ReportGang, before: GangPhase | None) -> EventMessage | None:
    """Return the Event of a gang that was scheduled or failed, or whose source is invalid; None where there is none.

    `before` is the phase of the last report. A gang that started before is not scheduled anew.
    """
    gang, status = report.gang, report.status
    kind = _KINDS.get(gang.key.source)
    if kind is None or not gang.uid:
        return None
    about = ObjectRef(kind, gang.key.name, gang.uid, gang.key.namespace)
    if gang.invalid:
        return EventMessage(about, EventReason.INVALID_SPEC, "Scheduling", gang.invalid)
    if status.phase is before:
        return None
    if status.phase is GangPhase.FAILED:
        return EventMessage(about, EventReason.FAILED_SCHEDULING, "Scheduling", _message(status))
    if status.phase in ON_NODES and before not in ON_NODES and not gang.started:
        return EventMessage(about, EventReason.SCHEDULED, "Binding", _message(status))
    return None


def _status(report: ReportGang, before: Mapping[str, Any], now_text: str) -> dict[str, Any]:
    """Return the fields of the status that this scheduler writes."""
    status, ready, message = report.status, report.status.phase in ON_NODES, _message(report.status)
    match report.gang.key.source:
        case GangSource.COSCHEDULING:
            reason = ConditionReason.SCHEDULED if ready else status.reason or ConditionReason.UNSCHEDULABLE
            phase, conditions = _COSCHEDULING_PHASES[status.phase], [_condition(SCHEDULED, ready, reason, message)]
        case GangSource.VOLCANO:
            few = status.phase is GangPhase.PENDING
            otherwise = ConditionReason.NOT_ENOUGH_TASKS if few else ConditionReason.NOT_ENOUGH_RESOURCES
            reason = ConditionReason.SCHEDULED if ready else status.reason or otherwise
            phase = _VOLCANO_PHASES[status.phase]
            conditions = [
                _condition(kind, holds, reason, message)
                for kind, holds in ((SCHEDULED, ready), (UNSCHEDULABLE, not ready))
            ]
            return {"phase": phase, "running": status.running, "conditions": _merged(before, conditions, now_text)}
        case _:
            reason = ConditionReason.SCHEDULED if ready else ConditionReason.UNSCHEDULABLE
            phase, conditions = "", [_condition(NATIVE_CONDITION, ready, reason, message)]
    conditions[0]["observedGeneration"] = report.gang.generation
    fields = {"phase": phase, "running": status.running} if phase else {}
    return {**fields, "conditions": _merged(before, conditions, now_text)}


def _condition(kind: str, holds: bool, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": "True" if holds else "False", "reason": reason, "message": message}


def _merged(before: Mapping[str, Any], own: list[dict[str, Any]], now_text: str) -> list[Any]:
    """Return the stored conditions with these in their places, or at the end."""
    stored = before.get("conditions") or []
    by_type = {condition.get("type"): condition for condition in stored if isinstance(condition, dict)}
    merged = {
        condition["type"]: condition
        | {"lastTransitionTime": _since(by_type.get(condition["type"]), condition, now_text)}
        for condition in own
    }
    kept = [
        merged.pop(condition["type"], condition) if isinstance(condition, dict) and "type" in condition else condition
        for condition in stored
    ]
    return [*kept, *merged.values()]


def _since(before: Mapping[str, Any] | None, condition: Mapping[str, Any], now_text: str) -> str:
    same = before is not None and before.get("status") == condition["status"]
    return str((before or {}).get("lastTransitionTime") or now_text) if same else now_text


def _message(status: GangStatus) -> str:
    counts = f"{status.placed} of {status.members} pods are on nodes, and {status.min_member} start together"
    return (f"{counts}: {status.message}" if status.message else counts)[:MESSAGE_LENGTH_MAX]
