"""Volumes that only one pod may use, and how many volumes a node takes: with preemption and wake-ups."""

from aischeduler.model.events import Gone, Seen, gone
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import HostPort, Pod
from aischeduler.model.storage_objects import CsiNode, StorageClass, VolumeAttachment
from aischeduler.model.volumes import ONE_POD, DriverVolume, Volume, VolumeClaim, VolumeClaimUse
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, evictions, nominations, reports
from tests.gangs import a_gang, member

IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
TOO_MANY = "node(s) exceed max volume count"
NO_HELP = "No preemption victims found for incoming pod"
DRIVER = "csi.example"


def use(name: str, number: int = 0) -> VolumeClaimUse:
    return VolumeClaimUse(f"spec.volumes[{number}].persistentVolumeClaim", name)


def bound(*names: str, mode: str = "ReadWriteOnce") -> list[Seen]:
    """Return bound claims of these names, each with its volume of the CSI driver."""
    told: list[Seen] = []
    for name in names:
        claim = VolumeClaim("default", name, f"pv-{name}", bound=True, uid=f"uid-{name}", access_modes=(mode,))
        told += [Seen(Volume(f"pv-{name}", driver=DriverVolume(DRIVER, name))), Seen(claim)]
    return told


def limits(**counts: int) -> list[Seen]:
    """Return the CSINodes of these nodes, with their most volumes of the driver."""
    return [Seen(CsiNode(node, {DRIVER: count})) for node, count in counts.items()]


def test_claim_for_one_pod_is_used_by_one_pod_and_freed_with_it() -> None:
    session = Session(a_node("a"), a_node("b"))
    session.tell(*bound("data", mode=ONE_POD))
    session.see(a_pod("p", claims=(use("data"),)))
    assert binds(session.decide()) == {"p": "a"}
    session.see(a_pod("q", claims=(use("data"),)))
    (reason,) = reports(session.decide()).values()
    assert reason == f"0/2 nodes are available: 2 {IN_USE}. preemption: 0/2 nodes are available: 2 {NO_HELP}."
    session.tell(gone(Pod, "uid-p"))
    assert binds(session.decide()) == {"q": "a"}


def test_claim_for_one_pod_is_in_use_by_a_pod_of_another_scheduler_and_free_in_another_namespace() -> None:
    session = Session(a_node("a"))
    session.tell(*bound("data", mode=ONE_POD))
    session.see(a_pod("other", claims=(use("data"),), node="a", scheduler_name="default-scheduler", namespace="there"))
    session.see(a_pod("p", claims=(use("data"),)))
    assert binds(session.decide()) == {"p": "a"}
    session.see(a_pod("same", claims=(use("data"),), node="a", scheduler_name="default-scheduler"))
    session.tell(gone(Pod, "uid-p"))
    session.see(a_pod("q", claims=(use("data"),)))
    assert list(reports(session.decide())) == ["q"]


def test_pod_of_higher_priority_evicts_the_user_of_its_claim_for_one_pod_and_no_other_pod() -> None:
    """Case P25 of kube-scheduler."""
    session = Session(a_node("a", cpu="2"), a_node("b", cpu="2"))
    session.tell(*bound("data", mode=ONE_POD))
    session.see(a_pod("user", claims=(use("data"),), node="b"), a_pod("plain", node="b"), a_pod("x", node="a"))
    session.see(a_pod("high", priority=9, claims=(use("data"),)))
    said = session.decide()
    assert (nominations(said), evictions(said)) == ({"high": "b"}, {"user": "Preempted"})
    session.tell(gone(Pod, "uid-user"))
    assert list(binds(session.decide())) == ["high"]


def test_eviction_of_a_pod_whose_ports_and_claim_are_wanted_frees_the_claim_on_its_own_node_only() -> None:
    ports = (HostPort("TCP", 80),)
    session = Session(a_node("a", cpu="2"), a_node("b", cpu="2"))
    session.tell(*bound("data", mode=ONE_POD))
    user = a_pod("user", claims=(use("data"),), node="b", host_ports=ports)
    session.see(user, a_pod("peer", node="b", priority=9), a_pod("plain", cpu="2", node="a"))
    session.see(a_pod("high", cpu="2", priority=9, claims=(use("data"),), host_ports=ports))
    said = session.decide()
    assert (nominations(said), evictions(said)) == ({}, {})
    reason = f"preemption: 0/2 nodes are available: 1 Insufficient cpu, 1 {IN_USE}."
    assert reports(said)["high"].endswith(reason)


def test_two_users_of_a_claim_for_one_pod_on_two_nodes_are_not_evicted_for_a_third() -> None:
    session = Session(a_node("a"), a_node("b"))
    session.tell(*bound("data", mode=ONE_POD))
    session.see(*(a_pod(f"user-{node}", claims=(use("data"),), node=node) for node in ("a", "b")))
    session.see(a_pod("high", priority=9, claims=(use("data"),)))
    said = session.decide()
    assert (nominations(said), evictions(said)) == ({}, {})
    assert reports(said)["high"].startswith(f"0/2 nodes are available: 2 {IN_USE}.")


def test_node_takes_as_many_volumes_of_a_driver_as_its_csi_node_says_and_a_shared_one_counts_once() -> None:
    """Case V3 of kube-scheduler."""
    session = Session(a_node("a", cpu="9"), a_node("b", cpu="1"))
    session.tell(*limits(a=2), *bound("x", "y", "z"))
    session.see(a_pod("p", cpu="2", claims=(use("x"),)), a_pod("q", cpu="2", claims=(use("y"),)))
    assert binds(session.decide()) == {"p": "a", "q": "a"}
    session.see(a_pod("r", cpu="2", claims=(use("z"),)), a_pod("again", cpu="2", claims=(use("x"),)))
    said = session.decide()
    assert binds(said) == {"again": "a"}
    assert reports(said)["r"].startswith(f"0/2 nodes are available: 1 Insufficient cpu, 1 {TOO_MANY}.")
    session.tell(gone(Pod, "uid-q"))
    assert binds(session.decide()) == {"r": "a"}


def test_node_without_a_csi_node_or_without_a_limit_takes_all_volumes() -> None:
    session = Session(a_node("a", cpu="9"))
    session.tell(Seen(CsiNode("a", {"another.driver": 0})), *bound("x", "y"))
    session.see(a_pod("p", claims=(use("x"), use("y", 1))))
    assert binds(session.decide()) == {"p": "a"}


def test_two_volumes_of_a_pod_count_twice() -> None:
    session = Session(a_node("a"), a_node("b"))
    session.tell(*limits(a=1, b=2), *bound("x", "y"))
    session.see(a_pod("p", claims=(use("x"), use("y", 1))))
    assert binds(session.decide()) == {"p": "b"}


def test_attached_volume_counts_until_it_is_detached_and_its_pod_counts_it_once() -> None:
    session = Session(a_node("a"))
    session.tell(*limits(a=2), *bound("x", "y", "left"))
    session.tell(Seen(VolumeAttachment("va-left", DRIVER, "a", "pv-left")))
    session.tell(Seen(VolumeAttachment("va-x", DRIVER, "a", "pv-x")))
    session.see(a_pod("on", claims=(use("x"),), node="a"), a_pod("p", claims=(use("y"),)))
    (reason,) = reports(session.decide()).values()
    assert reason.startswith(f"0/1 nodes are available: 1 {TOO_MANY}.")
    session.tell(Gone("VolumeAttachment", ("", "va-left")))
    assert binds(session.decide()) == {"p": "a"}


def test_raised_limit_lets_a_waiting_pod_run() -> None:
    session = Session(a_node("a"))
    session.tell(*limits(a=0), *bound("x"))
    session.see(a_pod("p", claims=(use("x"),)))
    session.decide()
    session.tell(*limits(a=1))
    assert binds(session.decide()) == {"p": "a"}


def test_limit_that_is_known_before_its_node_counts() -> None:
    session = Session()
    session.tell(*limits(a=0), *bound("x"))
    session.see(a_node("a"), a_pod("p", claims=(use("x"),)))
    assert binds(session.decide()) == {}


def test_volume_to_come_counts_and_counts_once_when_it_has_come() -> None:
    session = Session(a_node("a", cpu="9"))
    claim = VolumeClaim("default", "new", uid="uid-new", storage_class="cloud", request_bytes=1)
    session.tell(Seen(StorageClass("cloud", DRIVER, waits=True)), *limits(a=2), Seen(claim))
    session.tell(*bound("x", "y"))
    session.see(a_pod("p", claims=(use("new"),)), a_pod("q", claims=(use("x"),)))
    session.decide()
    session.see(a_pod("r", claims=(use("y"),)))
    assert TOO_MANY in reports(session.decide())["r"]
    session.tell(*bound("new"))
    session.see(a_pod("p", claims=(use("new"),), node="a"))
    session.decide()
    session.tell(gone(Pod, "uid-q"))
    assert binds(session.decide()) == {"r": "a"}


def test_volumes_of_victims_make_room_for_a_pod_of_higher_priority() -> None:
    pool = a_pool("a", labels={"team": "a"})
    session = Session(pool, a_node("a", cpu="9", labels={"team": "a"}))
    session.tell(*limits(a=2), *bound("x", "y", "z"))
    session.see(
        a_pod("p", pool="a", claims=(use("x"),), node="a", started=1),
        a_pod("q", pool="a", claims=(use("y"),), node="a", priority=1, started=1),
        a_pod("plain", pool="a", node="a", started=1),
    )
    session.see(a_pod("high", pool="a", priority=9, claims=(use("z"),)))
    said = session.decide()
    assert (nominations(said), list(evictions(said))) == ({"high": "a"}, ["p"])
    session.tell(gone(Pod, "uid-p"))
    assert binds(session.decide()) == {"high": "a"}


def test_pods_of_a_gang_count_their_volumes_together() -> None:
    gang = a_gang("g", 2, GangSource.LABELS)
    session = Session(a_node("a", cpu="9"), a_node("b", cpu="9"))
    session.tell(*limits(a=1, b=1), *bound("x", "y"))
    session.see(*(member(a_pod(name, claims=(use(name),)), gang) for name in ("x", "y")))
    assert binds(session.decide()) == {"x": "a", "y": "b"}
