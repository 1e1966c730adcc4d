"""What is used of each device, and by whom: the numbers of the engine, and pods that it cannot put on a device."""

from hypothesis import given
from hypothesis import strategies as st

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, loaded
from aischeduler.analysis.device_use import DeviceHolder, NodeDeviceUse, device_use
from aischeduler.engine.profile import default_profile
from aischeduler.model.device import GPU, GPU_CORE, GPU_MEMORY, HeldDevice, HeldDevices, HolderSource, NodeDevices
from aischeduler.model.events import Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.state.devices import DELIVERY_LABEL
from tests.build import a_node, a_pod, replace
from tests.devices import GIB, a_device, a_gpu, asks, devices_of, gpus, has, part_of, whole
from tests.engine.session import Session, evictions

UNKNOWN = HeldDevices(unknown=((GPU, 1),), source=HolderSource.COUNT)
HELD = st.one_of(
    st.builds(lambda minors: has(*map(whole, minors)), st.sets(st.integers(0, 4), min_size=1)),
    st.builds(lambda minor, share: has(part_of(minor, share)), st.integers(0, 4), st.integers(1, 99)),
    st.just(UNKNOWN),
)


def koordlet(name: str = "n") -> Node:
    return a_node(name, cpu="64", labels={DELIVERY_LABEL: "koordlet"})


def holder(name: str, source: HolderSource = HolderSource.ALLOCATED) -> DeviceHolder:
    return DeviceHolder("default", name, f"uid-{name}", source)


def old(name: str, held: HeldDevices | None, *, node: str = "n") -> Pod:
    return a_pod(name, cpu="1m", memory="1Mi", node=node, devices=asks(100), has=held)


def used(session: Session) -> tuple[NodeDeviceUse, ...]:
    return device_use(session.scheduler.cluster)


@given(st.lists(HELD, max_size=6))
def test_what_is_used_and_what_the_engine_has_left_add_up_to_the_total(held: list[HeldDevices]) -> None:
    session = Session(koordlet(), gpus("n", 4), *(old(f"p{number}", has) for number, has in enumerate(held)))
    nodes, (use,) = session.scheduler.cluster.nodes, used(session)
    left, row = nodes.devices.free_on(nodes.rows["n"]), nodes.rows["n"]
    for one in use.devices:
        device = one.device
        free = left[device.type, device.minor]
        assert {name: amount + free[name] for name, amount in one.used} == dict(device.totals)
        names = {f"p{number}" for number, has in enumerate(held) for part in has.devices if part.minor == device.minor}
        assert [holder.name for holder in one.holders] == sorted(names)
    assert sum(unknown.devices for unknown in use.unknown) == nodes.devices.unknown[0, row] == held.count(UNKNOWN)
    assert len(use.missing) == sum(part.minor == 4 for has in held for part in has.devices)


def test_order_is_by_node_then_type_and_minor_whatever_came_first() -> None:
    session = Session(
        devices_of("b", a_device("rdma", 1), a_device("rdma", 0), a_gpu(1), a_gpu(0)), gpus("a", 1), a_node("b")
    )
    found = [(use.node, one.device.type, one.device.minor) for use in used(session) for one in use.devices]
    assert found == [("a", GPU, 0), ("b", GPU, 0), ("b", GPU, 1), ("b", "rdma", 0), ("b", "rdma", 1)]


def test_share_that_is_known_by_id_is_of_the_card_with_the_id() -> None:
    part = HeldDevice(GPU, -1, ((GPU_CORE, 30), (GPU_MEMORY, GIB)), "GPU-1")
    pod = old("p", HeldDevices((part,), source=HolderSource.HAMI))
    snapshot = ClusterSnapshot(0, (Seen(koordlet()), Seen(gpus("n", 2)), Seen(pod)))
    (use,) = device_use(loaded(default_profile(), snapshot).cluster)
    assert [one.holders for one in use.devices] == [(), (holder("p", HolderSource.HAMI),)]
    assert dict(use.devices[1].used)[GPU_CORE] == 30


def test_pod_that_does_not_say_what_it_has_is_an_unknown_holder() -> None:
    session = Session(koordlet(), gpus("n", 2), old("q", None), old("p", None))
    (use,) = used(session)
    assert [(one.type, one.devices) for one in use.unknown] == [(GPU, 2)]
    assert use.unknown[0].holders == (holder("p", HolderSource.COUNT), holder("q", HolderSource.COUNT))
    assert all(not one.holders and not any(dict(one.used).values()) for one in use.devices)


def test_pods_of_another_scheduler_are_holders() -> None:
    foreign = replace(old("p", has(whole(0))), scheduler_name="default-scheduler")
    (use,) = used(Session(koordlet(), gpus("n", 1), foreign))
    assert use.devices[0].holders == (holder("p"),)


def test_what_pods_have_of_devices_that_vanished_is_missing_and_of_no_other_device() -> None:
    session = Session(koordlet(), gpus("n", 2), old("p", has(whole(0), whole(1))))
    session.see(gpus("n", 1))
    (use,) = used(session)
    assert (use.devices[0].holders, use.missing) == ((holder("p"),), ((holder("p"), whole(1)),))
    session.tell(gone(NodeDevices, "n"))
    (use,) = used(session)
    assert (use.devices, [part.minor for _, part in use.missing]) == ((), [0, 1])


def test_node_without_device_object_whose_pods_hold_only_counts_is_left_out() -> None:
    session = Session(
        a_node("counts", gpu=2),
        a_pod("q", gpu=1, devices=asks(100, vendor="nvidia"), node="counts"),
        koordlet(),
        gpus("n", 1),
    )
    assert [use.node for use in used(session)] == ["n"]


def test_claim_is_no_holder_and_uses_nothing() -> None:
    session = Session(koordlet(), gpus("n", 1), old("low", has(whole(0))), a_pod("p", devices=asks(60), priority=5))
    assert evictions(session.decide()) == {"low": "Preempted"}
    (use,) = used(session)
    assert use.devices[0].holders == (holder("low"),)
    assert dict(use.devices[0].used)[GPU_CORE] == 100


def test_faults_are_those_of_the_device_object() -> None:
    (use,) = used(Session(a_node("n"), replace(gpus("n", 1), faults=("spec.devices[1].type: is missing",))))
    assert use.faults == ("spec.devices[1].type: is missing",)
