"""The work that a changed row causes is queued: `observe` searches nothing, and each slice does a limited part."""

from collections import Counter

import numpy as np
from msgspec.structs import replace

from aischeduler.engine.agenda import CHECKS_MAX
from aischeduler.engine.profile import Profile, default_profile
from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import Plugins
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort, Pod, PodSpec
from aischeduler.model.pool import Namespace, Pool
from aischeduler.state.label_index import Mask
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds
from tests.gangs import a_gang, member

RECHECKED_AT_ONCE = CHECKS_MAX
A, B = {"pool": "a"}, {"pool": "b"}
CHECKS_OF_VICTIMS_MAX = 8
"""The most calls of a filter in one check for victims, in these tests."""


class Counting:
    """A filter that refuses pods with a node selector, and counts its calls."""

    name = "Counting"
    static = False

    def __init__(self) -> None:
        self.calls = 0

    def filter(self, spec: PodSpec, at: NodeView) -> Mask | None:
        self.calls += 1
        return np.zeros(len(at), dtype=np.bool_) if spec.node_selector else None

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:
        return Counter()

    def helps(self, spec: PodSpec, node: Node) -> bool:
        return True


def profile(counting: Counting) -> Profile:
    """Return the default profile with this filter instead of NodeAffinity."""
    found = default_profile()
    plugins = found.plugins
    filters = (counting if rule.name == "NodeAffinity" else rule for rule in plugins.filters)
    return replace(found, plugins=Plugins(plugins.gates, tuple(filters), plugins.scores))


def settle(session: Session) -> None:
    """Decide in large slices until no pool is ready."""
    while pools := session.scheduler.ready(session.now):
        for pool in pools:
            session.said += session.scheduler.decide(pool, session.now, 512)


def unchecked(*objects: Node | Pod, counting: Counting) -> Session:
    """Return a session with the pools a and b whose state is checked only where a test asks."""
    session = Session(profile=profile(counting))
    session.scheduler.often = session.scheduler.closely = False
    session.see(a_pool("a", labels=A, disable_borrowing=True), a_pool("b", labels=B, disable_borrowing=True))
    session.see(*objects)
    return session


def behind_a_claim(counting: Counting, *, classes: int) -> Session:
    """Return a session with a claim on the full node of pool a, and parked pods of so many classes behind its owner."""
    session = unchecked(a_node("n", cpu="4", pods=1000, labels=A), counting=counting)
    session.see(a_pod("small", cpu="1", pool="a", node="n", priority=9))
    session.see(a_pod("low", cpu="3", pool="a", node="n", priority=1))
    session.see(a_pod("owner", cpu="3", pool="a", priority=5))
    session.see(*(a_pod(f"p{n}", cpu=f"{3000 + n}m", pool="a", priority=5, created=1) for n in range(classes)))
    session.decide()
    assert session.scheduler.cluster.claims.of("uid-owner") is not None
    assert session.scheduler.waiting()["a"] == {"parked": classes, "nominated": 1}
    return session


def test_observe_searches_no_victims() -> None:
    counting = Counting()
    session = behind_a_claim(counting, classes=40)
    budget = DisruptionBudget("default", "x", "uid-x", None, disruptions_allowed=1)
    edit = a_pool("a", labels=A, disable_borrowing=True, disable_sharing=True, generation=2)
    cordoned = replace(a_node("n", cpu="4", pods=1000, labels=A), unschedulable=True)
    more = a_pod("more", cpu="1", pool="a", node="n", priority=9)
    events: list[Event] = [gone(Pod, "uid-small"), Seen(more), Seen(budget), Seen(edit), Seen(cordoned)]
    for event in [*events, gone(Pod, "uid-owner"), gone(Pool, "b"), gone(Node, "n"), gone(Pool, "a")]:
        before = counting.calls
        session.tell(event)
        assert counting.calls == before, event
        settle(session)


def test_slice_does_a_limited_part_of_the_work_on_a_row() -> None:
    counting = Counting()
    session = behind_a_claim(counting, classes=200)
    session.tell(gone(Pod, "uid-small"))
    slices = []
    while session.scheduler.cluster.deferred.look_at("a").rows:
        before = counting.calls
        session.scheduler.decide("a", session.now, 1)
        slices.append(counting.calls - before)
    assert len(slices) > 2
    assert max(slices) <= CHECKS_MAX * CHECKS_OF_VICTIMS_MAX


def test_row_is_offered_to_the_class_after_the_last_one_that_was_checked() -> None:
    session = unchecked(a_node("n", cpu="1", labels=A), a_pod("x", pool="a", node="n", priority=9), counting=Counting())
    refused = {"any": "label"}
    session.see(*(a_pod(f"p{n}", cpu=f"{n + 1}m", pool="a", node_selector=refused) for n in range(3 * CHECKS_MAX)))
    session.see(a_pod("last", cpu="1", pool="a", created=5))
    session.decide()
    session.tell(gone(Pod, "uid-x"))
    assert binds(session.decide()) == {"last": "n"}


def test_cordoning_a_node_with_a_thousand_claims_ends_them_without_recursion() -> None:
    session = unchecked(a_node("n", cpu="1000", memory="2000Gi", pods=2000, labels=A), counting=Counting())
    session.see(a_pod("guest", cpu="1000", node="n", started=1, grace=600))
    session.see(*(a_pod(f"p{n:04d}", cpu="1", pool="a") for n in range(1000)))
    session.decide()
    cluster = session.scheduler.cluster
    assert len(cluster.claims) == 1000
    session.see(replace(a_node("n", cpu="1000", memory="2000Gi", pods=2000, labels=A), unschedulable=True))
    assert len(cluster.claims) == 1000
    session.scheduler.decide("a", session.now, 1)
    assert 1000 - CHECKS_MAX <= len(cluster.claims) < 1000
    settle(session)
    session.scheduler.look()
    assert len(cluster.claims) == 0
    assert session.scheduler.waiting()["a"] == {"parked": 1000}


def test_ready_names_the_pool_whose_row_changed_and_no_other() -> None:
    session = unchecked(a_node("n", labels=A), a_pod("x", pool="a", node="n"), counting=Counting())
    settle(session)
    session.now += 0.1  # reports of Pools are not due
    session.tell(gone(Pod, "uid-x"))
    assert session.scheduler.ready(session.now) == ("a",)


def test_row_that_leaves_its_pool_before_the_work_on_it_is_offered_by_its_new_pool() -> None:
    session = unchecked(a_node("n", cpu="1", labels=A), a_pod("x", pool="a", node="n"), counting=Counting())
    session.see(a_pod("of-a", pool="a"), a_pod("of-b", pool="b"))
    session.decide()
    session.tell(gone(Pod, "uid-x"))
    session.see(a_node("n", cpu="1", labels=B))
    assert binds(session.decide()) == {"of-b": "n"}


def test_changed_namespace_wakes_no_pod_itself_and_each_decision_a_few() -> None:
    session = unchecked(a_node("n", cpu="1", labels=A), counting=Counting())
    session.see(a_pool("a", labels=A, allowed_namespaces={"team": "a"}, generation=2))
    count = 2 * RECHECKED_AT_ONCE
    session.see(*(a_pod(f"p{n}", cpu="1", pool="a") for n in range(count)))
    settle(session)
    assert session.scheduler.waiting()["a"] == {"held": count}
    session.tell(Seen(Namespace("default", {"team": "a"})))
    assert session.scheduler.waiting()["a"] == {"held": count}
    session.scheduler.decide("a", session.now, 1)
    assert session.scheduler.waiting()["a"]["held"] == RECHECKED_AT_ONCE
    settle(session)
    assert session.scheduler.waiting()["a"] == {"parked": count - 1}


def test_pods_of_a_pool_are_tried_while_its_waiting_gangs_are_checked() -> None:
    """By amounts each gang would fit, and each is refused because two of its pods cannot have a port of one node."""
    session = Session(a_pool("a", labels=A), *(a_node(f"n{n}", cpu="64", labels=A) for n in range(3)))
    session.scheduler.often = session.scheduler.closely = False
    session.see(a_pod("gone", cpu="1", pool="a", node="n0"))
    port = (HostPort("TCP", 80),)
    for number in range(30):
        session.tell(Seen(a_gang(f"g{number}", 4)))
        pods = (a_pod(f"g{number}-{turn}", cpu="1", pool="a", host_ports=port) for turn in range(4))
        session.see(*(member(pod, f"g{number}") for pod in pods))
    settle(session)
    session.tell(gone(Pod, "uid-gone"))
    session.scheduler.decide("a", session.now, 1)
    assert session.scheduler.cluster.deferred.look_at("a").rows
    session.see(a_pod("single", cpu="1", pool="a"))
    assert list(binds(session.scheduler.decide("a", session.now, 1))) == ["single"]
