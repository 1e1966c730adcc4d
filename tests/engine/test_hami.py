"""Nodes whose GPUs HAMi's device plugin hands out: whole GPUs by name, on nodes with and without a Device object."""

from aischeduler.engine.profile import default_profile
from aischeduler.model.actions import Action, Bind
from aischeduler.model.device import GPU, Device, HeldDevice, HeldDevices, HolderSource, NodeDevices
from aischeduler.model.events import gone
from aischeduler.model.gang import GangSource, TopologyLevel
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.plugins.device_share import COUNTS_ONLY, NAMES_ONLY, NO_IDS
from aischeduler.state.devices import DELIVERY_LABEL
from tests.build import a_node, a_pod, replace
from tests.devices import GIB, a_gpu, asks, devices_of, gpus, has, whole
from tests.engine.session import Session, binds, reports
from tests.gangs import a_gang, member

HOSTNAME = "kubernetes.io/hostname"
SLOTS = 10
"""How many pods HAMi lists a GPU for."""


def on(*objects: Node | Pod | NodeDevices, hami: bool = True) -> Session:
    return Session(*objects, profile=replace(default_profile(), hami=hami))


def registering(name: str, *found: Device, label: str = "") -> Node:
    """Return a node on which HAMi registers GPUs."""
    labels = {HOSTNAME: name} | ({DELIVERY_LABEL: label} if label else {})
    return replace(a_node(name, cpu="64", gpu=SLOTS * len(found), labels=labels), hami_gpus=found)


def labelled(name: str, count: int) -> Node:
    return a_node(name, cpu="64", gpu=SLOTS * count, labels={DELIVERY_LABEL: "hami"})


def asking(name: str, count: int = 1, *, node: str = "", found: HeldDevices | None = None) -> Pod:
    return a_pod(name, gpu=count, devices=asks(100, count=count, vendor="nvidia"), node=node, has=found)


def told(said: list[Action]) -> dict[str, list[int]]:
    """Return pod -> the minors of the devices of which HAMi is told."""
    parts = {one.pod.name: one.allocation.part("devices") for one in said if isinstance(one, Bind)}
    return {
        name: [device.minor for device in part.devices]
        for name, part in parts.items()
        if isinstance(part, HeldDevices) and part.by_hami
    }


def test_whole_gpus_are_chosen_by_name_though_hami_lists_more() -> None:
    for session in (
        on(labelled("n", 3), gpus("n", 3)),
        on(registering("n", a_gpu(0), a_gpu(1), a_gpu(2))),
        on(registering("n", a_gpu(0), a_gpu(1), a_gpu(2), label="hami")),
    ):
        session.see(asking("p", 2), asking("q"), asking("r"))
        said = session.decide()
        assert sorted(minor for minors in told(said).values() for minor in minors) == [0, 1, 2]
        assert "1 Insufficient gpu devices" in reports(said)["r"]


def test_gpus_that_hami_says_are_linked_go_to_one_pod() -> None:
    node = registering("n", *(a_gpu(minor) for minor in range(4)))
    linked = replace(node, hami_links=(("0-3", 12), ("1-2", 4)))
    assert told(on(node, asking("p", 2)).decide()) == {"p": [0, 1]}
    assert told(on(linked, asking("p", 2)).decide()) == {"p": [0, 3]}


def test_card_of_which_hami_gave_a_share_is_given_to_nobody() -> None:
    share = HeldDevices((HeldDevice(GPU, -1, (("gpu-memory", GIB),), "GPU-0"),), source=HolderSource.HAMI)
    session = on(registering("n", a_gpu(0), a_gpu(1)), asking("old", node="n", found=share), asking("p"), asking("q"))
    assert told(session.decide()) == {"p": [1]}
    session.tell(gone(Pod, "uid-old"))
    assert told(session.decide(seconds=400)) == {"q": [0]}


def test_what_a_pod_got_stays_its_own_after_a_restart() -> None:
    session = on(registering("n", a_gpu(0), a_gpu(1)), asking("old", node="n", found=has(whole(0))), asking("p"))
    assert told(session.decide()) == {"p": [1]}


def test_unhealthy_gpu_of_hami_is_given_to_nobody() -> None:
    session = on(registering("n", a_gpu(0, healthy=False), a_gpu(1)), asking("p"), asking("q"))
    assert told(session.decide()) == {"p": [1]}
    session.see(registering("n", a_gpu(0), a_gpu(1)))
    assert told(session.decide(seconds=400)) == {"q": [0]}


def test_names_of_koordinator_are_refused_because_the_kubelet_would_give_nothing() -> None:
    session = on(registering("n", a_gpu(0)), a_pod("p", devices=asks(50)))
    assert COUNTS_ONLY in reports(session.decide())["p"]


def test_without_the_setting_nodes_of_hami_get_no_pods_with_gpus() -> None:
    for node in (registering("n", a_gpu(0)), labelled("n", 1)):
        session = on(node, *([gpus("n", 1)] if not node.hami_gpus else []), asking("p"), a_pod("plain"), hami=False)
        said = session.decide()
        assert NAMES_ONLY in reports(said)["p"]
        assert binds(said) == {"plain": "n"}


def test_label_decides_against_what_hami_registers() -> None:
    session = on(registering("n", a_gpu(0), label="device-plugin"), asking("p"))
    assert binds(session.decide()) == {"p": "n"}
    assert told(session.said) == {}


def test_gpus_without_ids_are_not_given() -> None:
    session = on(labelled("n", 1), devices_of("n", replace(a_gpu(0), id="")), asking("p"))
    assert NO_IDS in reports(session.decide())["p"]


def test_device_object_counts_before_what_hami_registers_and_no_longer_once_it_is_gone() -> None:
    session = on(registering("n", a_gpu(0)), gpus("n", 2), asking("p"), asking("q"))
    assert len(told(session.decide())) == 2
    session.see(asking("r"))
    session.tell(gone(NodeDevices, "n"))
    session.tell(gone(Pod, "uid-p"), gone(Pod, "uid-q"))
    assert told(session.decide()) == {"r": [0]}


def test_node_on_which_hami_registers_nothing_any_more_gives_nothing_by_name() -> None:
    session = on(registering("n", a_gpu(0)))
    session.see(registering("n"), asking("p"), a_node("m", gpu=1))
    assert binds(session.decide()) == {"p": "m"}
    assert told(session.said) == {}


def test_node_that_goes_and_comes_back_has_its_gpus_again() -> None:
    node = registering("n", a_gpu(0))
    session = on(node, asking("p"))
    session.tell(gone(Node, "n"))
    assert binds(session.decide()) == {}
    session.see(node)
    assert told(session.decide()) == {"p": [0]}


def test_gang_on_one_node_is_told_to_hami_too() -> None:
    gang = a_gang("g", 2, GangSource.LABELS, topology=(TopologyLevel(HOSTNAME, required=True),))
    session = on(registering("n", a_gpu(0), a_gpu(1), a_gpu(2), a_gpu(3)))
    session.see(*(member(asking(name, 2), gang) for name in ("p", "q")))
    found = told(session.decide())
    assert sorted(minor for minors in found.values() for minor in minors) == [0, 1, 2, 3]
