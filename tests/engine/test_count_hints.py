"""Spread constraints in the engine: wake-ups over domains, pools, preferences, preemption, claims."""

import gc
import sys
from types import FrameType

import pytest

from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Bind
from aischeduler.model.events import Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, a_pool, replace, spread
from tests.engine.session import Session, binds, evictions
from tests.gangs import a_gang, a_key, member, members

WEB = {"app": "web"}
OVER_ZONES = (spread("zone", app="web"),)


def zones(*names: str, cpu: str = "4") -> list[Node]:
    return [a_node(name, cpu=cpu, labels={"zone": name[0], "pool": "a", "node": name}) for name in names]


def web(name: str, *, cpu: str = "1", priority: int = 0, node: str = "") -> Pod:
    return a_pod(name, pool="a", cpu=cpu, priority=priority, node=node, labels=WEB, topology_spread=OVER_ZONES)


def a_session(*objects: Node | Pod) -> Session:
    return Session(a_pool("a", labels={"pool": "a"}), *objects)


def test_pods_of_one_class_are_spread_over_zones() -> None:
    session = a_session(*zones("x1", "x2", "y1", "z1"), *(web(f"p{number}") for number in range(6)))
    bound = binds(session.decide())
    found = [node[0] for node in bound.values()]
    assert sorted(found) == ["x", "x", "y", "y", "z", "z"]


def test_replicas_are_spread_evenly_over_two_nodes() -> None:
    """Case T14 of kube-scheduler."""
    rule = (spread("node", app="web"),)
    pods = [a_pod(f"p{number}", pool="a", labels=WEB, topology_spread=rule) for number in range(4)]
    bound = binds(a_session(*zones("x1", "x2", cpu="9"), *pods).decide())
    assert sorted(bound.values()) == ["x1", "x1", "x2", "x2"]


def test_pod_is_woken_when_a_pod_comes_to_the_emptiest_zone_on_a_node_of_another_pool() -> None:
    session = Session(a_pool("a", labels={"pool": "a"}, disable_borrowing=True), a_pool("b", labels={"pool": "b"}))
    session.see(*zones("x1", "y1"), a_node("of-b", labels={"zone": "y", "pool": "b"}))
    session.see(a_pod("filler", pool="a", cpu="4", node="y1"), web("first", node="x1"), web("second"))
    assert binds(session.decide()) == {}
    session.see(a_pod("of-b-0", pool="b", labels=WEB, node="of-b"))
    assert binds(session.decide()) == {"second": "x1"}


@pytest.mark.parametrize(
    "change",
    [
        a_pod("by-others", labels=WEB, cpu="0", node="y1", scheduler_name="other"),
        replace(web("first", node="x1"), terminating=True, grace_seconds=30),
        replace(web("first", node="x1"), labels={"app": "other"}),
        a_node("y1", labels={"pool": "a"}),
    ],
    ids=["a pod comes to the emptiest zone", "a pod terminates", "a pod has other labels", "a zone is gone"],
)
def test_pod_is_woken_for_its_zone_when(change: Node | Pod) -> None:
    session = a_session(*zones("x1", "y1"), a_pod("filler", pool="a", cpu="4", node="y1"), web("first", node="x1"))
    session.see(web("second"))
    assert binds(session.decide()) == {}
    session.see(change)
    assert binds(session.decide()) == {"second": "x1"}
    assert session.scheduler.net_saves() == 0


def test_label_that_the_api_server_adds_to_a_bound_pod_changes_no_count_and_no_row() -> None:
    """The API server copies the zone of its node to each pod that is bound."""
    session = a_session(*zones("x1", "y1"), web("first"))
    (bind,) = session.decide()
    assert isinstance(bind, Bind)
    before = session.scheduler.cluster.nodes.version
    session.see(replace(bind.pod, node_name=bind.node, labels=WEB | {"zone": "x"}))
    assert session.scheduler.cluster.nodes.version == before
    session.see(web("second"))
    assert binds(session.decide()) == {"second": "y1"}, "the pod still counts"


def test_preemption_evicts_in_the_zone_that_the_skew_allows() -> None:
    """Case T21 of kube-scheduler: only a and b can be cleared; b loses fewer pods of lower priority."""
    pods = [
        a_pod("a-mid", pool="a", cpu="2", priority=5, node="xa", labels=WEB),
        a_pod("a-low", pool="a", cpu="2", priority=1, node="xa", labels=WEB),
        a_pod("b-low", pool="a", cpu="4", priority=1, node="xb", labels=WEB),
        a_pod("y-high-1", pool="a", cpu="2", priority=20, node="yc", labels=WEB),
        a_pod("y-high-2", pool="a", cpu="2", priority=20, node="yc", labels=WEB),
    ]
    constraints = (spread("zone", app="web"), spread("node", app="web"))
    asker = a_pod("asker", pool="a", cpu="2", priority=10, labels=WEB, topology_spread=constraints)
    session = a_session(*zones("xa", "xb", "yc"), *pods, asker)
    evicted = evictions(session.decide()).keys()
    assert evicted in ({"a-low"}, {"b-low"})


def test_pod_does_not_count_on_one_that_has_only_a_claim() -> None:
    session = a_session(
        *zones("x1", "y1"),
        a_pod("low", pool="a", cpu="4", priority=-1, node="x1"),
        a_pod("web-y", pool="a", cpu="1", labels=WEB, node="y1"),
        web("asker", cpu="1", priority=5),
    )
    assert list(evictions(session.decide())) == ["low"], "y has free room, but the skew forbids it"
    session.see(web("second", cpu="1"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-low"))
    assert binds(session.decide()) == {"asker": "x1", "second": "x1"}


def steps_of_a_count(*, gangs: int) -> int:
    """Return how many calls of Python functions it takes to observe a pod that counts for one of so many gangs."""
    session = a_session(*zones("x1", "y1"))
    session.scheduler.often = session.scheduler.closely = False
    for number in range(gangs):
        session.tell(Seen(a_gang(f"g{number}", 3)))
        session.see(*members(f"g{number}", 3, cpu="9", pool="a"))
    session.see(*(member(web(f"w{number}", cpu="9"), "web") for number in range(3)))
    session.tell(Seen(a_gang("web", 3)))
    session.decide()
    calls = 0

    def count(_frame: FrameType, what: str, _of: object) -> None:
        nonlocal calls
        calls += what == "call"

    gc.collect()
    gc.disable()  # it calls what others left behind
    sys.setprofile(count)
    try:
        Scheduler.observe(session.scheduler, Seen(web("there", node="x1")), session.now)  # without the checks
    finally:
        sys.setprofile(None)
        gc.enable()
    counted = {pool: one.counted for pool, one in session.scheduler.cluster.deferred.agendas.items() if one.counted}
    assert counted == {"a": {b"unit " + str(a_key("web")).encode(): None}}
    return calls


def test_event_that_changes_a_count_costs_the_same_however_many_gangs_wait() -> None:
    assert steps_of_a_count(gangs=2) == steps_of_a_count(gangs=40)
