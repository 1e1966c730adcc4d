"""Jobs: the labels that tie pods to their Job, defaults, and what may not be changed.

Source: `pkg/registry/batch/job` and `pkg/apis/batch` of Kubernetes.
"""

from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.pod_strategy import fill_pod_spec, pod_spec_errors
from aischeduler.sandbox.status_errors import Cause
from aischeduler.sandbox.strategy import Strategy, Write, immutable

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
BACKOFF_LIMIT = 6
_DEFAULTS = {"backoffLimit": BACKOFF_LIMIT, "completionMode": "NonIndexed", "suspend": False, "parallelism": 1}


def _create(write: Write) -> None:
    metadata, spec = write.obj["metadata"], write.obj["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    for key, value in _DEFAULTS.items():
        spec.setdefault(key, value)
    template: JsonObject = spec["template"]
    fill_pod_spec(template["spec"])
    marks = {CONTROLLER_UID: metadata["uid"], JOB_NAME: metadata["name"]}
    old_marks = {"controller-uid": metadata["uid"], "job-name": metadata["name"]}
    given = template.get("metadata") or {}
    template["metadata"] = {**given, "labels": {**(given.get("labels") or {}), **marks, **old_marks}}
    spec["selector"] = {"matchLabels": {CONTROLLER_UID: metadata["uid"]}}
    metadata["labels"] = metadata.get("labels") or dict(template["metadata"]["labels"])
    write.obj["status"] = {}


def _update(write: Write) -> None:
    fill_pod_spec(write.obj["spec"]["template"]["spec"])
    for key, value in _DEFAULTS.items():
        write.obj["spec"].setdefault(key, value)


def _validate(write: Write) -> list[Cause]:
    spec, old = write.obj["spec"], (write.old or write.obj)["spec"]
    pod = spec["template"]["spec"]
    causes = pod_spec_errors(pod, "spec.template.spec")
    if pod["restartPolicy"] == "Always":
        causes.append(Cause("spec.template.spec.restartPolicy", "must be OnFailure or Never"))
    indexed = spec["completionMode"] == "Indexed"
    if indexed and "completions" not in spec:
        causes.append(Cause("spec.completions", "is required when completionMode is Indexed"))
    elastic = indexed and spec.get("completions") == spec.get("parallelism") and "completions" in old
    fixed = ("selector", "completionMode", *(() if old["suspend"] else ("template",)))
    return causes + immutable(spec, old, fixed if elastic else (*fixed, "completions"), "spec.")


JOBS = Strategy(counts_generations=True, create=_create, update=_update, validate=_validate)
