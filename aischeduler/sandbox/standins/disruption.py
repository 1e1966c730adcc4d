"""The disruption controller: what each PodDisruptionBudget allows now, and marks of victims that nobody deleted.

Source: `pkg/controller/disruption`; of a stale mark: `syncStalePodDisruption`. Unlike the real one it takes the pods
that are there as the number expected, since no controller here has a scale to ask.
"""

from aischeduler.sandbox.api_resources import CollectionName
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.objects import JsonObject, condition_of, is_true, seconds, set_condition
from aischeduler.sandbox.selection import labels_match, selector_requirements
from aischeduler.sandbox.standins.following import Follower, earliest, send
from aischeduler.sandbox.store import Entry, StoreEvent

DISRUPTED_SECONDS = 120.0
STALE_MARK_SECONDS = 120.0
DISRUPTION_TARGET = "DisruptionTarget"


class DisruptionController:
    """Keeps the status of all budgets."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._budgets = server.cluster.store.collections[CollectionName.BUDGETS]
        self._pods = server.cluster.store.collections[CollectionName.PODS]
        self._followers = (Follower(self._budgets), Follower(self._pods))
        self._marked: dict[str, float] = {}

    def step(self, now: float) -> float | None:
        """Recount the budgets of namespaces where a pod or a budget has changed; take stale marks back."""
        budget_events, pod_events = (follower.take() for follower in self._followers)
        for event in pod_events:
            self._note_mark(event)
        for key in [key for key, at in self._marked.items() if at <= now]:
            del self._marked[key]
            self._take_mark_back(key, now)
        if len(self._budgets):
            for namespace in dict.fromkeys(event.entry.namespace for event in [*budget_events, *pod_events]):
                for entry in list(self._budgets.in_order(namespace)):
                    self._recount(entry, now)
        return earliest(*self._marked.values())

    def _note_mark(self, event: StoreEvent) -> None:
        self._marked.pop(event.entry.key, None)
        if event.kind == "DELETED" or DISRUPTION_TARGET.encode() not in event.entry.raw:
            return
        pod = event.entry.decoded()
        mark = condition_of(pod["status"], DISRUPTION_TARGET)
        if mark is not None and mark["status"] == "True" and not pod["metadata"].get("deletionTimestamp"):
            since = mark.get("lastTransitionTime")
            self._marked[event.entry.key] = (seconds(since) if since else 0.0) + STALE_MARK_SECONDS

    def _take_mark_back(self, key: str, now: float) -> None:
        namespace, _, name = key.partition("/")
        entry = self._pods.get(namespace, name)
        if entry is None:
            return
        pod = entry.decoded()
        mark = {"type": DISRUPTION_TARGET, "status": "False", "lastProbeTime": None}
        set_condition(pod["status"], mark, now)
        self._pods.put(pod)

    def _recount(self, entry: Entry, now: float) -> None:
        budget = entry.decoded()
        spec, status = budget["spec"], dict(budget.get("status") or {})
        requirements = selector_requirements(spec.get("selector"))
        pods = [
            pod.decoded()
            for pod in self._pods.in_order(entry.namespace)
            if requirements is not None and labels_match(requirements, pod.labels)
        ]
        pods = [pod for pod in pods if pod["status"].get("phase") not in {"Succeeded", "Failed"}]
        disrupted = {
            name: since
            for name, since in (status.get("disruptedPods") or {}).items()
            if now - seconds(since) < DISRUPTED_SECONDS
            and any(pod["metadata"]["name"] == name and not pod["metadata"].get("deletionTimestamp") for pod in pods)
        }
        healthy = sum(1 for pod in pods if _is_healthy(pod) and pod["metadata"]["name"] not in disrupted)
        desired = _desired(spec, len(pods))
        allowed = max(0, healthy - desired)
        status |= {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": len(pods),
            "observedGeneration": budget["metadata"]["generation"],
        }
        status.pop("disruptedPods", None)
        if disrupted:
            status["disruptedPods"] = disrupted
        _say_whether_allowed(status, allowed, budget["metadata"]["generation"], now)
        if status != budget.get("status"):
            path = f"/apis/policy/v1/namespaces/{entry.namespace}/poddisruptionbudgets/{entry.name}/status"
            send(self._server, "PUT", path, {**budget, "status": status}, now)


def _say_whether_allowed(status: JsonObject, allowed: int, generation: int, now: float) -> None:
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": generation,
    }
    set_condition(status, condition, now)


def _is_healthy(pod: JsonObject) -> bool:
    return is_true(pod["status"], "Ready") and not pod["metadata"].get("deletionTimestamp")


def _desired(spec: JsonObject, expected: int) -> int:
    if spec.get("minAvailable") is not None:
        return _amount(spec["minAvailable"], expected)
    return max(0, expected - _amount(spec.get("maxUnavailable", 1), expected))


def _amount(value: int | str, expected: int) -> int:
    """Return a number, or a percentage of what is expected, rounded up."""
    if isinstance(value, int):
        return value
    return -(-int(value.rstrip("%")) * expected // 100)
