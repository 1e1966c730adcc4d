"""Pods whose eviction was refused: how long they are spared, and what happens to the preemptors."""

import pytest

from aischeduler.model.actions import Evict
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import EvictRefusal, EvictRefused, Seen, gone
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import Operator, label_selector
from tests.build import a_node, a_pod, a_pool, expression, replace
from tests.engine.session import Session, evictions

A, B, X = {"pool": "a"}, {"pool": "b"}, {"pool": "x"}


def two_pools(**of_a: object) -> Session:
    """Return pools a and b; b owns nothing and borrows."""
    return Session(replace(a_pool("a", labels=A), **of_a), a_pool("b", labels=B))


def test_spared_pod_of_another_pool_does_not_drop_kept_searches() -> None:
    session = Session(
        a_pool("x", labels=X, disable_sharing=True), a_pool("default", disable_borrowing=True, disable_sharing=True)
    )
    session.see(a_node("nx", cpu="4", labels=X), a_pod("guest", cpu="4", node="nx", started=1))
    session.see(a_node("n", cpu="4"), a_pod("peer", cpu="4", priority=5, node="n", started=1))
    session.see(a_pod("owner", cpu="4", pool="x"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    session.tell(EvictRefused("uid-guest", EvictRefusal.BUDGET, "the budget"))
    session.decide()
    made = session.scheduler.cluster.searches.made
    session.see(*(a_pod(f"p{i}", cpu="4", priority=5) for i in range(9)))
    assert evictions(session.decide()) == {}
    assert session.scheduler.cluster.searches.made - made <= 2, "one for victims, one for a lender"


def test_search_that_found_only_a_spared_pod_is_repeated_when_it_is_no_longer_spared() -> None:
    session = two_pools()
    session.see(a_node("n", cpu="4", labels=A), a_pod("guest", cpu="4", pool="b", node="n", started=1))
    session.see(a_pod("owner", cpu="4", pool="a"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    session.tell(EvictRefused("uid-guest", EvictRefusal.UNAVAILABLE, "x"))
    assert evictions(session.decide(29)) == {}
    assert evictions(session.decide(1)) == {"guest": "Reclaimed"}
    assert session.scheduler.net_saves() == 0


def test_spared_pod_stays_spared_when_another_field_changes() -> None:
    session = two_pools()
    session.see(a_node("n", cpu="4", labels=A), a_pod("guest", cpu="4", pool="b", node="n", started=1))
    session.see(a_pod("owner", cpu="4", pool="a"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    session.tell(EvictRefused("uid-guest", EvictRefusal.FORBIDDEN, "x"))
    session.see(a_pod("guest", cpu="4", pool="b", node="n", started=2, priority=3))
    session.see(a_pod("next", cpu="4", pool="a"))
    assert evictions(session.decide(20)) == {}
    session.see(a_pod("guest", cpu="3", pool="b", node="n", started=2, priority=3))
    assert evictions(session.decide(9)) == {}, "the pod was resized in place and is counted again"


def a_budget(name: str, app: str, allowed: int, disrupted: frozenset[str] = frozenset()) -> Seen:
    """Return the event of a budget over the pods with this label."""
    return Seen(DisruptionBudget("default", name, "u", label_selector("s", {app: "yes"}, ()), allowed, disrupted))


def a_guest_is_refused(why: EvictRefusal, *labels: str, budgets: tuple[Seen, ...]) -> Session:
    """Return pool a, whose pod `owner` requested the eviction of a borrower with these labels and was refused."""
    session = two_pools()
    session.tell(*budgets)
    guest = a_pod("guest", cpu="4", pool="b", node="n", started=1, labels=dict.fromkeys(labels, "yes"))
    session.see(a_node("n", cpu="4", labels=A), guest, a_pod("owner", cpu="4", pool="a"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    session.tell(EvictRefused("uid-guest", why, "refused"))
    assert evictions(session.decide(1)) == {}
    return session


@pytest.mark.parametrize("why", [EvictRefusal.FORBIDDEN, EvictRefusal.UNAVAILABLE])
def test_pod_spared_for_another_reason_than_a_budget_stays_spared_after_a_new_status(
    why: EvictRefusal,
) -> None:
    session = a_guest_is_refused(why, "g", budgets=(a_budget("b", "g", 3),))
    session.tell(a_budget("b", "g", 2))
    assert evictions(session.decide(1)) == {}
    session.tell(gone(DisruptionBudget, "default", "b"))
    assert evictions(session.decide(1)) == {}
    assert evictions(session.decide(28)) == {"guest": "Reclaimed"}


def test_pod_spared_by_its_budget_stays_spared_after_a_new_status_of_another_budget() -> None:
    session = a_guest_is_refused(
        EvictRefusal.BUDGET, "g", budgets=(a_budget("strict", "g", 0), a_budget("lax", "t", 5))
    )
    session.tell(a_budget("lax", "t", 4))
    assert evictions(session.decide(1)) == {}


def test_pod_spared_by_its_budget_stays_spared_when_another_budget_covers_it_too() -> None:
    session = a_guest_is_refused(
        EvictRefusal.BUDGET, "g", "t", budgets=(a_budget("strict", "g", 0), a_budget("lax", "t", 5))
    )
    session.tell(a_budget("lax", "t", 4))
    assert evictions(session.decide(1)) == {}
    session.tell(gone(DisruptionBudget, "default", "lax"))
    assert evictions(session.decide(1)) == {}, "the strict budget still covers it"


def test_pod_of_two_budgets_is_tried_again_once_it_has_one_that_allows_it() -> None:
    """The Eviction API never evicts a pod of several budgets, whatever they allow."""
    session = a_guest_is_refused(
        EvictRefusal.BUDGET, "g", "t", budgets=(a_budget("one", "g", 1), a_budget("two", "t", 1))
    )
    session.tell(a_budget("one", "g", 2))
    assert evictions(session.decide(1)) == {}
    session.tell(gone(DisruptionBudget, "default", "two"))
    assert evictions(session.decide(1)) == {"guest": "Reclaimed"}


def test_pod_spared_by_a_budget_is_evicted_when_the_budget_allows_it_or_no_longer_covers_it() -> None:
    for news in (a_budget("b", "g", 1), a_budget("b", "other", 0), gone(DisruptionBudget, "default", "b")):
        session = a_guest_is_refused(EvictRefusal.BUDGET, "g", budgets=(a_budget("b", "g", 0),))
        session.tell(a_budget("b", "g", 0))
        assert evictions(session.decide(1)) == {}
        session.tell(news)
        assert evictions(session.decide(1)) == {"guest": "Reclaimed"}


def three_guests(*, second: str) -> Session:
    """Return pool a with one borrower on each of three nodes; the first victim and one more have a budget of one."""
    session = two_pools()
    session.tell(a_budget("b", "g", 1))
    session.see(*(a_node(f"n{i}", cpu="4", labels=A) for i in (1, 2, 3)))
    session.see(
        a_pod("g1", cpu="4", pool="b", node="n1", started=9, labels={"g": "yes"}),
        a_pod("g2", cpu="4", pool="b", node="n2", started=8, labels={second: "yes"}),
        a_pod("g3", cpu="4", pool="b", node="n3", started=7),
    )
    session.see(a_pod("o1", cpu="4", pool="a"))
    assert evictions(session.decide()) == {"g1": "Reclaimed"}
    return session


def test_eviction_under_way_counts_against_a_budget_after_its_new_status() -> None:
    session = three_guests(second="g")
    session.tell(a_budget("b", "g", 1))  # its status changed for another reason, before the guest was evicted
    session.see(a_pod("o2", cpu="4", pool="a", created=1))
    assert evictions(session.decide()) == {"g3": "Reclaimed"}


def test_eviction_under_way_counts_against_a_budget_that_is_new_or_has_a_new_selector() -> None:
    for name in ("new", "b"):
        session = three_guests(second="t")
        selector = label_selector("s", {}, (expression("g", Operator.EXISTS),))
        if name == "new":
            selector = label_selector("s", {}, (expression("t", Operator.DOES_NOT_EXIST),))
        session.tell(Seen(DisruptionBudget("default", name, "u", selector, 1)))
        assert session.scheduler.cluster.budgets.left(("default", name)) == 0


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    session = three_guests(second="g")
    budgets, records = session.scheduler.cluster.budgets, session.scheduler.cluster.records
    assert [len(budgets.covering(records[f"uid-g{i}"].pod)) for i in (1, 2, 3)] == [1, 1, 0]
    assert set(budgets._covered["default"]) == {"uid-g1", "uid-g2", "uid-g3"}
    session.tell(gone(Pod, "uid-g1"), gone(Pod, "uid-g2"))
    assert set(budgets._covered["default"]) == {"uid-g3"}


def test_eviction_that_a_budget_has_counted_is_not_counted_twice() -> None:
    session = three_guests(second="g")
    session.tell(a_budget("b", "g", 1, frozenset(("g1",))))
    session.see(a_pod("o2", cpu="4", pool="a", created=1))
    assert evictions(session.decide()) == {"g2": "Reclaimed"}


def test_flush_that_is_due_with_the_end_of_a_sparing_saves_no_pod() -> None:
    session = two_pools()
    session.see(a_node("n", cpu="4", labels=A), a_pod("guest", cpu="4", pool="b", node="n", started=1))
    session.see(a_pod("owner", cpu="4", pool="a"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    session.see(a_pod("too-large", cpu="9", pool="a", priority=9))
    session.tell(EvictRefused("uid-guest", EvictRefusal.BUDGET, "the budget"))
    assert evictions(session.decide()) == {}
    assert evictions(session.decide(400)) == {"guest": "Reclaimed"}
    assert session.scheduler.net_saves() == 0


def owner_of_two_nodes_with_two_guests() -> Session:
    """Return an owner that needs a whole node; the guests g1 and g2 on n1 are newer than h1 and h2 on n2."""
    session = two_pools()
    session.see(*(a_node(f"n{i}", cpu="4", labels=A) for i in (1, 2)))
    session.see(*(a_pod(f"g{i}", cpu="2", pool="b", node="n1", started=9) for i in (1, 2)))
    session.see(*(a_pod(f"h{i}", cpu="2", pool="b", node="n2", started=5) for i in (1, 2)))
    session.see(a_pod("owner", cpu="4", pool="a"))
    return session


def test_claim_whose_eviction_is_refused_costs_no_other_pod_and_its_owner_waits_for_its_backoff() -> None:
    session = owner_of_two_nodes_with_two_guests()
    asked = [action for action in session.decide() if isinstance(action, Evict)]
    assert [(one.victim.name, one.together) for one in asked] == [("g2", 2), ("g1", 2)]
    session.tell(EvictRefused("uid-g1", EvictRefusal.CALLED_OFF, "x"))
    session.tell(EvictRefused("uid-g2", EvictRefusal.FORBIDDEN, "x"))
    assert evictions(session.decide()) == {}
    assert evictions(session.decide(1)) == {"h1": "Reclaimed", "h2": "Reclaimed"}
    session.see(a_pod("other", cpu="2", pool="a"))
    assert evictions(session.decide()) == {"g1": "Reclaimed"}, "a pod whose eviction was called off is not spared"
    assert session.scheduler.net_saves() == 0


def test_owner_of_a_claim_that_a_pod_left_for_is_tried_at_once_after_a_refusal() -> None:
    session = owner_of_two_nodes_with_two_guests()
    assert evictions(session.decide()) == {"g1": "Reclaimed", "g2": "Reclaimed"}
    session.tell(gone(Pod, "uid-g1"), EvictRefused("uid-g2", EvictRefusal.UNAVAILABLE, "x"))
    assert evictions(session.decide()) == {"h1": "Reclaimed", "h2": "Reclaimed"}
