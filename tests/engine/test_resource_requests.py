"""Requests of pods in the engine: ignored resources, overhead, finished and terminating pods, and resizes in place."""

import pytest
from msgspec.structs import replace as replace_dataclass

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.events import gone
from aischeduler.model.names import GPU_DEFAULT
from aischeduler.model.pod import Pod
from aischeduler.plugins.node_resources_fit import NodeResourcesFit
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, evictions, nominations, reports

UNKNOWN = "example.com/bbb"


def ignoring(*resources: str) -> Profile:
    """Return the default profile, in which these resources are left to another program."""
    profile = default_profile()
    fit = NodeResourcesFit((GPU_DEFAULT,), ignored_resources=frozenset(resources))
    filters = tuple(fit if rule.name == fit.name else rule for rule in profile.plugins.filters)
    scores = tuple(fit if rule.name == fit.name else rule for rule in profile.plugins.scores)
    return replace_dataclass(profile, plugins=replace_dataclass(profile.plugins, filters=filters, scores=scores))


def asking(name: str = "p", amount: int = 1, **fields: object) -> Pod:
    return a_pod(name, extended={UNKNOWN: str(amount)}, **fields)  # type: ignore[arg-type]


def _used(session: Session) -> int:
    """Return how much of the resource counts as in use on the node n."""
    nodes = session.scheduler.cluster.nodes
    return nodes.named(nodes.used[:, nodes.rows["n"]])[UNKNOWN]


def test_r8_pod_that_asks_an_ignored_resource_runs_where_none_is() -> None:
    session = Session(a_node("n"), asking(), profile=ignoring(UNKNOWN))
    assert binds(session.decide()) == {"p": "n"}
    session = Session(a_node("n"), asking(), profile=ignoring("example.com/other"))
    assert f"1 Insufficient {UNKNOWN}" in reports(session.decide())["p"]


def test_ignored_resource_keeps_no_pod_waiting_and_wakes_it_no_less() -> None:
    session = Session(a_node("n", cpu="1"), profile=ignoring(UNKNOWN))
    session.see(a_pod("old", node="n", priority=9), asking(), asking("next"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-old"))
    first = binds(session.decide(10))
    assert (len(first), set(first.values())) == (1, {"n"})


def test_pod_that_asks_an_ignored_resource_evicts_and_borrows() -> None:
    session = Session(a_node("n", cpu="1"), a_pod("low", node="n"), asking(priority=5), profile=ignoring(UNKNOWN))
    said = session.decide()
    assert (set(evictions(said)), nominations(said)) == ({"low"}, {"p": "n"})
    pools = a_pool("lender", labels={"of": "lender"}), a_pool("home")
    session = Session(*pools, a_node("n", labels={"of": "lender"}), asking(pool="home"), profile=ignoring(UNKNOWN))
    assert binds(session.decide()) == {"p": "n"}


def test_ignored_resource_of_a_pod_on_a_node_takes_nothing() -> None:
    session = Session(a_node("n", extended={UNKNOWN: "1"}), profile=ignoring(UNKNOWN))
    session.see(asking("a", 5, node="n"), asking("b", 7))
    assert binds(session.decide()) == {"b": "n"}
    session.see(asking("b", 7, node="n"))
    assert _used(session) == 0


def test_pods_of_other_schedulers_keep_their_requests_of_an_ignored_resource() -> None:
    session = Session(a_node("n", extended={UNKNOWN: "1"}), profile=ignoring(UNKNOWN))
    session.see(asking("a", scheduler_name="other", node="n"))
    assert _used(session) == 1


def test_r15_small_pods_run_and_a_pod_of_half_a_node_waits() -> None:
    session = Session(*(a_node(f"n{number}", cpu="10") for number in range(3)))
    session.see(*(a_pod(f"filler-{number}", cpu="7") for number in range(3)), a_pod("half", cpu="5"))
    said = session.decide()
    assert sorted(binds(said)) == ["filler-0", "filler-1", "filler-2"]
    assert "3 Insufficient cpu" in reports(said)["half"]


@pytest.mark.parametrize(
    ("phase", "terminating", "fits"),
    [("Succeeded", False, True), ("Failed", False, True), ("Running", True, False), ("Running", False, False)],
)
def test_r16_finished_pods_take_nothing_and_terminating_ones_do(phase: str, terminating: bool, fits: bool) -> None:
    session = Session(a_node("n", cpu="1"), a_pod("old", node="n", phase=phase, terminating=terminating, priority=9))
    session.see(a_pod("p"))
    assert binds(session.decide()) == ({"p": "n"} if fits else {})


def test_pod_that_shrinks_in_place_makes_room_for_a_waiting_pod() -> None:
    session = Session(a_node("n", cpu="4"), a_pod("big", cpu="4", node="n", priority=9), a_pod("p", cpu="2"))
    assert binds(session.decide()) == {}
    session.see(a_pod("big", cpu="3", node="n", priority=9))
    assert binds(session.decide(2)) == {}
    session.see(a_pod("big", cpu="2", node="n", priority=9))
    assert binds(session.decide(2)) == {"p": "n"}


def test_pod_that_grows_in_place_takes_room_and_is_not_counted_twice() -> None:
    session = Session(a_node("n", cpu="4"), a_pod("grows", cpu="1", node="n", priority=9))
    session.see(a_pod("grows", cpu="3", node="n", priority=9), a_pod("p", cpu="2"))
    assert binds(session.decide()) == {}
    session.see(a_pod("q", cpu="1"))
    assert binds(session.decide()) == {"q": "n"}


def test_pod_that_grows_ends_the_claim_whose_room_it_takes() -> None:
    session = Session(
        a_node("n", cpu="4"), a_pod("low", cpu="2", node="n"), a_pod("top", cpu="2", node="n", priority=9)
    )
    session.see(a_pod("high", cpu="2", priority=5))
    assert nominations(session.decide()) == {"high": "n"}
    session.see(a_pod("top", cpu="4", node="n", priority=9))
    session.tell(gone(Pod, "uid-low"))
    assert (binds(session.decide(10)), nominations(session.said)["high"]) == ({}, "")


def test_waiting_pod_that_asks_less_is_tried_again() -> None:
    session = Session(a_node("n", cpu="2"), a_pod("p", cpu="3"))
    assert binds(session.decide()) == {}
    session.see(a_pod("p", cpu="2"))
    assert binds(session.decide(2)) == {"p": "n"}
