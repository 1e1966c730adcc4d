"""The fields of log lines that identify pods, objects and decisions."""

from aischeduler.model.actions import Bind, BindVolumes, Evict, ObjectRef, ReportWaiting, Resize
from aischeduler.model.pod import Pod
from aischeduler.model.workload import JobRef


def decision_fields(action: Bind | ReportWaiting) -> dict[str, str]:
    """Return the log fields that identify a decision."""
    return {
        **pod_fields(action.pod),
        "pool": action.pool,
        "home_pool": action.home_pool,
        "decision": action.decision,
    }


def eviction_fields(action: Evict) -> dict[str, str]:
    """Return the log fields of an eviction: the victim, and the pod it makes room for."""
    by = action.beneficiary
    benefit = {"beneficiary": f"{by.namespace}/{by.name}", "beneficiary_uid": by.uid} if by is not None else {}
    return {
        **pod_fields(action.victim),
        "pool": action.pool,
        "home_pool": action.home_pool,
        "node": action.node,
        "decision": action.decision,
        "cause": str(action.cause),
        **benefit,
    }


def object_fields(about: ObjectRef) -> dict[str, str]:
    """Return the log fields that identify an object."""
    return {"kind": about.kind, "name": about.name, "namespace": about.namespace, "uid": about.uid}


def job_fields(job: JobRef) -> dict[str, str]:
    """Return the log fields that identify a Job or a JobSet."""
    return {"kind": job.kind, "name": job.name, "namespace": job.namespace, "uid": job.uid}


def resize_fields(action: Resize) -> dict[str, str | int]:
    """Return the log fields of a resize."""
    return {
        "kind": action.kind,
        "name": action.name,
        "namespace": action.namespace,
        "uid": action.uid,
        "from": action.before,
        "to": action.instances,
        "reason": str(action.reason),
        "decision": action.decision,
    }


def pod_fields(pod: Pod) -> dict[str, str]:
    """Return the log fields that identify a pod."""
    return {"pod": pod.name, "namespace": pod.namespace, "uid": pod.uid}


def volume_fields(action: BindVolumes) -> dict[str, str]:
    """Return the log fields of volumes for a pod."""
    return {**pod_fields(action.pod), "node": action.node, "decision": action.decision}
