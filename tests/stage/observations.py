"""What users see of a scenario: objects, conditions, events and statuses, read from the API.

Invariant: nothing here comes from the scheduler itself, so that it reads the same in every environment.
"""

import json
from collections import Counter

from tests.stage.environment import Environment
from tests.stage.watch_record import WatchRecord
from tests.worlds.world import CLUSTER_SCOPED, PLACES, Answer, Call, Json, condition

MARKS = "scheduling.resource.aibee.cn/"


class Observations:
    """Reads. Names are those of the scenario; on the server they have its prefix, which nobody else uses."""

    def __init__(self, environment: Environment, prefix: str) -> None:
        self._environment = environment
        self._prefix = prefix
        self._namespaces: dict[str, str] = {}
        version = self._list("Pod", "")["metadata"]["resourceVersion"]
        query = f"watch=true&resourceVersion={version}"
        pods, nodes = (environment.watch(f"/api/v1/{plural}?{query}") for plural in ("pods", "nodes"))
        self.record = WatchRecord(pods, nodes, self._plain)

    def get(self, kind: str, name: str) -> Json:
        """Return an object as it now is, empty where there is none."""
        answer = self._environment.request(Call("GET", self._url(kind, name)))
        assert answer.status in {200, 404}, answer
        return self._plain(answer.body) if answer.status == 200 else {}

    def all(self, kind: str) -> list[Json]:
        """Return all objects of a kind: in the scenario's namespace, or cluster-wide."""
        items: list[Json] = self._plain(self._list(kind, "ns"))["items"]
        return items

    def all_pods(self) -> list[Json]:
        """Return the pods of all namespaces."""
        items: list[Json] = self._plain(self._list("Pod", ""))["items"]
        return items

    def node_of(self, pod: str) -> str:
        """Where a pod is bound, empty while it waits or where there is none."""
        node: str = self.get("Pod", pod).get("spec", {}).get("nodeName", "")
        return node

    def phase(self, pod: str) -> str:
        """The phase of a pod, empty where there is none."""
        phase: str = self.get("Pod", pod).get("status", {}).get("phase", "")
        return phase

    def why(self, pod: str) -> str:
        """What users read about why a pod waits."""
        scheduled = condition(self.get("Pod", pod), "PodScheduled")
        message: str = scheduled.get("message", "") if scheduled.get("status") == "False" else ""
        return message

    def nominated(self, pod: str) -> str:
        """The node on which room is being made for a pod."""
        node: str = self.get("Pod", pod).get("status", {}).get("nominatedNodeName", "")
        return node

    def terminating(self, pod: str) -> bool:
        """Whether a pod is on its way out, or out."""
        found = self.get("Pod", pod)
        return not found or bool(found["metadata"].get("deletionTimestamp"))

    def marks(self, pod: str) -> dict[str, str]:
        """What the scheduler wrote on a bound pod, without the prefix of its keys."""
        annotations: dict[str, str] = self.get("Pod", pod)["metadata"].get("annotations", {})
        return {key.removeprefix(MARKS): value for key, value in annotations.items() if key.startswith(MARKS)}

    def decision(self, pod: str) -> int:
        """The number of the decision that bound a pod: the scheduler numbers its attempts."""
        return int(self.marks(pod)["decision"].rpartition("-")[2])

    def events(self, name: str, reason: str) -> list[str]:
        """The texts of the events about an object with this reason, oldest first."""
        namespace = self._namespace_of(name)
        answer = self._environment.request(Call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"))
        found = sorted(self._plain(answer.body)["items"], key=lambda event: str(event.get("eventTime")))
        return [event["note"] for event in found if (event["regarding"]["name"], event["reason"]) == (name, reason)]

    def condition(self, pool: str, kind: str) -> Json:
        """One condition of a pool, empty where it has none of that type."""
        return condition(self.get("Pool", pool), kind)

    def status(self, pool: str) -> Json:
        """The status of a pool."""
        status: Json = self.get("Pool", pool).get("status", {})
        return status

    def amount(self, pool: str, field: str, resource: str = "cpu") -> str:
        """One amount of a pool's status, as it stands there; empty where there is none."""
        amount: str = self.status(pool).get(field, {}).get(resource, "")
        return amount

    def victims(self) -> list[str]:
        """The pods that were marked for eviction so far, in that order."""
        self.record.look()
        return self.record.victims()

    def seen(self) -> dict[str, int]:
        """The newest resource version of each kind that the scheduler acts on, deleted pods and nodes among them."""
        self.record.look()
        newest = dict(self.record.newest)
        pools = [int(pool["metadata"]["resourceVersion"]) for pool in self.all("Pool")]
        return {**newest, "Pool": max(pools, default=0)}

    def jobs_nodes(self, job: str) -> Counter[str]:
        """How many unfinished pods of a Job are on each node; the waiting ones under the empty name."""
        pods = [pod for pod in self.all("Pod") if pod["metadata"].get("labels", {}).get("job-name") == job]
        return Counter(
            pod["spec"].get("nodeName", "")
            for pod in pods
            if pod["status"].get("phase") not in {"Succeeded", "Failed"} and "deletionTimestamp" not in pod["metadata"]
        )

    def bound(self, job: str) -> int:
        """How many unfinished pods of a Job are on a node."""
        return sum(count for node, count in self.jobs_nodes(job).items() if node)

    def report(self) -> str:
        """Tell how everything stands, for a scenario that has failed."""
        lines = []
        for pod in self.all("Pod"):
            name = pod["metadata"]["name"]
            said = {
                "node": pod["spec"].get("nodeName"),
                "phase": pod["status"].get("phase"),
                "nominated": pod["status"].get("nominatedNodeName"),
                "terminating": "deletionTimestamp" in pod["metadata"],
                "why": condition(pod, "PodScheduled").get("message"),
            }
            lines.append(f"pod {name}: " + ", ".join(f"{key} {value}" for key, value in said.items() if value))
        for pool in self.all("Pool"):
            status = pool.get("status", {})
            numbers = {
                key: value for key, value in status.items() if key in ("nodes", "pods", "pendingPods", "columns")
            }
            conditions = [(one["type"], one["status"]) for one in status.get("conditions", ())]
            lines.append(f"pool {pool['metadata']['name']}: {numbers} {conditions}")
        lines += [f"event {one['reason']} of {one['regarding']['name']}: {one['note']}" for one in self.all("Event")]
        return "\n".join(lines)

    def _namespace_of(self, name: str) -> str:
        """The namespace in which the events about an object lie."""
        return self.own(self._namespaces[name]) if name in self._namespaces else "default"

    def own(self, name: str) -> str:
        """Return the scenario's name as the server has it."""
        return f"{self._prefix}{name}"

    def _name(self, kind: str, name: str) -> str:
        """Return what an object is called on the server."""
        return self.own(name) if kind in CLUSTER_SCOPED and (kind, name) != ("Pool", "default") else name

    def _url(self, kind: str, name: str = "", subresource: str = "") -> str:
        prefix, plural = PLACES[kind]
        middle = "" if kind in CLUSTER_SCOPED else f"/namespaces/{self.own(self._namespaces.get(name, 'ns'))}"
        called = self._name(kind, name) if name else ""
        return "/".join(filter(None, (f"{prefix}{middle}/{plural}", called, subresource)))

    def _list(self, kind: str, namespace: str) -> Json:
        prefix, plural = PLACES[kind]
        middle = f"/namespaces/{self.own(namespace)}" if namespace and kind not in CLUSTER_SCOPED else ""
        answer = self._environment.request(Call("GET", f"{prefix}{middle}/{plural}"))
        assert answer.status == 200, answer
        return answer.body

    def _plain(self, document: Json) -> Json:
        """Return a document without the scenario's prefix."""
        plain: Json = json.loads(json.dumps(document).replace(self._prefix, ""))
        return plain


def refused(answer: Answer, text: str) -> bool:
    """Say whether the server refused with these words."""
    return answer.status >= 400 and text in answer.message
