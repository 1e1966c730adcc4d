"""Room that was made for a pod is reserved for it until the pod is bound, is gone, or cannot use it."""

from tests.scenarios.stage import Stage

FULL = "4"


def a_victim_that_takes_its_time(stage: Stage) -> None:
    """Let `high` of pool a be nominated to a1, where `victim` (3 of 4 CPUs) is gone only when it is released."""
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("victim", pool="a", cpu="3", held=True)
    stage.runs("victim")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.until(lambda: stage.nominated("high") == "a1" and stage.terminating("victim"))


def a_victim_on_each_node(stage: Stage) -> None:
    """Let `high` be nominated to a1, where `v1` is held; `v2`, more important than `v1`, runs on a2."""
    stage.node("a1", pool="a")
    stage.node("a2", pool="a")
    stage.pools("a")
    stage.pod("v1", pool="a", cpu=FULL, on="a1", held=True)
    stage.pod("v2", pool="a", cpu=FULL, on="a2", priority=5)
    stage.runs("v1", "v2")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.until(lambda: stage.nominated("high") == "a1" and stage.terminating("v1"))


def test_nominated_pod_waits_for_its_victim_and_gets_the_room(stage: Stage) -> None:
    a_victim_that_takes_its_time(stage)
    stage.waits("high")
    stage.release("victim")
    stage.goes(high="a1")


def test_claimed_room_is_given_to_no_pod_behind_the_owner(stage: Stage) -> None:
    a_victim_that_takes_its_time(stage)
    stage.pod("small", pool="a", cpu="1", priority=9)
    stage.waits("small")
    stage.release("victim")
    stage.goes(high="a1")
    stage.waits("small")


def test_pod_ahead_of_the_owner_may_use_claimed_room_and_no_other_pod_is_evicted(stage: Stage) -> None:
    a_victim_that_takes_its_time(stage)
    stage.pod("higher", pool="a", cpu=FULL, priority=20)
    stage.waits("higher")
    stage.release("victim")
    stage.goes(higher="a1")
    stage.waits("high")
    assert stage.victims() == ["victim"]


def test_nominated_pod_does_not_borrow_meanwhile(stage: Stage) -> None:
    a_victim_that_takes_its_time(stage)
    stage.node("b1", pool="b")
    stage.pools("b")
    stage.settle()
    stage.stays(lambda: stage.node_of("high") == "")
    stage.release("victim")
    stage.goes(high="a1")


def test_no_second_victim_is_evicted_while_the_first_is_terminating(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.node("a2", pool="a")
    stage.pools("a")
    stage.pods("v1", "v2", pool="a", cpu=FULL, held=True)
    stage.runs("v1", "v2")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.until(lambda: stage.nominated("high") != "" and len(stage.victims()) == 1)
    stage.let_pass(1.2)
    stage.waits("high")
    node = stage.nominated("high")
    assert len(stage.victims()) == 1
    stage.release(*stage.victims())
    stage.goes(high=node)


def test_room_of_a_deleted_owner_is_free_again(stage: Stage) -> None:
    a_victim_that_takes_its_time(stage)
    stage.pod("small", pool="a", cpu="1")
    stage.waits("small")
    stage.delete("Pod", "high")
    stage.goes(small="a1")


def test_owner_that_can_no_longer_use_its_room_makes_room_on_another_node(stage: Stage) -> None:
    a_victim_on_each_node(stage)
    stage.taint("a1")
    stage.goes(high="a2")
    assert stage.victims() == ["v1", "v2"]


def test_claim_ends_when_its_node_leaves_the_pool(stage: Stage) -> None:
    a_victim_that_takes_its_time(stage)
    stage.pools("b")
    stage.pod("theirs", pool="b", cpu="1", never_preempts=True)
    stage.waits("theirs")
    stage.move("a1", "b")
    stage.goes(theirs="a1")


def test_reclaimed_room_is_taken_by_no_borrower_of_higher_priority(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a", "b")
    stage.pod("first", pool="b", cpu="3", held=True)
    stage.runs("first")
    stage.pod("home", pool="a", cpu=FULL)
    stage.until(lambda: stage.nominated("home") == "a1")
    stage.pod("second", pool="b", cpu="1", priority=1000)
    stage.waits("second")
    stage.release("first")
    stage.goes(home="a1")
    stage.waits("second")


def test_claim_is_known_to_the_next_scheduler(stage: Stage) -> None:
    a_victim_that_takes_its_time(stage)
    stage.restart_scheduler()
    stage.pod("small", pool="a", cpu="1", priority=9)
    stage.let_pass(1.2)
    stage.release("victim")
    stage.goes(high="a1")
    assert stage.victims() == ["victim"]
    stage.waits("small")


def test_free_room_of_a_pool_is_less_by_its_claims(stage: Stage) -> None:
    a_victim_that_takes_its_time(stage)
    stage.until(lambda: stage.amount("a", "free") == "0")
    stage.until(lambda: stage.amount("a", "used") == "3")


def test_two_owners_share_a_node_and_evict_no_more_than_both_need(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="8")
    stage.pools("a")
    stage.pods("v1", "v2", "v3", "v4", pool="a", cpu="2", held=True)
    stage.runs("v1", "v2", "v3", "v4")
    stage.pods("h1", "h2", pool="a", cpu="2", priority=10)
    stage.until(lambda: stage.nominated("h1") == stage.nominated("h2") == "a1")
    stage.until(lambda: len(stage.victims()) == 2)
    stage.stays(lambda: len(stage.victims()) == 2)
    stage.release(*stage.victims())
    stage.goes(h1="a1", h2="a1")
    assert len(stage.victims()) == 2


def test_owner_whose_node_is_deleted_makes_room_on_another_node(stage: Stage) -> None:
    a_victim_on_each_node(stage)
    stage.delete("Node", "a1")
    stage.goes(high="a2")


def test_room_that_becomes_free_on_another_node_is_taken_before_the_victim_is_gone(stage: Stage) -> None:
    a_victim_that_takes_its_time(stage)
    stage.node("a2", pool="a")
    stage.goes(high="a2")
    stage.pod("small", pool="a", cpu="1")
    stage.goes(small="a1")
