"""Pods that ask for devices: who gets which, what is never given twice, and what a change of a Device object does."""

from aischeduler.engine.holds import DEVICES_UNKNOWN
from aischeduler.model.actions import Action, Bind
from aischeduler.model.device import GPU, DeviceHint, HeldDevice, HeldDevices, HolderSource, NodeDevices
from aischeduler.model.events import DevicesListed, gone
from aischeduler.model.gang import GangSource, TopologyLevel
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import PlacementStrategy
from aischeduler.plugins.device_share import COUNTS_ONLY, NO_DEVICES, NO_IDS, NOT_VISIBLE, UNKNOWN_HOLDERS, UNKNOWN_MODE
from aischeduler.state.devices import DELIVERY_LABEL
from tests.build import a_node, a_pod, a_pool, replace
from tests.devices import GIB, a_device, a_gpu, asks, devices_of, gpus, has, part_of, whole
from tests.engine.session import Session, binds, evictions, nominations, reports, warnings
from tests.gangs import a_gang, member

GPU_NAME = "nvidia.com/gpu"


def given(said: list[Action]) -> dict[str, tuple[str, list[int]]]:
    """Return pod -> its node and the minors of its devices."""
    return {
        one.pod.name: (one.node, [device.minor for device in held(one).devices])
        for one in said
        if isinstance(one, Bind)
    }


def held(bind: Bind) -> HeldDevices:
    found = bind.allocation.part("devices")
    return found if isinstance(found, HeldDevices) else HeldDevices()


def koordlet(name: str, count: int = 0) -> Node:
    return a_node(name, cpu="64", gpu=count, labels={DELIVERY_LABEL: "koordlet"})


def counting(name: str, count: int) -> Node:
    """Return a node whose kubelet chooses the GPUs."""
    return a_node(name, cpu="64", gpu=count)


def by_count(name: str, count: int, *, node: str = "") -> Pod:
    return a_pod(name, gpu=count, devices=asks(100, count=count, vendor="nvidia"), node=node)


def test_halves_of_a_card_are_given_to_two_pods_and_no_third() -> None:
    session = Session(a_node("n"), gpus("n", 1), *(a_pod(name, devices=asks(50)) for name in ("p", "q", "r")))
    said = session.decide()
    assert [*given(said).values()] == [("n", [0]), ("n", [0])]
    assert "1 Insufficient gpu devices" in reports(said)["r"]


def test_shares_of_two_cards_add_up_only_on_one_card() -> None:
    session = Session(a_node("n"), gpus("n", 2), *(a_pod(name, devices=asks(60)) for name in ("p", "q", "r")))
    assert sorted(minor for _, [minor] in given(session.decide()).values()) == [0, 1]


def test_memory_alone_fills_a_card() -> None:
    session = Session(
        a_node("n"), gpus("n", 1, gib=80), a_pod("p", devices=asks(10, gib=60)), a_pod("q", devices=asks(10, gib=30))
    )
    assert len(given(session.decide())) == 1


def test_binding_has_the_devices_that_count() -> None:
    session = Session(a_node("n"), gpus("n", 2), a_pod("p", devices=asks(100, count=2)))
    [bind] = [one for one in session.decide() if isinstance(one, Bind)]
    assert held(bind) == has(whole(0), whole(1))


def test_what_a_bound_pod_says_to_have_is_not_given_again() -> None:
    session = Session(
        a_node("n"),
        gpus("n", 2),
        a_pod("old", node="n", devices=asks(100), has=has(whole(0))),
        a_pod("p", devices=asks(50)),
    )
    assert given(session.decide()) == {"p": ("n", [1])}


def test_what_a_waiting_pod_says_to_have_counts_nowhere() -> None:
    session = Session(a_node("n"), gpus("n", 1), a_pod("forged", devices=asks(100), has=has(whole(0)), gates=("g",)))
    session.see(a_pod("p", devices=asks(100)))
    assert given(session.decide()) == {"p": ("n", [0])}


def test_bound_pod_that_does_not_say_what_it_has_closes_the_node_to_named_devices() -> None:
    session = Session(a_node("n"), gpus("n", 4), a_pod("old", node="n", devices=asks(50)), a_pod("p", devices=asks(10)))
    said = session.decide()
    assert UNKNOWN_HOLDERS in reports(said)["p"]
    session.tell(gone(Pod, "uid-old"))
    assert given(session.decide()) == {"p": ("n", [0])}


def test_node_without_device_object_gives_no_share() -> None:
    session = Session(a_node("n"), a_pod("p", devices=asks(50)))
    assert NO_DEVICES in reports(session.decide())["p"]


def test_device_object_that_comes_later_wakes_the_pods_that_wait() -> None:
    session = Session(a_node("n"), a_pod("p", devices=asks(50)))
    session.decide()
    session.see(gpus("n", 1))
    assert given(session.decide()) == {"p": ("n", [0])}


def test_device_object_before_its_node_counts_once_the_node_is_there() -> None:
    session = Session(gpus("n", 1), a_pod("p", devices=asks(50)))
    session.decide()
    session.see(a_node("n"))
    assert given(session.decide()) == {"p": ("n", [0])}


def test_counted_gpus_of_a_node_without_device_object_are_given_as_before() -> None:
    session = Session(counting("n", 2), *(by_count(name, 1) for name in ("p", "q", "r")))
    said = session.decide()
    assert len(binds(said)) == 2
    assert all(not held(one).devices for one in said if isinstance(one, Bind))


def test_pods_from_before_the_first_device_object_count_when_it_comes() -> None:
    session = Session(
        koordlet("n"),
        a_pod("old", node="n", devices=asks(100)),
        a_pod("said", node="n", devices=asks(100), has=has(whole(1))),
    )
    session.decide()
    session.see(gpus("n", 2), a_pod("p", devices=asks(50)))
    assert UNKNOWN_HOLDERS in reports(session.decide())["p"]
    session.tell(gone(Pod, "uid-old"))
    assert given(session.decide()) == {"p": ("n", [0])}


def test_node_that_gives_gpus_by_count_gives_no_share() -> None:
    session = Session(counting("n", 2), gpus("n", 2), a_pod("p", devices=asks(50)), by_count("q", 1))
    said = session.decide()
    assert COUNTS_ONLY in reports(said)["p"]
    assert binds(said) == {"q": "n"}


def test_counted_pods_get_only_the_cards_that_no_named_holder_has() -> None:
    session = Session(counting("n", 2), gpus("n", 2), a_pod("old", node="n", devices=asks(50), has=has(part_of(0, 50))))
    session.see(by_count("p", 1), by_count("q", 1))
    assert len(binds(session.decide())) == 1


def test_pod_without_the_variable_goes_to_no_node_that_needs_it() -> None:
    session = Session(a_node("n"), gpus("n", 1), a_pod("p", devices=replace(asks(50), visible=False)))
    assert NOT_VISIBLE in reports(session.decide())["p"]


def test_unknown_way_of_delivery_is_named() -> None:
    session = Session(a_node("n", labels={DELIVERY_LABEL: "magic"}), gpus("n", 1), a_pod("p", devices=asks(50)))
    assert UNKNOWN_MODE in reports(session.decide())["p"]


def test_unhealthy_card_is_given_to_nobody_until_it_is_well() -> None:
    session = Session(a_node("n"), devices_of("n", a_gpu(0, healthy=False)), a_pod("p", devices=asks(50)))
    assert "Insufficient gpu devices" in reports(session.decide())["p"]
    session.see(gpus("n", 1))
    assert given(session.decide()) == {"p": ("n", [0])}


def test_holder_of_a_card_that_turns_unhealthy_stays_and_counts_when_it_is_well_again() -> None:
    session = Session(a_node("n"), gpus("n", 1), a_pod("old", node="n", devices=asks(60), has=has(part_of(0, 60))))
    session.see(devices_of("n", a_gpu(0, healthy=False)))
    assert evictions(session.decide()) == {}
    session.see(gpus("n", 1), a_pod("p", devices=asks(50)), a_pod("q", devices=asks(40)))
    assert given(session.decide()) == {"q": ("n", [0])}


def test_device_object_that_vanishes_and_comes_back_knows_its_holders() -> None:
    session = Session(a_node("n"), gpus("n", 1), a_pod("p", devices=asks(60)))
    session.decide()
    session.tell(gone(NodeDevices, "n"))
    session.see(a_pod("q", devices=asks(60)))
    assert NO_DEVICES in reports(session.decide())["q"]
    session.see(gpus("n", 1))
    assert given(session.decide()) == {}


def test_deleted_pod_gives_its_share_back() -> None:
    session = Session(a_node("n"), gpus("n", 1), a_pod("p", devices=asks(100)))
    session.decide()
    session.see(a_pod("q", devices=asks(100)))
    assert given(session.decide()) == {}
    session.tell(gone(Pod, "uid-p"))
    assert given(session.decide()) == {"q": ("n", [0])}


def test_ratio_is_of_the_memory_of_the_card_that_is_chosen() -> None:
    session = Session(
        a_node("n"), devices_of("n", a_gpu(0, gib=16), a_gpu(1, gib=80)), a_pod("p", devices=asks(10, gib=20))
    )
    assert given(session.decide()) == {"p": ("n", [1])}


def test_gang_gets_different_cards() -> None:
    gang = a_gang("g", 2, GangSource.LABELS)
    session = Session(a_node("n"), gpus("n", 2), *(member(a_pod(name, devices=asks(100)), gang) for name in ("p", "q")))
    assert sorted(minors for _, minors in given(session.decide()).values()) == [[0], [1]]


def test_victim_is_the_pod_whose_card_is_needed() -> None:
    session = Session(koordlet("n"), gpus("n", 2))
    session.see(
        a_pod("low", node="n", devices=asks(100), has=has(whole(1)), priority=1),
        a_pod("high", node="n", devices=asks(100), has=has(whole(0)), priority=9),
        a_pod("cpu", node="n", priority=0),
        a_pod("p", devices=asks(50), priority=5),
    )
    said = session.decide()
    assert (evictions(said), nominations(said)) == ({"low": "Preempted"}, {"p": "n"})
    session.tell(gone(Pod, "uid-low"))
    assert given(session.decide()) == {"p": ("n", [1])}


def test_claim_holds_the_card_of_its_victim_against_other_names() -> None:
    session = Session(koordlet("n"), gpus("n", 1))
    session.see(a_pod("low", node="n", devices=asks(100), has=has(whole(0))), a_pod("p", devices=asks(60), priority=5))
    assert evictions(session.decide()) == {"low": "Preempted"}
    session.see(a_pod("thief", devices=asks(50), priority=0))
    session.tell(gone(Pod, "uid-low"))
    assert given(session.decide()) == {"p": ("n", [0])}


def test_further_type_is_a_device_once_a_node_has_it() -> None:
    session = Session(
        a_node("n"), devices_of("n", a_device("dpu", 0, total=4)), a_pod("p", devices=asks(others={"dpu": 3}))
    )
    assert given(session.decide()) == {"p": ("n", [0])}
    session.see(a_pod("q", devices=asks(others={"dpu": 2})))
    assert "Insufficient dpu devices" in reports(session.decide())["q"]


def test_fault_of_a_device_object_is_said_once() -> None:
    session = Session(a_node("n"))
    session.see(replace(gpus("n", 1), faults=("spec.devices[1].type is missing",)))
    assert warnings(session.decide()) == [("n", "InvalidDevice")]
    session.see(replace(gpus("n", 2), faults=("spec.devices[1].type is missing",)))
    assert warnings(session.decide()) == []


def test_counted_pod_that_is_bound_holds_an_unknown_card() -> None:
    session = Session(counting("n", 2), gpus("n", 2), by_count("old", 1, node="n"))
    nodes = session.scheduler.cluster.nodes
    assert [*nodes.devices.holders(nodes.rows["n"]).values()] == [
        HeldDevices(unknown=((GPU, 1),), source=HolderSource.COUNT)
    ]


def test_nobody_gets_a_device_before_all_device_objects_are_known() -> None:
    session = Session(a_node("n"), gpus("n", 1))
    session.tell(DevicesListed(listed=False))
    session.see(a_pod("p", devices=asks(50)), a_pod("cpu"))
    said = session.decide()
    assert (binds(said), reports(said)) == ({"cpu": "n"}, {"p": DEVICES_UNKNOWN})
    session.tell(DevicesListed(listed=True))
    assert given(session.decide()) == {"p": ("n", [0])}


def test_card_that_the_kubelet_gave_is_known_once_the_agent_reports_it() -> None:
    session = Session(counting("n", 2), gpus("n", 2), by_count("old", 1, node="n"))
    session.see(replace(gpus("n", 2), kubelet={"uid-old": ((GPU_NAME, "GPU-1"),), "uid-gone": ((GPU_NAME, "GPU-0"),)}))
    nodes = session.scheduler.cluster.nodes
    held = HeldDevices((whole(1),), source=HolderSource.CHECKPOINT)
    assert [*nodes.devices.holders(nodes.rows["n"]).values()] == [held]
    session.see(by_count("p", 1), by_count("q", 1))
    assert len(binds(session.decide())) == 1


def test_mirror_pod_is_known_to_its_kubelet_by_another_uid() -> None:
    session = Session(koordlet("n", 2), replace(gpus("n", 2), kubelet={"hash": ((GPU_NAME, "GPU-0"),)}))
    session.see(replace(by_count("static", 1, node="n"), kubelet_uid="hash"))
    nodes = session.scheduler.cluster.nodes
    held = HeldDevices((whole(0),), source=HolderSource.CHECKPOINT)
    assert [*nodes.devices.holders(nodes.rows["n"]).values()] == [held]


def test_card_of_which_the_kubelet_knows_another_id_is_an_unknown_one() -> None:
    session = Session(koordlet("n"), replace(gpus("n", 2), kubelet={"uid-old": ((GPU_NAME, "MIG-1"),)}))
    session.see(by_count("old", 1, node="n"), a_pod("p", devices=asks(50)))
    assert UNKNOWN_HOLDERS in reports(session.decide())["p"]


def test_share_that_hami_gave_counts_on_its_card_with_the_share_of_its_memory() -> None:
    session = Session(koordlet("n"), gpus("n", 1, gib=80))
    of_hami = HeldDevices(
        (HeldDevice(GPU, -1, (("gpu-core", 30), ("gpu-memory", 40 * GIB)), "GPU-0"),), source=HolderSource.HAMI
    )
    session.see(a_pod("old", node="n", devices=asks(100, vendor="nvidia"), has=of_hami))
    session.see(a_pod("p", devices=asks(10, ratio=60)), a_pod("q", devices=asks(10, ratio=50)))
    assert given(session.decide()) == {"q": ("n", [0])}


def test_edit_of_what_a_bound_pod_got_is_said_and_counts_for_nothing() -> None:
    session = Session(a_node("n"), gpus("n", 2), a_pod("p", devices=asks(60)))
    session.decide()
    shown = a_pod("p", devices=asks(60), node="n", has=has(part_of(0, 60)))
    session.see(shown, replace(shown, devices=has(part_of(1, 60))))
    assert warnings(session.decide()) == [("p", "DevicesEdited")]
    session.see(a_pod("q", devices=asks(100)))
    assert given(session.decide()) == {"q": ("n", [1])}


def test_bound_pod_that_says_later_which_devices_it_has_is_believed() -> None:
    old = a_pod("old", node="n", devices=asks(50))
    session = Session(koordlet("n"), gpus("n", 2), old, a_pod("p", devices=asks(60)))
    assert UNKNOWN_HOLDERS in reports(session.decide())["p"]
    session.see(replace(old, devices=has(part_of(0, 50))))
    assert given(session.decide()) == {"p": ("n", [1])}


def test_gang_evicts_no_more_than_its_devices_need() -> None:
    gang = a_gang("g", 2, GangSource.LABELS)
    session = Session(koordlet("n"), gpus("n", 4))
    session.see(
        *(a_pod(f"low-{at}", node="n", devices=asks(100), has=has(whole(at)), priority=at) for at in range(4)),
        *(member(a_pod(name, devices=asks(100), priority=9), gang) for name in ("p", "q")),
    )
    said = session.decide()
    assert evictions(said) == {"low-0": "Preempted", "low-1": "Preempted"}
    claims = session.scheduler.cluster.claims.all()
    held_by_claims = [one.allocation.part("devices") for claim in claims for one in claim.assigned]
    assert sorted(held_by_claims, key=repr) == [has(whole(0)), has(whole(1))]
    session.tell(gone(Pod, "uid-low-0"), gone(Pod, "uid-low-1"))
    assert sorted(minors for _, minors in given(session.decide()).values()) == [[0], [1]]


def test_share_goes_where_a_card_is_shared_already() -> None:
    session = Session(a_node("a"), a_node("b"), gpus("a", 2), gpus("b", 2))
    session.see(a_pod("old", node="b", devices=asks(30), has=has(part_of(1, 30))), a_pod("p", devices=asks(50)))
    assert given(session.decide()) == {"p": ("b", [1])}


def test_with_spread_a_share_goes_to_the_emptiest_card() -> None:
    session = Session(a_pool("default", placement=PlacementStrategy.SPREAD), a_node("a"), a_node("b"))
    session.see(gpus("a", 2), gpus("b", 2), a_pod("old", node="b", devices=asks(30), has=has(part_of(1, 30))))
    session.see(a_pod("p", devices=asks(50)))
    assert given(session.decide()) == {"p": ("a", [0])}


def test_with_fragmentation_a_share_leaves_what_recent_pods_can_use() -> None:
    """Of 40 and 60 free, a pod of 40 takes the 40: shares of 60 came before."""
    session = Session(a_pool("default", placement=PlacementStrategy.FRAGMENTATION), a_node("a"), a_node("b"))
    session.see(gpus("a", 1), gpus("b", 1))
    session.see(
        a_pod("x", node="a", devices=asks(40), has=has(part_of(0, 40))),
        a_pod("y", node="b", devices=asks(60), has=has(part_of(0, 60))),
        *(a_pod(f"came-{at}", node="a", devices=asks(60), has=has(), phase="Succeeded") for at in range(3)),
        a_pod("p", devices=asks(40)),
    )
    assert given(session.decide()) == {"p": ("b", [0])}


def test_gang_on_one_node_gets_the_cards_that_are_connected() -> None:
    """Each for itself would leave the pair whole, and take the two others."""
    found = replace(devices_of("n", *(a_gpu(minor) for minor in range(4))), links={"0-1": 18})
    gang = a_gang("g", 2, GangSource.LABELS)
    near = a_gang("near", 2, GangSource.LABELS, topology=(TopologyLevel("kubernetes.io/hostname", required=True),))
    for of, minors in ((gang, [[2], [3]]), (near, [[0], [1]])):
        session = Session(a_node("n", labels={"kubernetes.io/hostname": "n"}), found)
        session.see(*(member(a_pod(name, devices=asks(100)), of) for name in ("p", "q")))
        assert sorted(minors for _, minors in given(session.decide()).values()) == minors


def test_wishes_about_gpus_are_for_nodes_whose_gpus_the_scheduler_chooses() -> None:
    wish = replace(asks(100, vendor="nvidia"), hints=((GPU, DeviceHint(every=True)),))
    session = Session(counting("n", 2), a_pod("p", gpu=1, devices=wish))
    assert COUNTS_ONLY in reports(session.decide())["p"]
    session.see(gpus("n", 2))
    assert binds(session.decide()) == {}


def test_gpu_without_an_id_is_of_no_use_where_containers_see_gpus_by_their_ids() -> None:
    session = Session(a_node("n"), devices_of("n", replace(a_gpu(0), id="")), a_pod("p", devices=asks(50)))
    assert NO_IDS in reports(session.decide())["p"]
    session.see(gpus("n", 1))
    assert given(session.decide()) == {"p": ("n", [0])}


def test_pod_evicts_nobody_more_while_pods_that_were_evicted_for_it_leave() -> None:
    """Its card turns sick while its victims leave: it waits for them."""
    session = Session(koordlet("n"), gpus("n", 2))
    session.see(
        *(a_pod(f"low-{at}", node="n", devices=asks(50), has=has(part_of(at // 2, 50))) for at in range(4)),
        a_pod("big", devices=asks(100), priority=9),
    )
    first = evictions(session.decide())
    assert first in ({"low-0": "Preempted", "low-1": "Preempted"}, {"low-2": "Preempted", "low-3": "Preempted"})
    sick = 0 if "low-0" in first else 1
    session.see(devices_of("n", *(a_gpu(minor, healthy=minor != sick) for minor in range(2))))
    assert evictions(session.decide(1)) == {}
    session.see(gpus("n", 2))
    session.tell(*(gone(Pod, f"uid-{name}") for name in first))
    assert given(session.decide(30)) == {"big": ("n", [sick])}


def test_card_that_is_numbered_otherwise_after_its_driver_started_again_is_still_held() -> None:
    session = Session(koordlet("n"), gpus("n", 2), a_pod("old", node="n", devices=asks(100), has=has(whole(0))))
    swapped = devices_of("n", replace(a_gpu(0), id="GPU-1"), replace(a_gpu(1), id="GPU-0"))
    nodes = session.scheduler.cluster.nodes
    nodes.see_devices("n", swapped)
    assert [of["gpu-core"] for of in nodes.devices.free_on(nodes.rows["n"]).values()] == [100, 0]


def test_counted_gpus_are_taken_where_gpus_are_known_to_be_in_use() -> None:
    session = Session(counting("a", 2), counting("b", 2), gpus("b", 2), by_count("old", 1, node="b"), by_count("p", 1))
    assert binds(session.decide()) == {"p": "b"}


def test_nodes_without_device_object_give_counted_gpus_beside_others_that_have_one() -> None:
    session = Session(counting("a", 1), a_node("b"), gpus("b", 2), by_count("p", 1))
    assert binds(session.decide()) == {"p": "a"}
