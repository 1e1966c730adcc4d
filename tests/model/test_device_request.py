"""The tables of Koordinator's DeviceShare: which resources may ask for devices together, and what they ask for."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.model.device import DeviceRequest, GpuRequest, HolderSource
from aischeduler.model.device_request import (
    AMOUNT_MAX,
    DeviceRequestError,
    device_request,
    is_device_resource,
    is_gpu_resource,
    unknown_holder,
    whole_devices,
)

GIB = 2**30


def full(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts by full names: a name without a prefix gets koordinator.sh/."""
    return {name if "/" in name else f"koordinator.sh/{name}": amount for name, amount in amounts.items()}


def asked(**amounts: int) -> DeviceRequest | None:
    return device_request(
        full({name.replace("_", "-").replace("-shared", ".shared"): n for name, n in amounts.items()})
    )


@pytest.mark.parametrize(
    ("amounts", "gpu"),
    [
        pytest.param({"nvidia.com/gpu": 3}, GpuRequest(3, 100, 100, vendor="nvidia"), id="nvidia"),
        pytest.param({"amd.com/gpu": 1}, GpuRequest(1, 100, 100, vendor="amd"), id="amd"),
        pytest.param({"dcu.com/gpu": 2}, GpuRequest(2, 100, 100, vendor="dcu"), id="dcu"),
        pytest.param({"gpu": 50}, GpuRequest(1, 50, 50), id="gpu"),
        pytest.param({"gpu": 200}, GpuRequest(2, 100, 100), id="gpu, two cards"),
        pytest.param({"gpu-memory": 8 * GIB}, GpuRequest(1, memory_bytes=8 * GIB), id="memory"),
        pytest.param({"gpu-memory-ratio": 30}, GpuRequest(1, ratio=30), id="ratio"),
        pytest.param({"gpu-core": 50, "gpu-memory": GIB}, GpuRequest(1, 50, memory_bytes=GIB), id="core and memory"),
        pytest.param({"gpu-core": 50, "gpu-memory-ratio": 60}, GpuRequest(1, 50, 60), id="core and ratio"),
        pytest.param({"gpu.shared": 2, "gpu-memory": 5}, GpuRequest(2, memory_bytes=3), id="shared memory, rounded up"),
        pytest.param({"gpu.shared": 4, "gpu-memory-ratio": 100}, GpuRequest(4, ratio=25), id="shared ratio"),
        pytest.param(
            {"gpu.shared": 2, "gpu-core": 100, "gpu-memory": 2 * GIB},
            GpuRequest(2, 50, memory_bytes=GIB),
            id="shared core and memory",
        ),
        pytest.param(
            {"gpu.shared": 3, "gpu-core": 150, "gpu-memory-ratio": 300},
            GpuRequest(3, 50, 100),
            id="shared core and ratio need no hundreds",
        ),
        pytest.param(
            {"gpu-core": 200, "gpu-memory": 2 * GIB + 1},
            GpuRequest(2, 100, memory_bytes=GIB + 1),
            id="two whole cores say the count of bytes",
        ),
        pytest.param({"kubernetes.io/gpu": 50}, GpuRequest(1, 50, 50), id="gpu of the proposal"),
        pytest.param(
            {"kubernetes.io/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 60},
            GpuRequest(1, 50, 60),
            id="different dimensions of both prefixes",
        ),
        pytest.param(
            {"huawei.com/npu-core": 4, "gpu-memory-ratio": 100}, GpuRequest(1, ratio=100), id="npu names are ordinary"
        ),
    ],
)
def test_names_that_may_ask_for_gpus_together(amounts: dict[str, int], gpu: GpuRequest) -> None:
    assert device_request({"cpu": 1000, **full(amounts)}) == DeviceRequest(gpu)


@pytest.mark.parametrize(
    ("amounts", "names"),
    [
        pytest.param({"gpu-core": 50}, "koordinator.sh/gpu-core", id="core alone"),
        pytest.param({"gpu.shared": 2}, "koordinator.sh/gpu.shared", id="shared alone"),
        pytest.param(
            {"gpu-memory": 1, "gpu-memory-ratio": 1},
            "koordinator.sh/gpu-memory koordinator.sh/gpu-memory-ratio",
            id="memory and ratio",
        ),
        pytest.param({"nvidia.com/gpu": 1, "gpu": 50}, "koordinator.sh/gpu nvidia.com/gpu", id="vendor and gpu"),
        pytest.param(
            {"nvidia.com/gpu": 1, "gpu-memory": 1}, "koordinator.sh/gpu-memory nvidia.com/gpu", id="vendor and memory"
        ),
        pytest.param({"nvidia.com/gpu": 1, "amd.com/gpu": 1}, "amd.com/gpu nvidia.com/gpu", id="two vendors"),
        pytest.param({"gpu": 50, "gpu-core": 50}, "koordinator.sh/gpu koordinator.sh/gpu-core", id="gpu and core"),
        pytest.param(
            {"gpu": 200, "gpu.shared": 2}, "koordinator.sh/gpu koordinator.sh/gpu.shared", id="gpu and shared"
        ),
        pytest.param(
            {"kubernetes.io/gpu.shared": 2, "gpu-memory": 1},
            "koordinator.sh/gpu-memory kubernetes.io/gpu.shared",
            id="shared has one prefix",
        ),
        pytest.param(
            {"kubernetes.io/gpu-core": 5, "rdma": 1}, "kubernetes.io/gpu-core", id="only names of GPUs are named"
        ),
    ],
)
def test_names_that_may_not_ask_for_gpus_together(amounts: dict[str, int], names: str) -> None:
    with pytest.raises(DeviceRequestError) as caught:
        device_request(full(amounts))
    assert str(caught.value) == f"invalid resource device requests: [{names}]"
    assert caught.value.names == tuple(names.split())


@pytest.mark.parametrize("name", ["gpu", "gpu-core", "rdma", "nic"])
def test_one_name_in_both_prefixes_is_invalid(name: str) -> None:
    names = (f"koordinator.sh/{name}", f"kubernetes.io/{name}")
    text = f"invalid resource device requests: [{' '.join(names)}]: names one resource twice"
    with pytest.raises(DeviceRequestError) as caught:
        device_request(dict.fromkeys(names, 50))
    assert (str(caught.value), caught.value.names) == (text, names)


@pytest.mark.parametrize(
    ("amounts", "at_fault"),
    [
        pytest.param({"gpu": 120}, "gpu: 120", id="gpu"),
        pytest.param({"rdma": 150}, "rdma: 150", id="rdma"),
        pytest.param({"fpga": 101}, "fpga: 101", id="fpga"),
        pytest.param({"gpu-memory-ratio": 250}, "gpu-memory-ratio: 250", id="ratio"),
        pytest.param({"gpu-core": 150, "gpu-memory": 1}, "gpu-core: 150", id="core"),
        pytest.param({"gpu-core": 200, "gpu-memory-ratio": 300}, "gpu-core: 200", id="two counts"),
        pytest.param(
            {"gpu-core": 200, "gpu-memory-ratio": 60}, "gpu-memory-ratio: 60", id="two cores, a part of memory"
        ),
        pytest.param({"gpu-core": 100, "gpu-memory-ratio": 200}, "gpu-core: 100", id="one core, two memories"),
        pytest.param({"gpu.shared": 2, "gpu-memory-ratio": 51}, "gpu-memory-ratio: 51", id="no multiple of shared"),
        pytest.param({"gpu.shared": 2, "gpu-memory-ratio": 300}, "gpu-memory-ratio: 300", id="more than shared cards"),
        pytest.param({"gpu-memory": AMOUNT_MAX + 1}, f"gpu-memory: {AMOUNT_MAX + 1}", id="too large"),
    ],
)
def test_amounts_that_are_no_shares_of_devices(amounts: dict[str, int], at_fault: str) -> None:
    with pytest.raises(DeviceRequestError) as caught:
        device_request(full(amounts))
    assert str(caught.value).startswith(f"invalid resource unit koordinator.sh/{at_fault}")
    assert at_fault.partition(":")[0] in " ".join(caught.value.names)


PERCENT = st.one_of(st.integers(1, 120), st.integers(1, 12).map(lambda n: n * 100), st.integers(1, 1200))


@given(PERCENT, st.one_of(st.none(), PERCENT), st.one_of(st.none(), st.integers(1, 12)))
def test_a_count_is_found_exactly_where_one_exists(core: int, ratio: int | None, shared: int | None) -> None:
    """Oracle: tries each number of cards, each of which has the same whole number of hundredths."""
    percentages = [core] if ratio is None else [core, ratio]

    def possible(cards: int) -> bool:
        if shared is not None:
            return cards == shared and all(amount in range(cards, 100 * cards + 1, cards) for amount in percentages)
        return all(amount == 100 * cards or (cards == 1 and amount <= 100) for amount in percentages)

    counts = [cards for cards in range(1, 13) if possible(cards)]
    memory = {"gpu-memory": 1001} if ratio is None else {"gpu-memory-ratio": ratio}
    amounts = full({"gpu-core": core, **memory, **({} if shared is None else {"gpu.shared": shared})})
    if not counts:
        with pytest.raises(DeviceRequestError, match=r"^invalid resource unit "):
            device_request(amounts)
        return
    found = device_request(amounts)
    assert found is not None
    assert found.gpu is not None
    assert [found.gpu.count] == counts
    assert found.gpu.core * found.gpu.count == core
    assert found.gpu.ratio * found.gpu.count == (ratio or 0)
    assert 0 <= found.gpu.memory_bytes * found.gpu.count - memory.get("gpu-memory", 0) < found.gpu.count


def test_bytes_are_never_a_whole_card_however_many_they_are() -> None:
    found = asked(gpu_core=100, gpu_memory=80 * GIB)
    assert found is not None
    assert found.gpu is not None
    assert not found.gpu.whole


def test_other_types_are_amounts_of_their_own_beside_gpus() -> None:
    amounts = {"rdma": 200, "kubernetes.io/nic": 7, "fpga": 40, "gpu": 100}
    others = (("fpga", 40), ("nic", 7), ("rdma", 200))
    assert device_request(full(amounts)) == DeviceRequest(GpuRequest(1, 100, 100), others)


def test_an_amount_of_a_further_type_needs_no_hundreds() -> None:
    assert device_request({"kubernetes.io/nic": 101}) == DeviceRequest(others=(("nic", 101),))


@pytest.mark.parametrize("amounts", [{}, {"cpu": 1}, {"kubernetes.io/gpu": 0, "nvidia.com/gpu": 0}])
def test_zeros_ask_for_nothing(amounts: dict[str, int]) -> None:
    assert device_request(amounts) is None
    assert whole_devices(amounts) is None


def test_a_zero_does_not_make_names_invalid_together() -> None:
    assert asked(gpu=50, gpu_core=0) == DeviceRequest(GpuRequest(1, 50, 50))


@pytest.mark.parametrize(
    ("name", "of_devices", "of_gpus"),
    [
        ("kubernetes.io/gpu", True, True),
        ("koordinator.sh/gpu.shared", True, True),
        ("amd.com/gpu", True, True),
        ("kubernetes.io/nic", True, False),
        ("koordinator.sh/rdma", True, False),
        ("nvidia.com/gpu.shared", False, False),
        ("nvidia.com/mig-1g.10gb", False, False),
        ("huawei.com/npu-core", False, False),
        ("kubernetes.io/batch-cpu", False, False),
        ("kubernetes.io/mid-memory", False, False),
        ("cpu", False, False),
        ("x.kubernetes.io/gpu", False, False),
    ],
)
def test_which_names_are_of_devices(name: str, of_devices: bool, of_gpus: bool) -> None:
    assert (is_device_resource(name), is_gpu_resource(name)) == (of_devices, of_gpus)


@pytest.mark.parametrize(
    ("amounts", "count"),
    [
        ({"gpu-core": 50}, 1),
        ({"gpu": 250}, 3),
        ({"gpu-core": 50, "gpu-memory-ratio": 200}, 2),
        ({"gpu.shared": 4}, 4),
        ({"kubernetes.io/gpu": 60, "gpu": 60}, 2),
        ({"nvidia.com/gpu": 3, "gpu-memory": GIB}, 3),
    ],
)
def test_an_invalid_request_may_use_whole_cards(amounts: dict[str, int], count: int) -> None:
    found = full(amounts)
    with pytest.raises(DeviceRequestError):
        device_request(found)
    assert whole_devices(found) == DeviceRequest(GpuRequest(count, 100, 100))


def test_an_unknown_holder_has_a_whole_device_for_each_part() -> None:
    request = DeviceRequest(GpuRequest(3, 10, 10), (("fpga", 40), ("nic", 7), ("rdma", 200)))
    found = unknown_holder(request, HolderSource.COUNT)
    assert found.unknown == (("fpga", 1), ("gpu", 3), ("nic", 7), ("rdma", 2))
    assert (found.devices, found.source) == ((), HolderSource.COUNT)
