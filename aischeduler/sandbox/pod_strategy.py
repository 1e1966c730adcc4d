"""Pods and pod templates: what the server fills in, and what may not be changed.

Source: `pkg/apis/core/v1/defaults.go`, `pkg/registry/core/pod`; admission plugin Priority.
"""

from functools import lru_cache

from aischeduler.model.quantity import QuantityError, canonical
from aischeduler.sandbox.api_resources import CollectionName
from aischeduler.sandbox.objects import JsonObject, label_key_error, name_error, set_condition
from aischeduler.sandbox.status_errors import Cause, bad_request
from aischeduler.sandbox.strategy import Strategy, Write, restore

QUANTITIES_CACHED = 4096
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_MUTABLE = frozenset({"activeDeadlineSeconds", "tolerations", "schedulingGates", "containers", "initContainers"})
_MUTABLE_WHILE_GATED = _MUTABLE | {"nodeSelector", "affinity"}

_canonical = lru_cache(maxsize=QUANTITIES_CACHED)(canonical)


def store_quantities(holder: JsonObject, key: str) -> None:
    """Put the quantities of a resource list in their canonical form, in place; 400 for what is no quantity."""
    amounts = holder.get(key)
    try:
        if amounts:
            holder[key] = {name: _canonical(str(amount)) for name, amount in amounts.items()}
    except QuantityError as error:
        raise bad_request(f"{key}: {error}") from error


def containers_of(spec: JsonObject) -> list[JsonObject]:
    """Return all containers of a pod's spec, init containers last."""
    return [*spec.get("containers", ()), *spec.get("initContainers", ())]


def fill_pod_spec(spec: JsonObject) -> None:
    """Fill in a pod's or a template's spec, in place."""
    store_quantities(spec, "overhead")
    for container in containers_of(spec):
        resources = container.setdefault("resources", {})
        store_quantities(resources, "limits")
        store_quantities(resources, "requests")
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if spec.get("hostNetwork") and "containerPort" in port:
                port.setdefault("hostPort", port["containerPort"])
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")


def _fill_pod(spec: JsonObject) -> None:
    """Fill in what pods have and templates have not: requests from limits."""
    fill_pod_spec(spec)
    for container in containers_of(spec):
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
            found = min(defaults, key=lambda one: (one["value"], one["metadata"]["name"]))
            spec["priorityClassName"] = found["metadata"]["name"]
    value = found.get("value", 0)
    if spec.get("priority", value) != value:
        why = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; it is {value}"
        raise write.call.forbidden(name, why)
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority"))


def _create(write: Write) -> None:
    spec = write.obj["spec"]
    _fill_pod(spec)
    _admit_priority(write)
    status: JsonObject = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        set_condition(status, dict(_GATED), write.call.now)
    write.obj["status"] = status


def _update(write: Write) -> None:
    write.obj.setdefault("status", {})
    if write.call.subresource:
        return
    spec, old = write.obj["spec"], (write.old or {})["spec"]
    _fill_pod(spec)
    for key in ("priority", "preemptionPolicy"):
        if key not in spec:
            restore(spec, old, key)


def pod_spec_errors(spec: JsonObject, path: str) -> list[Cause]:
    """Say what is wrong with a pod's or a template's spec."""
    names = [container["name"] for container in containers_of(spec)]
    labels, gates = spec.get("nodeSelector") or {}, [gate["name"] for gate in spec.get("schedulingGates") or ()]
    return [
        *(Cause(f"{path}.containers", f"{one!r} {wrong}") for one in names if (wrong := name_error(one, dots=False))),
        *(Cause(f"{path}.containers", f"{one!r} is there twice") for one in {*names} if names.count(one) > 1),
        *(Cause(f"{path}.containers", "needs an image") for one in containers_of(spec) if not one.get("image")),
        *(Cause(f"{path}.nodeSelector", f"{one!r} {wrong}") for one in labels if (wrong := label_key_error(one))),
        *(Cause(f"{path}.schedulingGates", f"{one!r} {wrong}") for one in gates if (wrong := label_key_error(one))),
    ]


def _validate(write: Write) -> list[Cause]:
    if write.call.subresource:
        return []
    spec = write.obj["spec"]
    causes = pod_spec_errors(spec, "spec")
    if write.old is None:
        if spec.get("schedulingGates") and spec.get("nodeName"):
            causes.append(Cause("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
        return causes
    old = write.old["spec"]
    gates = old.get("schedulingGates") or ()
    if any(gate not in gates for gate in spec.get("schedulingGates") or ()):
        causes.append(Cause("spec.schedulingGates", "only deletion is allowed"))
    if any(one not in (spec.get("tolerations") or ()) for one in old.get("tolerations") or ()):
        causes.append(Cause("spec.tolerations", "existing tolerations can not be modified"))
    if _fixed(spec, gated=bool(gates)) != _fixed(old, gated=bool(gates)):
        causes.append(Cause("spec", "pod updates may not change fields other than images, tolerations and gates"))
    return causes


def _fixed(spec: JsonObject, *, gated: bool) -> JsonObject:
    """Return what an update may not change."""
    mutable = _MUTABLE_WHILE_GATED if gated else _MUTABLE
    fixed = {key: value for key, value in spec.items() if key not in mutable}
    fixed["containers"] = [{**container, "image": ""} for container in containers_of(spec)]
    return fixed


PODS = Strategy(counts_generations=True, create=_create, update=_update, validate=_validate)
