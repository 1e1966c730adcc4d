"""The rules of pools and nodes for checks of a cluster at one moment.

Invariant: the rules read API documents and are written here independently; they share no code with the scheduler.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tests import independent_requests
from tests.e2e.record import Objects, key
from tests.objects import Json

OURS: Final = "ai-scheduler"
POOL: Final = "resource.aibee.cn/pool"
DEFAULT: Final = "default"

Amounts = Counter[str]


_asked: dict[tuple[str, str], Amounts] = {}


class Pods(dict[tuple[str, str], Json]):
    """Pods by namespace and name, and by node: the pods on it, and the pods with reserved room there.

    `soon` has the nodes of waiting pods that may be decided already.
    """

    def __init__(self, pods: Objects, soon: Mapping[tuple[str, str], str] | None = None) -> None:
        super().__init__(pods)
        self._soon = soon or {}

    @cached_property
    def bound(self) -> dict[str, list[Json]]:
        return self._by_node(lambda pod: pod["spec"].get("nodeName"))

    @cached_property
    def awaited(self) -> dict[str, list[Json]]:
        def where(pod: Json) -> Any:
            waits = not pod["spec"].get("nodeName")
            return waits and (self._soon.get(key(pod)) or pod["status"].get("nominatedNodeName"))

        return self._by_node(where)

    def _by_node(self, where: Callable[[Json], Any]) -> dict[str, list[Json]]:
        found: dict[str, list[Json]] = {}
        for pod in self.values():
            node = where(pod)
            if node and not finished(pod):
                found.setdefault(node, []).append(pod)
        return found


@dataclass(frozen=True, slots=True)
class World:
    """The cluster at one moment; the pods may be of an earlier moment."""

    pods: Pods
    nodes: Objects
    pools: Objects
    namespaces: Objects

    def home(self, pod: Json) -> str:
        """Return the home pool of a pod."""
        named = pool_named(pod)
        return named if ("", named) in self.pools else DEFAULT

    def pool_of(self, node: Json) -> str:
        """Return the one pool that selects the node, else the default pool."""
        return pool_of(node, {name: pool["spec"] for (_, name), pool in self.pools.items()})

    def spec(self, pool: str) -> Json:
        return dict(self.pools.get(("", pool), {"spec": {}})["spec"])

    def allows(self, pool: str, pod: Json) -> bool:
        """Say whether the pool takes pods of the pod's namespace."""
        allowed = self.spec(pool).get("allowedNamespaces")
        found = self.namespaces.get(("", pod["metadata"]["namespace"]), {"metadata": {}})
        return allowed is None or selects(allowed, found["metadata"].get("labels", {}))

    def free(self, node: Json, but: tuple[str, str], leaving: Collection[str] = ()) -> Amounts:
        """Return the free amounts of a node without one pod and the leaving pods (by uid)."""
        left = independent_requests.amounts(node["status"].get("allocatable"))
        for pod in self.pods.bound.get(node["metadata"]["name"], ()):
            if key(pod) != but and pod["metadata"]["uid"] not in leaving:
                left.subtract(requests(pod))
        return left

    def room_for(self, pod: Json, pool: str) -> list[str]:
        """Return the nodes of a pool on which the pod fits beside the pods on them and the pods with reserved room."""
        found = []
        for (_, name), node in self.nodes.items():
            if self.pool_of(node) != pool or not runs_there(pod, node):
                continue
            left = self.free(node, key(pod))
            for other in self.pods.awaited.get(name, ()):
                if key(other) != key(pod):
                    left.subtract(requests(other))
            if not lacks(pod, left):
                found.append(name)
        return found

    def lent(self, pool: str, but: tuple[str, str] = ("", "")) -> Amounts:
        """Return what pods of other pools use in a pool, without one pod."""
        loans = (pod for pod, lender in self._loans() if lender == pool and key(pod) != but)
        return _sum(loans)

    def borrowed(self, home: str, but: tuple[str, str]) -> Amounts:
        """Return what a pool's pods use in other pools, without one pod."""
        return _sum(pod for pod, _ in self._loans() if self.home(pod) == home and key(pod) != but)

    def binding_forbidden(self, pod: Json, name: str) -> str:
        """Return the rule that forbids the pod on this node; empty if none does."""
        node, home = self.nodes.get(("", name)), self.home(pod)
        if node is None:
            return "there is no such node"
        if not runs_there(pod, node):
            return "the node does not take it"
        if missing := lacks(pod, self.free(node, key(pod))):
            return f"the node has too little {missing}"
        if not self.allows(home, pod):
            return f"{home} takes no pods of its namespace"
        lender = self.pool_of(node)
        return "" if lender == home else self.loan_forbidden(pod, lender)

    def loan_forbidden(self, pod: Json, lender: str) -> str:
        """Return the rule that forbids the pod on a node of another pool; empty if none does."""
        home = self.home(pod)
        mine, theirs = self.spec(home), self.spec(lender)
        if mine.get("disableBorrowing"):
            return f"{home} does not borrow"
        if theirs.get("disableSharing"):
            return f"{lender} does not share"
        if mine.get("borrowingPools") and lender not in mine["borrowingPools"]:
            return f"{home} does not borrow from {lender}"
        for name, spec, running in (
            ("borrowingLimit", mine, self.borrowed(home, key(pod))),
            ("lendingLimit", theirs, self.lent(lender, key(pod))),
        ):
            total, limit = running + requests(pod), independent_requests.amounts(spec.get(name))
            over = [what for what in limit if requests(pod)[what] and total[what] > limit[what]]
            if over:
                return f"{name} of {', '.join(over)} is {dict(limit)}, with it {dict(total)}"
        return ""

    def _loans(self) -> Iterator[tuple[Json, str]]:
        """Yield the scheduler's pods on nodes of other pools, with the lender."""
        for name, pods in self.pods.bound.items():
            node = self.nodes.get(("", name))
            if node is not None:
                lender = self.pool_of(node)
                ours = (pod for pod in pods if pod["spec"]["schedulerName"] == OURS)
                yield from ((pod, lender) for pod in ours if self.home(pod) != lender)


def pool_of(node: Json, specs: Mapping[str, Json]) -> str:
    """Return the one pool of these specs that selects the node, else the default pool."""
    labels = node["metadata"].get("labels", {})
    mine = [
        name
        for name, spec in specs.items()
        if name != DEFAULT and "nodeSelector" in spec and selects(spec["nodeSelector"], labels)
    ]
    return mine[0] if len(mine) == 1 else DEFAULT


def selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """Say whether a label selector matches; an operator that no test uses is an error."""
    rules = selector.get("matchExpressions", ())
    assert all(one["operator"] == "In" for one in rules), selector
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items()) and all(
        labels.get(one["key"]) in one["values"] for one in rules
    )


def pool_named(pod: Json) -> str:
    """Return the pool that a pod names; empty if it names none."""
    metadata = pod["metadata"]
    named: str = metadata.get("annotations", {}).get(POOL) or metadata.get("labels", {}).get(POOL, "")
    return named


def finished(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def priority(pod: Json) -> int:
    value: int = pod["spec"].get("priority", 0)
    return value


def runs_there(pod: Json, node: Json) -> bool:
    """Say whether a node is not cordoned or tainted and the pod selects it; no pod tolerates a taint here."""
    spec = node["spec"]
    closed = spec.get("unschedulable") or any(one["effect"] != "PreferNoSchedule" for one in spec.get("taints", ()))
    labels = node["metadata"].get("labels", {})
    return not closed and pod["spec"].get("nodeSelector", {}).items() <= labels.items()


def requests(pod: Json) -> Amounts:
    """Return the requests of the pod; the caller must not change them."""
    version = pod["metadata"].get("uid", ""), pod["metadata"].get("resourceVersion", "")
    if not all(version):  # written by hand
        return independent_requests.requests(pod["spec"])
    if version not in _asked:
        _asked[version] = independent_requests.requests(pod["spec"])
    return _asked[version]


def lacks(pod: Json, left: Amounts) -> str:
    """Return the resources of which there is too little for the pod."""
    return ", ".join(what for what, much in requests(pod).items() if much > left[what])


def _sum(pods: Iterator[Json]) -> Amounts:
    total: Amounts = Counter()
    for pod in pods:
        total.update(requests(pod))
    return total
