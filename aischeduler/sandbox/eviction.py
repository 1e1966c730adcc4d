"""Eviction: a deletion that disruption budgets may refuse.

Source: `pkg/registry/core/pod/storage/eviction.go` of Kubernetes 1.36. A pod that is Pending, has ended or is
terminating is evicted whatever the budgets say.
"""

from dataclasses import replace

from aischeduler.sandbox.bodies import parse_typed
from aischeduler.sandbox.call import Call
from aischeduler.sandbox.deleting import delete_entry, read_delete_options
from aischeduler.sandbox.kinds import Place
from aischeduler.sandbox.objects import JsonObject, encode, is_true, set_condition, timestamp
from aischeduler.sandbox.protocol import Response
from aischeduler.sandbox.selectors import labels_match, selector_requirements
from aischeduler.sandbox.status import Refusal, bad_request, failure, success
from aischeduler.sandbox.store import Entry

VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."
RETRY_SECONDS = 10


def evict(call: Call) -> Response:
    """Answer POST of an Eviction."""
    eviction = parse_typed(call, "Eviction")
    if (eviction.get("metadata") or {}).get("name", call.name) != call.name:
        raise bad_request("name in URL does not match name in Eviction object")
    entry = call.existing()
    pod = entry.decoded()
    options = read_delete_options(eviction.get("deleteOptions") or {}, call)
    if not _ignores_budgets(pod):
        _spend_budget(call, pod)
    if not call.dry_run:
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        set_condition(pod["status"], target, call.now)
        entry = call.collection.put(pod)
        if options.revision:
            options = replace(options, revision=str(entry.revision))
    delete_entry(call, entry, options)
    return Response(201, encode(success(code=201)))


def _ignores_budgets(pod: JsonObject) -> bool:
    ended = pod["status"].get("phase") in {"Succeeded", "Failed", "Pending"}
    return ended or bool(pod["metadata"].get("deletionTimestamp"))


def _budgets_of(call: Call, pod: JsonObject) -> list[Entry]:
    labels = pod["metadata"].get("labels") or {}
    found = []
    for entry in call.cluster.store.collections[Place.BUDGETS].in_order(call.namespace):
        requirements = selector_requirements(entry.decoded()["spec"].get("selector"))
        if requirements is not None and labels_match(requirements, labels):
            found.append(entry)
    return found


def _spend_budget(call: Call, pod: JsonObject) -> None:
    budgets = _budgets_of(call, pod)
    if len(budgets) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise failure(500, "", message)
    if not budgets:
        return
    budget = budgets[0].decoded()
    status: JsonObject = budget.setdefault("status", {})
    if not is_true(pod["status"], "Ready"):
        if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return
        desired = status.get("desiredHealthy", 0)
        if status.get("currentHealthy", 0) >= desired > 0:
            return
    name = budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _violation(f"The disruption budget {name} is still being processed by the server.", RETRY_SECONDS)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        desired, current = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        why = "does not allow evicting pods currently"
        if current <= desired:
            why = f"needs {desired} healthy pods and has {current} currently"
        raise _violation(f"The disruption budget {name} {why}", 0)
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = {**(status.get("disruptedPods") or {}), call.name: timestamp(call.now)}
    if not call.dry_run:
        call.cluster.store.collections[Place.BUDGETS].put(budget)


def _violation(why: str, retry_seconds: int) -> Refusal:
    details: JsonObject = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if retry_seconds:
        details["retryAfterSeconds"] = retry_seconds
    return failure(429, "TooManyRequests", VIOLATION, details)
