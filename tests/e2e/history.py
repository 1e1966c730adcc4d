"""The record of all pods from one watch of the API server, for checks of every moment.

Invariant: events are in the server's order, so the cluster after each event was a moment of the real cluster.
"""

from collections import Counter
from dataclasses import dataclass

from tests import independent_requests
from tests.controlplane.plane import ControlPlane
from tests.e2e.record import PATHS, Record, key
from tests.e2e.rules import finished
from tests.objects import Json

KEPT = ("containers", "initContainers", "resources", "overhead")
"""What a sight keeps of the spec: what tells the requests."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A pod as it was at one moment; `at` in seconds of the monotonic clock."""

    at: float
    uid: str
    namespace: str
    name: str
    node: str
    gone: bool
    finished: bool
    spec: Json


class History(Record):
    """Records pods alone, and little of each, while its context is open."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane, {"pods": PATHS["pods"]})
        self.sights: list[Sight] = []
        self._there: dict[str, Sight] = {}
        self._bound: dict[str, dict[str, None]] = {}

    def hear(self, plural: str, document: Json, *, gone: bool, at: float) -> None:
        """Record a new state of a pod."""
        (namespace, name), uid, spec = key(document), document["metadata"]["uid"], document["spec"]
        kept = {field: spec[field] for field in KEPT if field in spec}
        sight = Sight(at, uid, namespace, name, spec.get("nodeName", ""), gone, finished(document), kept)
        self.sights.append(sight)
        bound = self._bound.setdefault(namespace, {})
        if gone:
            self._now[plural].pop((namespace, name), None)
            self._there.pop(uid, None)
            bound.pop(uid, None)
        else:
            self._now[plural][namespace, name] = document
            self._there[uid] = sight
            if sight.node:
                bound[uid] = None

    def pods(self, namespace: str) -> list[Sight]:
        """Return the pods of a namespace as they are now."""
        return [sight for sight in list(self._there.values()) if sight.namespace == namespace]

    def bound(self, namespace: str) -> dict[str, str]:
        """Return pod -> node of the bound pods of a namespace."""
        return {sight.name: sight.node for sight in self.pods(namespace) if sight.node}

    def wait_for_bound(self, namespace: str, count: int, seconds: float = 30.0) -> None:
        """Wait until this many pods of the namespace are bound."""
        what = f"{count} bound pods in {namespace}"
        self.wait_until(lambda: len(self._bound.get(namespace, ())) >= count, what, seconds)

    def nodes_of(self) -> dict[str, list[str]]:
        """Return uid -> every node on which the pod was seen, in order, without repetition."""
        nodes: dict[str, list[str]] = {}
        for sight in self.sights:
            seen = nodes.setdefault(sight.uid, [])
            if sight.node != (seen[-1] if seen else ""):
                seen.append(sight.node)
        return nodes

    def overcommitted(self) -> list[str]:
        """Return each moment at which the pods on a node requested more than the node has."""
        allocatable = {
            node["metadata"]["name"]: independent_requests.amounts(node["status"]["allocatable"])
            for node in self._plane.api("GET", "/api/v1/nodes").body["items"]
        }
        used: dict[str, Counter[str]] = {name: Counter() for name in allocatable}
        counted: dict[str, Sight] = {}
        found = []
        for sight in self.sights:
            before = counted.pop(sight.uid, None)
            if before is not None:
                used[before.node].subtract(independent_requests.requests(before.spec))
            if sight.node and not sight.gone and not sight.finished:
                counted[sight.uid] = sight
                on_node = used[sight.node]
                on_node.update(independent_requests.requests(sight.spec))
                found += [
                    f"{sight.node} has {allocatable[sight.node].get(resource, 0)} {resource}, {total} are used"
                    f" since {sight.name}"
                    for resource, total in on_node.items()
                    if total > allocatable[sight.node].get(resource, 0)
                ]
        return found
