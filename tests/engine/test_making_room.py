"""Preemption and reclaim: claims, victims that leave slowly, and evictions that fail."""

import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.model.actions import Action, Evict
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import EvictRefusal, EvictRefused, Seen, gone
from aischeduler.model.pod import Pod
from aischeduler.model.pool import MakeRoomOrder, ReclaimPolicy
from aischeduler.model.selectors import label_selector
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, evictions, nominations, reports

A, B = {"pool": "a"}, {"pool": "b"}


def two_pools(**of_a: object) -> Session:
    """Return pools a and b; b owns nothing and borrows."""
    return Session(replace(a_pool("a", labels=A), **of_a), a_pool("b", labels=B))


def victims(said: list[Action]) -> list[Pod]:
    return [action.victim for action in said if isinstance(action, Evict)]


def leave(session: Session, pod: Pod, grace: int = 30) -> None:
    """Let the engine observe the pod as terminating."""
    session.see(replace(pod, terminating=True, grace_seconds=grace))


def test_eight_home_pods_of_one_gpu_reclaim_one_borrower_of_eight() -> None:
    session = two_pools()
    session.see(*(a_node(f"n{i}", gpu=8, cpu="16", labels=A) for i in range(3)))
    session.see(*(a_pod(f"guest{i}", gpu=8, pool="b", node=f"n{i}") for i in range(3)))
    session.see(*(a_pod(f"owner{i}", gpu=1, pool="a") for i in range(8)))
    said = session.decide()
    assert len(evictions(said)) == 1
    assert len(nominations(said)) == 8
    session.tell(gone(Pod, victims(said)[0].uid))
    assert len(binds(session.decide())) == 8


def test_pod_that_outlives_its_grace_period_no_longer_counts_as_leaving() -> None:
    session = two_pools()
    session.see(a_node("n1", cpu="4", labels=A), a_node("n2", cpu="4", labels=A))
    session.see(a_pod("stuck", cpu="4", pool="a", node="n1", priority=9, terminating=True, grace=30))
    session.see(a_pod("low", cpu="4", pool="a", node="n2"), a_pod("urgent", cpu="4", pool="a", priority=5))
    assert evictions(session.decide()) == {}
    assert evictions(session.decide(60)) == {}
    assert evictions(session.decide(31)) == {"low": "Preempted"}


def test_pod_ahead_of_the_owner_takes_the_claimed_room_and_the_owner_is_tried_again() -> None:
    session = two_pools()
    session.see(a_node("n1", cpu="4", labels=A), a_node("n2", cpu="4", labels=A))
    session.see(*(a_pod(f"g{i}", cpu="4", pool="b", node=f"n{i}") for i in (1, 2)))
    session.see(a_pod("owner", cpu="4", pool="a", priority=5))
    first = victims(session.decide())
    leave(session, first[0])
    session.see(a_pod("urgent", cpu="4", pool="a", priority=50))
    said = session.decide(5)
    assert nominations(said)["urgent"] == first[0].node_name
    assert [victim.name for victim in victims(said)] == [name for name in ("g1", "g2") if name != first[0].name]
    session.tell(gone(Pod, "uid-g1"), gone(Pod, "uid-g2"))
    assert set(binds(session.decide())) == {"owner", "urgent"}


def test_room_of_a_claim_that_ends_goes_to_the_owner_of_another_on_the_same_node() -> None:
    session = Session(a_node("n", cpu="3"), a_pod("slow", cpu="2", node="n"), a_pod("large", cpu="2", priority=5))
    assert nominations(session.decide()) == {"large": "n"}
    leave(session, victims(session.said)[0])
    session.see(a_pod("small", cpu="1", created=9))
    assert nominations(session.decide()) == {"small": "n"}
    session.tell(gone(Pod, "uid-large"))
    assert binds(session.decide()) == {"small": "n"}


def test_next_candidate_is_evicted_where_a_budget_spares_the_victim() -> None:
    session = two_pools()
    session.see(*(a_node(f"n{i}", cpu="4", labels=A) for i in (1, 2)))
    session.see(*(a_pod(f"g{i}", cpu="4", pool="b", node=f"n{i}", labels={"app": f"g{i}"}) for i in (1, 2)))
    session.see(a_pod("owner", cpu="4", pool="a"))
    (first,) = victims(session.decide())
    session.tell(EvictRefused(first.uid, EvictRefusal.BUDGET, "the budget"))
    assert victims(session.decide()) == []  # its backoff is that of any failed attempt
    (second,) = victims(session.decide(1))
    assert second.name != first.name
    session.tell(EvictRefused(second.uid, EvictRefusal.BUDGET, "the budget"))
    assert victims(session.decide(2)) == []
    selector = label_selector("spec.selector", {"app": second.name}, ())
    session.tell(Seen(DisruptionBudget("default", "b", "u", selector, disruptions_allowed=1)))
    assert [victim.name for victim in victims(session.decide(11))] == [second.name]
    assert session.scheduler.net_saves() == 0


def test_switches_forbid_every_eviction_reclaims_included() -> None:
    for session, clause in (
        (two_pools(disable_preemption=True), "switched off for the pool a"),
        (Session(a_pool("a", labels=A), a_pool("b"), profile=default_profile(preemption=False)), "whole scheduler"),
    ):
        session.see(a_node("n", cpu="4", labels=A), a_pod("guest", cpu="4", pool="b", node="n"))
        session.see(a_pod("owner", cpu="4", pool="a", priority=9))
        said = session.decide()
        assert evictions(said) == {}
        assert clause in reports(said)["owner"]


def test_pod_that_never_preempts_waits_but_ahead_of_lower_ones() -> None:
    session = two_pools()
    session.see(a_node("n", cpu="4", labels=A), a_pod("guest", cpu="4", pool="b", node="n"))
    session.see(a_pod("patient", cpu="4", pool="a", priority=9, preempts=False), a_pod("low", cpu="4", pool="a"))
    said = session.decide()
    assert evictions(said) == {"guest": "Reclaimed"}, "the borrower is evicted for the pod of low priority"
    assert "preemptionPolicy=Never" in reports(said)["patient"]
    session.tell(gone(Pod, "uid-guest"))
    assert binds(session.decide(20)) == {"patient": "n"}, "ahead of the owner of the claim"


@pytest.mark.parametrize("of_the_pool", [None, MakeRoomOrder.BORROW_THEN_PREEMPT])
def test_borrow_then_preempt_evicts_only_when_no_pool_lends(of_the_pool: MakeRoomOrder | None) -> None:
    order = MakeRoomOrder.PREEMPT_THEN_BORROW if of_the_pool else MakeRoomOrder.BORROW_THEN_PREEMPT
    profile = replace(default_profile(), make_room=order)
    session = Session(a_pool("a", labels=A, make_room=of_the_pool), a_pool("b", labels=B), profile=profile)
    session.see(a_node("n", cpu="4", labels=A), a_node("m", cpu="4", labels=B))
    session.see(a_pod("low", cpu="4", pool="a", node="n"))
    session.see(a_pod("p", cpu="4", pool="a", priority=5), a_pod("q", cpu="4", pool="a", priority=5))
    said = session.decide()
    assert (binds(said), evictions(said)) == ({"p": "m"}, {"low": "Preempted"})


def test_preemptor_is_woken_when_a_pod_it_may_not_evict_leaves() -> None:
    session = two_pools()
    session.see(a_node("n", cpu="4", labels=A))
    session.see(a_pod("peer", cpu="2", pool="a", node="n", priority=9), a_pod("guest", cpu="2", pool="b", node="n"))
    session.see(a_pod("large", cpu="4", pool="a", priority=5))
    assert evictions(session.decide()) == {}
    session.tell(gone(Pod, "uid-peer"))
    assert evictions(session.decide(20)) == {"guest": "Reclaimed"}
    assert session.scheduler.net_saves() == 0


def loans_of(session: Session, *sizes: int) -> None:
    """Let pods of b with these CPUs run on a node of a, the oldest first."""
    session.see(a_node("n", cpu="16", labels=A))
    session.see(*(a_pod(f"g{i}", cpu=str(cpu), pool="b", node="n", started=i) for i, cpu in enumerate(sizes, 1)))
    assert evictions(session.decide()) == {}


@pytest.mark.parametrize("started", [0, 30])
def test_of_loans_that_started_in_one_second_the_younger_pod_ends_whichever_is_listed_first(started: int) -> None:
    lender = a_pool("b", labels={"pool": "b"}, lending_limit={"cpu": 1000}, reclaim_policy=ReclaimPolicy.EVICT)
    ages = {"first": 20, "second": 10}
    loans = [a_pod(name, cpu="1", pool="a", node="n", created=at, started=started) for name, at in ages.items()]
    session = Session(a_pool("a"), lender, a_node("n", cpu="2", labels={"pool": "b"}), *loans)
    assert list(evictions(session.decide())) == ["first"]


def test_no_loan_is_ended_that_is_within_the_limit_without_the_others() -> None:
    for most, sizes, ended in (
        (3, (4, 1), ["g1"]),
        (3, (2, 2, 2), ["g3", "g2"]),
        (4, (5, 2, 3), ["g3", "g1"]),  # of those that could stay, the older one does
        (4, (3, 1), []),
        (0, (1, 1), ["g2", "g1"]),
    ):
        session = two_pools(reclaim_policy=ReclaimPolicy.EVICT)
        loans_of(session, *sizes)
        session.see(a_pool("a", labels=A, reclaim_policy=ReclaimPolicy.EVICT, lending_limit={"cpu": most * 1000}))
        assert [victim.name for victim in victims(session.decide(1))] == ended, sizes
        assert victims(session.decide(1)) == [], "leaving pods no longer count"


def test_loan_without_the_resource_over_the_limit_stays() -> None:
    session = two_pools(reclaim_policy=ReclaimPolicy.EVICT)
    session.see(a_node("n", cpu="16", gpu=4, labels=A))
    session.see(
        a_pod("old", cpu="2", gpu=1, pool="b", node="n", started=1),
        a_pod("card", cpu="1", gpu=2, pool="b", node="n", started=2),
        a_pod("plain", cpu="1", pool="b", node="n", started=3),
    )
    assert evictions(session.decide()) == {}
    limit = {"cpu": 3000, "nvidia.com/gpu": 1}
    session.see(a_pool("a", labels=A, reclaim_policy=ReclaimPolicy.EVICT, lending_limit=limit))
    assert evictions(session.decide(1)) == {"card": "LoanEnded"}


def test_pod_that_never_preempts_does_not_decide_for_a_pod_of_its_class_that_may() -> None:
    session = two_pools()
    session.see(a_node("n", cpu="4", labels=A))
    session.see(a_pod("peer", cpu="2", pool="a", node="n", priority=9), a_pod("guest", cpu="2", pool="b", node="n"))
    session.see(a_pod("patient", cpu="4", pool="a", priority=6, preempts=False), a_pod("p", cpu="4", pool="a"))
    assert evictions(session.decide()) == {}
    session.tell(gone(Pod, "uid-peer"))
    assert evictions(session.decide(20)) == {"guest": "Reclaimed"}
    assert session.scheduler.net_saves() == 0


def test_rest_of_the_room_of_a_claim_that_ended_for_a_pod_ahead_is_offered() -> None:
    session = two_pools()
    session.see(a_node("n", cpu="8", labels=A))
    session.see(*(a_pod(f"g{i}", cpu="4", pool="b", node="n") for i in (1, 2)))
    session.see(a_pod("large", cpu="8", pool="a", priority=5))
    assert len(evictions(session.decide())) == 2
    session.see(a_pod("small", cpu="6", pool="a"))
    session.decide()
    session.see(a_pod("first", cpu="2", pool="a", priority=9))
    session.decide()
    session.tell(gone(Pod, "uid-g1"), gone(Pod, "uid-g2"))
    assert set(binds(session.decide(20))) == {"first", "small"}
    assert session.scheduler.net_saves() == 0


def test_pod_that_waits_for_a_budget_has_that_reason_and_is_not_tried_every_few_seconds() -> None:
    session = two_pools()
    selector = label_selector("spec.selector", {"app": "guest"}, ())
    session.tell(Seen(DisruptionBudget("default", "b", "u", selector, disruptions_allowed=0)))
    session.see(a_node("n", cpu="4", labels=A), a_pod("guest", cpu="4", pool="b", node="n", labels={"app": "guest"}))
    session.see(a_pod("owner", cpu="4", pool="a"))
    session.decide()
    session.tell(EvictRefused("uid-guest", EvictRefusal.BUDGET, "x"))
    assert "Disruption budgets forbid the eviction of 1 pod now." in reports(session.decide(1))["owner"]
    assert session.decide(289) == []


def test_room_that_grows_after_it_was_offered_goes_to_the_higher_pod() -> None:
    session = Session(a_pool("a", labels=A), a_node("n", cpu="4", labels=A))
    session.see(
        a_pod("x", cpu="2", pool="a", priority=10, node="n"), a_pod("y", cpu="2", pool="a", priority=10, node="n")
    )
    session.see(a_pod("large", cpu="4", pool="a", priority=5), a_pod("small", cpu="1", pool="a"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-x"), gone(Pod, "uid-y"))  # after the first only the small one fits, then the large one
    assert binds(session.decide(seconds=15)) == {"large": "n"}


def test_room_that_a_displaced_claim_leaves_is_lent() -> None:
    session = Session(a_pool("b", labels=B), a_node("n", cpu="3", gpu=1, labels=B))
    session.see(a_pod("guest", cpu="3", gpu=1, node="n"))
    session.see(a_pod("owner", cpu="3", gpu=1, pool="b", priority=5))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    session.see(a_pod("first", cpu="1", gpu=1, pool="b", priority=10, preempts=False), a_pod("borrower", cpu="2"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-guest"))
    assert binds(session.decide(seconds=15)) == {"first": "n", "borrower": "n"}


def test_running_pod_that_becomes_a_loan_beyond_the_limit_is_ended() -> None:
    evicting = ReclaimPolicy.EVICT
    session = Session(a_pool("a", labels=A, reclaim_policy=evicting, lending_limit={"pods": 1}), a_pool("b", labels=B))
    session.see(a_node("n", cpu="4", labels=A), a_pod("guest", cpu="1", pool="b", node="n", started=1))
    session.see(a_pod("own", cpu="1", pool="a", node="n", started=2))
    assert evictions(session.decide()) == {}
    session.see(a_pod("own", cpu="1", pool="b", node="n", started=2))
    assert evictions(session.decide()) == {"own": "LoanEnded"}


def test_no_loan_is_ended_before_all_pools_are_known() -> None:
    session = Session(a_node("n", cpu="4", labels={**A, "second": "true"}), a_pod("guest", cpu="1", pool="b", node="n"))
    session.see(a_pool("a", labels=A, reclaim_policy=ReclaimPolicy.EVICT, disable_sharing=True))
    session.see(a_pool("b", labels={"second": "true"}))  # the node belongs to the default pool: both select it
    assert evictions(session.decide()) == {}


def test_room_of_a_victim_that_its_owner_claims_is_counted_once() -> None:
    session = Session(a_node("n", cpu="9"), a_pod("victim", cpu="8", node="n", started=1))
    session.see(a_pod("owner", cpu="8", priority=9))
    session.decide()
    (pool,) = session.scheduler.summary()
    assert (pool.used["cpu"], pool.free["cpu"]) == (8000, 1000)
