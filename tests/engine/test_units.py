"""Units of several pods, by a policy that starts two pods of one name together or not at all."""

import pytest

from aischeduler.model.actions import Bind, Evict
from aischeduler.model.events import BindRefusal, BindRefused, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool, ReclaimPolicy
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, evictions, fail_once, reports, warnings
from tests.pairs import PAIR, pair_profile


def a_session(*objects: Node | Pod | Pool) -> Session:
    return Session(*objects, profile=pair_profile())


def one_of(pair: str, name: str, *, cpu: str = "2", priority: int = 0, pool: str = "", node: str = "") -> Pod:
    return a_pod(name, cpu=cpu, priority=priority, pool=pool, node=node, labels={PAIR: pair})


def test_two_pods_of_a_pair_start_in_one_decision() -> None:
    session = a_session(a_node("n1", cpu="2"), a_node("n2", cpu="2"), one_of("x", "x-0"), one_of("x", "x-1"))
    said = session.decide()
    assert sorted(binds(said)) == ["x-0", "x-1"]
    assert sorted(binds(said).values()) == ["n1", "n2"]
    assert len({action.decision for action in said if isinstance(action, Bind)}) == 1


def test_pod_without_its_partner_is_gated_with_a_reason_and_takes_no_room() -> None:
    session = a_session(a_node("n", cpu="4"), one_of("x", "x-0"))
    assert reports(session.decide()) == {"x-0": "waits for 1 more pod of its pair"}
    session.see(a_pod("single", cpu="4"))
    assert binds(session.decide()) == {"single": "n"}


def test_pod_ahead_takes_room_that_a_pair_claims_and_the_pair_goes_on() -> None:
    old = [a_pod(f"old-{node}", cpu="2", node=node) for node in ("n1", "n2")]
    pair = [one_of("x", f"x-{index}", priority=9) for index in (0, 1)]
    session = a_session(a_node("n1", cpu="2"), a_node("n2", cpu="2"), *old, *pair)
    session.decide()
    session.tell(gone(Pod, "uid-old-n1"))
    session.see(a_pod("first", cpu="2", priority=10))
    assert binds(session.decide()) == {"first": "n1"}
    session.see(a_node("n3", cpu="2"))
    session.tell(gone(Pod, "uid-old-n2"))
    assert sorted(binds(session.decide()).values()) == ["n2", "n3"]


def a_lender_and_a_home(*pods: Pod) -> Session:
    return a_session(
        a_pool("home", labels={"pool": "home"}),
        a_pool("rich", labels={"pool": "rich"}),
        a_pool("small", labels={"pool": "small"}),
        a_node("s", cpu="2", labels={"pool": "small"}),
        a_node("r1", cpu="2", labels={"pool": "rich"}),
        a_node("r2", cpu="2", labels={"pool": "rich"}),
        *pods,
    )


def test_pair_borrows_nothing_beyond_the_limit_of_its_pool() -> None:
    session = a_session(
        a_pool("home", labels={"pool": "home"}, borrowing_limit={"cpu": 3000}),
        a_pool("rich", labels={"pool": "rich"}),
        a_node("r1", cpu="4", labels={"pool": "rich"}),
        one_of("x", "x-0", pool="home"),
        one_of("x", "x-1", pool="home"),
        a_pod("single", cpu="2", pool="home"),
    )
    assert binds(session.decide()) == {"single": "r1"}


def test_lender_room_that_its_own_pair_is_about_to_take_is_not_lent() -> None:
    session = a_lender_and_a_home(*(one_of("x", f"x-{index}", pool="rich") for index in (0, 1)))
    session.see(a_pod("borrower", cpu="2", pool="home"))
    said = session.decide()
    assert binds(said)["borrower"] == "s"


def a_running_pair(*objects: Node | Pod) -> Session:
    running = (one_of("x", "x-0", node="n1"), one_of("x", "x-1", node="n2"))
    return a_session(a_node("n1", cpu="2"), a_node("n2", cpu="2"), *running, *objects)


def test_single_pod_is_evicted_before_a_pair_is_broken() -> None:
    session = a_running_pair(
        a_node("n3", cpu="2"),
        a_pod("single", cpu="2", node="n3"),
        a_pod("high", cpu="2", priority=9),
    )
    assert evictions(session.decide()) == {"single": "Preempted"}


def test_pair_is_evicted_whole_where_one_of_it_must_go() -> None:
    session = a_running_pair(
        a_pod("high", cpu="2", priority=9),
    )
    said = session.decide()
    assert evictions(said) == {"x-0": "Preempted", "x-1": "Preempted"}
    assert {a.beneficiary.name for a in said if isinstance(a, Evict) and a.beneficiary is not None} == {"high"}


def test_ended_loan_of_a_pair_ends_for_both() -> None:
    session = a_lender_and_a_home(one_of("x", "x-0", pool="home"), one_of("x", "x-1", pool="home"))
    session.decide()
    session.see(
        a_pool("rich", labels={"pool": "rich"}, lending_limit={"cpu": 3000}, reclaim_policy=ReclaimPolicy.EVICT)
    )
    assert sorted(evictions(session.decide())) == ["x-0", "x-1"]


def test_ended_loans_of_more_pods_than_a_unit_can_spare_end_for_all_of_them() -> None:
    pods = [one_of("x", f"x-{number}", pool="home") for number in range(3)]
    rich = a_pool("rich", labels={"pool": "rich"})
    session = a_session(a_pool("home"), rich, a_node("r", cpu="6", labels={"pool": "rich"}), *pods)
    assert sorted(binds(session.decide()) | binds(session.decide())) == ["x-0", "x-1", "x-2"]
    session.see(
        a_pool("rich", labels={"pool": "rich"}, lending_limit={"cpu": 2000}, reclaim_policy=ReclaimPolicy.EVICT)
    )
    assert sorted(evictions(session.decide())) == ["x-0", "x-1", "x-2"]


@pytest.mark.parametrize("refusal", [BindRefusal.UNAVAILABLE, BindRefusal.STALE])
def test_refused_binding_of_one_pod_is_tried_again_alone(refusal: BindRefusal) -> None:
    session = a_session(a_node("n", cpu="4"), one_of("x", "x-0"), one_of("x", "x-1"))
    session.decide()
    session.see(replace(one_of("x", "x-1"), node_name="n"))
    session.tell(BindRefused("uid-x-0", "n", refusal, "later"))
    assert list(binds(session.decide(seconds=60))) == ["x-0"]


def test_both_bindings_refused_make_the_pair_start_together_again() -> None:
    session = a_session(a_node("n", cpu="4"), one_of("x", "x-0"), one_of("x", "x-1"))
    session.decide()
    session.tell(BindRefused("uid-x-0", "n", BindRefusal.UNAVAILABLE, "later"))
    session.tell(BindRefused("uid-x-1", "n", BindRefusal.UNAVAILABLE, "later"))
    assert sorted(binds(session.decide(seconds=60))) == ["x-0", "x-1"]


def test_node_that_goes_ends_the_claim_of_the_pair() -> None:
    old = [a_pod(f"old-{node}", cpu="2", node=node) for node in ("n1", "n2")]
    pair = [one_of("x", f"x-{index}", priority=9) for index in (0, 1)]
    session = a_session(a_node("n1", cpu="2"), a_node("n2", cpu="2"), *old, *pair)
    session.decide()
    session.tell(gone(Node, "n2"), gone(Pod, "uid-old-n1"), gone(Pod, "uid-old-n2"))
    assert binds(session.decide(seconds=60)) == {}
    session.see(a_node("n3", cpu="2"))
    assert sorted(binds(session.decide()).values()) == ["n1", "n3"]


@pytest.mark.parametrize(
    ("module", "step"),
    [
        ("cycle", "propose"),
        ("apply", "change_state"),
        ("apply", "send_or_delay"),
        ("units", "offer_ends"),
        ("apply", "renominate"),
    ],
)
def test_exception_costs_a_pair_one_attempt(monkeypatch: pytest.MonkeyPatch, module: str, step: str) -> None:
    fail_once(monkeypatch, module, step)
    session = a_session(a_node("n", cpu="4"), one_of("x", "x-0"), one_of("x", "x-1"))
    said = session.decide()
    said += session.decide(seconds=60)
    assert sorted(binds(said)) == ["x-0", "x-1"]


def test_exception_while_the_priority_of_a_pair_rises_leaves_none_of_its_pods_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = a_session(a_node("n", cpu="4"), one_of("x", "x-0"), one_of("x", "x-1"))
    session.decide()
    fail_once(monkeypatch, "units", "count_with_unit")
    session.see(one_of("x", "x-2", priority=9))
    session.decide()
    session.see(a_pod("higher", cpu="4", priority=5))
    assert evictions(session.decide(seconds=1)) == {}
    session.see(a_pod("highest", cpu="4", priority=10))
    assert sorted(evictions(session.decide(seconds=1))) == ["x-0", "x-1"]


def test_reason_of_every_pod_of_a_pair_follows_a_change_of_its_pool() -> None:
    session = a_session(a_node("n", cpu="3"), one_of("x", "x-0"), one_of("x", "x-1"))
    session.decide()
    session.see(a_pool("default", disable_preemption=True))
    said = reports(session.decide())
    assert sorted(said) == ["x-0", "x-1"]
    assert said["x-0"] == said["x-1"]
    assert "preemption: switched off for the pool default" in said["x-0"]


def test_every_pod_of_a_pair_is_warned_about_a_pool_that_does_not_exist() -> None:
    session = a_session(a_pool("research"), a_node("n", cpu="4"))
    session.see(one_of("x", "x-0", pool="reserch"), one_of("x", "x-1", pool="reserch"))
    assert sorted(warnings(session.decide())) == [("x-0", "UnknownPool"), ("x-1", "UnknownPool")]
