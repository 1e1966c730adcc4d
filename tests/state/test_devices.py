"""The arrays of devices against a plain count of what pods hold."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.model.allocation import Allocation
from aischeduler.model.device import DEVICES, HeldDevices, NodeDevices
from aischeduler.model.pod import Pod
from aischeduler.state.devices import DELIVERY_LABEL, DeliveryMode, Devices
from aischeduler.state.label_index import Rows
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod
from tests.build import a_node, a_pod
from tests.devices import GIB, a_device, a_gpu, asks, devices_of, gpus, has, part_of, whole

Free = dict[tuple[str, int], dict[str, int]]


def on(pod: Pod, row: int, held: HeldDevices, *, claims: bool = False) -> AssignedPod:
    return AssignedPod(pod, pod.spec, row, Allocation(parts=((DEVICES, held),)), claims=claims)


def rows_of(row: int) -> Rows:
    return np.array([row], dtype=np.intp)


def plainly(found: NodeDevices, held: list[HeldDevices]) -> Free:
    """Count what is free, device by device."""
    free = {(device.type, device.minor): dict(device.totals) for device in found.devices}
    for one in (device for holder in held for device in holder.devices):
        of = free.get((one.type, one.minor), {})
        for dimension, amount in one.amounts:
            if dimension in of:
                of[dimension] -= amount
    return free


SHARES = st.builds(part_of, st.integers(0, 3), st.integers(1, 100))
HELD = st.lists(SHARES, min_size=1, max_size=2, unique_by=lambda one: one.minor).map(lambda found: has(*found))
OBJECTS = st.one_of(st.none(), st.integers(1, 4).map(lambda count: gpus("n", count)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), HELD),
        st.tuples(st.just("leave"), st.integers(0, 9)),
        st.tuples(st.just("see"), OBJECTS),
    ),
    max_size=20,
)


@given(steps=STEPS)
@settings(max_examples=200)
def test_free_amounts_are_the_totals_less_what_pods_hold_whatever_comes_first(steps: list[tuple[str, object]]) -> None:
    table, pods, there = NodeTable(), dict[str, AssignedPod](), None
    row, _ = table.see(a_node("n"))
    for at, (step, value) in enumerate(steps):
        if isinstance(value, HeldDevices):
            pods[f"p{at}"] = on(a_pod(f"p{at}", devices=asks(1)), row, value)
            table.add(pods[f"p{at}"])
        elif step == "leave" and pods:
            name = sorted(pods)[int(str(value)) % len(pods)]
            table.remove(pods.pop(name))
        elif step == "see":
            there = value if isinstance(value, NodeDevices) else None
            table.see_devices("n", there)
        held = [one for pod in pods.values() if isinstance(one := pod.allocation.part(DEVICES), HeldDevices)]
        free = plainly(there, held) if there is not None else {}
        assert table.devices.free_on(row) == free
        hundredths = [
            max(min(of["gpu-core"], of["gpu-memory-ratio"], of["gpu-memory"] * 100 // device.total("gpu-memory")), 0)
            for device in (there.devices if there is not None else ())
            for of in [free[device.type, device.minor]]
        ]
        assert table.devices.hundredths[row].tolist() == hundredths + [0] * (8 - len(hundredths))
        assert int(table.devices.whole[row]) == hundredths.count(100)
        assert int(table.devices.gpus[row]) == len(hundredths)
        assert int(table.devices.gpus_free[row]) == sum(hundredths)


@given(
    gib=st.lists(st.integers(1, 80), min_size=1, max_size=4),
    used=st.lists(st.integers(0, 100), min_size=4, max_size=4),
    core=st.integers(0, 100),
    ratio=st.integers(1, 100),
    asked_gib=st.integers(0, 80),
)
def test_gpus_that_have_room_are_counted_as_one_by_one(
    gib: list[int], used: list[int], core: int, ratio: int, asked_gib: int
) -> None:
    table = NodeTable()
    row, _ = table.see(a_node("n"))
    found = devices_of("n", *(a_gpu(minor, gib=size) for minor, size in enumerate(gib)))
    table.see_devices("n", found)
    held = has(*(part_of(minor, used[minor], gib=size) for minor, size in enumerate(gib)))
    table.add(on(a_pod("p", devices=asks(1)), row, held))
    gpu = asks(core, ratio=ratio, gib=asked_gib).gpu
    assert gpu is not None
    free = plainly(found, [held])
    fitting = [
        device
        for device in found.devices
        if all(free[device.type, device.minor][dimension] >= amount for dimension, amount in gpu.of(device))
    ]
    assert table.devices.with_gpus(gpu, rows_of(row)).tolist() == [len(fitting)]


def test_claim_and_pod_of_one_uid_hold_apart() -> None:
    table = NodeTable()
    row, _ = table.see(a_node("n"))
    table.see_devices("n", gpus("n", 2))
    pod = a_pod("p", devices=asks(100))
    table.add(on(pod, row, has(whole(0)), claims=True))
    table.add(on(pod, row, has(whole(1))))
    table.remove(on(pod, row, has(whole(0)), claims=True))
    assert [*table.devices.holders(row).values()] == [has(whole(1))]


def test_share_of_a_further_type_is_of_one_device_and_more_is_of_whole_ones() -> None:
    table = NodeTable()
    row, _ = table.see(a_node("n"))
    table.see_devices("n", devices_of("n", a_device("dpu", 0, total=4), a_device("dpu", 1, total=4)))
    fits = {amount: bool(table.devices.have("dpu", amount, rows_of(row))[0]) for amount in (1, 4, 5, 8, 12)}
    assert fits == {1: True, 4: True, 5: False, 8: True, 12: False}


def test_mode_is_that_of_the_label_and_else_what_the_node_shows() -> None:
    table = NodeTable()
    modes = {
        "listed": a_node("listed", gpu=8),
        "plain": a_node("plain"),
        "starting": a_node("starting", extended={"nvidia.com/gpu": "0"}),
        "labelled": a_node("labelled", gpu=8, labels={DELIVERY_LABEL: "koordlet"}),
        "odd": a_node("odd", labels={DELIVERY_LABEL: "odd"}),
        "without": a_node("without", labels={DELIVERY_LABEL: "env"}),
    }
    for name, node in modes.items():
        table.see(node)
        if name != "without":
            table.see_devices(name, gpus(name, 1))
    found = {name: DeliveryMode(int(table.devices.mode[table.rows[name]])) for name in modes}
    assert found == {
        "listed": DeliveryMode.DEVICE_PLUGIN,
        "plain": DeliveryMode.ENV,
        "starting": DeliveryMode.DEVICE_PLUGIN,
        "labelled": DeliveryMode.KOORDLET,
        "odd": DeliveryMode.UNKNOWN,
        "without": DeliveryMode.NONE,
    }


def test_node_offers_names_that_it_does_not_list_as_its_devices_say() -> None:
    table = NodeTable()
    table.see(a_node("n", extended={"koordinator.sh/gpu-core": "100"}))
    row, _ = table.see_devices("n", gpus("n", 2, gib=16))
    offered = table.named(table.allocatable[:, row])
    assert {name: amount for name, amount in offered.items() if "gpu" in name} == {
        "koordinator.sh/gpu": 200,
        "koordinator.sh/gpu.shared": 200,
        "koordinator.sh/gpu-core": 100,
        "koordinator.sh/gpu-memory": 32 * GIB,
        "koordinator.sh/gpu-memory-ratio": 200,
        "nvidia.com/gpu": 2,
    }
    table.see_devices("n", None)
    assert table.named(table.allocatable[:, row])["nvidia.com/gpu"] == 0


def test_row_of_a_node_that_is_gone_is_kept_while_its_device_object_is_there() -> None:
    table = NodeTable()
    table.see(a_node("n"))
    row, _ = table.see_devices("n", gpus("n", 1))
    table.forget("n")
    assert table.rows == {"n": row}
    table.see_devices("n", None)
    assert table.rows == {}


def test_table_grows_beyond_its_first_slots_rows_and_dimensions() -> None:
    devices, table = Devices(64), NodeTable()
    assert devices.kind.shape == (64, 8)
    for number in range(70):
        table.see(a_node(f"n{number}"))
        table.see_devices(f"n{number}", devices_of(f"n{number}", *(a_device("npu", minor) for minor in range(16))))
    row = table.rows["n69"]
    assert len(table.devices.free_on(row)) == 16
