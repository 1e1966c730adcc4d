"""What every pool must say of itself, counted anew from what `kubectl` prints, and what it does say, in one form.

Law: the recount knows the rules by itself and shares no line with the scheduler, not even to read a quantity.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal

from prometheus_client.samples import Sample

from tests.objects import Json

Numbers = dict[tuple[str, str, str], Decimal]
"""(pool, what, resource) -> cores, bytes or units; what is zero is left out. Loans: (lender, "loans", home) -> pods."""

Sums = defaultdict[tuple[str, str, str], Decimal]

OURS = "ai-scheduler"
POOL = "resource.aibee.cn/pool"
GPU, GPUS = "nvidia.com/gpu", "gpu"
AMOUNTS = ("capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "free", "pending")
COUNTS = ("nodes", "pods", "pendingPods")
UNITS = {
    **{unit: Decimal(1000) ** power for power, unit in enumerate(["n", "u", "m", "", *"kMGTPE"], -3)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
JSON_UNITS = {"cpuMilli": ("cpu", 1000), "memoryBytes": ("memory", 1), "pods": ("pods", 1), "gpus": (GPUS, 1)}


def recount(documents: Iterable[Json]) -> Numbers:
    """Count nodes, pods and pools as `kubectl get -o json` lists them; nobody may hold a claim at that time."""
    kinds: dict[str, list[Json]] = {"Pod": [], "Node": [], "Pool": []}
    for document in documents:
        kinds[document["kind"]].append(document)
    pools = {pool["metadata"]["name"]: pool["spec"] for pool in kinds["Pool"]}
    pool_of = {node["metadata"]["name"]: _pool_of(node, pools) for node in kinds["Node"]}
    found: Sums = defaultdict(Decimal)
    for node in kinds["Node"]:
        pool = pool_of[node["metadata"]["name"]]
        found[pool, "nodes", ""] += 1
        for kind in ("capacity", "allocatable"):
            _add(found, pool, kind, {name: _amount(text) for name, text in node["status"][kind].items()})
    for pod in kinds["Pod"]:
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            _count(found, pod, pools, pool_of)
    for pool, kind, resource in [key for key in found if key[1] == "allocatable"]:
        free = found[pool, kind, resource] - found[pool, "used", resource]
        found[pool, "free", resource] = max(free, Decimal(0))
    return _kept(found)


def from_status(pools: Iterable[Json]) -> Numbers:
    """Return what the statuses of Pools say."""
    found: Numbers = {}
    for pool in pools:
        name, status = pool["metadata"]["name"], pool.get("status", {})
        found |= {(name, count, ""): Decimal(status.get(count, 0)) for count in COUNTS}
        for kind in AMOUNTS:
            for resource, text in status.get(kind, {}).items():
                found[name, kind, resource] = _amount(text)
                if resource == GPU:
                    found[name, kind, GPUS] = found[name, kind, resource]
    return _kept(found)


def from_command(pools: Iterable[Json]) -> Numbers:
    """Return what `ai-scheduler pools -o json` says."""
    found: Numbers = {}
    for pool in pools:
        found |= {(pool["name"], count, ""): Decimal(pool[count]) for count in COUNTS}
        for kind in AMOUNTS:
            for field, (resource, scale) in JSON_UNITS.items():
                found[pool["name"], kind, resource] = Decimal(pool[kind][field]) / scale
            found |= {(pool["name"], kind, one): Decimal(amount) for one, amount in pool[kind]["others"].items()}
    return _kept(found)


def from_metrics(samples: Iterable[Sample]) -> Numbers:
    """Return what `/metrics` says."""
    found: Numbers = {}
    for sample in samples:
        labels, value = sample.labels, Decimal(str(sample.value))
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
    """Return what is said of pools one by one: only `/metrics` tells loans by pairs of pools."""
    return {key: amount for key, amount in numbers.items() if key[1] != "loans"}


def difference(told: Numbers, counted: Numbers) -> list[str]:
    """Return every number that is told otherwise than it was counted."""
    return [
        f"{key}: told {told.get(key, 0)}, counted {counted.get(key, 0)}"
        for key in sorted(told.keys() | counted.keys())
        if told.get(key) != counted.get(key)
    ]


def _count(found: Sums, pod: Json, pools: Mapping[str, Json], pool_of: dict[str, str]) -> None:
    """Count one unfinished pod where it is, or where it waits."""
    spec, ours = pod["spec"], pod["spec"]["schedulerName"] == OURS
    named = pod["metadata"].get("annotations", {}).get(POOL, "")
    home = named if named in pools else "default"
    asked = _requests(spec)
    if not spec.get("nodeName"):
        if ours and not spec.get("schedulingGates"):
            _add(found, home, "pending", asked)
            found[home, "pendingPods", ""] += 1
        return
    pool = pool_of[spec["nodeName"]]
    found[pool, "pods", ""] += 1
    _add(found, pool, "used", asked)
    _add(found, pool, "system" if not ours else "own" if home == pool else "shared", asked)
    if ours and home != pool:
        _add(found, home, "borrowed", asked)
        found[pool, "loans", home] += 1


def _requests(spec: Json) -> dict[str, Decimal]:
    asked = {"pods": Decimal(1)}
    for container in spec["containers"]:
        for resource, text in container["resources"].get("requests", {}).items():
            asked[resource] = asked.get(resource, Decimal(0)) + _amount(text)
    return asked


def _add(found: Sums, pool: str, kind: str, amounts: Mapping[str, Decimal]) -> None:
    for resource, amount in amounts.items():
        found[pool, kind, resource] += amount
        if resource == GPU:
            found[pool, kind, GPUS] += amount


def _pool_of(node: Json, pools: Mapping[str, Json]) -> str:
    """Return the one pool that selects the node, else the default one."""
    labels = node["metadata"].get("labels", {})
    mine = [
        name
        for name, spec in pools.items()
        if name != "default"
        and "nodeSelector" in spec
        and all(labels.get(key) == value for key, value in spec["nodeSelector"].get("matchLabels", {}).items())
        and all(labels.get(one["key"]) in one["values"] for one in spec["nodeSelector"].get("matchExpressions", ()))
    ]
    return mine[0] if len(mine) == 1 else "default"


def _kept(found: Mapping[tuple[str, str, str], Decimal]) -> Numbers:
    return {key: amount for key, amount in found.items() if amount}


def _amount(quantity: str) -> Decimal:
    number = quantity.rstrip("numkKMGTPEi")
    return Decimal(number) * UNITS[quantity[len(number) :]]
