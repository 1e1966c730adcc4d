"""The filter by arrays and the choice on one node say the same."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.framework.node_view import NodeView
from aischeduler.model.allocation import NO_ALLOCATION, Allocation
from aischeduler.model.device import DEVICES, GPU, WHOLE, Device, DeviceHint, DeviceRequest, HeldDevices, Partition
from aischeduler.model.device_request import device_request
from aischeduler.model.pool import PlacementStrategy
from aischeduler.plugins.device_choice import fits
from aischeduler.plugins.device_share import DeviceShare
from aischeduler.state.devices import DELIVERY_LABEL
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod
from tests.build import a_node, a_pod, replace
from tests.devices import GIB, a_device, a_gpu, devices_of, has, part_of

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
