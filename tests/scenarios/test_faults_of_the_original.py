"""Faults of the original Ai-Scheduler that this scheduler does not have."""

from tests.scenarios.stage import CLOSED, Stage

FULL = "4"


# Lost pods and leaks.


def test_pod_on_a_trip_when_its_pool_is_deleted_is_not_lost(stage: Stage) -> None:
    stage.node("b1", pool="b", taints=[CLOSED])
    stage.pools("a", "b")
    names = [f"p{number}" for number in range(4)]
    stage.pods(*names, pool="a")
    stage.delete("Pool", "a")
    stage.untaint("b1")
    stage.until_each(names, lambda name: stage.node_of(name) == "b1")
    stage.until(lambda: stage.amount("default", "borrowed") == "4")


def test_pool_deleted_and_recreated_at_once_loses_no_pod(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="40")
    stage.pools("a")
    names = [f"p{number:02d}" for number in range(20)]
    stage.pods(*names[:10], pool="a")
    stage.delete("Pool", "a")
    stage.pools("a")
    stage.pods(*names[10:], pool="a")
    stage.until_each(names, lambda name: stage.node_of(name) == "a1")
    stage.until(lambda: stage.amount("a", "own") == "20")


def test_room_of_pods_bound_while_their_pool_was_deleted_is_not_leaked(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pods("p1", "p2", "p3", "p4", pool="a")
    stage.delete("Pool", "a")
    for name in ("p1", "p2", "p3", "p4"):
        stage.goes(**{name: "a1"})
        stage.delete("Pod", name)
    stage.pod("next", cpu=FULL)
    stage.goes(next="a1")


def test_nomination_of_a_pod_that_changed_queues_reserves_nothing_for_ever(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("victim", pool="a", cpu="3", held=True)
    stage.runs("victim")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.until(lambda: stage.nominated("high") == "a1")
    stage.delete("Pool", "a")
    stage.delete("Pod", "high")
    stage.pod("small", cpu="1")
    stage.goes(small="a1")
    stage.release("victim")
    stage.pod("rest", cpu="3")
    stage.goes(rest="a1")


def test_node_that_moves_and_changes_size_at_once_keeps_the_sums_right(stage: Stage) -> None:
    stage.node("n1", pool="a", cpu="4")
    stage.pools("a", "b")
    stage.settle()
    stage.allocatable("n1", cpu="8")
    stage.move("n1", "b")
    stage.until(lambda: stage.amount("b", "allocatable") == "8")
    stage.until(lambda: stage.amount("a", "allocatable") == "0")
    stage.pod("p", pool="b", cpu="8")
    stage.goes(p="n1")


# Reclaim is guaranteed.


def test_slow_victims_cost_no_further_victims_at_each_retry(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="8")
    stage.pools("a", "b")
    stage.pods("b1", "b2", "b3", "b4", pool="b", cpu="2", priority=1000, held=True)
    stage.runs("b1", "b2", "b3", "b4")
    stage.pod("home", pool="a", cpu="2")
    stage.until(lambda: len(stage.victims()) == 1)
    for touch in ("first", "second"):
        stage.patch("Pod", "home", {"metadata": {"labels": {"touched": touch}}})
        stage.let_pass(0.8)
    assert len(stage.victims()) == 1
    stage.release(*stage.victims())
    stage.goes(home="a1")


def test_sharing_switched_off_can_end_loans(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b")
    stage.pools("b", reclaimPolicy="Evict")
    stage.pod("p", pool="a")
    stage.runs("p")
    stage.set_pool("b", disableSharing=True)
    stage.evicts("p")


# Starvation and idleness.


def test_pod_that_can_never_fit_does_not_stop_its_pool_from_lending(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", gpu=8)
    stage.pools("b")
    stage.pod("never", pool="b", gpu=100)
    stage.waits("never", "Insufficient nvidia.com/gpu")
    stage.pod("p", pool="a", gpu=8)
    stage.goes(p="b1")


def test_pod_that_can_never_fit_does_not_stop_a_pool_that_may_not_evict_either(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", gpu=8)
    stage.pools("b", disablePreemption=True)
    stage.pod("never", pool="b", gpu=100)
    stage.waits("never", "Insufficient nvidia.com/gpu")
    stage.pod("p", pool="a", gpu=8)
    stage.goes(p="b1")


def test_pod_with_a_typo_in_the_name_of_its_pool_is_warned(stage: Stage) -> None:
    stage.node("a1", pool="team-vision")
    stage.pools("team-vision")
    stage.pod("p", pool="team-vison")
    stage.goes(p="a1")
    stage.until(lambda: len(stage.events("p", "UnknownPool")) == 1)


# Ping-pong.


def test_pod_that_no_lender_takes_visits_each_lender_once(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="3")
    for lender in ("b", "c", "d"):
        stage.node(f"{lender}1", pool=lender, cpu="2")
    stage.pools("a", "b", "c", "d")
    stage.pod("before", pool="a", cpu="1")
    stage.goes(before="a1")
    begun = stage.decision("before")
    stage.pod("p", pool="a", cpu="3")
    stage.waits("p", "borrowing: ")
    stage.let_pass(1.2)
    assert len(stage.events("p", "FailedScheduling")) == 1
    stage.delete("Pod", "before")
    stage.goes(p="a1")
    assert 0 < stage.decision("p") - begun <= 12


def test_pod_for_which_a_lender_has_room_but_no_matching_node_stays_at_home(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", cpu="64", labels={"zone": "west"})
    stage.node("c1", pool="c", cpu="64", taints=[CLOSED])
    stage.pools("b", "c")
    stage.node("probe1", pool="probe")
    stage.pools("probe", disableSharing=True)
    stage.pod("first", pool="probe")
    stage.goes(first="probe1")
    stage.pod("p", pool="a", node_selector={"zone": "east"})
    stage.waits("p", "borrowing: ")
    stage.let_pass(1.2)
    stage.pod("last", pool="probe")
    stage.goes(last="probe1")
    assert 0 < stage.decision("last") - stage.decision("first") <= 8
