"""Tenants in scenarios: queues, nodes with cards, and pods that say what they are for."""

from collections.abc import Mapping
from typing import Any

from aischeduler.model.tenant_queue import QUEUE_KEY
from aischeduler.model.workload import CARD_NAME_KEY, SERVICE_TYPE_KEY
from tests.queue_objects import queue_object
from tests.scenarios.stage import Stage

H200, A100 = "NVIDIA-H200", "NVIDIA-A100-SXM4-80GB"
PRODUCT = "nvidia.com/gpu.product"
QUEUE = "Queue"
NOTHING: Mapping[str, str] = {}


def queue(stage: Stage, name: str, *, parent: str = "", **spec: Any) -> None:
    """Create a queue."""
    above = {"parent": stage.own(parent)} if parent else {}
    stage.create(queue_object(stage.own(name), **above, **spec))


def edit(stage: Stage, queue: str, **spec: Any) -> None:
    """Change fields of a queue's spec."""
    stage.patch(QUEUE, queue, {"spec": spec})


def tide(stage: Stage) -> None:
    """Create a queue for services, and one of lower priority for training."""
    queue(stage, "online", priority=80000, reclaimable=False)
    queue(stage, "batch", priority=20000)


def card_node(stage: Stage, name: str, product: str = H200, gpus: int = 2, *, pool: str = "") -> None:
    """Create a node with cards of this product."""
    stage.node(name, pool=pool, cpu="64", gpu=gpus, labels={PRODUCT: product})


def in_queue(
    stage: Stage,
    queue: str,
    *,
    card: str = "",
    service: str = "",
    annotations: Mapping[str, str] = NOTHING,
) -> dict[str, str]:
    """Return the annotations of a pod or a workload of this queue, beside others of it."""
    said = {QUEUE_KEY: stage.own(queue) if queue else "", CARD_NAME_KEY: card, SERVICE_TYPE_KEY: service}
    return {key: text for key, text in said.items() if text} | dict(annotations)


def pod(
    stage: Stage,
    name: str,
    queue: str,
    *,
    card: str = "",
    service: str = "",
    gpu: int = 1,
    annotations: Mapping[str, str] = NOTHING,
    **more: Any,
) -> None:
    """Create a pod of this queue, which asks for one card unless it says otherwise."""
    noted = in_queue(stage, queue, card=card, service=service, annotations=annotations)
    stage.pod(name, gpu=gpu, annotations=noted, **more)


def training(stage: Stage, name: str, queue: str = "batch", **more: Any) -> None:
    """Create a pod of training, and wait until it runs."""
    pod(stage, name, queue, service="training", **more)
    stage.runs(name)


def inference(stage: Stage, name: str, queue: str = "online", **more: Any) -> None:
    """Create a pod of inference."""
    pod(stage, name, queue, service="inference", **more)


def used(stage: Stage, queue: str) -> dict[str, int]:
    """Return the cards that the status of a queue has as used, by name, and its pods: those on nodes, those that wait.

    It is empty while there is no status.
    """
    found = stage.get(QUEUE, queue).get("status", {})
    cards = {card["name"]: card["used"] for card in found.get("cards", ())}
    return cards | {"pods": found["pods"], "pending": found["pendingPods"]} if found else {}
