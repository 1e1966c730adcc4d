"""Faults of devices that random days found, each as the shortest day that shows it."""

import pytest

from aischeduler.model.device import HeldDevice
from aischeduler.model.events import EvictRefusal, EvictRefused, gone
from aischeduler.model.gang import GangSource
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.plugins.device_share import NAMES_ONLY, UNKNOWN_HOLDERS
from tests.build import a_node, a_pod, a_pool, replace
from tests.devices import a_device, a_gpu, asks, devices_of, gpus, has, whole
from tests.engine.session import Session, binds, evictions, fail_once, reports
from tests.engine.test_devices import by_count, given, koordlet
from tests.gangs import a_gang, member
from tests.harness import Harness
from tests.objects import node_object, pod_object
from tests.properties.device_world import ALLOCATED, HARDWARE
from tests.properties.test_device_cluster import DEFINITION, DEFINITIONS, DEVICES, FORGED, device_object
from tests.virtual.virtual_daemon import Network


def test_node_that_is_gone_offers_nothing_though_its_device_object_stays() -> None:
    session = Session(a_node("n"), gpus("n", 2))
    session.decide()
    session.tell(gone(Node, "n"))
    session.scheduler.look()
    nodes = session.scheduler.cluster.nodes
    assert not nodes.allocatable[:, nodes.rows["n"]].any()


def test_gang_that_is_tried_with_two_pods_on_one_node_leaves_the_devices_of_the_node_as_they_were() -> None:
    session = Session(koordlet("n"), koordlet("m"), gpus("n", 4), gpus("m", 1))
    for minor in range(4):
        session.see(a_pod(f"low{minor}", node="n", devices=asks(100), has=has(whole(minor))))
    gang = a_gang("g", 4, GangSource.LABELS)
    session.see(*(member(a_pod(f"p{turn}", devices=asks(100), priority=5), gang) for turn in range(4)))
    assert len(evictions(session.decide())) == 3


def test_type_that_only_a_pod_asks_for_is_known_to_no_node() -> None:
    session = Session(koordlet("n"), gpus("n", 1), a_pod("old", node="n", devices=asks(others={"rdma": 50})))
    session.see(a_pod("p", devices=asks(others={"rdma": 50})))
    assert UNKNOWN_HOLDERS in reports(session.decide())["p"]


def test_pod_whose_binding_is_in_flight_when_the_first_device_object_comes_holds_its_gpus() -> None:
    session = Session(a_node("n", cpu="64", gpu=2, labels=koordlet("n").labels), by_count("p", 2))
    assert binds(session.decide()) == {"p": "n"}
    session.see(gpus("n", 2))
    session.see(by_count("p", 2, node="n"), a_pod("q", devices=asks(50)))
    assert given(session.decide()) == {}


def test_pod_that_shows_gpus_by_the_variable_goes_to_no_node_without_device_object() -> None:
    shown = a_pod("p", gpu=1, devices=replace(asks(100, vendor="nvidia"), visible=True))
    session = Session(a_node("n", cpu="64", gpu=2), shown)
    assert binds(session.decide()) == {}


def test_step_that_raises_costs_no_node_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(koordlet("n"), gpus("n", 2), a_pod("p", devices=asks(50)))
    assert given(session.decide()) == {"p": ("n", [0])}
    fail_once(monkeypatch, "scheduler", "object_changed")
    with pytest.raises(ValueError, match="a bug in a step"):
        session.see(a_node("other"))
    session.see(a_pod("q", devices=asks(60)))
    assert given(session.decide()) == {"q": ("n", [1])}


def test_pods_hold_their_devices_though_the_first_device_object_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(koordlet("n"), a_pod("old", node="n", devices=asks(100)))
    fail_once(monkeypatch, "device_events", "_hold")
    with pytest.raises(ValueError, match="a bug in a step"):
        session.see(gpus("n", 2))
    session.see(a_pod("p", devices=asks(50)))
    assert given(session.decide()) == {}


def test_pod_whose_gpus_no_node_delivers_keeps_no_node_from_being_lent() -> None:
    default = a_pool("default", disable_preemption=True)
    session = Session(default, a_pool("a", labels={"pool": "a"}), a_node("n"), gpus("n", 2), by_count("own", 1))
    assert NAMES_ONLY in reports(session.decide())["own"]
    session.see(a_pod("p", pool="a"))
    assert binds(session.decide()) == {"p": "n"}


def test_annotation_forged_between_a_decision_and_its_binding_says_nothing() -> None:
    h = Harness(node_object("n0", gpu=2), network=Network(bind_seconds=1.0))
    h.cluster.request("POST", DEFINITIONS, DEFINITION)
    h.cluster.request("POST", DEVICES, device_object(HARDWARE["n0"]))
    h.run()
    h.add(pod_object("p", gpu=1))
    h.run(0.5)
    h.patch("Pod", "p", {"metadata": {"annotations": {ALLOCATED: FORGED}}})
    h.run()
    assert h.node_of("p") == "n0"
    assert h.marks("p")[ALLOCATED] == "{}"


@pytest.mark.parametrize("ends", ["is called off", "is lost", "succeeds"])
def test_pod_that_waits_for_a_pod_that_was_evicted_for_it_is_tried_when_that_stays_or_has_left(ends: str) -> None:
    nodes = (koordlet("far"), koordlet("near"))
    session = Session(*nodes, gpus("far", 1), gpus("near", 1), a_pod("p", priority=10, devices=asks(100)))
    for name in ("far", "near"):
        session.see(a_pod(f"on-{name}", node=name, devices=asks(100), has=has(whole(0)), started=1))
    (victim,) = evictions(session.decide())
    node = victim.removeprefix("on-")
    session.see(devices_of(node, a_gpu(0, healthy=False)))  # the claim ends: the card is of no use
    assert "waits for 1 evicted pod" in reports(session.decide(5.0))["p"]
    if ends == "succeeds":
        session.tell(gone(Pod, f"uid-{victim}"))
    else:
        why = EvictRefusal.LOST if ends == "is lost" else EvictRefusal.CALLED_OFF
        session.tell(EvictRefused(f"uid-{victim}", why, "no"))
    (other,) = evictions(session.decide(30.0))
    assert {victim, other} == {"on-far", "on-near"}


def test_claim_that_takes_the_place_of_another_has_the_devices_that_the_other_claimed() -> None:
    both = asks(100, others={"rdma": 100})
    session = Session(koordlet("n"), devices_of("n", a_gpu(0), a_device("rdma", 0)))
    rdma = HeldDevice("rdma", 0, (("rdma", 100),), "rdma-0")
    session.see(a_pod("card", node="n", devices=asks(100), has=has(whole(0)), started=1))
    session.see(a_pod("nic", node="n", devices=asks(others={"rdma": 100}), has=has(rdma), started=1))
    session.see(a_pod("q", priority=5, devices=asks(others={"rdma": 100})))
    assert [*evictions(session.decide())] == ["nic"]
    session.see(a_pod("p", priority=10, devices=both))
    assert [*evictions(session.decide())] == ["card"]
    nodes = session.scheduler.cluster.nodes
    claimed = nodes.devices.holders(nodes.rows["n"])["uid-p", True]
    assert [(device.type, device.minor) for device in claimed.devices] == [("gpu", 0), ("rdma", 0)]
