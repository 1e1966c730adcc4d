"""The disruption controller: writes the status of every PodDisruptionBudget.

Unlike the real controller it takes the number of pods that exist as the number expected: no workload has a scale here.
"""

from aischeduler.sandbox.api_resources import CollectionName
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.controllers.informer import Informer, send
from aischeduler.sandbox.objects import JsonObject, is_true, set_condition
from aischeduler.sandbox.selection import labels_match, selector_requirements
from aischeduler.sandbox.store import Entry


class DisruptionController:
    """Keeps the status of all budgets."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._budgets = server.cluster.store.collections[CollectionName.BUDGETS]
        self._pods = server.cluster.store.collections[CollectionName.PODS]
        self._informers = (Informer(self._budgets), Informer(self._pods))

    def step(self, now: float) -> float | None:
        """Recount the budgets of every namespace in which a pod or a budget changed."""
        events = [event for informer in self._informers for event in informer.new_events()]
        if len(self._budgets):
            for namespace in dict.fromkeys(event.entry.namespace for event in events):
                for entry in list(self._budgets.in_order(namespace)):
                    self._sync(entry, now)
        return None

    def _sync(self, entry: Entry, now: float) -> None:
        budget = entry.decoded()
        status = self._status(budget, self._selected_pods(budget), now)
        if status != budget.get("status"):
            path = f"/apis/policy/v1/namespaces/{entry.namespace}/poddisruptionbudgets/{entry.name}/status"
            send(self._server, "PUT", path, {**budget, "status": status}, now)

    def _selected_pods(self, budget: JsonObject) -> list[JsonObject]:
        requirements = selector_requirements(budget["spec"].get("selector"))
        return [
            pod.decoded()
            for pod in self._pods.in_order(budget["metadata"]["namespace"])
            if requirements is not None
            and labels_match(requirements, pod.labels)
            and pod.fields.get("status.phase") not in {"Succeeded", "Failed"}
        ]

    @staticmethod
    def _status(budget: JsonObject, pods: list[JsonObject], now: float) -> JsonObject:
        healthy = sum(1 for pod in pods if _is_healthy(pod))
        desired = _desired_healthy(budget["spec"], len(pods))
        generation = budget["metadata"]["generation"]
        status: JsonObject = dict(budget.get("status") or {})
        # The eviction deletes its pod in the same request, so the pod is no longer healthy when it is counted here.
        status.pop("disruptedPods", None)
        status |= {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": max(0, healthy - desired),
            "expectedPods": len(pods),
            "observedGeneration": generation,
        }
        allowed = healthy > desired
        condition = {
            "type": "DisruptionAllowed",
            "status": "True" if allowed else "False",
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
            "observedGeneration": generation,
        }
        set_condition(status, condition, now)
        return status


def _is_healthy(pod: JsonObject) -> bool:
    return is_true(pod["status"], "Ready") and not pod["metadata"].get("deletionTimestamp")


def _desired_healthy(spec: JsonObject, expected: int) -> int:
    if spec.get("minAvailable") is not None:
        return _pod_count(spec["minAvailable"], expected)
    return max(0, expected - _pod_count(spec.get("maxUnavailable", 1), expected))


def _pod_count(value: int | str, expected: int) -> int:
    """Return a number of pods; a percentage is of the expected pods, rounded up."""
    if isinstance(value, int):
        return value
    return -(-int(value.rstrip("%")) * expected // 100)
