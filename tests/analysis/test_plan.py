"""What a plan says of a change: who starts where, who is evicted, who moves, and what is told apart."""

from typing import Any

import pytest

from aischeduler.analysis.cluster_copy import ClusterCopy
from aischeduler.analysis.cluster_snapshot import ClusterSnapshot
from aischeduler.analysis.plan import Plan, PlanError, PlannedChange, PlannedUnit, UnitPlan, UnitVerdict, plan
from aischeduler.engine.profile import default_profile
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import Event, Seen
from aischeduler.model.node import Node
from aischeduler.model.pod import RUNNING, Pod
from aischeduler.model.pool import Pool, ReclaimPolicy
from aischeduler.model.selectors import label_selector
from tests.build import a_node, a_pod, a_pool, replace

NOW = 1_767_225_600


def a_snapshot(*things: Pool | Node | Pod | DisruptionBudget) -> ClusterSnapshot:
    return ClusterSnapshot(NOW, tuple(event_of(thing) for thing in things))


def event_of(thing: Pool | Node | Pod | DisruptionBudget) -> Event:
    match thing:
        case Pool():
            return Seen(thing)
        case Node():
            return Seen(thing)
        case Pod():
            return Seen(thing)
        case DisruptionBudget():
            return Seen(thing)


def a_unit(*pods: Pod, kind: str = "Job", name: str = "new") -> PlannedUnit:
    return PlannedUnit(kind, "default", name, pods)


def planned(snapshot: ClusterSnapshot, *units: PlannedUnit, **change: Any) -> Plan:
    return plan(ClusterCopy(default_profile(), snapshot), PlannedChange(units, **change))


def only(made: Plan) -> UnitPlan:
    (found,) = made.units
    return found


OBEYING = replace(default_profile(), obeys_budgets=True)
A = a_pool("a", labels={"pool": "a"})
B = a_pool("b", labels={"pool": "b"})


def node_of(pool: str, name: str, cpu: str = "2") -> Node:
    return a_node(name, cpu=cpu, labels={"pool": pool})


def test_pods_on_free_room_of_their_pool_start() -> None:
    made = only(planned(a_snapshot(A, node_of("a", "n1")), a_unit(a_pod("p-0", pool="a"), a_pod("p-1", pool="a"))))
    assert made.verdict is UnitVerdict.STARTS
    assert made.nodes == {"p-0": "n1", "p-1": "n1"}
    assert (made.evicts, made.lenders, made.waits_for) == ((), {}, "")


def test_unit_of_which_a_pod_is_lent_room_borrows_and_names_the_lender_of_that_pod() -> None:
    snapshot = a_snapshot(A, B, node_of("a", "n1"), node_of("b", "n2"))
    made = only(planned(snapshot, a_unit(*(a_pod(f"p-{i}", pool="a") for i in range(3)))))
    assert made.verdict is UnitVerdict.BORROWS
    assert list(made.lenders.values()) == ["b"]


def test_unit_that_starts_after_evictions_names_the_victims() -> None:
    low = a_pod("low", namespace="team", cpu="2", pool="a", node="n1")
    made = only(planned(a_snapshot(A, node_of("a", "n1"), low), a_unit(a_pod("p", cpu="2", pool="a", priority=9))))
    assert made.verdict is UnitVerdict.EVICTS
    assert (made.nodes, made.evicts) == ({"p": "n1"}, ("team/low",))


def test_unit_of_which_a_pod_waits_waits_for_what_the_scheduler_says() -> None:
    made = only(planned(a_snapshot(A, node_of("a", "n1")), a_unit(*(a_pod(f"p-{i}", pool="a") for i in range(3)))))
    assert made.verdict is UnitVerdict.WAITS
    assert sorted(made.nodes) == ["p-0", "p-1"]
    assert list(made.waits) == ["p-2"]
    assert made.waits_for.startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_pod_of_another_scheduler_is_left_to_it() -> None:
    pod = a_pod("p", pool="a", scheduler_name="default-scheduler")
    made = only(planned(a_snapshot(A, node_of("a", "n1")), a_unit(pod)))
    assert made.waits_for == 'its schedulerName is "default-scheduler", so another scheduler decides'


def test_pod_with_a_node_of_its_own_counts_there() -> None:
    snapshot = a_snapshot(A, node_of("a", "n1"))
    placed, other = a_unit(a_pod("p", cpu="2", pool="a", node="n1"), name="placed"), a_unit(a_pod("q", pool="a"))
    first, second = planned(snapshot, placed, other).units
    assert (first.verdict, first.nodes) == (UnitVerdict.STARTS, {"p": "n1"})
    assert second.verdict is UnitVerdict.WAITS


def test_pod_that_names_an_unknown_pool_says_so() -> None:
    made = only(planned(a_snapshot(a_node("n1")), a_unit(a_pod("p", pool="nowhere"))))
    assert made.verdict is UnitVerdict.STARTS
    assert made.notes[0].startswith('The Pool "nowhere" does not exist')


def test_pod_that_starts_and_is_evicted_for_another_unit_waits_and_says_for_whom() -> None:
    """The Pool that the second pod names is read first, so the first pod has the node by then."""
    first = a_unit(a_pod("first", cpu="2"), name="first")
    second = a_unit(a_pod("second", cpu="2", pool="nowhere", priority=9), name="second")
    evicted, made = planned(a_snapshot(a_node("n1", cpu="2")), first, second).units
    assert (made.verdict, made.evicts) == (UnitVerdict.EVICTS, ("default/first",))
    assert evicted.verdict is UnitVerdict.WAITS
    assert evicted.waits_for.startswith("it starts and is evicted again. Preempted by default/second")


def test_what_happens_without_the_change_is_a_note_and_its_room_is_taken() -> None:
    waiting = a_pod("early", cpu="2", pool="a", created=5)
    made = planned(a_snapshot(A, node_of("a", "n1"), waiting), a_unit(a_pod("p", pool="a")))
    assert made.notes == ("Without this change too, 1 waiting pod would start: default/early",)
    assert only(made).verdict is UnitVerdict.WAITS
    assert made.other_starts == ()


def test_terminating_pods_are_gone_before_the_change() -> None:
    leaving = a_pod("leaving", cpu="2", pool="a", node="n1", terminating=True, grace=30)
    assert only(planned(a_snapshot(A, node_of("a", "n1"), leaving), a_unit(a_pod("p", pool="a")))).evicts == ()


def test_drained_node_shows_where_its_pods_go() -> None:
    pods = (
        a_pod("mine", namespace="team", pool="a", node="n1", started=7),
        a_pod("daemon", namespace="team", pool="a", node="n1", guarded=True),
        a_pod("other", node="n1", scheduler_name="default-scheduler"),
    )
    made = planned(a_snapshot(A, node_of("a", "n1"), node_of("a", "n2"), *pods), without=("n1",))
    assert (only(made).unit.kind, only(made).unit.name) == ("Node", "n1")
    assert only(made).nodes == {"team/mine": "n2"}
    assert only(made).notes == ("2 other pods on it end with it",)
    assert made.pool_nodes == {"a": (2, 1)}


def test_node_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(PlanError, match="there is no node n9"):
        planned(a_snapshot(A), without=("n9",))


def test_edit_of_a_pool_shows_who_is_evicted_and_who_starts() -> None:
    guest = a_pod("guest", cpu="2", pool="b", node="n1")
    home = a_pod("home", cpu="2", pool="a", created=5)
    snapshot = a_snapshot(replace(A, disable_preemption=True), B, node_of("a", "n1"), guest, home)
    made = planned(snapshot, events=(Seen(a_pool("a", labels={"pool": "a"}, generation=1)),))
    assert made.notes == ()
    assert [(one.victim.name, one.beneficiary and one.beneficiary.name) for one in made.other_evictions] == [
        ("guest", "home")
    ]
    assert [(one.pod.name, one.node) for one in made.other_starts] == [("home", "n1")]


def test_pool_that_stops_sharing_ends_its_loans_where_it_says_so() -> None:
    guest = a_pod("guest", pool="b", node="n1")
    closed = replace(A, disable_sharing=True, reclaim_policy=ReclaimPolicy.EVICT)
    made = planned(a_snapshot(A, B, node_of("a", "n1"), guest), events=(Seen(closed),))
    assert [(one.victim.name, one.beneficiary) for one in made.other_evictions] == [("guest", None)]


def test_new_pool_shows_the_nodes_and_the_running_pods_that_change_hands() -> None:
    running = a_pod("running", pool="a", node="n1")
    snapshot = a_snapshot(A, replace(node_of("a", "n1"), labels={"pool": "a", "new": "yes"}), running)
    taken = replace(A, selector=label_selector("spec.nodeSelector", {"pool": "nothing"}, ()))
    made = planned(snapshot, events=(Seen(taken), Seen(a_pool("c", labels={"new": "yes"}))))
    assert made.pool_nodes == {"a": (1, 0), "c": (0, 1)}
    assert [(one.pool, one.home_pool) for one in made.loan_changes] == [("c", "a")]


@pytest.mark.parametrize(("allowed", "verdict"), [(0, UnitVerdict.WAITS), (1, UnitVerdict.EVICTS)])
def test_budget_forbids_an_eviction_where_the_scheduler_asks_the_eviction_api(
    allowed: int, verdict: UnitVerdict
) -> None:
    selector = label_selector("spec.selector", {"app": "x"}, ())
    low = a_pod("low", cpu="2", pool="a", node="n1", labels={"app": "x"})
    budget = DisruptionBudget("default", "b", "uid-b", selector, allowed)
    copy = ClusterCopy(OBEYING, a_snapshot(A, node_of("a", "n1"), low, budget))
    made = plan(copy, PlannedChange((a_unit(a_pod("p", cpu="2", pool="a", priority=9)),)))
    assert only(made).verdict is verdict


def test_pods_of_a_drained_node_use_up_what_their_budget_allows() -> None:
    labels = {"app": "x"}
    lost = replace(a_pod("lost", cpu="2", pool="a", node="n1", priority=10, labels=labels, started=1), phase=RUNNING)
    low = replace(a_pod("low", cpu="2", pool="a", node="n2", labels=labels, started=1), phase=RUNNING)
    budget = DisruptionBudget("default", "b", "uid-b", label_selector("spec.selector", labels, ()), 1)
    snapshot = a_snapshot(A, node_of("a", "n1"), node_of("a", "n2"), lost, low, budget)
    copy = ClusterCopy(OBEYING, snapshot)
    assert only(plan(copy, PlannedChange(without=("n1",)))).verdict is UnitVerdict.WAITS


def test_budget_does_not_save_a_pod_where_the_scheduler_deletes() -> None:
    selector = label_selector("spec.selector", {"app": "x"}, ())
    low = a_pod("low", cpu="2", pool="a", node="n1", labels={"app": "x"})
    snapshot = a_snapshot(A, node_of("a", "n1"), low, DisruptionBudget("default", "b", "uid-b", selector, 0))
    made = only(planned(snapshot, a_unit(a_pod("p", cpu="2", pool="a", priority=9))))
    assert made.evicts == ("default/low",)


def test_copy_that_does_not_come_to_rest_in_time_says_so() -> None:
    copy = ClusterCopy(default_profile(), a_snapshot(A, node_of("a", "n1"), a_pod("p", pool="a")))
    assert not copy.settle(rounds_max=1)
    assert copy.settle()


def test_same_change_gives_the_same_plan() -> None:
    snapshot = a_snapshot(A, B, *(node_of("ab"[i % 2], f"n{i}") for i in range(4)))
    units = [a_unit(*(a_pod(f"{name}-{i}", pool=name) for i in range(4)), name=name) for name in "ab"]
    assert planned(snapshot, *units) == planned(snapshot, *units)
