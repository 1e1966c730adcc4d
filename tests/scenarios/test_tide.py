"""Who takes back from whom among tenant queues: services from training, as little as will do, and never in circles."""

from typing import Any

import pytest

from aischeduler.model.gang import GANG_KEY
from aischeduler.model.tenant_queue import QUEUE_KEY
from aischeduler.model.workload import ON_EVICTION_KEY, PREEMPTABLE_KEY, SERVICE_TYPE_KEY
from tests.gang_objects import gang_labels, indexed_job_object
from tests.scenarios.gangs import job, members, pods_of_jobs, says, waiting
from tests.scenarios.observations import SYSTEM_NAMESPACE
from tests.scenarios.stage import Stage
from tests.scenarios.tenants import card_node, edit, in_queue, inference, pod, queue, tide, training


def gang(stage: Stage, name: str, nodes: list[str], *, minimum: int = 2, **more: Any) -> list[str]:
    """Create a gang of training with a pod of one card on each of these nodes, and return its pods once they run."""
    pods = members(name, len(nodes))
    for member, node in zip(pods, nodes, strict=True):
        labels = gang_labels(name, str(minimum))
        pod(stage, member, "batch", service="training", labels=labels, on=node, **more)
    stage.runs(*pods)
    return pods


def rounds(stage: Stage) -> None:
    """Let pods come and go, so that what waits is tried again and again."""
    for name in members("passing", 3):
        stage.pod(name, cpu="100m")
        stage.runs(name)
        stage.delete("Pod", name)
        stage.goes_away(name)


def test_service_takes_back_a_whole_gang_of_training_and_no_more(stage: Stage) -> None:
    tide(stage)
    card_node(stage, "n", gpus=6)
    low, high = gang(stage, "low", ["n", "n"]), gang(stage, "high", ["n", "n"], priority=5)
    inference(stage, "served", gpu=2)
    stage.runs(*low, *high, "served")
    inference(stage, "next", gpu=2)
    stage.evicts(*low)
    stage.goes(next="n")


def test_training_takes_nothing_and_pods_of_unknown_service_nothing_from_another_queue(stage: Stage) -> None:
    tide(stage)
    card_node(stage, "n", gpus=1)
    training(stage, "low")
    pod(stage, "of-another", "online", service="training", priority=10)
    pod(stage, "of-its-own", "batch", service="training", priority=10)
    pod(stage, "unknown", "online", priority=10)
    for name in ("of-another", "of-its-own", "unknown"):
        stage.waits(name, "Insufficient nvidia.com/gpu")
    stage.evicts()


def test_service_takes_only_training_of_queues_that_are_reclaimable_and_of_lower_priority(stage: Stage) -> None:
    tide(stage)
    queue(stage, "peer", priority=80000)
    queue(stage, "kept", priority=1, reclaimable=False)
    running: dict[str, dict[str, Any]] = {
        "inference-below": {"queue": "batch", "service": "inference"},
        "inference-own": {"queue": "online", "service": "inference"},
        "unknown-below": {"queue": "batch"},
        "no-queue": {"queue": "", "service": "training"},
        "of-system": {"queue": "batch", "service": "training", "namespace": SYSTEM_NAMESPACE},
        "critical": {"queue": "batch", "service": "training", "priority_class": "system-cluster-critical"},
        "own": {"queue": "online", "service": "training", "priority": 10},
        "of-kept": {"queue": "kept", "service": "training"},
        "of-peer": {"queue": "peer", "service": "training"},
    }
    card_node(stage, "n", gpus=len(running))
    for name, said in running.items():
        pod(stage, name, **said)
    stage.runs(*running)
    inference(stage, "first", priority=10)
    stage.waits("first", "Insufficient nvidia.com/gpu")
    stage.evicts()
    edit(stage, "kept", reclaimable=None)
    stage.goes(first="n")
    edit(stage, "peer", priority=70000)
    inference(stage, "second", priority=10)
    stage.goes(second="n")
    inference(stage, "third", priority=11)
    stage.goes(third="n")
    assert stage.victims() == ["of-kept", "of-peer", "own"]


def test_service_beyond_its_quota_takes_nothing_back(stage: Stage) -> None:
    queue(stage, "online", priority=80000, cards={"H200": 0})
    queue(stage, "batch", priority=20000)
    card_node(stage, "n", gpus=1)
    training(stage, "low")
    inference(stage, "asks")
    stage.waits("asks", "H200 quota")
    stage.evicts()


def test_service_beyond_the_quota_that_it_shares_with_training_takes_nothing_back(stage: Stage) -> None:
    queue(stage, "tenant", cards={"H200": 1})
    queue(stage, "serving", parent="tenant", priority=2)
    queue(stage, "batch", parent="tenant", priority=1)
    card_node(stage, "n", gpus=1)
    training(stage, "low")
    inference(stage, "asks", "serving")
    stage.waits("asks", "Queue tenant has insufficient H200 quota")
    stage.evicts()


SWITCHES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "the service never preempts": ({}, {}, {"never_preempts": True}),
    "the pool does not preempt": ({"disablePreemption": True}, {}, {}),
    "the pod is not preemptable": (
        {"nonPreemptibleNamespaces": {"matchLabels": {"stays": "yes"}}},
        {"annotations": {PREEMPTABLE_KEY: "false"}, "namespace": "stays"},
        {},
    ),
}
"""The Pool's spec, and what training and service say."""


@pytest.mark.parametrize("switch", SWITCHES)
def test_switch_that_spares_training_spares_it(stage: Stage, switch: str) -> None:
    pool, kept, asks = SWITCHES[switch]
    tide(stage)
    stage.namespace("stays", stays="yes")
    card_node(stage, "n", gpus=1, pool="a")
    stage.pools("a", **pool)
    training(stage, "low", pool="a", **kept)
    inference(stage, "asks", pool="a", priority=10, **asks)
    stage.waits("asks", "Insufficient nvidia.com/gpu")
    stage.evicts()


def test_pods_say_nothing_and_their_deployment_says_all(stage: Stage) -> None:
    tide(stage)
    card_node(stage, "n", gpus=1)
    stage.replica_set("web-1", owner="Deployment/web", annotations=in_queue(stage, "online", service="inference"))
    stage.replica_set("train-1", owner="Deployment/train", annotations=in_queue(stage, "batch", service="training"))
    stage.pod("train", gpu=1, owner="ReplicaSet/train-1")
    stage.runs("train")
    stage.pod("web", gpu=1, owner="ReplicaSet/web-1")
    stage.goes(web="n")
    stage.evicts("train")


def test_kinds_of_owners_say_the_service_where_nothing_else_does(stage: Stage) -> None:
    stage.restart_scheduler(podOwnerReferenceToServiceType={"Deployment": "inference", "Job": "training"})
    tide(stage)
    card_node(stage, "n", gpus=1)
    stage.replica_set("web-1", owner="Deployment/web")
    stage.replica_set("bare")
    document = indexed_job_object(
        "train", namespace=stage.own("ns"), pods=1, gang="", gpu=1, annotations=in_queue(stage, "batch")
    )
    job(stage, document)
    first = pods_of_jobs(stage, 1)
    stage.runs(*first)
    pod(stage, "unknown", "online", owner="ReplicaSet/bare")
    stage.waits("unknown", "Insufficient nvidia.com/gpu")
    stage.delete("Pod", "unknown")
    pod(stage, "web", "online", owner="ReplicaSet/web-1")
    stage.goes(web="n")
    stage.evicts(*first)


def test_budget_that_refuses_an_eviction_spares_training(stage: Stage) -> None:
    stage.restart_scheduler(eviction="Evict")
    tide(stage)
    for node in ("first", "second"):
        card_node(stage, node, gpus=1)
    training(stage, "kept", on="first", labels={"app": "kept"})
    training(stage, "plain", on="second", priority=5)
    stage.budget("b", min_available=1, app="kept")
    inference(stage, "asks")
    stage.goes(asks="second")
    inference(stage, "more")
    stage.waits("more")
    stage.evicts("plain")


@pytest.mark.parametrize("end", ["Restart", "Abort"])
def test_gang_of_a_job_goes_whole_by_its_suspension_and_comes_back_as_it_says(stage: Stage, end: str) -> None:
    tide(stage)
    for node in ("a", "b"):
        card_node(stage, node, gpus=2)
    said = {GANG_KEY: "true", ON_EVICTION_KEY: end, SERVICE_TYPE_KEY: "training", QUEUE_KEY: stage.own("batch")}
    job(stage, indexed_job_object("j", namespace=stage.own("ns"), pods=3, gpu=1, annotations=said))
    first = pods_of_jobs(stage, 3)
    stage.runs(*first)
    for name in ("web", "more"):
        inference(stage, name, gpu=2)
        stage.runs(name)
    stage.until(lambda: not any(stage.get("Pod", name) for name in first))
    for name in ("web", "more"):
        stage.delete("Pod", name)
        stage.goes_away(name)
    if end == "Abort":
        stage.stays(lambda: stage.all("Pod") == [])
        stage.patch("Job", "j", {"spec": {"suspend": False}})
    stage.until(lambda: stage.bound("j") == 3)
    assert set(stage.victims()) <= set(first), "their controller may delete them before they have the condition"
    assert stage.get("Job", "j")["status"].get("failed", 0) == 0


def test_surplus_of_a_gang_goes_alone_and_before_a_whole_gang(stage: Stage) -> None:
    tide(stage)
    card_node(stage, "a", gpus=3)
    card_node(stage, "b", gpus=2)
    large = gang(stage, "large", ["a", "a", "a"])
    gang(stage, "whole", ["b", "b"])
    inference(stage, "asks")
    stage.goes(asks="a")
    (victim,) = stage.victims()
    assert victim in large


def test_all_cards_that_a_lost_gang_leaves_count_and_nobody_else_goes(stage: Stage) -> None:
    tide(stage)
    for node in ("a", "b"):
        card_node(stage, node, gpus=2)
    pods = gang(stage, "g", ["a", "b"])
    for node in ("a", "b"):
        training(stage, f"single-{node}", on=node, priority=5)
    for name in members("web", 2):
        inference(stage, name)
    stage.runs(*members("web", 2))
    stage.stays(lambda: sorted(stage.victims()) == pods)


def test_pod_that_need_not_go_stays_although_it_is_the_least_important(stage: Stage) -> None:
    tide(stage)
    card_node(stage, "n", gpus=5)
    training(stage, "large", gpu=4, priority=5)
    training(stage, "small")
    training(stage, "without-cards", gpu=0)
    inference(stage, "asks", gpu=4)
    stage.goes(asks="n")
    stage.evicts("large")


def test_pod_that_need_not_go_stays_where_a_gang_goes_whole(stage: Stage) -> None:
    tide(stage)
    card_node(stage, "n", gpus=5)
    training(stage, "important", gpu=2, priority=3)
    training(stage, "small", priority=1)
    pods = gang(stage, "g", ["n", "n"], priority=2)
    inference(stage, "asks", gpu=2)
    stage.goes(asks="n")
    stage.evicts(*pods)


def test_search_goes_on_past_training_that_frees_too_little(stage: Stage) -> None:
    tide(stage)
    card_node(stage, "small", gpus=1)
    card_node(stage, "large", gpus=2)
    training(stage, "little", on="small")
    training(stage, "much", on="large", gpu=2, priority=5)
    inference(stage, "asks", gpu=2)
    stage.goes(asks="large")
    stage.evicts("much")


def test_gang_of_a_service_that_gets_no_room_for_all_takes_nothing_back(stage: Stage) -> None:
    tide(stage)
    for node in ("a", "b"):
        card_node(stage, node, gpus=1)
    training(stage, "low", on="a")
    inference(stage, "served", on="b")
    stage.runs("served")
    pods = members("web", 2)
    for name in pods:
        inference(stage, name, labels=gang_labels("web", "2"), priority=5)
    says(stage, "web-0", "of the 2 pods that start together fit")
    stage.stays(lambda: waiting(stage, *pods))
    stage.evicts()


def test_service_that_training_keeps_away_by_its_own_rule_takes_its_room(stage: Stage) -> None:
    tide(stage)
    card_node(stage, "n", gpus=1)
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    stage.patch("Node", "n", {"metadata": {"labels": {"kubernetes.io/hostname": "n"}}})
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    training(stage, "alone", affinity=affinity)
    inference(stage, "web", labels={"app": "web"})
    stage.goes(web="n")
    stage.evicts("alone")


@pytest.mark.parametrize(("day", "evicted"), [(2, ["of-night"]), (1, ["of-day", "of-night"])])
def test_queues_with_a_service_and_training_each_come_to_rest(stage: Stage, day: int, evicted: list[str]) -> None:
    queue(stage, "day", priority=day)
    queue(stage, "night", priority=1)
    card_node(stage, "n", gpus=2)
    for name in ("day", "night"):
        training(stage, f"of-{name}", name)
    for name in ("day", "night"):
        inference(stage, f"serves-{name}", name, priority=5)
    stage.evicts(*evicted)
    for name in evicted:
        stage.goes_away(name)
        pod(stage, f"again-{name}", name.removeprefix("of-"), service="training")
    rounds(stage)
    stage.stays(lambda: sorted(stage.victims()) == evicted)
    running = {pod["metadata"]["name"] for pod in stage.all("Pod") if pod["spec"].get("nodeName")}
    assert running == ({"serves-day", "of-day"} if day > 1 else {"serves-day", "serves-night"})


def test_of_two_services_at_once_one_gets_the_room_of_one_training(stage: Stage) -> None:
    queue(stage, "root", state="Closed")
    for name in ("one", "two"):
        queue(stage, name, parent="root", priority=5)
    queue(stage, "batch")
    card_node(stage, "n", gpus=1)
    training(stage, "low")
    asking = ["of-one", "of-two"]
    for name in asking:
        inference(stage, name, name.removeprefix("of-"))
    stage.until_each(asking, lambda name: "is closed" in stage.why(name))
    edit(stage, "root", state="Open")
    stage.until(lambda: not waiting(stage, *asking))
    stage.stays(lambda: sorted(map(stage.node_of, asking)) == ["", "n"])
    stage.evicts("low")


def test_service_that_fits_nowhere_stops_no_other(stage: Stage) -> None:
    tide(stage)
    card_node(stage, "n", gpus=1)
    training(stage, "low")
    inference(stage, "impossible", gpu=100, priority=10)
    stage.waits("impossible", "Insufficient nvidia.com/gpu")
    inference(stage, "asks")
    stage.goes(asks="n")
    stage.evicts("low")
