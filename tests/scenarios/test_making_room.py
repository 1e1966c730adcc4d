"""A home pod that fits nowhere in its pool: preempt then borrow, borrow then preempt, or wait."""

from tests.scenarios.stage import Stage


def a_full_home_and_an_idle_lender(stage: Stage, **spec: str) -> None:
    """Fill pool a with a pod of low priority; pool b is idle."""
    stage.node("a1", pool="a")
    stage.pools("a", **spec)
    stage.pod("low", pool="a", cpu="4")
    stage.runs("low")
    stage.node("b1", pool="b")
    stage.pools("b")


def test_pod_that_fits_at_home_is_bound_there_although_another_pool_has_more_room(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="2")
    stage.node("b1", pool="b", cpu="64")
    stage.pools("a", "b")
    stage.pod("p", pool="a", cpu="2")
    stage.goes(p="a1")
    assert "borrowed" not in stage.marks("p")


def test_room_is_made_at_home_before_it_is_borrowed(stage: Stage) -> None:
    a_full_home_and_an_idle_lender(stage)
    stage.pod("high", pool="a", cpu="4", priority=10)
    stage.goes(high="a1")
    assert stage.victims() == ["low"]


def test_pool_that_borrows_first_evicts_no_pod_while_a_lender_has_room(stage: Stage) -> None:
    a_full_home_and_an_idle_lender(stage, makeRoom="BorrowThenPreempt")
    stage.pod("high", pool="a", cpu="4", priority=10)
    stage.goes(high="b1")
    assert stage.victims() == []
    assert stage.node_of("low") == "a1"


def test_pool_that_borrows_first_preempts_when_no_lender_has_room(stage: Stage) -> None:
    a_full_home_and_an_idle_lender(stage, makeRoom="BorrowThenPreempt")
    stage.pod("theirs", pool="b", cpu="1")
    stage.goes(theirs="b1")
    stage.pod("high", pool="a", cpu="4", priority=10)
    stage.goes(high="a1")
    assert stage.victims() == ["low"]


def test_pod_that_can_preempt_no_pod_borrows(stage: Stage) -> None:
    a_full_home_and_an_idle_lender(stage)
    stage.pod("second", pool="a", cpu="4")
    stage.goes(second="b1")
    assert stage.marks("second").items() >= {"home-pool": "a", "pool": "b", "borrowed": "true"}.items()
    assert stage.victims() == []


def test_reason_of_a_waiting_pod_has_a_clause_for_each_attempt_to_get_room(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="2")
    stage.node("a2", pool="a", cpu="3")
    stage.node("b1", pool="b", cpu="1")
    stage.node("c1", pool="c")
    stage.pools("a", "b")
    stage.pools("c", disableSharing=True)
    stage.pod("p", pool="a", cpu="4")
    stage.waits(
        "p",
        "pool a: 0/2 nodes are available: 2 Insufficient cpu. preemption: ",
        " borrowing: not sharing: c; no node fits: default, b.",
    )
    stage.until(lambda: stage.events("p", "FailedScheduling")[-1:] == [stage.why("p")])
