"""Independent answers in plain Python, read from documents: the nearest misses, and what starts a pod."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from aischeduler.engine.admission import namespace_refused
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.propose import propose
from aischeduler.engine.units import form_some
from aischeduler.model.names import POOL_KEY
from aischeduler.model.proposal import Borrow, MakeRoom, Place
from aischeduler.model.quantity import parse_milli, parse_units
from aischeduler.state.pod_records import PodRecord, PodState
from tests.analysis.clusters import POOLS, Documents, cluster_of, waiting
from tests.objects import Json


def starts(documents: Documents, name: str, *, evicting: bool = True) -> bool:
    """Return whether a fresh engine proposes a start for this pod, or its unit: at once, or also after evictions."""
    cluster = cluster_of(documents.engine())
    while cluster.units.stale:
        form_some(cluster)
    for record in waiting(cluster):  # as the scheduler does at its first attempt: a held pod keeps no room from others
        if record.usable and namespace_refused(cluster, record):
            cluster.queues[record.queue].remove(record)
            cluster.queues[record.home].hold(record, 0.0)
    record = cluster.records[documents.pod(name)["metadata"]["uid"]].waits_as
    return record.state is not PodState.GATED and starts_in(cluster, record, evicting=evicting)


def starts_in(cluster: Cluster, record: PodRecord, *, evicting: bool = True) -> bool:
    """Return whether the engine proposes a start, following the pod, which changes its queue, from lender to lender."""
    cluster.freshness.refreshed_at[record.home] = 0.0
    proposal = propose(cluster, record, record.home, 0.0)
    trip: tuple[str, ...] = (record.home,)
    while isinstance(proposal, Borrow):
        trip = (*trip, proposal.lender)
        record.queue, record.visited = trip[-1], trip
        proposal = propose(cluster, record, trip[-1], 0.0)
    return isinstance(proposal, Place) or (evicting and isinstance(proposal, MakeRoom))


def requests(pod: Json) -> dict[str, int]:
    """Return what a pod takes; the generator makes no plain init containers and no overhead."""
    total = {"pods": 1}
    spec = pod["spec"]
    for container in (*spec["containers"], *spec.get("initContainers", [])):
        for name, text in container["resources"]["requests"].items():
            total[name] = total.get(name, 0) + amount(name, text)
    return {name: count for name, count in total.items() if count}


def amount(name: str, text: str) -> int:
    return parse_milli(text) if name == "cpu" else parse_units(text)


def pool_of(node: Json) -> str:
    pool: str = node["metadata"]["labels"]["pool"]
    return pool if pool in POOLS else "default"


def home_of(pod: Json) -> str:
    pool: str = pod["metadata"].get("annotations", {}).get(POOL_KEY, "")
    return pool or "default"


@dataclass(frozen=True)
class Found:
    """What the nodes of one rule lack: how many they are, and the nearest with what it lacks."""

    nodes: int
    nearest: str
    missing: tuple[tuple[str, int], ...]


def misses(documents: Documents, pod: Json) -> dict[str, Found]:
    """Return per rule the nodes of the pod's home pool that it is the first to refuse, and the nearest of them."""
    by_rule: dict[str, list[tuple[Any, str, tuple[tuple[str, int], ...]]]] = {}
    for node in documents.of("Node"):
        if pool_of(node) != home_of(pod):
            continue
        rule, missing = _refusal(documents, pod, node)
        if not rule:
            continue
        asked = requests(pod)
        share = max((lacks / asked[name] for name, lacks in missing), default=0) if rule == "NodeResourcesFit" else 0
        by_rule.setdefault(rule, []).append(((len(missing), share), node["metadata"]["name"], missing))
    found: dict[str, Found] = {}
    for rule, nodes in by_rule.items():
        _, name, missing = min(nodes, key=lambda one: one[:2])
        found[rule] = Found(len(nodes), name, missing)
    return found


def _refusal(documents: Documents, pod: Json, node: Json) -> tuple[str, tuple[tuple[str, int], ...]]:
    tolerates = any(t.get("key") == "dedicated" for t in pod["spec"].get("tolerations", []))
    labels = node["metadata"]["labels"]
    untolerated = [t for t in node["spec"].get("taints", []) if not (tolerates and t["key"] == "dedicated")]
    selector = pod["spec"].get("nodeSelector", {})
    unlike = [f"{key}={value}" for key, value in sorted(selector.items()) if labels.get(key) != value]
    here = [other for other in documents.of("Pod") if other["spec"].get("nodeName") == node["metadata"]["name"]]
    taken = [port for other in here for port in _ports(other)]
    ports = [port for port in _ports(pod) if port in taken]
    if node["spec"].get("unschedulable"):
        return "NodeUnschedulable", (("spec.unschedulable", 0),)
    if untolerated:
        return "TaintToleration", tuple(
            (f"{t['key']}{'=' if t.get('value') else ''}{t.get('value', '')}:{t['effect']}", 0) for t in untolerated
        )
    if unlike:
        return "NodeAffinity", tuple((text, 0) for text in unlike)
    if ports:
        return "NodePorts", tuple((f"TCP {port}", 0) for port in ports)
    short: list[tuple[str, int]] = []
    for name, asked in sorted(requests(pod).items()):
        has = amount(name, node["status"]["allocatable"].get(name, "0"))
        lacks = asked - (has - sum(requests(other).get(name, 0) for other in here))
        if lacks > 0:
            short.append((name, lacks))
    return ("NodeResourcesFit", tuple(short)) if short else ("", ())


def _ports(pod: Json) -> list[int]:
    return [port["hostPort"] for one in pod["spec"]["containers"] for port in one.get("ports", [])]


def endings(documents: Documents, size: int) -> Iterator[Documents]:
    """Yield the documents without every set of this many pods on one node."""
    for node in documents.of("Node"):
        name = node["metadata"]["name"]
        here = [pod for pod in documents.of("Pod") if pod["spec"].get("nodeName") == name]
        for pods in combinations(here, size):
            left = documents.copy()
            for pod in pods:
                del left.objects["Pod", "default", pod["metadata"]["name"]]
            yield left


def flips(documents: Documents) -> Iterator[Documents]:
    """Yield the documents with one flag of one Pool changed."""
    for pool in documents.of("Pool"):
        spec = pool["spec"]
        changes: list[Json] = [{flag: False} for flag in spec if flag.startswith("disable")]
        if "allowedNamespaces" in spec:
            changes.append({"allowedNamespaces": None})
        if "borrowingPools" in spec:
            others = {*POOLS, "default"} - {pool["metadata"]["name"], *spec["borrowingPools"]}
            changes += [{"borrowingPools": [*spec["borrowingPools"], name]} for name in sorted(others)]
        for change in changes:
            changed = deepcopy(pool)
            for field, value in change.items():
                if value is None:
                    del changed["spec"][field]
                else:
                    changed["spec"][field] = value
            edited = documents.copy()
            edited.put(changed)
            yield edited
