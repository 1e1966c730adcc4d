"""Flags that change while pods run: what continues, what ends, and in which order."""

from tests.scenarios.stage import Stage


def two_loans(stage: Stage, *, apart_seconds: float = 0.0, **lender: object) -> None:
    """Let pool b lend 2 CPUs each to `older` and `newer` of pool a."""
    stage.pools("a")
    stage.node("b1", pool="b", cpu="8")
    stage.pools("b", **lender)
    stage.pod("older", pool="a", cpu="2")
    stage.runs("older")
    stage.let_pass(apart_seconds)
    stage.pod("newer", pool="a", cpu="2")
    stage.runs("newer")


def test_sharing_that_is_switched_off_starts_no_loan_and_ends_none(stage: Stage) -> None:
    two_loans(stage)
    stage.set_pool("b", disableSharing=True)
    stage.heeded("b")
    stage.pod("third", pool="a", cpu="2")
    stage.waits("third", "borrowing: not sharing: b;")
    assert stage.victims() == []


def test_sharing_that_is_switched_off_ends_every_loan_with_the_reclaim_policy_evict(stage: Stage) -> None:
    two_loans(stage, reclaimPolicy="Evict")
    stage.set_pool("b", disableSharing=True)
    stage.evicts("older", "newer")
    stage.until(lambda: len(stage.events("newer", "Preempted")) == 1)
    assert "the pool b no longer lends this room" in stage.events("newer", "Preempted")[0]


def test_limit_that_is_lowered_ends_the_newest_loans(stage: Stage) -> None:
    two_loans(stage, apart_seconds=1.1, reclaimPolicy="Evict")
    stage.set_pool("b", lendingLimit={"cpu": "3"})
    stage.evicts("newer")
    stage.stays(lambda: stage.victims() == ["newer"])


def test_limit_that_is_lowered_ends_no_loan_otherwise(stage: Stage) -> None:
    two_loans(stage)
    stage.set_pool("b", lendingLimit={"cpu": "1"})
    stage.heeded("b")
    stage.stays(lambda: stage.victims() == [])


def test_reclaim_policy_that_is_changed_to_evict_ends_loans_beyond_the_spec(stage: Stage) -> None:
    two_loans(stage)
    stage.set_pool("b", disableSharing=True)
    stage.stays(lambda: stage.victims() == [])
    stage.set_pool("b", reclaimPolicy="Evict")
    stage.evicts("older", "newer")


def test_loans_stay_while_the_pool_may_not_preempt(stage: Stage) -> None:
    two_loans(stage, disablePreemption=True)
    stage.pod("home", pool="b", cpu="8")
    stage.waits("home", "Insufficient cpu")
    assert stage.victims() == []


def test_borrowing_that_is_switched_off_starts_no_loan_and_ends_none(stage: Stage) -> None:
    two_loans(stage)
    stage.set_pool("a", disableBorrowing=True)
    stage.heeded("a")
    stage.pod("third", pool="a", cpu="2")
    stage.waits("third", "no nodes available to schedule pods")
    assert stage.victims() == []
