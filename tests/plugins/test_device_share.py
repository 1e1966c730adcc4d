"""The filter by arrays and the choice on one node say the same; which nodes are packed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest
from aischeduler.model.allocation import NO_ALLOCATION, Allocation
from aischeduler.model.device import DEVICES, GPU, WHOLE, Device, DeviceHint, DeviceRequest, HeldDevices, Partition
from aischeduler.model.device_request import device_request
from aischeduler.model.pod import Pod
from aischeduler.model.pool import PlacementStrategy
from aischeduler.plugins import device_share
from aischeduler.plugins.device_choice import fits
from aischeduler.plugins.device_share import DeviceShare
from aischeduler.state.devices import DELIVERY_LABEL
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.recent_requests import RequestShape
from tests.build import a_node, a_pod, replace
from tests.devices import GIB, a_device, a_gpu, asks, devices_of, has, part_of

SHARE = DeviceShare()


@st.composite
def node_devices(draw: st.DrawFn) -> tuple[Device, ...]:
    gpus = [
        a_gpu(minor, gib=draw(st.sampled_from((8, 16))), healthy=draw(st.integers(0, 5)) > 0, pcie=f"p{minor // 2}")
        for minor in range(draw(st.integers(0, 4)))
    ]
    nics = [a_device("rdma", minor, pcie=f"p{minor}") for minor in range(draw(st.integers(0, 2)))]
    return (*gpus, *nics)


NAMES = st.one_of(
    st.builds(lambda n: {"koordinator.sh/gpu": n}, st.sampled_from((1, 30, 60, 100, 200, 300))),
    st.builds(
        lambda c, m: {"kubernetes.io/gpu-core": c, "koordinator.sh/gpu-memory": m * GIB},
        st.sampled_from((10, 50, 100, 200)),
        st.integers(1, 20),
    ),
    st.builds(lambda r: {"kubernetes.io/gpu-memory-ratio": r}, st.integers(1, 100)),
    st.builds(lambda n: {"nvidia.com/gpu": n}, st.integers(1, 4)),
)


@given(
    found=node_devices(),
    shares=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100)), max_size=3),
    asked=NAMES,
    nics=st.sampled_from((0, 50, 100, 200)),
    partitioned=st.booleans(),
    exclusive=st.booleans(),
    every=st.booleans(),
)
@settings(max_examples=400)
def test_row_passes_exactly_where_devices_can_be_chosen(
    found: tuple[Device, ...],
    shares: list[tuple[int, int]],
    asked: dict[str, int],
    nics: int,
    *,
    partitioned: bool,
    exclusive: bool,
    every: bool,
) -> None:
    request = device_request({**asked, **({"koordinator.sh/rdma": nics} if nics else {})})
    assert request is not None
    if exclusive or every:
        request = replace(request, hints=((GPU, DeviceHint(exclusive=exclusive, every=every)),))
    table = NodeTable()
    row, _ = table.see(a_node("n", labels={DELIVERY_LABEL: "koordlet"}))
    devices = devices_of("n", *found, partitions=(Partition((0, 1)), Partition((2, 3))), only=partitioned)
    table.see_devices("n", devices)
    for number, (minor, share) in enumerate(shares):
        pod = a_pod(f"h{number}")
        held = Allocation(parts=((DEVICES, has(part_of(minor, share, gib=8))),))
        table.add(AssignedPod(pod, pod.spec, row, held))
    spec = a_pod("p", devices=request).spec
    at = NodeView(table, np.array([row], dtype=np.intp))
    passing = SHARE.filter(spec, at)
    assert passing is not None
    reason = fits(devices, table.devices.free_on(row), request)
    assert bool(passing[0]) == (not reason)
    if reason:
        assert sum(SHARE.reasons(spec, at).values()) == 1
    else:
        given = SHARE.choose(NO_ALLOCATION, spec, at, None, PlacementStrategy.PACK).part(DEVICES)
        assert isinstance(given, HeldDevices)
        check_amounts(table, row, given, request)


def check_amounts(table: NodeTable, row: int, held: HeldDevices, asked: DeviceRequest) -> None:
    """Check that what is given is free, and as much as is asked for."""
    free = table.devices.free_on(row)
    for device in held.devices:
        assert all(0 < amount <= free[device.type, device.minor][name] for name, amount in device.amounts)
    others = {
        kind: sum(dict(one.amounts)[kind] for one in held.devices if one.type == kind) for kind, _ in asked.others
    }
    assert others == dict(asked.others)
    if asked.gpu is not None and not asked.hints:
        assert sum(one.type == GPU for one in held.devices) == asked.gpu.count


def test_rows_are_judged_as_one_by_one() -> None:
    table = NodeTable()
    for number, free in enumerate((100, 40, 0)):
        name = f"n{number}"
        row, _ = table.see(a_node(name, labels={DELIVERY_LABEL: "koordlet"}))
        table.see_devices(name, devices_of(name, a_gpu(0, gib=8)))
        if free < WHOLE:
            pod = a_pod(f"h{number}")
            held = Allocation(parts=((DEVICES, has(part_of(0, WHOLE - free, gib=8))),))
            table.add(AssignedPod(pod, pod.spec, row, held))
    passing = SHARE.filter(
        a_pod("p", devices=device_request({"kubernetes.io/gpu": 40})).spec, NodeView(table, np.arange(3))
    )
    assert passing is not None
    assert passing.tolist() == [True, True, False]


def with_free(*frees: tuple[int, ...], mode: str = "koordlet") -> NodeTable:
    """Return nodes whose GPUs have so much free."""
    table = NodeTable()
    for number, free in enumerate(frees):
        name = f"n{number}"
        row, _ = table.see(a_node(name, labels={DELIVERY_LABEL: mode}))
        table.see_devices(name, devices_of(name, *(a_gpu(minor) for minor in range(len(free)))))
        pod = a_pod(f"h{number}")
        parts = (part_of(minor, WHOLE - left) for minor, left in enumerate(free) if left < WHOLE)
        table.add(AssignedPod(pod, pod.spec, row, Allocation(parts=((DEVICES, has(*parts)),))))
    return table


def score(pod: Pod, table: NodeTable, placement: PlacementStrategy = PlacementStrategy.PACK) -> list[int] | None:
    rows = np.array(sorted(table.rows.values()), dtype=np.intp)
    found = SHARE.score(PlacementRequest(pod.spec, placement), NodeView(table, rows))
    return None if found is None else found.tolist()


FREE = st.lists(st.integers(0, WHOLE), max_size=8).map(tuple)


@given(FREE, FREE, st.sampled_from((0, 30, 100)))
def test_the_node_that_a_pod_leaves_with_fewer_free_gpus_is_packed(
    first: tuple[int, ...], second: tuple[int, ...], share: int
) -> None:
    found = score(a_pod(devices=asks(share) if share else None), with_free((100,), first, second))
    assert found is not None
    fewer, more = sorted(
        (max(sum(free) - share, 0), -points) for free, points in zip((first, second), found[1:], strict=True)
    )
    assert fewer[1] <= more[1]
    assert fewer[1] < more[1] or more[0] - fewer[0] < WHOLE, "a GPU more is always seen"


def test_pod_without_gpus_is_packed_where_it_takes_no_cpu_from_free_gpus() -> None:
    table = with_free((0, 0), (100, 0), (100, 100), ())
    assert score(a_pod(), table) == [200, 100, 66, 200]
    assert score(a_pod(), table, PlacementStrategy.SPREAD) is None


@pytest.mark.parametrize("pod", [a_pod(), a_pod(gpu=1, devices=asks(100, vendor="nvidia"))])
def test_nodes_whose_kubelets_choose_gpus_are_packed_by_amounts_alone(pod: Pod) -> None:
    assert score(pod, with_free((100,), (100, 100), mode="device-plugin")) == [200, 200]


def test_fragmentation_weighs_requests_of_the_same_gpus_together() -> None:
    """A pod of 20 makes 60 or 40 free useless. Each of two shapes of 60 came seldom; together they came too often."""
    table = with_free((60, 40))
    for share, cpu_milli, times in ((60, 1, 3), (60, 2, 2), (40, 1, 11)):
        for _ in range(times):
            table.devices.recent.note(RequestShape(1, share, cpu_milli, 0))
    spec, at = a_pod(devices=asks(20)).spec, NodeView(table, np.array([0], dtype=np.intp))
    given = SHARE.choose(NO_ALLOCATION, spec, at, None, PlacementStrategy.FRAGMENTATION).part(DEVICES)
    assert given == has(part_of(1, 20))


@given(
    asked=NAMES,
    visible=st.booleans(),
    label=st.sampled_from(("", "env", "koordlet", "device-plugin", "hami", "odd")),
    listed=st.integers(0, 2),
    found=node_devices(),
    there=st.booleans(),
    unknown=st.integers(0, 2),
    shares=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 100)), max_size=2),
)
@settings(max_examples=400)
def test_quick_answer_is_that_of_the_rules_one_by_one_in_every_mode(
    asked: dict[str, int],
    label: str,
    listed: int,
    found: tuple[Device, ...],
    unknown: int,
    shares: list[tuple[int, int]],
    *,
    visible: bool,
    there: bool,
) -> None:
    request = device_request(asked)
    assert request is not None
    request = replace(request, visible=visible)
    table = NodeTable()
    row, _ = table.see(a_node("n", gpu=listed, labels={DELIVERY_LABEL: label} if label else {}))
    other, _ = table.see(a_node("other"))
    table.see_devices("other", devices_of("other", a_gpu(0)))
    if there:
        table.see_devices("n", devices_of("n", *found))
    held = [has(part_of(minor, share, gib=8)) for minor, share in shares]
    held += [HeldDevices(unknown=((GPU, unknown),))] if unknown else []
    for number, one in enumerate(held):
        pod = a_pod(f"h{number}")
        table.add(AssignedPod(pod, pod.spec, row, Allocation(parts=((DEVICES, one),))))
    at = NodeView(table, np.array([row, other], dtype=np.intp))
    quick = device_share._judge_quickly(request, at)
    assert quick is not None
    assert quick.tolist() == device_share._judge(request, at).passing.tolist()
