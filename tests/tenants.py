"""Builders of tenant queues, and of pods that say what they are for."""

from collections.abc import Mapping

from aischeduler.model.card_types import card_form, type_name
from aischeduler.model.pod import Pod
from aischeduler.model.tenant_queue import CardQuota, QueueState, TenantQueue
from aischeduler.model.workload import ServiceType, TenantTerms
from tests.build import NOTHING, a_node, a_pod, amounts, replace

H200 = "nvidia.com/gpu.product"


def a_queue(
    name: str = "q",
    *,
    parent: str = "",
    cpu: str = "",
    memory: str = "",
    cards: Mapping[str, int] | None = None,
    priority: int = 0,
    reclaimable: bool = True,
    state: QueueState = QueueState.OPEN,
    **fields: object,
) -> TenantQueue:
    """Return a queue; `cards` are by their names as users write them."""
    found = TenantQueue(
        name,
        uid=f"uid-queue-{name}",
        generation=1,
        parent=parent,
        capability=amounts(cpu=cpu, memory=memory),
        cards=tuple(CardQuota(card, card_form(card), number) for card, number in (cards or {}).items()),
        priority=priority,
        reclaimable=reclaimable,
        state=state,
    )
    return replace(found, **fields)


def in_queue(
    pod: Pod,
    queue: str = "q",
    *,
    cards: str = "",
    service: ServiceType | str = "",
    preemptable: bool | None = None,
    owner: str = "",
) -> Pod:
    """Return a pod that names a queue, and the `cards` that it needs, as A100|H200."""
    terms = TenantTerms(queue=queue, service_type=str(service), preemptable=preemptable)
    types = tuple(type_name(card) for card in cards.split("|")) if cards else ()
    spec = replace(pod.spec, gpu_types=types, key=pod.spec.key + cards.encode()) if types else pod.spec
    return replace(pod, terms=terms, spec=spec, owner=owner)


def a_card_node(name: str, card: str, gpus: int = 8, *, cpu: str = "64", labels: Mapping[str, str] = NOTHING) -> object:
    """Return a node with GPUs of this product."""
    return a_node(name, cpu=cpu, memory="512Gi", gpu=gpus, labels={"nvidia.com/gpu.product": card, **labels})


def a_card_pod(name: str, gpus: int = 1, *, cpu: str = "1", **fields: object) -> Pod:
    """Return a pod that asks for GPUs."""
    return a_pod(name, gpu=gpus, cpu=cpu, **fields)  # type: ignore[arg-type]
