"""Shares of cards: what a pod that asks for parts of GPUs counts for in quotas, limits and the numbers of Pools.

Invariants:
- A share is in hundredths of a card: of each GPU the larger of core and memory, in bytes by the memory of that GPU.
- A share counts beside the resources as the pod writes them, under the name GPU_SHARE. It is in sums alone, and no part
  of the requests of one pod, because no node offers it.
- Shares and whole GPUs (nvidia.com/gpu) are compared together: nothing is rounded but texts.
"""

from typing import Final

from aischeduler.model.allocation import NO_ALLOCATION, Allocation
from aischeduler.model.card_types import is_card
from aischeduler.model.device import DEVICES, GPU, GPU_CORE, GPU_MEMORY_RATIO, NVIDIA_GPU, WHOLE, HeldDevices
from aischeduler.model.names import GPU_SHARE
from aischeduler.model.pod import PodSpec
from aischeduler.model.resources import ResourceList

CARD: Final = WHOLE
"""A whole card, in hundredths."""
Memories = tuple[int, ...]
"""The memory of GPUs in bytes, ascending."""


def gpu_share(spec: PodSpec, allocation: Allocation = NO_ALLOCATION, memories: Memories = ()) -> int:
    """Return the hundredths of GPUs that a pod has or, without devices of its own, asks for; 0 for whole ones by count.

    Memory in bytes is a share of the smallest GPU of `memories` that has it, and a whole GPU where none is known.
    """
    asked = spec.devices.gpu if spec.devices is not None else None
    if asked is None or asked.vendor:
        return 0
    held = allocation.part(DEVICES)
    devices = held.devices if isinstance(held, HeldDevices) else ()
    amounts = [dict(device.amounts) for device in devices if device.type == GPU]
    if amounts:
        return sum(max(of.get(GPU_CORE, 0), of.get(GPU_MEMORY_RATIO, 0)) for of in amounts)
    ratio = asked.ratio
    if asked.memory_bytes:
        memory = next((one for one in memories if one >= asked.memory_bytes), asked.memory_bytes)
        ratio = -(-asked.memory_bytes * WHOLE // memory)
    return asked.count * max(asked.core, ratio)


def charged(spec: PodSpec, share: int) -> ResourceList:
    """Return what a pod with this share of GPUs counts for in accounts."""
    return {**spec.request.taken, GPU_SHARE: share} if share else spec.request.taken


def charge(spec: PodSpec, allocation: Allocation = NO_ALLOCATION, memories: Memories = ()) -> ResourceList:
    """Return what a pod counts for in accounts, with its share of GPUs as `gpu_share` says it."""
    return charged(spec, gpu_share(spec, allocation, memories))


def asks_for_cards(spec: PodSpec, gpu_resources: tuple[str, ...]) -> bool:
    """Return whether a pod asks for cards, or for parts of them."""
    return gpu_share(spec) > 0 or any(is_card(name, gpu_resources) for name in spec.request.amounts)


def unit_of(resource: str) -> tuple[str, int]:
    """Return the name under which amounts of a resource are compared and read, and how many of these are one."""
    return (GPU_SHARE, CARD) if resource == NVIDIA_GPU else (resource, 1)


def counted(resource: str, *sums: ResourceList) -> int:
    """Return how much of a resource these amounts are together, in its unit."""
    if resource != NVIDIA_GPU:
        return sum(amounts.get(resource, 0) for amounts in sums)
    return sum(amounts.get(NVIDIA_GPU, 0) * CARD + amounts.get(GPU_SHARE, 0) for amounts in sums)


def hundredths_of(resource: str, amount: int) -> int:
    """Return an amount of a resource that is of cards in hundredths."""
    return amount if resource == GPU_SHARE else amount * CARD


def whole_cards(hundredths: int) -> int:
    """Return hundredths of cards in cards, rounded up."""
    return -(-hundredths // CARD)
