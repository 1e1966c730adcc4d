"""Tenant queues as users meet them: quotas by card, who takes back from whom, and edits while pods wait."""

from typing import Any

import pytest

from aischeduler.model.tenant_queue import QUEUE_KEY
from aischeduler.model.workload import CARD_NAME_KEY, SERVICE_TYPE_KEY
from tests.gang_objects import gang_labels
from tests.queue_objects import queue_object
from tests.scenarios.gangs import members
from tests.scenarios.stage import Stage

PRODUCT = "nvidia.com/gpu.product"
QUEUE = "Queue"


def queue(stage: Stage, name: str, **spec: Any) -> None:
    stage.create(queue_object(stage.own(name), **spec))


def card_node(stage: Stage, name: str, product: str, gpus: int = 2) -> None:
    stage.node(name, cpu="64", gpu=gpus, labels={PRODUCT: product})


def pod(stage: Stage, name: str, queue: str, *, card: str = "", service: str = "", gpu: int = 1, **more: Any) -> None:
    annotations = {QUEUE_KEY: stage.own(queue)}
    annotations |= {CARD_NAME_KEY: card} if card else {}
    annotations |= {SERVICE_TYPE_KEY: service} if service else {}
    stage.pod(name, gpu=gpu, annotations=annotations, **more)


def tide(stage: Stage) -> None:
    """Create a queue for services, and one of lower priority for training."""
    queue(stage, "online", priority=80000, reclaimable=False)
    queue(stage, "batch", priority=20000)


def test_alternatives_use_up_one_card_and_then_the_next(stage: Stage) -> None:
    queue(stage, "q", cards={"H200": 1, "A100": 1})
    card_node(stage, "h", "NVIDIA-H200")
    card_node(stage, "a", "NVIDIA-A100-SXM4-80GB")
    for name, node in (("first", "h"), ("second", "a")):
        pod(stage, name, "q", card="NVIDIA-H200|NVIDIA-A100")
        stage.goes(**{name: node})
    pod(stage, "third", "q", card="NVIDIA-H200|NVIDIA-A100")
    stage.waits("third", "insufficient", "quota")


def test_raised_quota_starts_the_pod_that_it_held(stage: Stage) -> None:
    queue(stage, "q", capability={"cpu": "1"})
    stage.node("n")
    pod(stage, "first", "q", gpu=0)
    stage.goes(first="n")
    pod(stage, "second", "q", gpu=0)
    stage.waits("second", "insufficient CPU quota: requested 1, total would be 2, but capability is 1")
    stage.patch(QUEUE, "q", {"spec": {"capability": {"cpu": "2"}}})
    stage.goes(second="n")


def test_pod_of_a_closed_queue_waits_until_it_opens(stage: Stage) -> None:
    queue(stage, "root", state="Closed")
    queue(stage, "q", parent=stage.own("root"))
    stage.node("n")
    pod(stage, "p", "q", gpu=0)
    stage.waits("p", "is closed")
    stage.patch(QUEUE, "root", {"spec": {"state": "Open"}})
    stage.goes(p="n")


def test_service_takes_back_a_whole_gang_of_training_and_no_more(stage: Stage) -> None:
    tide(stage)
    card_node(stage, "n", "NVIDIA-H200", 6)
    for name in ("low", "high"):
        for member in members(name, 2):
            labels, priority = gang_labels(name, "2"), 5 if name == "high" else 0
            pod(stage, member, "batch", service="training", labels=labels, priority=priority)
    pod(stage, "served", "online", service="inference", gpu=2)
    stage.runs(*members("low", 2), *members("high", 2), "served")
    pod(stage, "next", "online", service="inference", gpu=2)
    stage.evicts(*members("low", 2))
    stage.goes(next="n")


@pytest.mark.parametrize("service", ["training", ""])
def test_others_take_nothing_from_another_queue(stage: Stage, service: str) -> None:
    tide(stage)
    card_node(stage, "n", "NVIDIA-H200", 1)
    pod(stage, "low", "batch", service="training")
    stage.runs("low")
    pod(stage, "asks", "online", service=service, priority=10)
    stage.waits("asks", "Insufficient nvidia.com/gpu")
    stage.evicts()


def test_service_beyond_its_quota_takes_nothing_back(stage: Stage) -> None:
    queue(stage, "online", priority=80000, cards={"H200": 0})
    queue(stage, "batch", priority=20000)
    card_node(stage, "n", "NVIDIA-H200", 1)
    pod(stage, "low", "batch", service="training")
    stage.runs("low")
    pod(stage, "asks", "online", service="inference")
    stage.waits("asks", "H200 quota")
    stage.evicts()
