"""What a pod asks of devices, from the resources that it requests.

Invariants:
- Amounts are of the whole pod, whichever of its containers ask; an amount of zero is none.
- `kubernetes.io/` and `koordinator.sh/` mean the same before a name, but for `gpu.shared`, which is `koordinator.sh/`.
- What is not of a GPU is a type of devices of its own. Of `rdma` and `fpga` 100 are a device; of further types the unit
  is that device's total, which only its node knows.
- Nothing asked for is lost: the amounts of a GPU times their number are at least those of the pod.
- An amount above `AMOUNT_MAX` is invalid, so that sums and percentages of amounts have 64 bits.

Source: ValidateDeviceRequest of Koordinator's DeviceShare, where `gpu-core` does not decide the number of GPUs, so that
two whole cores with memory in bytes fit nowhere. Huawei's `npu-*` are ordinary resources here.
"""

from collections import Counter
from typing import Final

from aischeduler.model.device import (
    DEVICE_PREFIXES,
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    KUBERNETES_PREFIX,
    RDMA,
    VENDORS,
    WHOLE,
    Amounts,
    DeviceRequest,
    GpuRequest,
    HeldDevices,
    HolderSource,
)
from aischeduler.model.names import MARK_PREFIX
from aischeduler.model.resources import ResourceList

DEVICE_ALLOCATED_KEY: Final = "scheduling.koordinator.sh/device-allocated"
"""The annotation with the devices that a bound pod has."""
DEVICE_HINT_KEY: Final = "scheduling.koordinator.sh/device-allocate-hint"
DEVICE_JOINT_KEY: Final = "scheduling.koordinator.sh/device-joint-allocate"
GPU_PARTITION_KEY: Final = "scheduling.koordinator.sh/gpu-partition-spec"
GPU_UUIDS_KEY: Final = MARK_PREFIX + "gpu-uuids"
"""The annotation with the ids of a bound pod's GPUs, from which its containers have NVIDIA_VISIBLE_DEVICES."""
HAMI_ALLOCATED_KEY: Final = "hami.io/vgpu-devices-allocated"
"""The annotation with the shares of GPUs that HAMi gave to each container of a pod."""

PERCENTAGES: Final = (GPU, GPU_CORE, GPU_MEMORY_RATIO)
"""The names of which 100 are a GPU."""
IN_HUNDREDS: Final = (RDMA, FPGA)
"""The other types of which 100 are a device."""
AMOUNT_MAX: Final = 2**50
"""A PiB, or as many of anything else: more than a node has."""
_NO_DEVICES: Final = frozenset(
    f"{KUBERNETES_PREFIX}{level}-{of}" for level in ("batch", "mid") for of in ("cpu", "memory")
)
"""What Koordinator calls CPU and memory that other pods do not use now."""
_FOREIGN_SHARED: Final = KUBERNETES_PREFIX + GPU_SHARED
_GPU_NAMES: Final = frozenset((*VENDORS, *PERCENTAGES, GPU_MEMORY, GPU_SHARED, _FOREIGN_SHARED))
_VALID: Final = frozenset(
    frozenset(names)
    for names in (
        *((vendor,) for vendor in VENDORS),
        (GPU,),
        *(
            (*shared, *core, memory)
            for shared in ((), (GPU_SHARED,))
            for core in ((), (GPU_CORE,))
            for memory in (GPU_MEMORY, GPU_MEMORY_RATIO)
        ),
    )
)
"""Which names may ask for GPUs together."""
Named = dict[str, tuple[str, int]]
"""The resource as written and its amount, by what it is of: a vendor's name, or a name without its prefix."""


class DeviceRequestError(ValueError):
    """A request that no devices can satisfy; `names` are the resources at fault, sorted."""

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names


def is_device_resource(name: str) -> bool:
    """Return whether the resource is of devices, or would be if a node had devices of its type."""
    return name in VENDORS or (name.startswith(DEVICE_PREFIXES) and name not in _NO_DEVICES)


def is_gpu_resource(name: str) -> bool:
    """Return whether the resource is of GPUs."""
    return is_device_resource(name) and _dimension(name) in _GPU_NAMES


def device_request(amounts: ResourceList) -> DeviceRequest | None:
    """Return what a pod that requests these amounts asks of devices; None for nothing. Raises DeviceRequestError."""
    named = _named(amounts)
    gpu = {dimension: asked for dimension, asked in named.items() if dimension in _GPU_NAMES}
    others = {kind: asked for kind, asked in named.items() if kind not in _GPU_NAMES}
    asked_of_gpus = _gpu_request(gpu) if gpu else None
    for kind in IN_HUNDREDS:
        if kind in others:
            _check_hundreds(*others[kind])
    if not named:
        return None
    return DeviceRequest(asked_of_gpus, tuple((kind, amount) for kind, (_, amount) in sorted(others.items())))


def whole_devices(amounts: ResourceList) -> DeviceRequest | None:
    """Return as many whole devices as a pod may use that requests these amounts, though they are invalid together.

    Another scheduler may have bound such a pod.
    """
    total: Counter[str] = Counter()
    for name, amount in amounts.items():
        if amount > 0 and is_device_resource(name):
            total[_dimension(name)] += min(amount, AMOUNT_MAX)
    counts = [
        1 if name == GPU_MEMORY else -(-amount // WHOLE) if name in PERCENTAGES else amount
        for name, amount in total.items()
        if name in _GPU_NAMES
    ]
    others = tuple(sorted((kind, amount) for kind, amount in total.items() if kind not in _GPU_NAMES))
    gpu = GpuRequest(max(counts), WHOLE, WHOLE) if counts else None
    return DeviceRequest(gpu, others) if total else None


def unknown_holder(asked: DeviceRequest, source: HolderSource) -> HeldDevices:
    """Return that a pod has the devices that it asks for, where nobody says which."""
    return HeldDevices(unknown=devices_used(asked), source=source)


def devices_used(asked: DeviceRequest) -> Amounts:
    """Return, by type, how many devices a pod uses at most; of one it may use a part.

    Of a further type, whose unit only its node knows, these are as many as the amount.
    """
    others = ((kind, -(-amount // WHOLE) if kind in IN_HUNDREDS else amount) for kind, amount in asked.others)
    gpus = ((GPU, asked.gpu.count),) if asked.gpu is not None else ()
    return tuple(sorted((*gpus, *others)))


def _dimension(name: str) -> str:
    """Return what a resource is of; `kubernetes.io/gpu.shared` is kept as it is, because nothing is meant by it."""
    return name if name in VENDORS or name == _FOREIGN_SHARED else name.partition("/")[2]


def _named(amounts: ResourceList) -> Named:
    found: Named = {}
    for name, amount in sorted(amounts.items()):
        if amount <= 0 or not is_device_resource(name):
            continue
        dimension = _dimension(name)
        if dimension in found:
            raise _invalid_requests((found[dimension][0], name), ": names one resource twice")
        if amount > AMOUNT_MAX:
            raise _invalid_unit(name, amount, (name,), f": must be at most {AMOUNT_MAX}")
        found[dimension] = (name, amount)
    return found


def _gpu_request(named: Named) -> GpuRequest:
    if frozenset(named) not in _VALID:
        raise _invalid_requests(tuple(sorted(name for name, _ in named.values())))
    for vendor_name in named.keys() & VENDORS.keys():
        return GpuRequest(named[vendor_name][1], WHOLE, WHOLE, vendor=VENDORS[vendor_name])
    amounts = {dimension: amount for dimension, (_, amount) in named.items()}
    count = _gpu_count(named)
    both = amounts.get(GPU, 0)
    return GpuRequest(
        count,
        amounts.get(GPU_CORE, both) // count,
        amounts.get(GPU_MEMORY_RATIO, both) // count,
        -(-amounts.get(GPU_MEMORY, 0) // count),
    )


def _gpu_count(named: Named) -> int:
    percentages = [named[dimension] for dimension in PERCENTAGES if dimension in named]
    if GPU_SHARED in named:
        shared, count = named[GPU_SHARED]
        for name, amount in percentages:
            if amount % count or amount > WHOLE * count:
                raise _invalid_unit(name, amount, (name, shared), f": must be 1 to {WHOLE} for each of {count} GPUs")
        return count
    for name, amount in percentages:
        _check_hundreds(name, amount)
    if not percentages:
        return 1
    (less, amount), (more, most) = (pick(percentages, key=_by_amount) for pick in (min, max))
    if max(amount, WHOLE) != max(most, WHOLE):
        raise _invalid_unit(less, amount, (less, more), f": {more} is {most}, another number of GPUs")
    return max(most // WHOLE, 1)


def _by_amount(named: tuple[str, int]) -> int:
    return named[1]


def _check_hundreds(name: str, amount: int) -> None:
    if amount > WHOLE and amount % WHOLE:
        raise _invalid_unit(name, amount, (name,))


def _invalid_requests(names: tuple[str, ...], why: str = "") -> DeviceRequestError:
    return DeviceRequestError(f"invalid resource device requests: [{' '.join(names)}]{why}", names)


def _invalid_unit(name: str, amount: int, names: tuple[str, ...], why: str = "") -> DeviceRequestError:
    return DeviceRequestError(f"invalid resource unit {name}: {amount}{why}", tuple(sorted(names)))
