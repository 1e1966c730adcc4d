"""The pods of a Job: made from its template, and for an Indexed Job with their index."""

from collections.abc import Iterable

from aischeduler.sandbox.objects import JsonObject, copy_object, encode
from aischeduler.sandbox.store import Entry

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def pod_of(job: JsonObject, index: int | None) -> JsonObject:
    """Return a new pod of a Job, with `index` for an Indexed one."""
    metadata = job["metadata"]
    template = copy_object(encode(job["spec"]["template"]))
    marks: JsonObject = {key: value for key, value in (template.get("metadata") or {}).items() if key in MARKS}
    name = metadata["name"] if index is None else f"{metadata['name']}-{index}"
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    spec = template["spec"]
    if index is not None:
        for key in ("labels", "annotations"):
            marks[key] = {**(marks.get(key) or {}), COMPLETION_INDEX: str(index)}
        spec.setdefault("hostname", name)
        for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
            field = f"metadata.labels['{COMPLETION_INDEX}']"
            source = {"fieldRef": {"fieldPath": field}}
            container["env"] = [*(container.get("env") or ()), {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]
    return {"metadata": {**marks, "generateName": f"{name}-", "ownerReferences": [owner]}, "spec": spec}


MARKS = ("labels", "annotations", "finalizers")


def free_indexes(spec: JsonObject, active: Iterable[Entry], completed: Iterable[str]) -> list[int]:
    """Return the indexes without a pod that runs or has succeeded, lowest first; none for a Job that is not Indexed."""
    if spec["completionMode"] != "Indexed":
        return []
    taken = {pod.labels.get(COMPLETION_INDEX, "") for pod in active} | set(completed)
    return [index for index in range(spec["completions"]) if str(index) not in taken]


def shown_indexes(indexes: Iterable[int]) -> str:
    """Return indexes as the status shows them: `0,2-5`."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
