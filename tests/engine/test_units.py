"""Units of several pods, by a policy that starts two pods of one name together or not at all."""

import pytest

from aischeduler.model.actions import Bind, Evict
from aischeduler.model.events import BindRefusal, BindRefused, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool, ReclaimPolicy
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, evictions, fail_once, nominations, reports, warnings
from tests.pairs import PAIR, SPARE, pair_profile


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


def test_late_partner_completes_the_pair() -> None:
    session = a_session(a_node("n", cpu="4"), one_of("x", "x-0"))
    session.decide()
    session.see(one_of("x", "x-1"))
    assert binds(session.decide()) == {"x-0": "n", "x-1": "n"}


def test_pair_with_room_for_one_starts_none_and_holds_no_room() -> None:
    session = a_session(a_node("n", cpu="3"), one_of("x", "x-0"), one_of("x", "x-1"))
    said = session.decide()
    text = (
        "1 of the 2 pods that start together fit. The next, x-1: 0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert binds(said) == {}
    assert reports(said) == {"x-0": text, "x-1": text}
    session.see(a_pod("single", cpu="3"))
    assert binds(session.decide()) == {"single": "n"}


def test_two_half_pairs_do_not_block_each_other() -> None:
    pods = [one_of(pair, f"{pair}-{index}") for index in (0, 1) for pair in ("x", "y")]
    session = a_session(a_node("n", cpu="4"), *pods)
    assert sorted(binds(session.decide())) == ["x-0", "x-1"]
    session.tell(gone(Pod, "uid-x-0"), gone(Pod, "uid-x-1"))
    assert sorted(binds(session.decide(seconds=60))) == ["y-0", "y-1"]


def test_second_node_wakes_the_whole_pair() -> None:
    session = a_session(a_node("n1", cpu="2"), one_of("x", "x-0"), one_of("x", "x-1"))
    assert binds(session.decide()) == {}
    session.see(a_node("n2", cpu="2"))
    assert sorted(binds(session.decide()).values()) == ["n1", "n2"]


def test_pair_finds_the_nodes_of_pods_that_fit_in_one_way_only() -> None:
    small, large = a_node("small", cpu="2"), a_node("large", cpu="4", labels={"disk": "ssd"})
    picky = a_pod("x-1", cpu="2", labels={PAIR: "x"}, node_selector={"disk": "ssd"})
    session = a_session(small, large, one_of("x", "x-0", cpu="2"), picky, a_pod("other", cpu="2", node="large"))
    assert binds(session.decide()) == {"x-0": "small", "x-1": "large"}


def test_deleted_partner_leaves_the_other_gated() -> None:
    session = a_session(a_node("n", cpu="2"), one_of("x", "x-0"), one_of("x", "x-1"))
    session.decide()
    session.tell(gone(Pod, "uid-x-0"))
    assert reports(session.decide()) == {"x-1": "waits for 1 more pod of its pair"}
    session.see(a_node("m", cpu="4"))
    assert binds(session.decide()) == {}


def test_pair_claims_room_on_two_nodes_and_takes_it_when_both_victims_are_gone() -> None:
    old = [a_pod(f"old-{node}", cpu="2", node=node) for node in ("n1", "n2")]
    pair = [one_of("x", f"x-{index}", priority=9) for index in (0, 1)]
    session = a_session(a_node("n1", cpu="2"), a_node("n2", cpu="2"), *old, *pair)
    said = session.decide()
    assert evictions(said) == {"old-n1": "Preempted", "old-n2": "Preempted"}
    assert sorted(nominations(said).values()) == ["n1", "n2"]
    session.tell(gone(Pod, "uid-old-n1"))
    assert session.decide() == []
    session.tell(gone(Pod, "uid-old-n2"))
    assert sorted(binds(session.decide()).values()) == ["n1", "n2"]


def test_pair_evicts_no_pod_where_one_victim_would_not_be_enough() -> None:
    guarded = a_pod("stays", cpu="2", node="n2", priority=99)
    pair = [one_of("x", f"x-{index}", priority=9) for index in (0, 1)]
    session = a_session(a_node("n1", cpu="2"), a_node("n2", cpu="2"), a_pod("old", cpu="2", node="n1"), guarded, *pair)
    assert evictions(session.decide()) == {}


def test_deleted_partner_ends_the_claim_on_both_nodes() -> None:
    old = [a_pod(f"old-{node}", cpu="2", node=node) for node in ("n1", "n2")]
    pair = [one_of("x", f"x-{index}", priority=9) for index in (0, 1)]
    session = a_session(a_node("n1", cpu="2"), a_node("n2", cpu="2"), *old, *pair)
    session.decide()
    session.tell(gone(Pod, "uid-x-1"), gone(Pod, "uid-old-n1"), gone(Pod, "uid-old-n2"))
    session.see(a_pod("single", cpu="2"))
    assert list(binds(session.decide())) == ["single"]


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


def test_pair_borrows_whole_at_one_lender() -> None:
    session = a_lender_and_a_home(one_of("x", "x-0", pool="home"), one_of("x", "x-1", pool="home"))
    assert sorted(binds(session.decide()).values()) == ["r1", "r2"]


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


def test_pods_of_a_pair_in_different_home_pools_wait_with_a_reason() -> None:
    session = a_lender_and_a_home(one_of("x", "x-0", pool="home"), one_of("x", "x-1", pool="rich"))
    text = "The pods of the unit default/x have different home pools: home, rich."
    assert reports(session.decide()) == {"x-0": text, "x-1": text}


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


def test_room_of_a_broken_pair_counts_on_every_node_for_the_next_pair() -> None:
    session = a_running_pair(
        a_node("n3", cpu="2"),
        a_pod("single", cpu="2", node="n3", priority=1),
        one_of("y", "y-0", priority=9),
        one_of("y", "y-1", priority=9),
    )
    assert sorted(evictions(session.decide())) == ["x-0", "x-1"]


def test_spare_pod_of_a_unit_goes_alone() -> None:
    session = a_session(
        a_node("n1", cpu="2"),
        a_node("n2", cpu="2"),
        a_pod("x-0", cpu="2", node="n1", labels={PAIR: "x", SPARE: "y"}),
        a_pod("x-1", cpu="2", node="n2", labels={PAIR: "x"}),
        a_pod("high", cpu="2", priority=9),
    )
    assert evictions(session.decide()) == {"x-0": "Preempted"}


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


def test_third_pod_of_another_pool_waits_until_the_pair_has_started() -> None:
    session = a_lender_and_a_home(one_of("x", "x-0", pool="rich"), one_of("x", "x-1", pool="rich"))
    session.see(one_of("x", "x-2", pool="small"))
    assert binds(session.decide()) == {"x-0": "r1", "x-1": "r2", "x-2": "s"}
    session = a_lender_and_a_home(one_of("x", "x-0", pool="rich", cpu="9"), one_of("x", "x-1", pool="rich", cpu="9"))
    session.see(one_of("x", "x-2", pool="small"))
    text = "Its home pool is not that of the unit default/x, which is to start first."
    assert reports(session.decide())["x-2"] == text


def test_third_pod_starts_with_the_pair_where_there_is_room_and_later_where_there_is_none() -> None:
    trio = [one_of("x", f"x-{index}") for index in range(3)]
    assert len(binds(a_session(a_node("n", cpu="6"), *trio).decide())) == 3
    session = a_session(a_node("n", cpu="4"), *trio)
    assert len(binds(session.decide())) == 2
    session.see(a_node("m", cpu="2"))
    assert list(binds(session.decide()).values()) == ["m"]


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
