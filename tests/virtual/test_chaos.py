"""Random changes for a day: with every seed no node is overcommitted in the end and no pod is lost or forgotten.

Invariant: the checks read API documents only and have rules of their own; they share no code with the engine.
"""

from random import Random  # noqa: TID251 - the generator is made from the seed

import pytest

from tests.harness import Harness, Json
from tests.objects import node_object, pod_object, pool_object
from tests.seeds import number as number_of
from tests.virtual.virtual_daemon import Network

WHILES = 40
SEEDS = 10
SEEDS_OF_A_SOAK = 500
QUIET_SECONDS = 100.0
"""After this time, retries of lost answers, the longest backoff and grace periods are over."""
POOLS = ("red", "blue")
TAINT = {"key": "closed", "effect": "NoSchedule"}


def live_a_day(day: int) -> None:
    """Make random changes for a day, some of them while requests are in flight, and check in every quiet period."""
    seed = number_of(f"chaos {day}")
    chance = Random(seed)
    network = Network(bind_seconds=chance.choice([0.01, 0.5, 2.0]), lost_share=chance.choice([0.0, 0.0, 0.3]))
    h = Harness(*(a_node(chance, number) for number in range(4)), seed=seed, network=network)
    for number in range(WHILES):
        for part in range(chance.randrange(1, 4)):
            happen(h, chance, f"{number}-{part}")
            h.run(seconds=chance.choice([0.0, 0.1, 1.0]))
        h.run(seconds=QUIET_SECONDS)
        judge(h)


def a_node(chance: Random, number: object) -> Json:
    labels = {"pool": chance.choice([*POOLS, "both", "none"])}
    taints = [TAINT] if chance.random() < 0.2 else []
    return node_object(f"node-{number}", cpu=str(chance.choice([2, 4, 8])), pods=6, labels=labels, taints=taints)


def happen(h: Harness, chance: Random, number: str) -> None:
    """Make one random change."""
    nodes, pods, pools = ([one["metadata"]["name"] for one in h.all(kind)] for kind in ("Node", "Pod", "Pool"))
    match chance.randrange(24):
        case 0 | 1 | 2 | 3 | 4 | 5 | 6:
            h.add(*(a_pod(chance, f"p{number}-{index}") for index in range(chance.randrange(1, 5))))
        case 7 | 8 | 9 if pods:
            h.delete("Pod", chance.choice(pods))
        case 10:
            h.add(a_node(chance, number))
        case 11 | 12 if nodes:
            h.delete("Node", chance.choice(nodes))
        case 13 | 14 | 15 | 16 | 17 if nodes:
            h.patch("Node", chance.choice(nodes), chance.choice(CHANGES))
        case 18 | 19 | 20:
            toggle_pool(h, chance.choice(POOLS), pools)
        case 21:
            h.restart_server()
            if pods:  # before the watches have listed again
                h.delete("Pod", chance.choice(pods), gracePeriodSeconds=0)
        case 22:
            h.restart_scheduler()
        case 23 if pods:
            h.patch("Pod", chance.choice(pods), {"spec": {"schedulingGates": None}})


CHANGES: tuple[Json, ...] = (
    {"spec": {"taints": [TAINT]}},
    {"spec": {"taints": None}},
    {"spec": {"unschedulable": True}},
    {"spec": {"unschedulable": None}},
    {"metadata": {"labels": {"pool": "red"}}},
    {"metadata": {"labels": {"pool": "both"}}},
)


def a_pod(chance: Random, name: str) -> Json:
    gates = ["example.com/data"] if chance.random() < 0.1 else []
    tolerations = [{"key": "closed", "operator": "Exists"}] if chance.random() < 0.3 else []
    cpu, pool = str(chance.choice([1, 1, 2, 3])), chance.choice(["", *POOLS, "nowhere"])
    return pod_object(name, cpu=cpu, pool=pool, gates=gates, tolerations=tolerations)


def toggle_pool(h: Harness, name: str, pools: list[str]) -> None:
    if name in pools:
        h.delete("Pool", name)
    else:
        chosen = [{"key": "pool", "operator": "In", "values": [name, "both"]}]
        h.add(pool_object(name, nodeSelector={"matchExpressions": chosen}))


def judge(h: Harness) -> None:
    """Check that no node is overbooked, that waiting pods fit nowhere, each in one queue, and that no flush helped."""
    pods, nodes = h.all("Pod"), h.all("Node")
    pools = [pool["metadata"]["name"] for pool in h.all("Pool")]
    there = {node["metadata"]["name"]: [pod for pod in pods if is_on(pod, node)] for node in nodes}
    for node in nodes:
        assert has_room(node, there[node["metadata"]["name"]])
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    for pod in waiting:
        taking = [
            name
            for node in nodes
            if pool_of(node, pools) == home_of(pod, pools)
            and not objects(node, pod)
            and has_room(node, [*there[name := node["metadata"]["name"]], pod])
        ]
        gated = bool(pod["spec"].get("schedulingGates"))
        assert gated or taking == [], f"{pod['metadata']['name']} waits: {h.why(pod['metadata']['name'])}"
    assert sum(sum(places.values()) for places in h.scheduler.waiting().values()) == len(waiting)
    assert h.scheduler.net_saves() == 0


def is_on(pod: Json, node: Json) -> bool:
    return bool(pod["spec"].get("nodeName") == node["metadata"]["name"])


def has_room(node: Json, pods: list[Json]) -> bool:
    """Say whether these pods together fit on a node."""
    cpu = sum(int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for pod in pods)
    allocatable = node["status"]["allocatable"]
    return cpu <= int(allocatable["cpu"]) and len(pods) <= int(allocatable["pods"])


def objects(node: Json, pod: Json) -> bool:
    """Say whether a node refuses a pod for another reason than room."""
    tolerates = any(one.get("key") == "closed" for one in pod["spec"].get("tolerations", []))
    return bool(node["spec"].get("unschedulable")) or (bool(node["spec"].get("taints")) and not tolerates)


def pool_of(node: Json, pools: list[str]) -> str:
    """Return the one pool that selects a node, else the default pool."""
    label = node["metadata"]["labels"]["pool"]
    selecting = [pool for pool in pools if pool != "default" and label in (pool, "both")]
    return selecting[0] if len(selecting) == 1 else "default"


def home_of(pod: Json, pools: list[str]) -> str:
    """Return the pool that a pod names if it exists, else the default pool."""
    pool: str = pod["metadata"].get("annotations", {}).get("resource.aibee.cn/pool", "")
    return pool if pool in pools else "default"


@pytest.mark.parametrize("day", range(SEEDS))
def test_random_day_overbooks_no_node_and_loses_no_pod(day: int) -> None:
    live_a_day(day)


@pytest.mark.soak
@pytest.mark.parametrize("day", range(SEEDS, SEEDS_OF_A_SOAK))
def test_many_random_days_overbook_no_node_and_lose_no_pod(day: int) -> None:
    live_a_day(day)
