"""The production engine in a virtual cluster, with short methods for scenarios: create objects, run, read results."""

import json
from random import Random  # noqa: TID251 - the generator is made from the seed
from typing import Any

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Bind, Warn
from aischeduler.sandbox.controllers.kubelet import KubeletOptions
from aischeduler.sandbox.request import Response
from tests import seeds
from tests.checked_scheduler import CheckedScheduler
from tests.virtual.virtual_cluster import VirtualCluster
from tests.virtual.virtual_daemon import Network, VirtualDaemon

Json = dict[str, Any]

NAME = "ai-scheduler"
PATHS = {
    "Event": "/apis/events.k8s.io/v1/namespaces/default/events",
    "Job": "/apis/batch/v1/namespaces/default/jobs",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/default/pods",
    "Pool": "/apis/resource.aibee.cn/v1alpha1/pools",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}


class Harness:
    """A cluster with one scheduler. Objects are API documents; pods are in the namespace `default`.

    With `often` False the invariants are not checked after each decision. Without a `profile` it is the default one.
    """

    def __init__(
        self,
        *documents: Json,
        seed: int | None = None,
        network: Network | None = None,
        often: bool = True,
        profile: Profile | None = None,
    ) -> None:
        seed = seeds.number("harness") if seed is None else seed
        self.cluster = VirtualCluster(seed, KubeletOptions(start_seconds=0.5, stop_seconds=1.0))
        self._chance = Random(seed)
        self._network = network or Network()
        self._often, self._profile = often, profile or default_profile(NAME)
        self._runs = 0
        self._earlier: list[Action] = []
        self.daemon = self._start()
        self.add(*documents)

    def add(self, *documents: Json) -> None:
        """Create objects."""
        for document in documents:
            self._ask("POST", PATHS[document["kind"]], document)

    def patch(self, kind: str, name: str, change: Json, subresource: str = "") -> None:
        """Merge a change into an object, or with a `subresource` into its status."""
        path = f"{PATHS[kind]}/{name}/{subresource}".rstrip("/")
        self._ask("PATCH", path, change, "application/merge-patch+json")

    def delete(self, kind: str, name: str, **options: Any) -> None:
        """Delete an object."""
        self._ask("DELETE", f"{PATHS[kind]}/{name}", options)

    def run(self, seconds: float = 5.0) -> None:
        """Let time pass."""
        self.cluster.run(seconds)

    def get(self, kind: str, name: str) -> Json:
        """Return an object as it is now."""
        return self._ask("GET", f"{PATHS[kind]}/{name}")

    def all(self, kind: str) -> list[Json]:
        """Return all objects of a kind, by name."""
        items: list[Json] = self._ask("GET", PATHS[kind])["items"]
        return items

    def node_of(self, pod: str) -> str:
        """Return the node of a pod; empty while it waits."""
        node: str = self.get("Pod", pod)["spec"].get("nodeName", "")
        return node

    def nodes_of_pods(self) -> dict[str, str]:
        """Return the node of every pod."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.all("Pod")}

    def why(self, pod: str) -> str:
        """Return the reason of a waiting pod."""
        return self.scheduler.why(self.get("Pod", pod)["metadata"]["uid"])

    def refusal(self, pod: str) -> str:
        """Return the part of the reason about the nodes of the pool, without the clauses after it."""
        return self.why(pod).partition(" preemption: ")[0].partition(" borrowing: ")[0]

    def marks(self, pod: str) -> dict[str, str]:
        """Return the annotations of a pod."""
        annotations: dict[str, str] = self.get("Pod", pod)["metadata"].get("annotations", {})
        return annotations

    def condition(self, kind: str, name: str, condition: str) -> Json:
        """Return one condition of an object; empty if it has none of that type."""
        found = [
            one for one in self.get(kind, name).get("status", {}).get("conditions", []) if one["type"] == condition
        ]
        return found[0] if found else {}

    def events_about(self, name: str, reason: str = "") -> list[str]:
        """Return the notes of the events about an object (for one reason), oldest first."""
        events = [event for event in self.all("Event") if event["regarding"]["name"] == name]
        events.sort(key=lambda event: (event["eventTime"], event["metadata"]["name"]))
        return [event["note"] for event in events if reason in ("", event["reason"])]

    @property
    def scheduler(self) -> Scheduler:
        """The engine."""
        return self.daemon.scheduler

    @property
    def actions(self) -> list[Action]:
        """All actions of the schedulers so far, in order."""
        return self._earlier + [logged.action for logged in self.daemon.log]

    @property
    def binds(self) -> list[str]:
        """The names of pods in the order in which they were bound."""
        return [action.pod.name for action in self.actions if isinstance(action, Bind)]

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """Warnings as (object, reason), in order."""
        return [(action.about.name, action.reason) for action in self.actions if isinstance(action, Warn)]

    def restart_scheduler(self) -> None:
        """End the scheduler as SIGKILL does, and start a new one in the same cluster."""
        self.cluster.stop(self.daemon)
        self._earlier = self.actions
        self.daemon = self._start()

    def restart_server(self) -> None:
        """Restart the API server: every watch ends, and the clients list again."""
        self.cluster.restart_server()

    def _start(self) -> VirtualDaemon:
        self._runs += 1
        scheduler = CheckedScheduler(self._profile, f"run{self._runs}", closely=False, often=self._often)
        return self.cluster.start(scheduler, NAME, self._network, self._chance)

    def _ask(self, method: str, path: str, document: Any = None, content_type: str = "application/json") -> Json:
        answer: Response = self.cluster.request(method, path, document, content_type)
        assert answer.status < 300, answer
        body: Json = json.loads(answer.body)
        return body
