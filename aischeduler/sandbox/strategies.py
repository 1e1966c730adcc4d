"""The rules for writes of each built-in kind: the fields that the server sets, and the changes that it refuses."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from aischeduler.model.quantity import QuantityError, canonical
from aischeduler.sandbox.api_resources import CollectionName
from aischeduler.sandbox.objects import JsonObject, name_error, set_condition
from aischeduler.sandbox.request import Call, Cluster
from aischeduler.sandbox.status_errors import Cause, bad_request
from aischeduler.sandbox.store import Entry

QUANTITIES_CACHED = 4096
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_MUTABLE = frozenset({"activeDeadlineSeconds", "tolerations", "schedulingGates", "containers", "initContainers"})
_MUTABLE_WHILE_GATED = _MUTABLE | {"nodeSelector", "affinity"}
_WHILE = "DuringSchedulingIgnoredDuringExecution"
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
BACKOFF_LIMIT = 6
_JOB_DEFAULTS = {"backoffLimit": BACKOFF_LIMIT, "completionMode": "NonIndexed", "suspend": False, "parallelism": 1}
NOTE_BYTES_MAX = 1024
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NO_BUDGET = {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}


class Write(Struct, frozen=True):
    """One write: `obj` may be changed, `old` (None for a new object) may not."""

    call: Call
    obj: JsonObject
    old: JsonObject | None = None


class Strategy(Struct, frozen=True):
    """The rules of a kind.

    `counts_generations`: the spec has a generation. `unconditional_update`: a PUT may leave the resourceVersion out.
    `keeps_first_status`: a new object may bring its status.
    `create` and `update` set fields, `validate` returns the invalid ones; `stored` and `removed` run after a write.
    """

    counts_generations: bool = False
    unconditional_update: bool = True
    keeps_first_status: bool = False
    create: Callable[[Write], None] = lambda _write: None
    update: Callable[[Write], None] = lambda _write: None
    validate: Callable[[Write], list[Cause]] = lambda _write: []
    stored: Callable[[Entry, Cluster], None] = lambda _entry, _cluster: None
    removed: Callable[[Entry, Cluster], None] = lambda _entry, _cluster: None


def restore(obj: JsonObject, old: JsonObject, key: str) -> None:
    """Set a field to its value in the old object, or remove it if the old object lacks it."""
    if key in old:
        obj[key] = old[key]
    else:
        obj.pop(key, None)


def immutable(obj: JsonObject, old: JsonObject, keys: tuple[str, ...], path: str = "") -> list[Cause]:
    """Return a cause for each field that may not change and did."""
    return [Cause(f"{path}{key}", "field is immutable") for key in keys if obj.get(key) != old.get(key)]


_canonical = lru_cache(maxsize=QUANTITIES_CACHED)(canonical)


def _store_quantities(holder: JsonObject, key: str) -> None:
    """Write the quantities of a resource list in their canonical form, in place; 400 for an invalid quantity."""
    amounts = holder.get(key)
    try:
        if amounts:
            holder[key] = {name: _canonical(str(amount)) for name, amount in amounts.items()}
    except QuantityError as error:
        raise bad_request(f"{key}: {error}") from error


def _containers_of(spec: JsonObject) -> list[JsonObject]:
    """Return all containers of a pod's spec, init containers last."""
    return [*spec.get("containers", ()), *spec.get("initContainers", ())]


def _fill_pod_spec(spec: JsonObject) -> None:
    """Set the defaults of the spec of a pod or a template, in place."""
    _store_quantities(spec, "overhead")
    for container in _containers_of(spec):
        resources = container.setdefault("resources", {})
        _store_quantities(resources, "limits")
        _store_quantities(resources, "requests")
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if spec.get("hostNetwork") and "containerPort" in port:
                port.setdefault("hostPort", port["containerPort"])
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")


def _fill_pod(spec: JsonObject) -> None:
    """Set the defaults that pods have and templates do not: requests from limits."""
    _fill_pod_spec(spec)
    for container in _containers_of(spec):
        resources = container["resources"]
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _admit_priority(write: Write) -> None:
    """Give a new pod the priority of its class, as the Priority admission plugin does."""
    spec, name = write.obj["spec"], write.obj["metadata"]["name"]
    classes = write.call.cluster.store.collections[CollectionName.PRIORITY_CLASSES]
    found: JsonObject = {}
    if spec.get("priorityClassName"):
        entry = classes.get("", spec["priorityClassName"])
        if entry is None:
            why = f"no PriorityClass with name {spec['priorityClassName']} was found"
            raise write.call.forbidden(name, why)
        found = entry.decoded()
    else:
        defaults = [entry.decoded() for entry in classes.in_order() if b'"globalDefault":true' in entry.raw]
        if defaults:
            found = min(
                defaults, key=lambda priority_class: (priority_class["value"], priority_class["metadata"]["name"])
            )
            spec["priorityClassName"] = found["metadata"]["name"]
    value = found.get("value", 0)
    if spec.get("priority", value) != value:
        why = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; it is {value}"
        raise write.call.forbidden(name, why)
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority"))


def _merge_label_keys(pod: JsonObject) -> None:
    """Add the labels of a new pod that the terms of its affinity name to the selectors of these terms, in place."""
    labels, affinity = _mapping(pod["metadata"].get("labels")), _mapping(pod["spec"].get("affinity"))
    parts = [_mapping(affinity.get(kind)) for kind in ("podAffinity", "podAntiAffinity")]
    terms = [_mapping(term) for part in parts for term in _items(part.get(f"required{_WHILE}"))]
    preferred = [_mapping(term) for part in parts for term in _items(part.get(f"preferred{_WHILE}"))]
    terms += [_mapping(term.get("podAffinityTerm")) for term in preferred]
    for term in terms:
        selector = term.get("labelSelector")
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
            keys = [key for key in _items(term.get(field)) if isinstance(key, str) and key in labels]
            merged = [{"key": key, "operator": operator, "values": [labels[key]]} for key in keys]
            if merged and isinstance(selector, dict) and isinstance(selector.get("matchExpressions", []), list):
                selector.setdefault("matchExpressions", []).extend(merged)


def _mapping(value: Any) -> JsonObject:
    """Return a mapping as it is, and anything else as an empty one: the sandbox stores what it is given."""
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _new_pod(write: Write) -> None:
    spec = write.obj["spec"]
    _fill_pod(spec)
    _merge_label_keys(write.obj)
    _admit_priority(write)
    status: JsonObject = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        set_condition(status, dict(_GATED), write.call.now)
    write.obj["status"] = status


def _changed_pod(write: Write) -> None:
    write.obj.setdefault("status", {})
    if write.call.subresource:
        return
    spec, old = write.obj["spec"], (write.old or {})["spec"]
    _fill_pod(spec)
    for key in ("priority", "preemptionPolicy"):
        if key not in spec:
            restore(spec, old, key)


def _pod_spec_errors(spec: JsonObject, path: str) -> list[Cause]:
    """Return the invalid fields of the containers of a pod or a template."""
    names = [container["name"] for container in _containers_of(spec)]
    return [
        *(
            Cause(f"{path}.containers", f"{name!r} {wrong}")
            for name in names
            if (wrong := name_error(name, dots=False))
        ),
        *(Cause(f"{path}.containers", f"{name!r} is there twice") for name in {*names} if names.count(name) > 1),
        *(
            Cause(f"{path}.containers", "needs an image")
            for container in _containers_of(spec)
            if not container.get("image")
        ),
    ]


def _pod_errors(write: Write) -> list[Cause]:
    if write.call.subresource:
        return []
    spec = write.obj["spec"]
    causes = _pod_spec_errors(spec, "spec")
    if write.old is None:
        if spec.get("schedulingGates") and spec.get("nodeName"):
            causes.append(Cause("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
        return causes
    old = write.old["spec"]
    gates = old.get("schedulingGates") or ()
    if any(gate not in gates for gate in spec.get("schedulingGates") or ()):
        causes.append(Cause("spec.schedulingGates", "only deletion is allowed"))
    if any(toleration not in (spec.get("tolerations") or ()) for toleration in old.get("tolerations") or ()):
        causes.append(Cause("spec.tolerations", "existing tolerations can not be modified"))
    if _fixed(spec, gated=bool(gates)) != _fixed(old, gated=bool(gates)):
        causes.append(Cause("spec", "pod updates may not change fields other than images, tolerations and gates"))
    return causes


def _fixed(spec: JsonObject, *, gated: bool) -> JsonObject:
    """Return the part of the spec that an update may not change."""
    mutable = _MUTABLE_WHILE_GATED if gated else _MUTABLE
    fixed = {key: value for key, value in spec.items() if key not in mutable}
    fixed["containers"] = [{**container, "image": ""} for container in _containers_of(spec)]
    return fixed


def _new_job(write: Write) -> None:
    metadata, spec = write.obj["metadata"], write.obj["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    for key, value in _JOB_DEFAULTS.items():
        spec.setdefault(key, value)
    template: JsonObject = spec["template"]
    _fill_pod_spec(template["spec"])
    marks = {CONTROLLER_UID: metadata["uid"], JOB_NAME: metadata["name"]}
    old_marks = {"controller-uid": metadata["uid"], "job-name": metadata["name"]}
    given = template.get("metadata") or {}
    template["metadata"] = {**given, "labels": {**(given.get("labels") or {}), **marks, **old_marks}}
    spec["selector"] = {"matchLabels": {CONTROLLER_UID: metadata["uid"]}}
    metadata["labels"] = metadata.get("labels") or dict(template["metadata"]["labels"])
    write.obj["status"] = {}


def _changed_job(write: Write) -> None:
    _fill_pod_spec(write.obj["spec"]["template"]["spec"])
    for key, value in _JOB_DEFAULTS.items():
        write.obj["spec"].setdefault(key, value)


def _job_errors(write: Write) -> list[Cause]:
    spec, old = write.obj["spec"], (write.old or write.obj)["spec"]
    pod = spec["template"]["spec"]
    causes = _pod_spec_errors(pod, "spec.template.spec")
    if pod["restartPolicy"] == "Always":
        causes.append(Cause("spec.template.spec.restartPolicy", "must be OnFailure or Never"))
    indexed = spec["completionMode"] == "Indexed"
    if indexed and "completions" not in spec:
        causes.append(Cause("spec.completions", "is required when completionMode is Indexed"))
    elastic = indexed and spec.get("completions") == spec.get("parallelism") and "completions" in old
    fixed = ("selector", "completionMode", *(() if old["suspend"] else ("template",)))
    return causes + immutable(spec, old, fixed if elastic else (*fixed, "completions"), "spec.")


def _fill_node(write: Write) -> None:
    write.obj.setdefault("spec", {})
    status = write.obj.setdefault("status", {})
    _store_quantities(status, "capacity")
    _store_quantities(status, "allocatable")
    if status.get("capacity"):
        status.setdefault("allocatable", dict(status["capacity"]))


def _create_namespace(write: Write) -> None:
    metadata = write.obj["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    write.obj.update(spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})


def _update_namespace(write: Write) -> None:
    if write.old is not None and write.call.subresource != "finalize":
        restore(write.obj, write.old, "spec")


def _create_priority_class(write: Write) -> None:
    write.obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
    write.obj.setdefault("value", 0)


def _validate_priority_class(write: Write) -> list[Cause]:
    obj, name = write.obj, write.obj["metadata"]["name"]
    if name.startswith("system-") and SYSTEM_PRIORITIES.get(name) != obj["value"]:
        return [Cause("metadata.name", "names with the prefix system- are reserved", "FieldValueForbidden")]
    return immutable(obj, write.old or obj, ("value", "preemptionPolicy"))


def _fill_budget(write: Write) -> None:
    write.obj.setdefault("spec", {})
    write.obj.setdefault("status", dict(_NO_BUDGET))


def _create_storage(write: Write) -> None:
    write.obj["status"] = {"phase": "Pending"}


def _validate_event(write: Write) -> list[Cause]:
    event = write.obj
    if write.call.resource.group and not event.get("eventTime"):
        return [Cause("eventTime", "is required", "FieldValueRequired")]
    too_long = len(event.get("note", "").encode()) > NOTE_BYTES_MAX
    return [Cause("message", f"can have at most {NOTE_BYTES_MAX} bytes")] if too_long else []


STRATEGIES: Mapping[str, Strategy] = {
    CollectionName.BUDGETS: Strategy(
        counts_generations=True, unconditional_update=False, create=_fill_budget, update=_fill_budget
    ),
    CollectionName.CLAIMS: Strategy(create=_create_storage),
    CollectionName.EVENTS: Strategy(validate=_validate_event),
    CollectionName.JOBS: Strategy(counts_generations=True, create=_new_job, update=_changed_job, validate=_job_errors),
    CollectionName.LEASES: Strategy(unconditional_update=False),
    CollectionName.NAMESPACES: Strategy(create=_create_namespace, update=_update_namespace),
    CollectionName.NODES: Strategy(keeps_first_status=True, create=_fill_node, update=_fill_node),
    CollectionName.PODS: Strategy(counts_generations=True, create=_new_pod, update=_changed_pod, validate=_pod_errors),
    CollectionName.PRIORITY_CLASSES: Strategy(create=_create_priority_class, validate=_validate_priority_class),
    CollectionName.VOLUMES: Strategy(create=_create_storage),
}
