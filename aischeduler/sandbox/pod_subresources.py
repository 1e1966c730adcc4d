"""The Binding that gives a pod its node, and the Eviction: a deletion that disruption budgets may refuse.

Source: `BindingREST` and `eviction.go` in `pkg/registry/core/pod/storage` of Kubernetes; clients match on the words.
"""

from aischeduler.sandbox.api_resources import CollectionName
from aischeduler.sandbox.deleting import check_preconditions, delete_entry
from aischeduler.sandbox.objects import JsonObject, encode, is_true, set_condition, timestamp
from aischeduler.sandbox.request import Call, Response, parse_typed
from aischeduler.sandbox.selection import labels_match, selector_requirements
from aischeduler.sandbox.status_errors import Refusal, bad_request, failure, object_failure, success
from aischeduler.sandbox.store import Entry
from aischeduler.sandbox.writing import refuse_other_name, uid_mismatch

PROTOBUF = "application/vnd.kubernetes.protobuf"
VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."
RETRY_SECONDS = 10
_DONE = encode({**success({}), "code": 201})


def bind(call: Call) -> Response:
    """Answer POST of a Binding: all checks, then node, annotations and condition in one write."""
    binding = parse_typed(call, "Binding")
    metadata = binding.get("metadata") or {}
    refuse_other_name(call, metadata)
    node = (binding.get("target") or {}).get("name", "")
    if not node:
        raise failure(500, "target.name: Required value")
    entry = call.existing()
    if metadata.get("uid") not in (None, "", entry.uid):
        raise call.conflict(call.name, uid_mismatch(metadata["uid"], entry.uid))
    pod = entry.decoded()
    _refuse_unbindable(call, pod)
    pod["spec"]["nodeName"] = node
    pod["status"].pop("nominatedNodeName", None)
    for key in ("annotations", "labels"):
        if metadata.get(key):
            pod["metadata"][key] = {**(pod["metadata"].get(key) or {}), **metadata[key]}
    set_condition(pod["status"], {"type": "PodScheduled", "status": "True"}, call.now)
    call.collection.put(pod)
    return Response(201, _DONE)


def _refuse_unbindable(call: Call, pod: JsonObject) -> None:
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {call.name} is being deleted, cannot be assigned to a host"
    elif pod["spec"].get("nodeName"):
        why = f'pod {call.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {call.name} has non-empty .spec.schedulingGates"
    else:
        return
    raise object_failure(409, ("pods/binding", "", call.name), f"Operation cannot be fulfilled on {{}}: {why}")


def evict(call: Call) -> Response:
    """Answer POST of an Eviction."""
    # kubectl drain sends protobuf: the path names the pod, and options are read from JSON only.
    is_protobuf = call.asked.content_type == PROTOBUF
    if is_protobuf and b"All" in call.asked.body:
        raise bad_request("the sandbox has no server-side dry run")
    eviction = {} if is_protobuf else parse_typed(call, "Eviction")
    refuse_other_name(call, eviction.get("metadata") or {})
    entry = call.existing()
    pod = entry.decoded()
    options: JsonObject = eviction.get("deleteOptions") or {}
    ended = pod["status"].get("phase") in {"Succeeded", "Failed", "Pending"}
    check_preconditions(call, entry, options)
    if not ended and not pod["metadata"].get("deletionTimestamp"):
        _spend_budget(call, pod)
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    set_condition(pod["status"], {**target, "message": "Eviction API: evicting"}, call.now)
    entry = call.collection.put(pod)
    delete_entry(call, entry, {key: option for key, option in options.items() if key != "preconditions"})
    return Response(201, _DONE)


def _budget_of(call: Call, pod: JsonObject) -> Entry | None:
    labels = pod["metadata"].get("labels") or {}
    found = []
    for entry in call.cluster.store.collections[CollectionName.BUDGETS].in_order(call.namespace):
        requirements = selector_requirements(entry.decoded()["spec"].get("selector"))
        if requirements is not None and labels_match(requirements, labels):
            found.append(entry)
    if len(found) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise failure(500, message)
    return found[0] if found else None


def _spend_budget(call: Call, pod: JsonObject) -> None:
    entry = _budget_of(call, pod)
    if entry is None:
        return
    budget = entry.decoded()
    status: JsonObject = budget.setdefault("status", {})
    desired, current = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    if not is_true(pod["status"], "Ready"):
        always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if always or current >= desired > 0:
            return
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _violation(f"The disruption budget {entry.name} is still being processed by the server.", RETRY_SECONDS)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        why = "does not allow evicting pods currently"
        if current <= desired:
            why = f"needs {desired} healthy pods and has {current} currently"
        raise _violation(f"The disruption budget {entry.name} {why}", 0)
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), call.name: timestamp(call.now)}
    call.cluster.store.collections[CollectionName.BUDGETS].put(budget)


def _violation(why: str, retry_seconds: int) -> Refusal:
    details: JsonObject = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if retry_seconds:
        details["retryAfterSeconds"] = retry_seconds
    return failure(429, VIOLATION, details)
