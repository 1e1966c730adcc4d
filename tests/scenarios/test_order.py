"""The order of a queue: home pods before borrowers, then priority, then age."""

import pytest

from tests.scenarios.stage import CLOSED, Stage


def test_home_pod_gets_the_room_before_a_borrower_of_higher_priority(stage: Stage) -> None:
    stage.node("b1", pool="b", taints=[CLOSED])
    stage.pools("a", "b")
    stage.pod("borrower", pool="a", cpu="4", priority=1000)
    stage.pod("home", pool="b", cpu="4")
    stage.waits("borrower")
    stage.waits("home", "untolerated taint")
    stage.untaint("b1")
    stage.goes(home="b1")
    stage.waits("borrower")


@pytest.mark.parametrize("owner", ["a", "c"], ids=["at-home", "at-a-lender"])
def test_pod_of_higher_priority_is_tried_first(stage: Stage, owner: str) -> None:
    stage.node("n1", pool=owner, taints=[CLOSED])
    stage.pools("a", "b", "c")
    stage.pod("low", pool="a", cpu="4", priority=1)
    stage.pod("high", pool="a", cpu="4", priority=2)
    stage.waits("low")
    stage.waits("high")
    stage.untaint("n1")
    stage.goes(high="n1")
    stage.waits("low")


def test_of_pods_of_one_priority_the_first_seen_is_tried_first(stage: Stage) -> None:
    stage.node("a1", pool="a", taints=[CLOSED])
    stage.pools("a")
    for name in ("z-first", "m-second", "a-third"):
        stage.pod(name, pool="a", cpu="4")
        stage.waits(name)
    stage.untaint("a1")
    stage.goes(z_first="a1")
    stage.delete("Pod", "z-first")
    stage.goes(m_second="a1")
    stage.delete("Pod", "m-second")
    stage.goes(a_third="a1")


def test_pod_that_moves_to_another_queue_keeps_its_age(stage: Stage) -> None:
    stage.pod("old", pool="late", cpu="4")
    stage.waits("old", "no nodes available")
    stage.node("late1", pool="late", taints=[CLOSED])
    stage.pools("late")
    stage.pod("young", pool="late", cpu="4")
    stage.waits("young", "untolerated taint")
    stage.waits("old")
    stage.untaint("late1")
    stage.goes(old="late1")
    stage.waits("young")


def test_age_of_waiting_pods_is_known_to_the_next_scheduler(stage: Stage) -> None:
    stage.node("a1", pool="a", taints=[CLOSED])
    stage.pools("a")
    for name in ("z-first", "a-second"):
        stage.pod(name, pool="a", cpu="4")
        stage.let_pass(1.1)
    stage.restart_scheduler()
    stage.pod("b-third", pool="a", cpu="4")
    stage.waits("b-third")  # it comes last in the queue, so the others were tried before
    stage.untaint("a1")
    stage.goes(z_first="a1")
    stage.waits("a-second")


def test_borrowers_from_different_pools_are_tried_by_age(stage: Stage) -> None:
    stage.node("c1", pool="c", taints=[CLOSED])
    stage.pools("a", "b", "c")
    stage.pod("first", pool="b", cpu="4")
    stage.waits("first")
    stage.let_pass(1.1)
    stage.pod("second", pool="a", cpu="4")
    stage.waits("second")
    stage.untaint("c1")
    stage.goes(first="c1")
    stage.waits("second")
