"""The daemon of the virtual cluster: evictions, nominations and Pools, with the same outcomes as in production."""

import json
from typing import Any

import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Evict, Nominate
from tests.objects import node_object, pdb_object, pod_object, pool_object
from tests.virtual.test_virtual_cluster import Always
from tests.virtual.virtual_cluster import VirtualCluster
from tests.virtual.virtual_daemon import RESPONSE_TIMEOUT_SECONDS, Network, VirtualDaemon

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NODE = {"pool": "gpu"}


def lent(network: Network, chance: float = 0.0) -> tuple[VirtualCluster, VirtualDaemon]:
    """Pool `gpu` owns the only node, and `guest` of pool `cpu` runs there and fills it."""
    cluster = VirtualCluster()
    cluster.request("POST", POOLS, pool_object("gpu", labels=NODE))
    cluster.request("POST", POOLS, pool_object("cpu"))
    cluster.request("POST", "/api/v1/nodes", node_object("n", cpu="1", labels=NODE))
    cluster.request("POST", PODS, pod_object("guest", pool="cpu", labels={"app": "guest"}))
    daemon = cluster.start(Scheduler(default_profile(), "run"), "ai-scheduler", network, Always(chance))
    cluster.run(60.0)
    assert pod(cluster, "guest")["spec"]["nodeName"] == "n"
    runs = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    cluster.request("PATCH", f"{PODS}/guest/status", runs, "application/strategic-merge-patch+json")
    return cluster, daemon


def create_owner(cluster: VirtualCluster) -> None:
    cluster.request("POST", PODS, pod_object("owner", pool="gpu"))


def read(cluster: VirtualCluster, path: str) -> Any:
    return json.loads(cluster.request("GET", path).body)


def pod(cluster: VirtualCluster, name: str) -> Any:
    return read(cluster, f"{PODS}/{name}")


def is_terminating(cluster: VirtualCluster) -> bool:
    return "deletionTimestamp" in pod(cluster, "guest")["metadata"]


def disruption_reason(cluster: VirtualCluster) -> str:
    reasons: dict[str, str] = {
        one["type"]: one.get("reason", "") for one in pod(cluster, "guest")["status"].get("conditions", ())
    }
    return reasons.get("DisruptionTarget", "")


def notes(cluster: VirtualCluster, reason: str) -> list[str]:
    return [event["note"] for event in read(cluster, EVENTS)["items"] if event["reason"] == reason]


def action_count(daemon: VirtualDaemon, kind: type) -> int:
    return len([logged for logged in daemon.log if isinstance(logged.action, kind)])


def test_victim_gets_its_condition_then_its_deletion_and_an_event() -> None:
    cluster, daemon = lent(Network(evict_seconds=2.0))
    create_owner(cluster)
    cluster.run(2.5)
    assert (disruption_reason(cluster), is_terminating(cluster)) == ("PreemptionByScheduler", False)
    cluster.run(2.0)
    assert is_terminating(cluster)
    (note,) = notes(cluster, "Preempted")
    assert note.endswith("on node n: pool gpu reclaimed lent room")
    assert pod(cluster, "owner")["status"]["nominatedNodeName"] == "n"
    assert (action_count(daemon, Evict), action_count(daemon, Nominate)) == (1, 1)
    cluster.request("DELETE", f"{PODS}/guest", {"gracePeriodSeconds": 0})
    cluster.run(1.0)
    assert pod(cluster, "owner")["spec"]["nodeName"] == "n"


@pytest.mark.parametrize("chance", [0.1, 0.9], ids=["reaches the server", "lost before"])
def test_request_with_a_lost_response_is_sent_again(chance: float) -> None:
    cluster, daemon = lent(Network())
    daemon._network = Network(lost_share=1.0)
    daemon._chance = Always(chance)
    create_owner(cluster)
    cluster.run(RESPONSE_TIMEOUT_SECONDS / 2)
    assert disruption_reason(cluster) == ("PreemptionByScheduler" if chance < 0.5 else "")
    daemon._network = Network()
    cluster.run(2 * RESPONSE_TIMEOUT_SECONDS)
    assert is_terminating(cluster)


def test_victim_of_requests_that_never_reach_the_server_stays() -> None:
    cluster, daemon = lent(Network())
    daemon._network = Network(lost_share=1.0)
    daemon._chance = Always(0.9)
    create_owner(cluster)
    cluster.run(8 * RESPONSE_TIMEOUT_SECONDS)
    assert (disruption_reason(cluster), is_terminating(cluster)) == ("", False)


def test_budget_is_honoured_when_the_daemon_uses_the_eviction_api() -> None:
    cluster, daemon = lent(Network())
    daemon.honours_budgets = True
    cluster.request("POST", BUDGETS, pdb_object("b", namespace="default", min_available=1, labels={"app": "guest"}))
    cluster.run(10.0)
    create_owner(cluster)
    cluster.run(10.0)
    assert (disruption_reason(cluster), is_terminating(cluster)) == ("", False)
    cluster.request("DELETE", f"{BUDGETS}/b")
    cluster.run(300.0)
    assert (disruption_reason(cluster), is_terminating(cluster)) == ("EvictionByEvictionAPI", True)


def test_stopped_scheduler_sends_no_eviction() -> None:
    cluster, daemon = lent(Network(evict_seconds=2.0))
    create_owner(cluster)
    cluster.run(1.0)
    cluster.stop(daemon)
    cluster.run(60.0)
    assert (action_count(daemon, Evict), disruption_reason(cluster), is_terminating(cluster)) == (1, "", False)


def test_default_pool_is_created_and_created_again_after_its_deletion() -> None:
    cluster, _ = lent(Network())
    first = read(cluster, f"{POOLS}/default")["metadata"]["uid"]
    cluster.request("DELETE", f"{POOLS}/default")
    cluster.run(60.0)
    assert read(cluster, f"{POOLS}/default")["metadata"]["uid"] != first
