"""Victims whose eviction something may refuse: they are asked first, and what they refuse costs no other pod."""

from itertools import pairwise
from typing import Any

import pytest

from aischeduler.engine.evictions import PROTECTED_SECONDS
from aischeduler.engine.profile import default_profile
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import EvictRefusal, EvictRefused, Seen, gone, objects_of
from aischeduler.model.pod import Pod
from aischeduler.model.pool import ReclaimPolicy
from aischeduler.model.selectors import label_selector
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, evictions, reports
from tests.gangs import a_gang, member, members

A = {"pool": "a"}
OBEYING = replace(default_profile(), obeys_budgets=True)


def guest(name: str, *labels: str, cpu: str = "2", node: str = "n", **fields: Any) -> Pod:
    """Return a running borrower with these labels."""
    pod = a_pod(name, cpu=cpu, pool="b", node=node, started=1, phase="Running", labels=dict.fromkeys(labels, "yes"))
    return replace(pod, **fields)


def a_budget(name: str, label: str, allowed: int, **fields: Any) -> Seen:
    selector = label_selector("s", {label: "yes"}, ())
    return Seen(replace(DisruptionBudget("default", name, "u", selector, allowed), **fields))


def a_session(*pods: Pod, nodes: tuple[str, ...] = ("n",), obeys: bool = True) -> Session:
    """Return pool a with these nodes of 4 cpu, and these pods; pool b owns nothing."""
    session = Session(a_pool("a", labels=A), a_pool("b", labels={"pool": "b"}), profile=OBEYING if obeys else None)
    session.see(*(a_node(name, cpu="4", labels=A) for name in nodes), *pods)
    session.decide()
    return session


def owner(cpu: str = "4", name: str = "owner") -> Pod:
    return a_pod(name, cpu=cpu, pool="a")


def terminating(pod: Pod) -> Pod:
    return replace(pod, terminating=True, grace_seconds=30)


@pytest.mark.parametrize("budgets", [(a_budget("b", "g", 0),), (a_budget("b", "g", 9), a_budget("c", "g", 9))])
def test_pod_that_its_budgets_forbid_to_evict_costs_no_other_pod(budgets: tuple[Seen, ...]) -> None:
    session = a_session(guest("free"), guest("kept", "g"))
    session.tell(*budgets)
    session.see(owner())
    actions = session.decide()
    assert evictions(actions) == {}
    assert "Disruption budgets forbid the eviction of 1 pod now." in reports(actions)["owner"]
    session.tell(*(gone(DisruptionBudget, "default", one.name) for one in objects_of(budgets, DisruptionBudget)))
    assert evictions(session.decide()) == {"free": "Reclaimed", "kept": "Reclaimed"}


def test_pod_that_a_budget_forbids_to_evict_costs_nothing_on_another_node() -> None:
    session = a_session(guest("free", node="n", cpu="4"), guest("kept", "g", node="m", cpu="4"), nodes=("n", "m"))
    session.tell(a_budget("b", "g", 0))
    session.see(*members("new", 2, cpu="4", pool="a"))
    session.tell(Seen(a_gang("new", 2)))
    assert evictions(session.decide()) == {}


def test_gang_one_pod_of_which_a_budget_forbids_to_evict_stays_whole() -> None:
    pods = [member(guest("v0", cpu="4", node="n"), "v"), member(guest("v1", "g", cpu="4", node="m"), "v")]
    session = a_session(*pods, nodes=("n", "m"))
    session.tell(Seen(a_gang("v", 2)), a_budget("b", "g", 0))
    session.see(owner())
    assert evictions(session.decide()) == {}
    session.tell(a_budget("b", "g", 1))
    assert evictions(session.decide()) == {"v1": "Reclaimed"}, "the pod that may be refused is asked first"
    session.tell(gone(Pod, "uid-v1"))
    actions = session.decide()
    assert (evictions(actions), binds(actions)) == ({"v0": "Reclaimed"}, {"owner": "m"}), "v0 is of no use alone"


def test_gang_goes_only_where_its_budget_allows_the_eviction_of_all_its_pods() -> None:
    pods = [member(guest(f"v{i}", "g", cpu="4", node=node), "v") for i, node in enumerate(("n", "m"))]
    session = a_session(*pods, nodes=("n", "m"))
    session.tell(Seen(a_gang("v", 2)), a_budget("b", "g", 1))
    session.see(owner())
    assert evictions(session.decide()) == {}
    session.tell(a_budget("b", "g", 2))
    assert sorted(evictions(session.decide())) == ["v0", "v1"]


def test_gang_takes_the_room_of_a_gang_only_where_its_budget_allows_the_eviction_of_all_its_pods() -> None:
    pods = [member(guest(f"v{number}", "g", cpu="4", node=node), "v") for number, node in enumerate("nm")]
    session = a_session(*pods, nodes=("n", "m"))
    session.tell(Seen(a_gang("v", 2)), a_budget("b", "g", 1))
    session.see(*members("new", 2, cpu="4", pool="a"))
    session.tell(Seen(a_gang("new", 2)))
    assert evictions(session.decide()) == {}
    session.tell(a_budget("b", "g", 2))
    assert evictions(session.decide()) == {"v0": "Reclaimed", "v1": "Reclaimed"}


def test_surplus_of_a_gang_goes_although_another_of_its_pods_is_kept() -> None:
    pods = [member(guest(f"v{i}", *labels, cpu="4", node=f"n{i}"), "v") for i, labels in enumerate(((), ("g",), ()))]
    session = a_session(*pods, nodes=("n0", "n1", "n2"))
    session.tell(Seen(a_gang("v", 2)), a_budget("b", "g", 0))
    session.see(owner())
    assert len(evictions(session.decide())) == 1


def two_of_one_budget() -> Session:
    """Return a node with two borrowers, of which their budget allows to evict one, and the owner evicts it."""
    session = a_session(guest("g1", "g"), guest("g2", "g"))
    session.tell(a_budget("b", "g", 1))
    session.see(owner())
    assert len(evictions(session.decide())) == 1
    return session


def test_room_of_the_first_victim_stays_the_owners_until_the_budget_allows_the_next() -> None:
    session = two_of_one_budget()
    first = next(iter(evictions(session.said)))
    second = "g1" if first == "g2" else "g2"
    session.tell(a_budget("b", "g", 0, disrupted=frozenset((first,))), gone(Pod, f"uid-{first}"))
    session.see(a_pod("successor", cpu="2", pool="b", labels={"g": "yes"}))
    actions = session.decide(5)
    assert (evictions(actions), binds(actions)) == ({}, {}), "no successor takes the room"
    session.see(a_node("m", cpu="2", labels=A))
    assert binds(session.decide(5)) == {"successor": "m"}
    session.tell(a_budget("b", "g", 1))
    assert evictions(session.decide()) == {second: "Reclaimed"}
    session.tell(gone(Pod, f"uid-{second}"))
    assert binds(session.decide()) == {"owner": "n"}


def test_claim_ends_whose_budget_does_not_allow_the_next_eviction_in_time_and_is_not_made_again_soon() -> None:
    session = two_of_one_budget()
    first = next(iter(evictions(session.said)))
    session.tell(a_budget("b", "g", 0, disrupted=frozenset((first,))), gone(Pod, f"uid-{first}"))
    session.see(a_pod("successor", cpu="2", pool="b", labels={"g": "yes"}))
    session.decide()
    assert binds(session.decide(PROTECTED_SECONDS - 1)) == {}
    assert binds(session.decide(1)) == {"successor": "n"}
    session.see(guest("successor", "g"))
    session.tell(a_budget("b", "g", 1))
    assert evictions(session.decide(PROTECTED_SECONDS - 1)) == {}, "as before, one could go, and the other not"
    session.tell(a_budget("b", "g", 2))
    second = "g1" if first == "g2" else "g2"
    assert evictions(session.decide()) == {second: "Reclaimed"}, "the one that could not go is asked first"
    session.see(terminating(guest(second, "g")))
    assert evictions(session.decide(1)) == {"successor": "Reclaimed"}


def test_pods_of_a_budget_that_allows_too_little_are_asked_before_those_of_another() -> None:
    session = a_session(guest("s1", "s", cpu="1"), guest("s2", "s", cpu="1"), guest("lax", "t", cpu="1"))
    session.see(guest("plain", cpu="1"))
    session.tell(a_budget("scarce", "s", 1), a_budget("lax", "t", 1))
    session.see(owner())
    (first,) = evictions(session.decide())
    assert first in {"s1", "s2"}
    session.tell(a_budget("scarce", "s", 0, disrupted=frozenset((first,))), gone(Pod, f"uid-{first}"))
    assert evictions(session.decide(1)) == {}
    session.tell(a_budget("scarce", "s", 1))
    second = "s1" if first == "s2" else "s2"
    assert sorted(evictions(session.decide())) == sorted((second, "lax"))
    session.tell(gone(Pod, f"uid-{second}"), gone(Pod, "uid-lax"))
    assert evictions(session.decide()) == {"plain": "Reclaimed"}


@pytest.mark.parametrize("why", [EvictRefusal.BUDGET, EvictRefusal.FORBIDDEN, EvictRefusal.UNAVAILABLE])
def test_refusal_of_the_victim_that_is_asked_first_costs_no_other_pod(why: EvictRefusal) -> None:
    session = a_session(guest("free"), guest("kept", "g"))
    session.tell(a_budget("b", "g", 1))
    session.see(owner())
    assert evictions(session.decide()) == {"kept": "Reclaimed"}
    session.tell(EvictRefused("uid-kept", why, "no"))
    session.see(a_pod("late", cpu="4", pool="a"))
    assert evictions(session.decide(25)) == {}


def test_other_victims_go_once_the_one_that_is_asked_first_is_terminating() -> None:
    session = a_session(guest("free"), guest("kept", "g"))
    session.tell(a_budget("b", "g", 1))
    session.see(owner())
    assert evictions(session.decide()) == {"kept": "Reclaimed"}
    session.see(terminating(guest("kept", "g")))
    assert evictions(session.decide(5)) == {"free": "Reclaimed"}, "after a refresh, because time has passed"
    session.tell(gone(Pod, "uid-free"), gone(Pod, "uid-kept"))
    assert binds(session.decide()) == {"owner": "n"}


def test_victim_that_is_only_planned_stays_where_its_claim_ends() -> None:
    session = a_session(guest("free"), guest("kept", "g"))
    session.tell(a_budget("b", "g", 1))
    session.see(owner())
    session.decide()
    session.tell(gone(Pod, "uid-owner"))
    session.see(terminating(guest("kept", "g")))
    assert evictions(session.decide(5)) == {}
    session.see(owner("2", "small"))
    assert evictions(session.decide()) == {}, "the pod that terminates leaves room enough"


def test_victim_that_moves_or_goes_by_itself_while_it_is_planned_is_planned_no_more() -> None:
    session = a_session(guest("free-1", cpu="1"), guest("free-2", cpu="1"), guest("kept", "g"), nodes=("n", "m"))
    session.see(guest("wall", node="m", cpu="4", pool="a", priority=9))
    session.tell(a_budget("b", "g", 1))
    session.see(owner())
    assert evictions(session.decide()) == {"kept": "Reclaimed"}
    session.see(guest("free-1", cpu="1", node="m"))
    assert set(session.scheduler.cluster.claims.planned) == {"uid-free-2"}
    session.tell(gone(Pod, "uid-kept"))
    assert evictions(session.decide()) == {"free-2": "Reclaimed"}


def test_policy_that_refuses_an_eviction_costs_another_pod_at_most_once() -> None:
    session = a_session(guest("free-0"), guest("kept"), obeys=False)
    session.see(owner())
    assert sorted(evictions(session.decide())) == ["free-0", "kept"]
    session.tell(EvictRefused("uid-kept", EvictRefusal.FORBIDDEN, "a policy"), gone(Pod, "uid-free-0"))
    session.see(guest("free-1"))
    asked: list[float] = []
    for _ in range(40):
        found = evictions(session.decide(30))
        if found:
            assert found == {"kept": "Reclaimed"}
            asked.append(session.now)
            session.tell(EvictRefused("uid-kept", EvictRefusal.FORBIDDEN, "a policy"))
    waits = [later - earlier for earlier, later in pairwise(asked)]
    assert waits[:4] == [60, 120, 240, 300]
    session.see(terminating(guest("kept")))
    assert evictions(session.decide()) == {"free-1": "Reclaimed"}, "nothing refuses any more"


def test_pods_that_were_refused_before_are_asked_one_by_one() -> None:
    session = a_session(guest("k1"), guest("k2"), obeys=False)
    session.see(owner())
    assert sorted(evictions(session.decide())) == ["k1", "k2"]
    session.tell(*(EvictRefused(f"uid-{name}", EvictRefusal.FORBIDDEN, "no") for name in ("k1", "k2")))
    (first,) = evictions(session.decide(30))
    session.tell(EvictRefused(f"uid-{first}", EvictRefusal.FORBIDDEN, "no"))
    assert evictions(session.decide(30)) == {}
    assert evictions(session.decide(30)) == {first: "Reclaimed"}, "the one that was refused more often"


@pytest.mark.parametrize(
    ("fields", "budget"), [({"phase": "Pending"}, {}), ({"unready": True}, {"unhealthy_go": True})]
)
def test_pod_whose_budget_does_not_count_may_go(fields: dict[str, Any], budget: dict[str, Any]) -> None:
    session = a_session(guest("kept", "g", cpu="4", **fields))
    session.tell(a_budget("b", "g", 0, **budget))
    session.see(owner())
    assert evictions(session.decide()) == {"kept": "Reclaimed"}


def test_budget_counts_again_once_the_pod_runs() -> None:
    session = a_session(guest("kept", "g", cpu="4", phase="Pending"))
    session.tell(a_budget("b", "g", 0))
    session.see(guest("kept", "g", cpu="4"), owner())
    assert evictions(session.decide()) == {}
    session.see(guest("kept", cpu="4"))
    assert evictions(session.decide()) == {"kept": "Reclaimed"}, "its label is gone"


def test_loans_end_no_more_at_once_than_their_budget_allows_and_no_gang_in_part() -> None:
    lender = a_pool("a", labels=A, reclaim_policy=ReclaimPolicy.EVICT)
    session = Session(lender, a_pool("b", labels={"pool": "b"}), profile=OBEYING)
    session.see(*(a_node(name, cpu="4", labels=A) for name in ("n", "m")))
    session.see(guest("g1", "g"), guest("g2", "g"))
    session.see(member(guest("v0", node="m"), "v"), member(guest("v1", "k", node="m"), "v"))
    session.tell(Seen(a_gang("v", 2)), a_budget("b", "g", 1), a_budget("c", "k", 0))
    session.decide()
    session.see(replace(lender, disable_sharing=True))
    (first,) = evictions(session.decide())
    session.tell(a_budget("b", "g", 0, disrupted=frozenset((first,))), gone(Pod, f"uid-{first}"))
    assert evictions(session.decide(5)) == {}
    session.tell(a_budget("b", "g", 1), a_budget("c", "k", 1))
    assert sorted(evictions(session.decide())) == sorted(({"g1", "g2"} - {first}) | {"v0", "v1"})
