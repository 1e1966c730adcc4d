"""The shell in the virtual cluster: evictions, nominations, Pools; with the meaning that answers have in production."""

import json
from typing import Any

import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Evict, Nominate
from aischeduler.sim.virtual_cluster import VirtualCluster
from aischeduler.sim.virtual_shell import ANSWER_WITHIN_SECONDS, Network, VirtualShell
from tests.objects import node_object, pdb_object, pod_object, pool_object
from tests.sim.test_virtual_cluster import Always

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NODE = {"pool": "gpu"}


def lent(network: Network, chance: float = 0.0) -> tuple[VirtualCluster, VirtualShell]:
    """Pool `gpu` owns the only node, and `guest` of pool `cpu` runs there and fills it."""
    cluster = VirtualCluster()
    cluster.ask("POST", POOLS, pool_object("gpu", labels=NODE))
    cluster.ask("POST", POOLS, pool_object("cpu"))
    cluster.ask("POST", "/api/v1/nodes", node_object("n", cpu="1", labels=NODE))
    cluster.ask("POST", PODS, pod_object("guest", pool="cpu", labels={"app": "guest"}))
    shell = cluster.start(Scheduler(default_profile(), "run"), "ai-scheduler", network, Always(chance))
    cluster.run(60.0)
    assert pod(cluster, "guest")["spec"]["nodeName"] == "n"
    runs = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    cluster.ask("PATCH", f"{PODS}/guest/status", runs, "application/strategic-merge-patch+json")
    return cluster, shell


def owner_comes(cluster: VirtualCluster) -> None:
    cluster.ask("POST", PODS, pod_object("owner", pool="gpu"))


def read(cluster: VirtualCluster, path: str) -> Any:
    return json.loads(cluster.ask("GET", path).body)


def pod(cluster: VirtualCluster, name: str) -> Any:
    return read(cluster, f"{PODS}/{name}")


def goes(cluster: VirtualCluster) -> bool:
    return "deletionTimestamp" in pod(cluster, "guest")["metadata"]


def mark(cluster: VirtualCluster) -> str:
    told: dict[str, str] = {
        one["type"]: one.get("reason", "") for one in pod(cluster, "guest")["status"].get("conditions", ())
    }
    return told.get("DisruptionTarget", "")


def notes(cluster: VirtualCluster, reason: str) -> list[str]:
    return [event["note"] for event in read(cluster, EVENTS)["items"] if event["reason"] == reason]


def taken(shell: VirtualShell, kind: type) -> int:
    return len([logged for logged in shell.log if isinstance(logged.action, kind)])


def test_victim_is_marked_and_a_while_later_deleted_and_told_for_whom() -> None:
    cluster, shell = lent(Network(evict_seconds=2.0))
    owner_comes(cluster)
    cluster.run(2.5)
    assert (mark(cluster), goes(cluster)) == ("PreemptionByScheduler", False)
    cluster.run(2.0)
    assert goes(cluster)
    (note,) = notes(cluster, "Preempted")
    assert note.endswith("on node n: pool gpu reclaimed lent room")
    assert pod(cluster, "owner")["status"]["nominatedNodeName"] == "n"
    assert (taken(shell, Evict), taken(shell, Nominate)) == (1, 1)
    cluster.ask("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
    cluster.run(1.0)
    assert pod(cluster, "owner")["spec"]["nodeName"] == "n"


@pytest.mark.parametrize("chance", [0.1, 0.9], ids=["arrives", "never arrives"])
def test_lost_answers_are_waited_for_and_the_requests_sent_again(chance: float) -> None:
    cluster, shell = lent(Network())
    shell._network = Network(lost_share=1.0)
    shell._chance = Always(chance)
    owner_comes(cluster)
    cluster.run(ANSWER_WITHIN_SECONDS / 2)
    assert mark(cluster) == ("PreemptionByScheduler" if chance < 0.5 else "")
    shell._network = Network()
    cluster.run(2 * ANSWER_WITHIN_SECONDS)
    assert goes(cluster)


def test_victim_that_cannot_be_reached_is_refused_and_still_there() -> None:
    cluster, shell = lent(Network())
    shell._network = Network(lost_share=1.0)
    shell._chance = Always(0.9)
    owner_comes(cluster)
    cluster.run(8 * ANSWER_WITHIN_SECONDS)
    assert (mark(cluster), goes(cluster)) == ("", False)


def test_budget_is_honoured_where_the_shell_evicts_by_the_api() -> None:
    cluster, shell = lent(Network())
    shell.honours_budgets = True
    cluster.ask("POST", BUDGETS, pdb_object("b", namespace="default", min_available=1, labels={"app": "guest"}))
    cluster.run(10.0)
    owner_comes(cluster)
    cluster.run(10.0)
    assert (mark(cluster), goes(cluster)) == ("", False)
    cluster.ask("DELETE", f"{BUDGETS}/b")
    cluster.run(300.0)
    assert (mark(cluster), goes(cluster)) == ("EvictionByEvictionAPI", True)


def test_stopped_scheduler_evicts_no_more() -> None:
    cluster, shell = lent(Network(evict_seconds=2.0))
    owner_comes(cluster)
    cluster.run(1.0)
    cluster.stop(shell)
    cluster.run(60.0)
    assert (taken(shell, Evict), mark(cluster), goes(cluster)) == (1, "", False)


def test_default_pool_is_made_and_comes_back_when_it_is_deleted() -> None:
    cluster, _ = lent(Network())
    first = read(cluster, f"{POOLS}/default")["metadata"]["uid"]
    cluster.ask("DELETE", f"{POOLS}/default")
    cluster.run(60.0)
    assert read(cluster, f"{POOLS}/default")["metadata"]["uid"] != first


def test_status_of_pools_follows_what_happens() -> None:
    cluster, _ = lent(Network())
    gpu, cpu = (read(cluster, f"{POOLS}/{name}")["status"] for name in ("gpu", "cpu"))
    assert (gpu["nodes"], gpu["columns"]["cpu"], gpu["columns"]["shared"]) == (1, "1/1", "1 cpu")
    assert cpu["columns"]["borrowed"] == "1 cpu"
    cluster.ask("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
    cluster.run(5.0)
    assert read(cluster, f"{POOLS}/gpu")["status"]["columns"]["shared"] == "-"
