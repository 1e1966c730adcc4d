"""Images and declared features of nodes in the engine."""

from aischeduler.model.images import NodeImage, image_id
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.plugins.image_locality import MIB
from aischeduler.plugins.node_declared_features import REASON
from tests.build import a_node, a_pod, replace
from tests.engine.session import Session, binds, evictions, reports

NEEDED = "RestartAllContainersOnContainerExits"
APP = NodeImage((image_id("app:1"), image_id("app@sha256:0")), 900 * MIB)


def running(name: str, image: str, **fields: object) -> Pod:
    """Return a pod of one container of this image."""
    pod = a_pod(name, **fields)  # type: ignore[arg-type]
    spec = replace(pod.spec, key=pod.spec.key + image.encode(), images=(image_id(image),), containers=1)
    return replace(pod, spec=spec)


def needing(name: str, *features: str, **fields: object) -> Pod:
    """Return a pod that needs these features."""
    pod = a_pod(name, **fields)  # type: ignore[arg-type]
    return replace(pod, spec=replace(pod.spec, key=pod.spec.key + repr(features).encode(), features=features))


def declaring(name: str, *features: str, cpu: str = "4") -> Node:
    return replace(a_node(name, cpu=cpu), features=features)


def test_pod_goes_to_the_node_that_has_its_image() -> None:
    session = Session(*(a_node(name, cpu="64", memory="64Gi") for name in "abcd"))
    session.see(replace(a_node("c", cpu="64", memory="64Gi"), images=(APP,)))
    session.see(*(running(f"p{number}", "app:1") for number in range(3)), running("q", "app@sha256:0"))
    assert set(binds(session.decide()).values()) == {"c"}
    session.see(running("other", "app:2"))
    assert binds(session.decide())["other"] != "c"


def test_image_that_comes_counts_at_once_and_gives_no_pool_work() -> None:
    session = Session(*(a_node(name, cpu="64", memory="64Gi") for name in "abcd"))
    session.see(running("p0", "app:1"), running("p1", "app:1"), a_pod("waits", cpu="100"))
    session.decide()
    assert not list(session.scheduler.ready(session.now))
    session.see(replace(a_node("d", cpu="64", memory="64Gi"), images=(APP,)))
    assert not list(session.scheduler.ready(session.now))
    session.see(running("p2", "app:1"))
    assert binds(session.decide()) == {"p2": "d"}


def test_pod_runs_only_where_its_features_are_declared() -> None:
    session = Session(declaring("a"), declaring("b", "Other", NEEDED), needing("p", NEEDED))
    assert binds(session.decide()) == {"p": "b"}
    session.see(needing("both", NEEDED, "Third"))
    assert f"2 {REASON}" in reports(session.decide())["both"]


def test_node_that_declares_a_feature_wakes_the_pod_that_needs_it() -> None:
    session = Session(declaring("a"), needing("p", NEEDED), needing("q", "Third"))
    assert binds(session.decide()) == {}
    session.see(declaring("a", NEEDED))
    assert binds(session.decide(10)) == {"p": "a"}
    session.see(declaring("a", "Third"))
    assert binds(session.decide(10)) == {"q": "a"}


def test_no_pod_is_evicted_where_a_feature_is_missing() -> None:
    session = Session(declaring("a", cpu="1"), a_pod("low", node="a"), needing("high", NEEDED, priority=9))
    said = session.decide()
    assert (evictions(said), f"preemption: 0/1 nodes are available: 1 {REASON}" in reports(said)["high"]) == ({}, True)
    session.see(declaring("a", NEEDED, cpu="1"))
    assert set(evictions(session.decide(10))) == {"low"}


def test_node_that_lacks_room_and_a_feature_counts_for_its_room() -> None:
    session = Session(declaring("a", cpu="0"), declaring("b"), needing("p", NEEDED))
    text = reports(session.decide())["p"]
    assert ("1 Insufficient cpu" in text, f"1 {REASON}" in text) == (True, True)
