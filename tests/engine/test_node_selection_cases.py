"""Rows N6-N13 of kube-scheduler's own cases in the engine: taints, labels, names, ports and cordons of nodes."""

import pytest
from msgspec.structs import replace

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.events import gone
from aischeduler.model.node import PREFER_NO_SCHEDULE, Taint
from aischeduler.model.pod import HostPort, Pod, Toleration
from aischeduler.model.selectors import NAME_FIELD, NodeSelectorTerm, Operator, PreferredSchedulingTerm
from aischeduler.plugins.node_affinity import ENFORCED_REASON, REASON, NodeAffinity
from aischeduler.plugins.node_ports import REASON as NO_PORTS
from aischeduler.plugins.node_unschedulable import TAINT_KEY
from tests.build import a_node, a_pod, a_taint, a_term, expression
from tests.engine.session import Session, binds, reports

PINNED = {"kubernetes.io/e2e": "42"}


def named(*names: str) -> NodeSelectorTerm:
    return a_term(fields=tuple(expression(NAME_FIELD, Operator.IN, name) for name in names))


def zone(*zones: str) -> NodeSelectorTerm:
    return a_term(expression("zone", Operator.IN, *zones))


def enforcing(rule: NodeAffinity) -> Profile:
    """Return the default profile with terms of its own."""
    profile = default_profile()
    plugins = profile.plugins
    filters = tuple(rule if one.name == rule.name else one for one in plugins.filters)
    scores = tuple(rule if one.name == rule.name else one for one in plugins.scores)
    return replace(profile, plugins=replace(plugins, filters=filters, scores=scores))


def test_n6_pod_without_toleration_waits_until_the_taint_is_gone() -> None:
    session = Session(a_node("a", labels=PINNED, taints=(a_taint("k", "v"),)), a_node("b"))
    session.see(a_pod("p", node_selector=PINNED))
    assert binds(session.decide()) == {}
    session.see(a_node("a", labels=PINNED))
    assert binds(session.decide(10)) == {"p": "a"}


def test_n7_node_selector_decides_and_one_that_no_node_matches_waits() -> None:
    session = Session(a_node("a", labels=PINNED), a_node("b"))
    session.see(a_pod("p", node_selector=PINNED), a_pod("q", node_selector={"label": "nonempty"}))
    said = session.decide()
    assert (binds(said), f"2 {REASON}" in reports(said)["q"]) == ({"p": "a"}, True)


def test_n8_one_of_two_ored_terms_is_enough() -> None:
    session = Session(a_node("a", labels={"zone": "x"}), a_node("b"))
    session.see(a_pod("none", required=(zone("y"), zone("z"))), a_pod("one", required=(zone("y"), zone("x"))))
    assert binds(session.decide()) == {"one": "a"}


def test_n9_terms_that_name_nodes_choose_among_these_and_a_conflict_is_said() -> None:
    session = Session(*(a_node(name) for name in ("n1", "n2", "n3")))
    session.see(a_pod("either", required=(named("n1"), named("n2"))), a_pod("both", required=(named("n1", "n2"),)))
    said = session.decide()
    assert binds(said)["either"] in ("n1", "n2")
    assert "0/3 nodes are available: pod affinity terms conflict." in reports(said)["both"]


def test_n10_preferred_label_chooses_the_node() -> None:
    session = Session(a_node("node1"), a_node("node2", labels={"zone": "x"}), a_node("node3"))
    session.see(a_pod("p", preferred=(PreferredSchedulingTerm(20, zone("x")),)))
    assert binds(session.decide()) == {"p": "node2"}


@pytest.mark.parametrize(
    ("first", "second", "runs"),
    [
        (HostPort("TCP", 54322), HostPort("TCP", 54322, "127.0.0.1"), False),
        (HostPort("TCP", 54322, "127.0.0.1"), HostPort("TCP", 54322, "127.0.0.2"), True),
        (HostPort("TCP", 54322), HostPort("UDP", 54322), True),
    ],
)
def test_n11_host_port_is_for_one_pod_per_address_and_protocol(first: HostPort, second: HostPort, runs: bool) -> None:
    session = Session(a_node("n"), a_pod("a", host_ports=(first,)))
    session.decide()
    session.see(a_pod("b", host_ports=(second,)))
    said = session.decide()
    assert binds(said) == ({"b": "n"} if runs else {})
    assert (f"1 {NO_PORTS}" in reports(said).get("b", "")) is not runs
    session.tell(gone(Pod, "uid-a"))
    assert ("b" in binds(session.decide(10))) is not runs


def test_n12_cordoned_node_takes_only_the_pod_of_a_daemon_set() -> None:
    session = Session(a_node("n", unschedulable=True), a_pod("p"))
    session.see(a_pod("d", guarded=True, tolerations=(Toleration(TAINT_KEY, "Exists", "", "NoSchedule"),)))
    assert binds(session.decide()) == {"d": "n"}


def test_n13_node_with_ten_tolerated_preferences_beats_those_with_ten_others() -> None:
    tolerated, others = (
        tuple(Taint(f"{of}-{number}", "v", PREFER_NO_SCHEDULE) for number in range(10)) for of in ("own", "other")
    )
    session = Session(a_node("node1", taints=others), a_node("node0", taints=tolerated), a_node("node2", taints=others))
    tolerations = tuple(Toleration(one.key, "Equal", one.value, one.effect) for one in tolerated)
    session.see(a_pod("p", tolerations=tolerations))
    assert binds(session.decide()) == {"p": "node0"}


def test_terms_of_the_profile_keep_pods_on_their_nodes_until_another_node_matches() -> None:
    rule = NodeAffinity((zone("x"),), (PreferredSchedulingTerm(1, zone("x")),))
    session = Session(a_node("a", labels={"zone": "x"}, cpu="1"), a_node("b"), profile=enforcing(rule))
    session.see(a_pod("p"))
    assert binds(session.decide()) == {"p": "a"}
    session.see(a_pod("q"))
    text = reports(session.decide())["q"]
    assert (f"1 {ENFORCED_REASON}" in text, "1 Insufficient cpu" in text) == (True, True)
    session.see(a_node("b", labels={"zone": "x"}))
    assert binds(session.decide(10)) == {"q": "b"}
