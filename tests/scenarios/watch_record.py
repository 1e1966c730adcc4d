"""The record of a scenario's pods and nodes from two watches, and the checks of it at the end.

Invariants:
- The record has every event of the API server, in its order, and nothing from the scheduler or its code.
- A node counts with the most resources that it ever had: the events of pods and nodes have no common order.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from tests import independent_requests
from tests.api_contract.world import Json, Stream, condition

PREEMPTION = "PreemptionByScheduler"
"""The reason of the disruption of a pod that the scheduler deletes."""
EVICTION = "EvictionByEvictionAPI"
"""The reason of a pod that the Eviction API evicts; it writes the condition and deletes in one request."""


class WatchRecord:
    """Records from construction on; `plain` removes the scenario's prefix from the names."""

    def __init__(self, pods: Stream, nodes: Stream, plain: Callable[[Json], Json]) -> None:
        self._streams = (pods, nodes)
        self._plain = plain
        self.pods: list[Json] = []
        """Every state of every pod, with `gone` if it was deleted."""
        self.evicted_by_write: dict[str, None] = {}
        """The Jobs that are suspended or made smaller to evict their pods, which their controller then deletes."""
        self._most: dict[str, Counter[str]] = {}
        self._newest: dict[str, str] = {}
        self.newest: dict[str, int] = {}
        """Kind -> the newest resource version, deletions included."""

    def look(self) -> None:
        """Read the new events. Raises AssertionError if a watch has ended, because the record then has a gap."""
        pods, nodes = self._streams
        while event := pods.next(0.0):
            self.pods.append(self._add("Pod", event["object"]) | {"gone": event["type"] == "DELETED"})
        while event := nodes.next(0.0):
            node = self._add("Node", event["object"])
            most = self._most.setdefault(node["metadata"]["name"], Counter())
            most |= independent_requests.amounts(node["status"].get("allocatable"))
            self._most[node["metadata"]["name"]] = most
        assert not any(stream.ended for stream in self._streams), "the record has ended"

    def has_seen(self, objects: Sequence[Json]) -> bool:
        """Return whether the record has reached the present state of these pods and nodes."""
        found = (one["metadata"] for one in objects)
        return all(self._newest.get(one["uid"]) == one["resourceVersion"] for one in found)

    def victims(self) -> list[str]:
        """Return the pods that got the condition of victims, in that order."""
        return list(dict.fromkeys(pod["metadata"]["name"] for pod in self.pods if evicted(pod)))

    def nodes_of(self, name: str) -> list[str]:
        """Return every node on which a pod of this name was seen, in order."""
        seen = (pod["spec"].get("nodeName") for pod in self.pods if pod["metadata"]["name"] == name)
        return list(dict.fromkeys(node for node in seen if node))

    def judge(self) -> list[str]:
        """Return every overcommitted node, pod bound twice, and deletion before its condition."""
        return [*self._overcommitted(), *self._bound_twice(), *self._deleted_without_reason()]

    def close(self) -> None:
        for stream in self._streams:
            stream.close()

    def _add(self, kind: str, document: Json) -> Json:
        metadata = document["metadata"]
        self.newest[kind] = max(self.newest.get(kind, 0), int(metadata["resourceVersion"] or 0))
        self._newest[metadata["uid"]] = metadata["resourceVersion"]
        return self._plain(document)

    def _overcommitted(self) -> list[str]:
        used: dict[str, Counter[str]] = {}
        counted: dict[str, tuple[str, Counter[str]]] = {}
        found = []
        for pod in self.pods:
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            if uid in counted:
                before, amounts = counted.pop(uid)
                used[before].subtract(amounts)
            if not node or pod["gone"] or pod["status"].get("phase") in {"Succeeded", "Failed"}:
                continue
            counted[uid] = node, independent_requests.requests(pod["spec"])
            total = used.setdefault(node, Counter())
            total.update(counted[uid][1])
            most = self._most.get(node, Counter())
            over = {resource: amount for resource, amount in total.items() if amount > most[resource]}
            if over:
                found.append(f"{node} has {dict(most)}, used since {pod['metadata']['name']}: {over}")
        return found

    def _bound_twice(self) -> list[str]:
        nodes: dict[str, dict[str, None]] = {}
        for pod in self.pods:
            if pod["spec"].get("nodeName"):
                nodes.setdefault(pod["metadata"]["uid"], {})[pod["spec"]["nodeName"]] = None
        return [f"{uid} was bound to {list(on)}" for uid, on in nodes.items() if len(on) > 1]

    def _deleted_without_reason(self) -> list[str]:
        first: dict[str, Json] = {}
        for pod in self.pods:
            job = pod["metadata"].get("labels", {}).get("job-name")
            if disrupted(pod, PREEMPTION) and job not in self.evicted_by_write:
                first.setdefault(pod["metadata"]["uid"], pod)
        late = [pod["metadata"]["name"] for pod in first.values() if pod["metadata"].get("deletionTimestamp")]
        return [f"{name} was deleted before its condition said why" for name in late]


def evicted(pod: Json) -> bool:
    """Say whether the pod has the condition of a victim."""
    return disrupted(pod, PREEMPTION) or disrupted(pod, EVICTION)


def disrupted(pod: Json, reason: str) -> bool:
    """Say whether the pod has the condition DisruptionTarget with this reason."""
    found = condition(pod, "DisruptionTarget")
    return (found.get("status"), found.get("reason")) == ("True", reason)
