"""Wake-ups that were lost once: a pod that is skipped, refused or at a lender when room comes still gets it."""

import pytest

from aischeduler.engine.agenda import CHECKS_MAX
from aischeduler.engine.profile import default_profile
from aischeduler.engine.queueing_hints import OFFERED_MAX, WOKEN_MAX
from aischeduler.model.events import BindRefusal, BindRefused, Seen, gone
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace, PlacementStrategy
from aischeduler.model.selectors import LabelSelector, Operator
from tests.build import a_node, a_pod, a_pool, expression, replace
from tests.engine.session import Session, binds, evictions, nominations


def full(pool: str, *, cpu: str) -> Session:
    """Return a session in which a pool that may not borrow has one node, full, and `b` has one with room."""
    return Session(
        a_pool(pool, labels={"pool": pool}, disable_borrowing=True),
        a_pool("b", labels={"pool": "b"}),
        a_node("n0", cpu=cpu, labels={"pool": pool}),
        a_node("n1", cpu="4", labels={"pool": "b"}),
        a_pod("running", cpu=cpu, pool=pool, node="n0", priority=9),
    )


def test_pod_that_leaves_before_its_pool_looks_does_not_take_the_wake_up_with_it() -> None:
    session = full("a", cpu="1")
    session.see(*(a_pod(f"p{n}", cpu="1", pool="a", created=n) for n in (1, 2)))
    assert binds(session.decide()) == {}
    session.see(a_pool("a", labels={"pool": "a"}, generation=2))
    session.tell(gone(Pod, "uid-p1"))
    assert binds(session.decide(15)) == {"p2": "n1"}


def test_pod_that_is_woken_for_a_row_meanwhile_does_not_end_the_chain() -> None:
    session = full("a", cpu="1")
    session.see(*(a_pod(f"p{n}", cpu="1", pool="a", created=n) for n in (1, 2, 3)))
    assert binds(session.decide()) == {}
    session.see(a_pool("a", labels={"pool": "a"}, generation=2))
    session.tell(gone(Pod, "uid-running"))
    assert binds(session.decide(15)) == {"p1": "n0", "p2": "n1", "p3": "n1"}


def test_many_rows_and_a_freed_one_wake_all_who_can_use_them() -> None:
    def selecting(*teams: str) -> LabelSelector:
        return LabelSelector((expression("team", Operator.IN, *teams),))

    few, many = (
        a_pool("a", selector=selector, disable_borrowing=True, placement=PlacementStrategy.PACK, generation=generation)
        for generation, selector in enumerate((selecting("a"), selecting("a", "late")))
    )
    session = Session(a_pool("default", disable_sharing=True), few, a_node("n0", cpu="4", labels={"team": "a"}))
    session.see(a_pod("leaves", cpu="1", pool="a", node="n0", priority=9))
    session.see(a_pod("stays", cpu="3", pool="a", node="n0", priority=9))
    session.see(*(a_node(f"m{n}", cpu="4", labels={"team": "late"}) for n in range(9)))
    session.see(*(a_pod(f"p{n}", cpu="1", pool="a", created=n + 1) for n in range(4)))
    assert binds(session.decide()) == {}
    session.see(many)
    session.tell(gone(Pod, "uid-leaves"))
    assert set(binds(session.decide(15))) == {"p0", "p1", "p2", "p3"}


def test_who_was_refused_first_is_not_forgotten_for_who_is_refused_next() -> None:
    lender = a_pool("b", labels={"pool": "b"}, disable_preemption=True, disable_borrowing=True)
    session = Session(a_pool("a", labels={"pool": "a"}), lender)
    for disk in ("hdd", "ssd"):
        session.see(a_node(disk, cpu="4", labels={"pool": "b", "disk": disk}))
        session.see(a_pod(f"daemon-{disk}", cpu="2", node=disk, scheduler_name="other"))
        session.see(a_pod(f"home-{disk}", cpu="4", pool="b", node_selector={"disk": disk}))
    session.decide()
    session.see(a_pod("first", cpu="1", pool="a", node_selector={"disk": "hdd"}))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-home-hdd"))
    session.see(a_pod("next", cpu="1", pool="a", node_selector={"disk": "ssd"}))
    assert binds(session.decide(15)) == {"first": "hdd"}


def test_pod_behind_many_that_do_not_fit_is_tried_on_the_first_node_of_its_pool() -> None:
    session = Session(a_pool("b", labels={"pool": "b"}, disable_borrowing=True))
    session.scheduler.often = False
    session.see(*(a_pod(f"gpu{n}", cpu="1", gpu=1, pool="b", priority=9) for n in range(WOKEN_MAX + 1)))
    session.see(a_pod("cpu", cpu="1", pool="b"))
    session.decide()
    session.see(a_node("n", cpu="4", labels={"pool": "b"}))
    assert binds(session.decide(20)) == {"cpu": "n"}


def test_pod_that_changes_its_pool_while_its_bind_is_in_flight_follows_it_when_that_fails() -> None:
    session = Session(*(a_pool(name, labels={"pool": name}) for name in ("a", "b")))
    session.see(*(a_node(f"n{name}", cpu="2", labels={"pool": name}) for name in ("a", "b")))
    session.see(a_pod("p", cpu="2", pool="a"))
    assert binds(session.decide()) == {"p": "na"}
    session.see(a_pod("p", cpu="2", pool="b"))
    session.tell(BindRefused("uid-p", "na", BindRefusal.UNAVAILABLE, "x"))
    assert binds(session.decide(15)) == {"p": "nb"}


def a_pod_on_its_way_to_a_lender() -> Session:
    """The pod `away` of b, whose node is full, is in the queue of c; `stranger` waits for that node too."""
    session = Session(*(a_pool(name, labels={"pool": name}) for name in ("a", "b", "c")))
    session.see(*(a_node(f"n{name}", cpu="2", labels={"pool": name}) for name in ("b", "c")))
    session.see(a_pod("own", cpu="2", pool="b", node="nb", priority=9))
    session.see(a_pod("stranger", cpu="2", pool="a", node_selector={"pool": "b"}))
    session.decide()
    session.see(a_pod("away", cpu="2", pool="b"))
    session.scheduler.decide("b", session.now, 1)
    return session


def test_room_is_not_lent_while_a_pod_of_its_own_is_on_its_way_to_a_lender() -> None:
    session = a_pod_on_its_way_to_a_lender()
    assert session.scheduler.waiting()["c"] == {"active": 1}
    session.see(a_pod("owner", cpu="2", pool="c"))
    session.tell(gone(Pod, "uid-own"))
    said = session.decide(15)
    assert evictions(said) == {}
    assert binds(said) == {"owner": "nc", "away": "nb"}


def test_room_is_lent_once_the_pod_that_could_have_used_it_got_room_abroad() -> None:
    session = a_pod_on_its_way_to_a_lender()
    session.tell(gone(Pod, "uid-own"))
    assert binds(session.decide(15)) == {"away": "nc", "stranger": "nb"}


def test_lender_goes_on_with_the_classes_that_one_decision_did_not_judge() -> None:
    session = Session(
        a_pool("a", labels={"pool": "a"}),
        a_pool("b", labels={"pool": "b"}, disable_sharing=True),
        a_node("n", cpu="4", labels={"pool": "b", "disk": "hdd"}),
    )
    elsewhere = {"disk": "ssd"}
    classes = 2 * CHECKS_MAX + 5
    session.see(
        *(a_pod(f"p{n}", cpu=f"{n + 1}m", pool="a", priority=9, node_selector=elsewhere) for n in range(classes))
    )
    session.see(a_pod("last", cpu="1", pool="a"))
    session.decide()
    session.see(a_pool("b", labels={"pool": "b"}, generation=2))
    assert binds(session.decide(15)) == {"last": "n"}


def test_freed_borrowing_limit_reaches_the_classes_that_one_decision_did_not_judge() -> None:
    limited = a_pool("a", labels={"pool": "a"}, borrowing_limit={"cpu": 1000})
    session = Session(limited, a_pool("b", labels={"pool": "b"}), a_node("n", cpu="2", labels={"pool": "b"}))
    session.see(a_pod("loan", cpu="1", pool="a", node="n"))
    elsewhere = {"disk": "ssd"}
    classes = 2 * CHECKS_MAX + 5
    session.see(
        *(a_pod(f"p{n}", cpu=f"{n + 1}m", pool="a", priority=9, node_selector=elsewhere) for n in range(classes))
    )
    session.see(a_pod("last", cpu="1", pool="a"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-loan"))
    assert binds(session.decide(15)) == {"last": "n"}


def test_pod_that_was_sent_for_a_freed_limit_and_takes_nothing_leaves_the_limit_to_others() -> None:
    session = Session(
        a_pool("a", labels={"pool": "a"}, borrowing_limit={"cpu": 1000}),
        a_pool("b", labels={"pool": "b"}),
        *(a_node(name, cpu="1", labels={"pool": "b", "disk": name}) for name in ("n0", "n1", "n2")),
        a_pod("loan", cpu="1", pool="a", node="n0"),
    )
    session.see(*(a_pod(f"for-{n}", cpu="1", pool="a", node_selector={"disk": n}) for n in ("n1", "n2")))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-loan"))
    session.scheduler.decide("a", session.now, 1)  # sends the first to b, and the limit has no room for the other
    session.see(a_node("n1", cpu="1", labels={"pool": "b", "disk": "n1"}, unschedulable=True))
    assert binds(session.decide(15)) == {"for-n2": "n2"}
    assert session.scheduler.net_saves() == 0


def test_however_many_classes_wait_only_who_can_use_the_room_is_tried() -> None:
    session = Session(a_node("n", cpu="2500m", memory="1Ti"), a_pod("first", cpu="1500m", node="n"))
    session.see(a_pod("stays", cpu="1", node="n", priority=1))
    session.scheduler.often = False
    session.see(*(a_pod(f"p{n:03d}", cpu="1", memory=f"{n + 1}Mi", created=n) for n in range(OFFERED_MAX + 50)))
    session.see(a_pod("important", cpu="9", priority=9))
    session.decide()
    tried = session.scheduler.counters.attempts.total()
    session.tell(gone(Pod, "uid-first"))
    assert binds(session.decide(15)) == {"p000": "n"}
    assert session.scheduler.counters.attempts.total() == tried + 1


def test_label_of_a_namespace_that_decides_nothing_wakes_nobody() -> None:
    session = Session(a_pool("a", labels={"pool": "a"}, allowed_namespaces={"team": "a"}))
    session.tell(Seen(Namespace("default", {"team": "a"})))
    session.see(a_pod("p", cpu="1", pool="a"))
    session.decide()
    tried = session.scheduler.counters.attempts.total()
    session.tell(Seen(Namespace("default", {"team": "a", "owner": "somebody"})))
    session.decide(15)
    assert session.scheduler.counters.attempts.total() == tried


def test_owner_of_a_claim_leaves_room_elsewhere_to_a_parked_pod_that_comes_first() -> None:
    labels = {"pool": "a"}
    session = Session(a_pool("a", labels=labels), *(a_node(name, cpu="4", labels=labels) for name in ("n", "m")))
    session.see(a_pod("victim", cpu="4", pool="a", node="n"))
    session.see(a_pod("stays", cpu="4", pool="a", priority=9, node="m"))
    session.see(a_pod("patient", cpu="4", pool="a", priority=9, preempts=False))
    session.see(a_pod("low", cpu="4", pool="a", priority=5))
    assert evictions(session.decide()) == {"victim": "Preempted"}
    session.decide(20)
    session.tell(gone(Pod, "uid-stays"))
    assert binds(session.decide()) == {"patient": "m"}, "low has a claim on n"
    session.tell(gone(Pod, "uid-victim"))
    assert binds(session.decide()) == {"low": "n"}


def test_owner_of_a_claim_takes_room_before_a_later_pod_that_was_woken_while_it_was_being_left() -> None:
    labels = {"pool": "a"}
    session = Session(a_pool("a", labels=labels), *(a_node(name, cpu="4", labels=labels) for name in ("n", "m")))
    session.see(a_pod("victim", cpu="4", pool="a", node="n"))
    session.see(a_pod("leaver", cpu="4", pool="a", priority=20, node="m"))
    session.see(a_pod("high", cpu="4", pool="a", priority=9), a_pod("low", cpu="4", pool="a", priority=5))
    assert evictions(session.decide()) == {"victim": "Preempted"}
    session.decide(20)
    session.see(a_pod("leaver", cpu="4", pool="a", priority=20, node="m", terminating=True))
    session.tell(gone(Pod, "uid-leaver"))
    assert binds(session.decide()) == {"high": "m"}


def test_pod_in_backoff_for_which_room_comes_takes_it_before_a_newcomer_of_lower_priority() -> None:
    session = Session(a_pool("a", labels={"pool": "a"}), a_node("n", cpu="1", labels={"pool": "a"}))
    session.see(a_pod("running", cpu="1", pool="a", priority=20, node="n"))
    session.see(*(a_pod(name, cpu="1", pool="a", priority=9) for name in ("first", "second")))
    session.decide()
    session.tell(gone(Pod, "uid-running"))
    session.see(a_pod("foreign", cpu="1", node="n", scheduler_name="other"))
    session.decide(5)  # the first finds the room taken, and backs off for two seconds
    session.see(a_pod("newcomer", cpu="1", pool="a"))
    session.tell(gone(Pod, "uid-foreign"))
    said = session.decide(0.5)
    assert (binds(said), evictions(said)) == ({"first": "n"}, {})
    for name in ("first", "second"):
        session.tell(gone(Pod, f"uid-{name}"))
        session.decide(5)
    assert list(binds(session.said)) == ["first", "second", "newcomer"]


@pytest.mark.parametrize("seconds", [0.0, 20.0], ids=["in backoff", "after its backoff"])
def test_owner_of_a_claim_leaves_room_offered_to_a_borrower_to_a_parked_pod_that_comes_first(seconds: float) -> None:
    labels = {"pool": "h"}
    session = Session(a_pool("a", labels={"pool": "a"}), a_pool("h", labels=labels))
    session.see(*(a_node(name, cpu="4", labels=labels) for name in ("n", "m")))
    session.see(a_pod("victim", cpu="4", pool="h", node="n"))
    session.see(*(a_pod(f"stays{cpu}{i}", cpu=cpu, pool="h", priority=20, node="m") for cpu, i in ("11", "12", "23")))
    session.see(a_pod("patient", cpu="2", pool="h", priority=10, preempts=False))
    session.see(a_pod("low", cpu="2", pool="h", priority=5), a_pod("guest", cpu="1", pool="a"))
    assert evictions(session.decide()) == {"victim": "Preempted"}
    session.decide(seconds)
    session.tell(gone(Pod, "uid-stays11"), gone(Pod, "uid-stays12"))
    assert binds(session.decide()) == {"patient": "m"}, "low has a claim on n"


class ByAge:
    """A plugin that sorts the queues by age, whatever the priority."""

    name = "ByAge"

    def rank(self, pod: Pod) -> int:
        return pod.created_seconds


@pytest.mark.parametrize("cpu", ["4", "3"], ids=["of one class", "of two classes"])
def test_pod_that_may_evict_more_than_the_first_of_the_queue_is_woken_by_a_row_that_becomes_usable(cpu: str) -> None:
    profile, full_node = default_profile(), a_node("n", cpu="4")
    profile = replace(profile, plugins=replace(profile.plugins, queue_sort=ByAge()))
    session = Session(replace(full_node, unschedulable=True), profile=profile)
    session.see(a_pod("running", cpu="4", node="n"))
    session.see(a_pod("old", cpu="4", created=1), a_pod("young", cpu=cpu, created=2, priority=100))
    session.decide()
    session.see(full_node)
    assert nominations(session.decide()) == {"young": "n"}
