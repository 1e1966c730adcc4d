"""Builders of the objects that declare gangs, as a user writes them in YAML, and the definitions of their kinds.

The definitions have the fields that gangs use, as upstream has them: Coscheduling's status has no conditions.
"""

from collections.abc import Mapping
from typing import Any

from aischeduler.model.gang import GANG_KEY, GANG_MIN_KEY, GANG_ROLE_KEY, GANG_ROLE_MIN_KEY
from aischeduler.model.names import SCHEDULER_NAME
from tests.objects import NOTHING, Json, pod_spec, present

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
VOLCANO_GROUP = "scheduling.k8s.io/group-name"


def pod_group_object(
    name: str = "group",
    *,
    namespace: str = "default",
    min_member: Any = 2,
    timeout_seconds: Any = None,
    min_resources: Mapping[str, Any] = NOTHING,
    annotations: Mapping[str, str] = NOTHING,
) -> Json:
    """Return a PodGroup of Coscheduling; pods name it by the label `POD_GROUP_LABEL`."""
    timeout = {"scheduleTimeoutSeconds": timeout_seconds} if timeout_seconds is not None else {}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, **present(annotations=dict(annotations))},
        "spec": {"minMember": min_member, **timeout, **present(minResources=dict(min_resources))},
    }


def volcano_pod_group_object(
    name: str = "group",
    *,
    namespace: str = "default",
    min_member: Any = 2,
    min_resources: Mapping[str, Any] = NOTHING,
    min_task_member: Mapping[str, Any] = NOTHING,
    annotations: Mapping[str, str] = NOTHING,
) -> Json:
    """Return a PodGroup of Volcano; pods name it by the annotation `VOLCANO_GROUP`."""
    further = present(minResources=dict(min_resources), minTaskMember=dict(min_task_member))
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, **present(annotations=dict(annotations))},
        "spec": {"minMember": min_member, "queue": "default", **further},
    }


def native_pod_group_object(
    name: str = "group",
    *,
    namespace: str = "default",
    min_count: Any = 2,
    topology: str = "",
    version: str = "v1alpha2",
) -> Json:
    """Return a PodGroup of the API server itself, with the policy `basic` where `min_count` is None."""
    policy = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    constraints = {"schedulingConstraints": {"topology": [{"key": topology}]}} if topology else {}
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulingPolicy": policy, **constraints},
    }


def indexed_job_object(
    name: str = "job",
    *,
    namespace: str = "default",
    pods: int = 2,
    gang: str = "true",
    annotations: Mapping[str, str] = NOTHING,
    template_annotations: Mapping[str, str] = NOTHING,
    cpu: str = "1",
    gpu: int = 0,
    scheduler_name: str = SCHEDULER_NAME,
) -> Json:
    """Return an indexed Job of so many pods at once; `gang` is its annotation, none where it is empty."""
    noted = {GANG_KEY: gang, **annotations} if gang else dict(annotations)
    template: Json = {"spec": pod_spec(cpu=cpu, gpu=gpu, scheduler_name=scheduler_name)}
    if template_annotations:
        template["metadata"] = {"annotations": dict(template_annotations)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, **present(annotations=noted)},
        "spec": {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "template": template},
    }


def job_set_object(
    name: str = "set",
    *,
    namespace: str = "default",
    gang: str = "true",
    jobs: Mapping[str, tuple[int, int]],
    startup_order: str = "",
) -> Json:
    """Return a JobSet; `jobs` are its ReplicatedJobs by name: how many Jobs, and how many pods each."""
    replicated = [
        {
            "name": job,
            "replicas": replicas,
            "template": {"spec": {"parallelism": pods, "completions": pods, "template": {"spec": pod_spec()}}},
        }
        for job, (replicas, pods) in jobs.items()
    ]
    policy = {"startupPolicy": {"startupPolicyOrder": startup_order}} if startup_order else {}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, **present(annotations={GANG_KEY: gang} if gang else {})},
        "spec": {"replicatedJobs": replicated, **policy},
    }


def gang_labels(name: str, minimum: str = "2", *, role: str = "", role_minimum: str = "") -> dict[str, str]:
    """Return the labels of a pod that declare its gang."""
    return {
        GANG_KEY: name,
        **present(**{GANG_MIN_KEY: minimum, GANG_ROLE_KEY: role, GANG_ROLE_MIN_KEY: role_minimum}),
    }


def coscheduling_crd() -> Json:
    """Return the definition of Coscheduling's PodGroup."""
    spec = {
        "minMember": {"type": "integer", "format": "int32"},
        "minResources": AMOUNTS,
        "scheduleTimeoutSeconds": {"type": "integer", "format": "int32"},
    }
    counts = {name: {"type": "integer", "format": "int32"} for name in ("running", "succeeded", "failed")}
    time = {"type": "string", "format": "date-time"}
    status = {"phase": {"type": "string"}, "occupiedBy": {"type": "string"}, "scheduleStartTime": time, **counts}
    return definition("scheduling.x-k8s.io", "v1alpha1", ("PodGroup", "podgroups"), spec, status)


def volcano_crd(*, subresource: bool = True) -> Json:
    """Return the definition of Volcano's PodGroup; older ones have no subresource `status`."""
    spec = {
        "minMember": {"type": "integer", "format": "int32"},
        "minResources": AMOUNTS,
        "minTaskMember": {"type": "object", "additionalProperties": {"type": "integer", "format": "int32"}},
        "queue": {"type": "string"},
        "priorityClassName": {"type": "string"},
    }
    text = {"type": "string"}
    condition = dict.fromkeys(("type", "status", "transitionID", "reason", "message"), text)
    condition["lastTransitionTime"] = {"type": "string", "format": "date-time"}
    conditions = {"type": "array", "items": {"type": "object", "properties": condition}}
    counts = {name: {"type": "integer", "format": "int32"} for name in ("running", "succeeded", "failed")}
    status = {"phase": text, "conditions": conditions, **counts}
    found = definition("scheduling.volcano.sh", "v1beta1", ("PodGroup", "podgroups"), spec, status)
    if not subresource:
        del found["spec"]["versions"][0]["subresources"]
    return found


def job_set_crd() -> Json:
    """Return the definition of JobSets, with their ReplicatedJobs as they are."""
    kept = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {"replicatedJobs": {"type": "array", "items": kept}, "startupPolicy": kept}
    return definition("jobset.x-k8s.io", "v1alpha2", ("JobSet", "jobsets"), spec, {"restarts": {"type": "integer"}})


AMOUNTS: Json = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
}


def definition(
    group: str, version: str, names: tuple[str, str], spec: Json, status: Json, *, scope: str = "Namespaced"
) -> Json:
    """Return the definition of a kind; `names` are kind and plural."""
    kind, plural = names
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": status},
        },
    }
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [served],
        },
    }
