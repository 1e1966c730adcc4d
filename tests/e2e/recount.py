"""The numbers of every pool, counted from the output of `kubectl`, and the numbers that the product reports.

Invariant: the count has rules of its own and shares no code with the scheduler, not even to read a quantity.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction

from prometheus_client.samples import Sample

from tests import independent_requests
from tests.e2e.rules import DEFAULT, OURS, finished, pool_named, pool_of, requests
from tests.objects import Json

Numbers = dict[tuple[str, str, str], Fraction]
"""(pool, kind, resource) -> cores, bytes or units, without zeros. Loans: (lender, "loans", home) -> pods."""

Sums = defaultdict[tuple[str, str, str], Fraction]

GPU, GPUS = "nvidia.com/gpu", "gpu"
AMOUNTS = ("capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "free", "pending")
COUNTS = ("nodes", "pods", "pendingPods")
JSON_UNITS = {"cpuMilli": ("cpu", 1000), "memoryBytes": ("memory", 1), "pods": ("pods", 1), "gpus": (GPUS, 1)}


def recount(documents: Iterable[Json]) -> Numbers:
    """Count the output of `kubectl get -o json` of nodes, pods and pools, at a time without claims."""
    kinds: dict[str, list[Json]] = {"Pod": [], "Node": [], "Pool": []}
    for document in documents:
        kinds[document["kind"]].append(document)
    pools = {pool["metadata"]["name"]: pool["spec"] for pool in kinds["Pool"]}
    pool_by_node = {node["metadata"]["name"]: pool_of(node, pools) for node in kinds["Node"]}
    found: Sums = defaultdict(Fraction)
    for node in kinds["Node"]:
        pool = pool_by_node[node["metadata"]["name"]]
        found[pool, "nodes", ""] += 1
        for kind in ("capacity", "allocatable"):
            _add(found, pool, kind, independent_requests.amounts(node["status"][kind]))
    for pod in kinds["Pod"]:
        if not finished(pod):
            _count(found, pod, pools, pool_by_node)
    for pool, kind, resource in [key for key in found if key[1] == "allocatable"]:
        free = found[pool, kind, resource] - found[pool, "used", resource]
        found[pool, "free", resource] = max(free, Fraction(0))
    return _kept(found)


def from_status(pools: Iterable[Json]) -> Numbers:
    """Return the numbers in the statuses of Pools."""
    found: Numbers = {}
    for pool in pools:
        name, status = pool["metadata"]["name"], pool.get("status", {})
        found |= {(name, count, ""): Fraction(status.get(count, 0)) for count in COUNTS}
        for kind in AMOUNTS:
            for resource, text in status.get(kind, {}).items():
                found[name, kind, resource] = independent_requests.amount(text)
                if resource == GPU:
                    found[name, kind, GPUS] = found[name, kind, resource]
    return _kept(found)


def from_command(pools: Iterable[Json]) -> Numbers:
    """Return the numbers of `ai-scheduler pools -o json`."""
    found: Numbers = {}
    for pool in pools:
        found |= {(pool["name"], count, ""): Fraction(pool[count]) for count in COUNTS}
        for kind in AMOUNTS:
            for field, (resource, scale) in JSON_UNITS.items():
                found[pool["name"], kind, resource] = Fraction(pool[kind][field]) / scale
            found |= {(pool["name"], kind, one): Fraction(amount) for one, amount in pool[kind]["others"].items()}
    return _kept(found)


def from_metrics(samples: Iterable[Sample]) -> Numbers:
    """Return the numbers of `/metrics`."""
    found: Numbers = {}
    for sample in samples:
        labels, value = sample.labels, Fraction(str(sample.value))
        match sample.name:
            case "ai_scheduler_pool_resource":
                found[labels["pool"], labels["kind"], labels["resource"]] = value
            case "ai_scheduler_pool_nodes":
                found[labels["pool"], "nodes", ""] = value
            case "ai_scheduler_loans":
                found[labels["lender"], "loans", labels["home"]] = value
    for (pool, kind, resource), amount in tuple(found.items()):
        if (kind, resource) in (("used", "pods"), ("pending", "pods")):
            found[pool, "pods" if kind == "used" else "pendingPods", ""] = amount
    return _kept(found)


def without_loans(numbers: Numbers) -> Numbers:
    """Return the numbers without loans by pairs of pools, which only `/metrics` has."""
    return {key: amount for key, amount in numbers.items() if key[1] != "loans"}


def difference(told: Numbers, counted: Numbers) -> list[str]:
    """Return every reported number that differs from the count."""
    return [
        f"{key}: told {told.get(key, 0)}, counted {counted.get(key, 0)}"
        for key in sorted(told.keys() | counted.keys())
        if told.get(key) != counted.get(key)
    ]


def _count(found: Sums, pod: Json, pools: Mapping[str, Json], pool_by_node: Mapping[str, str]) -> None:
    """Count one unfinished pod in the pool of its node, or as pending; on a node that is gone it counts nowhere."""
    spec, ours = pod["spec"], pod["spec"]["schedulerName"] == OURS
    home = pool_named(pod) if pool_named(pod) in pools else DEFAULT
    amounts = requests(pod)
    if not spec.get("nodeName"):
        if ours and not spec.get("schedulingGates"):
            _add(found, home, "pending", amounts)
            found[home, "pendingPods", ""] += 1
        return
    pool = pool_by_node.get(spec["nodeName"])
    if pool is None:
        return
    found[pool, "pods", ""] += 1
    _add(found, pool, "used", amounts)
    _add(found, pool, "system" if not ours else "own" if home == pool else "shared", amounts)
    if ours and home != pool:
        _add(found, home, "borrowed", amounts)
        found[pool, "loans", home] += 1


def _add(found: Sums, pool: str, kind: str, amounts: Mapping[str, int]) -> None:
    for resource, whole in amounts.items():
        amount = Fraction(whole, 1000 if resource in independent_requests.MILLI_RESOURCES else 1)
        found[pool, kind, resource] += amount
        if resource == GPU:
            found[pool, kind, GPUS] += amount


def _kept(found: Mapping[tuple[str, str, str], Fraction]) -> Numbers:
    return {key: amount for key, amount in found.items() if amount}
