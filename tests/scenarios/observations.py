"""The state of a scenario as users see it: objects, conditions, events and statuses, read from the API.

Invariant: nothing here is read from the scheduler itself, so that it works in every environment.
"""

import json
from collections import Counter

from tests.api_contract.world import CLUSTER_SCOPED, PLACES, Answer, Call, Json, condition
from tests.scenarios.environment import Environment
from tests.scenarios.resumed import Resumed
from tests.scenarios.watch_record import WatchRecord

MARKS = "scheduling.resource.aibee.cn/"
SYSTEM_NAMESPACE = "kube-system"


class Observations:
    """Reads objects. Names are those of the scenario; on the server they have its unique prefix."""

    def __init__(self, environment: Environment, prefix: str) -> None:
        self._environment = environment
        self._prefix = prefix
        self._namespaces: dict[str, str] = {}
        self._followed: dict[str, None] = {"Pool": None}
        """The kinds of this scenario that the scheduler reads, besides pods and nodes."""
        version = self._list("Pod", "")["metadata"]["resourceVersion"]
        pods, nodes = (Resumed(environment.watch, f"/api/v1/{plural}", version) for plural in ("pods", "nodes"))
        self.record = WatchRecord(pods, nodes, self._plain)

    def get(self, kind: str, name: str) -> Json:
        """Return an object as it is now; empty if there is none."""
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
        """Return the node of a pod; empty while it waits or if there is no such pod."""
        node: str = self.get("Pod", pod).get("spec", {}).get("nodeName", "")
        return node

    def phase(self, pod: str) -> str:
        """Return the phase of a pod; empty if there is none."""
        phase: str = self.get("Pod", pod).get("status", {}).get("phase", "")
        return phase

    def why(self, pod: str) -> str:
        """Return the reason of a waiting pod in its condition."""
        scheduled = condition(self.get("Pod", pod), "PodScheduled")
        message: str = scheduled.get("message", "") if scheduled.get("status") == "False" else ""
        return message

    def nominated(self, pod: str) -> str:
        """Return the node for which a pod is nominated."""
        node: str = self.get("Pod", pod).get("status", {}).get("nominatedNodeName", "")
        return node

    def terminating(self, pod: str) -> bool:
        """Return whether a pod is terminating or gone."""
        found = self.get("Pod", pod)
        return not found or bool(found["metadata"].get("deletionTimestamp"))

    def marks(self, pod: str) -> dict[str, str]:
        """Return the scheduler's annotations on a bound pod, without the prefix of their keys."""
        annotations: dict[str, str] = self.get("Pod", pod)["metadata"].get("annotations", {})
        return {key.removeprefix(MARKS): value for key, value in annotations.items() if key.startswith(MARKS)}

    def decision(self, pod: str) -> int:
        """Return the number of the decision that bound a pod."""
        return int(self.marks(pod)["decision"].rpartition("-")[2])

    def events(self, name: str, reason: str) -> list[str]:
        """Return the notes of the events about an object with this reason, oldest first."""
        namespace = self._namespace_of(name)
        answer = self._environment.request(Call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"))
        found = sorted(self._plain(answer.body)["items"], key=lambda event: str(event.get("eventTime")))
        return [event["note"] for event in found if (event["regarding"]["name"], event["reason"]) == (name, reason)]

    def condition(self, pool: str, kind: str) -> Json:
        """Return one condition of a pool; empty if it has none of that type."""
        return condition(self.get("Pool", pool), kind)

    def status(self, pool: str) -> Json:
        """Return the status of a pool."""
        status: Json = self.get("Pool", pool).get("status", {})
        return status

    def amount(self, pool: str, field: str, resource: str = "cpu") -> str:
        """Return one amount of a pool's status; empty if there is none."""
        amount: str = self.status(pool).get(field, {}).get(resource, "")
        return amount

    def victims(self) -> list[str]:
        """Return the pods that got the condition of victims so far, in that order."""
        self.record.look()
        return self.record.victims()

    def seen(self) -> dict[str, int]:
        """Return the newest resource version of each kind that the scheduler reads, deleted pods and nodes included."""
        self.record.look()
        newest = dict(self.record.newest)
        for kind in self._followed:
            newest[kind] = max((int(one["metadata"]["resourceVersion"]) for one in self.all(kind)), default=0)
        return newest

    def jobs_nodes(self, job: str) -> Counter[str]:
        """Return the number of unfinished pods of a Job on each node, with waiting pods under the empty name."""
        pods = [pod for pod in self.all("Pod") if pod["metadata"].get("labels", {}).get("job-name") == job]
        return Counter(
            pod["spec"].get("nodeName", "")
            for pod in pods
            if pod["status"].get("phase") not in {"Succeeded", "Failed"} and "deletionTimestamp" not in pod["metadata"]
        )

    def bound(self, job: str) -> int:
        """Return the number of unfinished pods of a Job on nodes."""
        return sum(count for node, count in self.jobs_nodes(job).items() if node)

    def report(self) -> str:
        """Return a description of the state, for a scenario that has failed."""
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
        """Return the namespace of the events about an object."""
        return self.own(self._namespaces[name]) if name in self._namespaces else "default"

    def own(self, name: str) -> str:
        """Return a name with the prefix of the scenario; the namespace of the system has none."""
        return name if name == SYSTEM_NAMESPACE else f"{self._prefix}{name}"

    def _name(self, kind: str, name: str) -> str:
        """Return the name of an object on the server."""
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
