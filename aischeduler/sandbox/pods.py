"""Pods: what the server fills in and keeps, and how long they stay when they are deleted.

Source: `pkg/registry/core/pod` of Kubernetes 1.36.
"""

from aischeduler.sandbox.defaults import fill_own_spec, fill_priority, qos_class
from aischeduler.sandbox.objects import JsonObject, set_condition
from aischeduler.sandbox.podrules import pod_create_errors, pod_spec_errors, pod_update_errors
from aischeduler.sandbox.status import Cause
from aischeduler.sandbox.strategies import Strategy, Write, restore

GATED = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


def _create(write: Write) -> None:
    spec: JsonObject = write.obj.setdefault("spec", {})
    fill_own_spec(spec)
    fill_priority(write.obj, write.call)
    status: JsonObject = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        set_condition(status, dict(GATED), write.call.now)
    write.obj["status"] = {**status, "qosClass": qos_class(spec)}


def _update(write: Write) -> None:
    spec: JsonObject = write.obj.setdefault("spec", {})
    fill_own_spec(spec)
    for key in ("priority", "preemptionPolicy"):
        if write.old is not None and key not in spec:
            restore(spec, write.old["spec"], key)


def _update_status(write: Write) -> None:
    if write.old is not None:
        restore(write.obj["metadata"], write.old["metadata"], "ownerReferences")
        write.obj.setdefault("status", {}).setdefault("qosClass", write.old["status"].get("qosClass", "BestEffort"))


def _validate(write: Write) -> list[Cause]:
    if write.call.subresource:
        return []
    spec = write.obj["spec"]
    causes = pod_spec_errors(spec, "spec")
    return causes + (pod_create_errors(spec) if write.old is None else pod_update_errors(spec, write.old["spec"]))


def _grace_seconds(obj: JsonObject, asked: int | None) -> int:
    """Return the pod's grace; a pod without node, or that has ended, goes at once."""
    spec = obj["spec"]
    if not spec.get("nodeName") or obj["status"].get("phase") in {"Failed", "Succeeded"}:
        return 0
    seconds: int = spec.get("terminationGracePeriodSeconds", 0) if asked is None else asked
    return 1 if seconds < 0 else seconds


PODS = Strategy(
    counts_generations=True,
    resets_status=True,
    shows_deleted=True,
    marks_first=True,
    create=_create,
    update=_update,
    update_status=_update_status,
    validate=_validate,
    grace_seconds=_grace_seconds,
)
