"""Pools that are created, changed and deleted: no pod is lost, and running pods become home pods or loans."""

from tests.objects import pool_object
from tests.scenarios.stage import POOL_LABEL, Stage

FULL = "4"


def a_node_that_moved(stage: Stage, *, cpu: str) -> None:
    """Move node n1 from pool a to pool b, so that `p` of pool a, which runs there, is on loan."""
    stage.node("n1", pool="a")
    stage.pools("a", "b")
    stage.pod("p", pool="a", cpu=cpu)
    stage.runs("p")
    stage.move("n1", "b")
    stage.until(lambda: stage.amount("b", "shared") == cpu)


def test_running_pods_of_a_deleted_pool_keep_running_as_pods_of_the_default_pool(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("p", pool="a", cpu="1")
    stage.runs("p")
    stage.delete("Pool", "a")
    stage.until(lambda: stage.amount("default", "own") == "1")
    stage.until(lambda: stage.amount("default", "shared") == "0")
    assert not stage.terminating("p")


def test_recreated_pool_owns_its_nodes_and_running_pods_again(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("p", pool="a", cpu="1")
    stage.runs("p")
    stage.delete("Pool", "a")
    stage.until(lambda: stage.status("default").get("nodes") == 1)
    stage.pools("a")
    stage.until(lambda: stage.amount("a", "own") == "1")
    stage.until(lambda: stage.amount("a", "shared") == "0")
    stage.pod("q", pool="a", cpu="3")
    stage.goes(q="a1")


def test_borrowed_pods_of_a_deleted_pool_keep_running_where_they_are(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b")
    stage.pools("b")
    stage.pod("p", pool="a", cpu="1")
    stage.runs("p")
    stage.delete("Pool", "a")
    stage.until(lambda: stage.amount("default", "borrowed") == "1")
    stage.until(lambda: stage.amount("b", "shared") == "1")
    assert not stage.terminating("p")


def test_loans_of_a_deleted_lender_become_loans_of_the_default_pool(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b")
    stage.pools("b")
    stage.pod("p", pool="a", cpu=FULL)
    stage.runs("p")
    stage.delete("Pool", "b")
    stage.until(lambda: stage.amount("default", "shared") == "4")
    stage.pod("home", cpu=FULL)
    stage.goes(home="b1")
    assert stage.victims() == ["p"]


def test_nominated_pod_of_a_deleted_pool_still_gets_its_room(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("victim", pool="a", cpu=FULL, held=True)
    stage.runs("victim")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.until(lambda: stage.nominated("high") == "a1" and stage.terminating("victim"))
    stage.delete("Pool", "a")
    stage.release("victim")
    stage.goes(high="a1")
    assert stage.victims() == ["victim"]


def test_pods_in_flight_when_their_pool_is_deleted_are_all_bound(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="100")
    stage.pools("a")
    names = [f"p{number:02d}" for number in range(30)]
    stage.pods(*names[:15], pool="a")
    stage.delete("Pool", "a")
    stage.pods(*names[15:], pool="a")
    stage.until_each(names, lambda name: stage.node_of(name) == "a1")


def test_changed_selector_moves_nodes_and_makes_running_pods_loans(stage: Stage) -> None:
    stage.node("n1", pool="a", labels={"new": "1"})
    stage.pools("a")
    stage.pod("p", pool="a", cpu=FULL)
    stage.runs("p")
    stage.create(pool_object(stage.own("b"), labels={"new": "2"}))
    stage.set_pool("a", nodeSelector={"matchLabels": {POOL_LABEL: None, "new": "2"}})
    stage.set_pool("b", nodeSelector={"matchLabels": {"new": "1"}})
    stage.until(lambda: stage.amount("b", "shared") == "4")
    stage.until(lambda: stage.amount("a", "borrowed") == "4")
    assert not stage.terminating("p")
    stage.pod("theirs", pool="b", cpu=FULL)
    stage.goes(theirs="n1")
    assert stage.victims() == ["p"]


def test_node_that_changes_its_pool_moves_capacity_and_pods_in_one_step(stage: Stage) -> None:
    a_node_that_moved(stage, cpu="1")
    stage.until(lambda: stage.status("a").get("nodes") == 0)
    assert (stage.amount("a", "allocatable"), stage.amount("b", "allocatable")) == ("0", "4")
    stage.until(lambda: stage.amount("a", "borrowed") == "1")
    stage.pod("theirs", pool="b", cpu=FULL)
    stage.goes(theirs="n1")
    assert stage.victims() == ["p"]


def test_node_that_returns_to_its_pool_makes_its_loans_home_pods_again(stage: Stage) -> None:
    a_node_that_moved(stage, cpu="2")
    stage.move("n1", "a")
    stage.until(lambda: stage.amount("a", "own") == "2")
    stage.pod("theirs", pool="b", cpu=FULL)
    stage.waits("theirs")
    assert stage.victims() == []


def test_hundred_edits_of_a_pool_end_in_the_last_one(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b")
    stage.pools("b", disableSharing=True)
    stage.pod("p", pool="a")
    stage.waits("p")
    for number in range(100):
        stage.set_pool("b", disableSharing=number % 2 == 0, lendingLimit={"cpu": str(number + 1)})
    stage.goes(p="b1")
    stage.heeded("b")


def test_pool_without_a_selector_owns_nothing_and_only_borrows(stage: Stage) -> None:
    stage.node("free")
    stage.create(pool_object(stage.own("guest")))
    stage.until(lambda: stage.status("guest").get("nodes") == 0)
    stage.pod("p", pool="guest")
    stage.goes(p="free")
    assert stage.marks("p")["borrowed"] == "true"


def test_pool_created_for_running_pods_gets_them_as_home_pods(stage: Stage) -> None:
    stage.node("n1", pool="late")
    stage.pod("p", pool="late", cpu="2")
    stage.goes(p="n1")
    assert stage.marks("p")["home-pool"] == "default"
    stage.pools("late")
    stage.until(lambda: stage.amount("late", "own") == "2")
    stage.until(lambda: stage.amount("late", "shared") == "0")
