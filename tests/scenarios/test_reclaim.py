"""Reclaim: the pods of the owner get lent room back at any time, and the borrower's pods wait in their home pool."""

from tests.scenarios.stage import Stage


def test_owner_reclaims_only_as_much_as_it_needs(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", cpu="8")
    stage.pools("b")
    stage.pods("p1", "p2", "p3", "p4", pool="a", cpu="2")
    stage.runs("p1", "p2", "p3", "p4")
    stage.pod("home", pool="b", cpu="4")
    stage.goes(home="b1")
    assert len(stage.victims()) == 2
    stage.stays(lambda: len(stage.victims()) == 2)


def test_job_whose_loan_ends_waits_at_home_and_continues_there(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="4", taints=[{"key": "closed", "effect": "NoSchedule"}])
    stage.pools("a")
    stage.node("b1", pool="b", cpu="4")
    stage.pools("b")
    stage.job("lent", pool="a", cpu="4")
    stage.until(lambda: stage.jobs_nodes("lent") == {"b1": 1})
    stage.pod("home", pool="b", cpu="4")
    stage.goes(home="b1")
    stage.until(lambda: stage.jobs_nodes("lent") == {"": 1})
    stage.untaint("a1")
    stage.until(lambda: stage.jobs_nodes("lent") == {"a1": 1})


def test_borrower_whose_room_is_reclaimed_may_borrow_from_another_pool(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", cpu="4")
    stage.pools("b")
    stage.pod("p", pool="a", cpu="4")
    stage.runs("p")
    stage.node("c1", pool="c", cpu="4")
    stage.pools("c")
    stage.pod("home", pool="b", cpu="4")
    stage.goes(home="b1")
    stage.goes_away("p")
    stage.pod("p", pool="a", cpu="4")
    stage.goes(p="c1")


def test_in_the_end_every_pool_runs_its_own_pods(stage: Stage) -> None:
    for name in ("a", "b"):
        stage.node(f"{name}1", pool=name, cpu="4")
    stage.pools("a", "b")
    stage.pods("a-p1", "a-p2", pool="a", cpu="4")
    stage.runs("a-p1", "a-p2")
    stage.pods("b-p1", pool="b", cpu="4")
    stage.goes(b_p1="b1")
    assert stage.victims() == ["a-p2"]
    stage.goes(a_p1="a1")


def test_default_pool_reclaims_its_lent_room_too(stage: Stage) -> None:
    stage.node("free", cpu="4")
    stage.pools("a")
    stage.pod("borrower", pool="a", cpu="4")
    stage.runs("borrower")
    stage.pod("home", cpu="4")
    stage.goes(home="free")
    assert stage.victims() == ["borrower"]


def test_room_of_a_borrower_that_ends_goes_to_the_owner(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", cpu="4")
    stage.pools("b", disablePreemption=True)
    stage.pod("p", pool="a", cpu="4", annotations={"sandbox.resource.aibee.cn/run-seconds": "0.3"})
    stage.goes(p="b1")
    stage.pod("home", pool="b", cpu="4")
    stage.goes(home="b1")
    assert stage.victims() == []
    assert stage.phase("p") == "Succeeded"
