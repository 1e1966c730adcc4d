"""Jobs: the labels that bind pods to their job, defaults, and what may not be changed.

Source: `pkg/registry/batch/job` and `pkg/apis/batch` of Kubernetes 1.36. A Job has no scale subresource there either.
"""

from aischeduler.sandbox.defaults import fill_pod_spec
from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.podrules import pod_spec_errors
from aischeduler.sandbox.status import Cause, invalid_value, required, unsupported_value
from aischeduler.sandbox.strategies import Strategy, Write

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
COMPLETION_MODES = ("NonIndexed", "Indexed")
BACKOFF_LIMIT = 6
INT32_MAX = 2**31 - 1


def _create(write: Write) -> None:
    metadata = write.obj["metadata"]
    spec: JsonObject = write.obj.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec |= {"completions": 1, "parallelism": 1}
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", INT32_MAX if "backoffLimitPerIndex" in spec else BACKOFF_LIMIT)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    failure_policy = spec.get("podFailurePolicy") is not None
    spec.setdefault("podReplacementPolicy", "Failed" if failure_policy else "TerminatingOrFailed")
    template: JsonObject = spec.setdefault("template", {})
    given = (template.get("spec") or {}).get("restartPolicy")
    fill_pod_spec(template.setdefault("spec", {}))
    if given is None:
        template["spec"]["restartPolicy"] = "Always"
    if not spec.get("manualSelector"):
        marks = {CONTROLLER_UID: metadata["uid"], JOB_NAME: metadata["name"]}
        old_marks = {"controller-uid": metadata["uid"], "job-name": metadata["name"]}
        labels = (template.get("metadata") or {}).get("labels") or {}
        template["metadata"] = {**(template.get("metadata") or {}), "labels": {**labels, **marks, **old_marks}}
        spec["selector"] = {"matchLabels": {CONTROLLER_UID: metadata["uid"]}}
    if not metadata.get("labels"):
        metadata["labels"] = dict((template.get("metadata") or {}).get("labels") or {})
    write.obj["status"] = {}


def _update(write: Write) -> None:
    fill_pod_spec(write.obj["spec"].setdefault("template", {}).setdefault("spec", {}))


def _validate(write: Write) -> list[Cause]:
    spec = write.obj["spec"]
    causes = [
        invalid_value(f"spec.{key}", spec[key], "must be greater than or equal to 0")
        for key in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
        if spec.get(key) is not None and spec[key] < 0
    ]
    if spec["completionMode"] not in COMPLETION_MODES:
        causes.append(unsupported_value("spec.completionMode", spec["completionMode"], COMPLETION_MODES))
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        causes.append(required("spec.completions", "when completion mode is Indexed"))
    pod = spec["template"]["spec"]
    causes += pod_spec_errors(pod, "spec.template.spec")
    if pod.get("restartPolicy") == "Always":
        causes.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    return causes + (_update_errors(spec, write.old["spec"]) if write.old is not None else [])


def _update_errors(spec: JsonObject, old: JsonObject) -> list[Cause]:
    fixed = ["selector", "completionMode"]
    if not old.get("suspend"):
        fixed.append("template")
    elastic = (
        spec["completionMode"] == "Indexed"
        and spec.get("completions") == spec.get("parallelism")
        and old.get("completions") is not None
    )
    if not elastic:
        fixed.append("completions")
    return [
        invalid_value(f"spec.{key}", spec.get(key), "field is immutable")
        for key in fixed
        if spec.get(key) != old.get(key)
    ]


JOBS = Strategy(counts_generations=True, resets_status=True, create=_create, update=_update, validate=_validate)
