"""Nodes, namespaces, priority classes, budgets, leases, volumes, claims: what the server fills in and refuses.

Source: the strategies and validation of these kinds in Kubernetes 1.36.
"""

from aischeduler.sandbox.objects import JsonObject, encode, label_value_errors, qualified_name_errors
from aischeduler.sandbox.podrules import EFFECTS
from aischeduler.sandbox.status import (
    Cause,
    forbidden_field,
    invalid_value,
    required,
    unsupported_value,
)
from aischeduler.sandbox.strategies import Strategy, Write, restore
from aischeduler.sandbox.validation import label_selector_errors

USER_PRIORITY_MAX = 1_000_000_000
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
NO_DELETION = frozenset({"default", "kube-system", "kube-public"})
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


def _create_node(write: Write) -> None:
    write.obj.setdefault("spec", {})
    status = write.obj.setdefault("status", {})
    if status.get("capacity"):
        status.setdefault("allocatable", dict(status["capacity"]))
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status.setdefault("nodeInfo", dict.fromkeys(NODE_INFO, ""))


NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


def _update_node(write: Write) -> None:
    if write.old is not None:
        restore(write.obj, write.old, "status")
    write.obj.setdefault("spec", {})


def _validate_node(write: Write) -> list[Cause]:
    causes = []
    seen: dict[tuple[str, str], None] = {}
    for index, taint in enumerate(write.obj.get("spec", {}).get("taints") or ()):
        path = f"metadata.taints[{index}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        if (wrong := qualified_name_errors(key)) is not None:
            causes.append(invalid_value(f"{path}.key", key, wrong))
        if (wrong := label_value_errors(taint.get("value", ""))) is not None:
            causes.append(invalid_value(f"{path}.value", taint["value"], wrong))
        if effect not in EFFECTS:
            causes.append(
                unsupported_value(f"{path}.effect", effect, EFFECTS) if effect else required(f"{path}.effect")
            )
        if (key, effect) in seen:
            shown = {"Key": key, "Value": taint.get("value", ""), "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            message = f"Duplicate value: {encode(shown).decode()}: taints must be unique by key and effect pair"
            causes.append(Cause(path, "FieldValueDuplicate", message))
        seen[key, effect] = None
    return causes


NODES = Strategy(create=_create_node, update=_update_node, validate=_validate_node)


def _create_namespace(write: Write) -> None:
    metadata = write.obj["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    write.obj["spec"] = {"finalizers": ["kubernetes"]}
    write.obj["status"] = {"phase": "Active"}


def _update_namespace(write: Write) -> None:
    if write.old is not None:
        restore(write.obj, write.old, "status")
        if write.call.subresource != "finalize":
            restore(write.obj, write.old, "spec")


def _refuse_namespace_deletion(write: Write) -> None:
    name = write.obj["metadata"]["name"]
    if name in NO_DELETION:
        raise write.call.forbidden(name, "this namespace may not be deleted")


def _has_finalizers(obj: JsonObject) -> bool:
    return bool(obj["spec"].get("finalizers"))


def _terminate(obj: JsonObject) -> None:
    obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}


NAMESPACES = Strategy(
    create=_create_namespace,
    update=_update_namespace,
    refuse_deletion=_refuse_namespace_deletion,
    keeps=_has_finalizers,
    deletion_begins=_terminate,
)


def _create_priority_class(write: Write) -> None:
    write.obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
    write.obj.setdefault("value", 0)
    write.obj["metadata"]["generation"] = 1


def _validate_priority_class(write: Write) -> list[Cause]:
    obj, name = write.obj, write.obj["metadata"]["name"]
    causes = []
    value = obj.get("value", 0)
    if name.startswith("system-"):
        if SYSTEM_PRIORITIES.get(name) != value:
            detail = "priority class names with 'system-' prefix are reserved for system use only. error: "
            detail += f"{name} is not a known system priority class"
            causes.append(forbidden_field("metadata.name", detail))
    elif value > USER_PRIORITY_MAX:
        detail = f"maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"
        causes.append(forbidden_field("value", detail))
    if obj.get("preemptionPolicy") not in PREEMPTION_POLICIES:
        causes.append(unsupported_value("preemptionPolicy", obj.get("preemptionPolicy"), PREEMPTION_POLICIES))
    if write.old is not None:
        changed = [key for key in ("value", "preemptionPolicy") if obj.get(key) != write.old.get(key)]
        causes += [forbidden_field(key, "may not be changed in an update.") for key in changed]
    return causes


PRIORITY_CLASSES = Strategy(create=_create_priority_class, validate=_validate_priority_class)

NO_BUDGET: JsonObject = {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}


def _create_budget(write: Write) -> None:
    write.obj.setdefault("spec", {})
    write.obj["status"] = dict(NO_BUDGET)


def _update_budget(write: Write) -> None:
    write.obj.setdefault("spec", {})


def _validate_budget(write: Write) -> list[Cause]:
    spec = write.obj.get("spec") or {}
    causes = label_selector_errors(spec.get("selector") or {}, "spec.selector")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        return [invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")]
    for key in ("minAvailable", "maxUnavailable"):
        value = spec.get(key)
        if isinstance(value, int) and value < 0:
            causes.append(invalid_value(f"spec.{key}", value, "must be greater than or equal to 0"))
        if isinstance(value, str) and not (value.endswith("%") and value[:-1].isdigit()):
            detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
            detail += "regex used for validation is '[0-9]+%')"
            causes.append(invalid_value(f"spec.{key}", value, detail))
    return causes


BUDGETS = Strategy(
    counts_generations=True,
    resets_status=True,
    unconditional_update=False,
    create=_create_budget,
    update=_update_budget,
    validate=_validate_budget,
)


def _create_storage(write: Write) -> None:
    write.obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    write.obj["status"] = {"phase": "Pending"}


STORAGE = Strategy(resets_status=True, create=_create_storage)
"""Volumes and claims; nothing binds one to the other, and nothing protects them from deletion."""


def _validate_lease(write: Write) -> list[Cause]:
    spec = write.obj.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    causes = []
    if duration is not None and duration <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes


LEASES = Strategy(unconditional_update=False, create_on_update=True, validate=_validate_lease)
