"""Lending and borrowing limits."""

from tests.scenarios.stage import Stage


def test_pool_lends_no_more_than_its_limit(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", cpu="64")
    stage.pools("b", lendingLimit={"cpu": "3"})
    stage.pod("p1", pool="a", cpu="2")
    stage.goes(p1="b1")
    stage.pod("p2", pool="a", cpu="2")
    stage.waits("p2", "borrowing: over its lending limit: b;")
    stage.pod("p3", pool="a", cpu="1")
    stage.goes(p3="b1")


def test_pool_borrows_no_more_than_its_limit_from_all_lenders_together(stage: Stage) -> None:
    stage.pools("a", borrowingLimit={"cpu": "3"})
    stage.node("b1", pool="b", cpu="2")
    stage.node("c1", pool="c", cpu="2")
    stage.pools("b", "c")
    stage.pod("p1", pool="a", cpu="2")
    stage.goes(p1="b1")
    stage.pod("p2", pool="a", cpu="2")
    stage.waits("p2", "borrowing: its pool has reached its borrowing limit of cpu.")
    stage.pod("p3", pool="a", cpu="1")
    stage.goes(p3="c1")


def test_resources_that_a_limit_does_not_name_are_not_limited(stage: Stage) -> None:
    stage.pools("a", borrowingLimit={"nvidia.com/gpu": "1"})
    stage.node("b1", pool="b", cpu="64", gpu=8)
    stage.pools("b", lendingLimit={"nvidia.com/gpu": "1"})
    stage.pod("cpu", pool="a", cpu="32")
    stage.goes(cpu="b1")
    stage.pod("g1", pool="a", gpu=1)
    stage.goes(g1="b1")
    stage.pod("g2", pool="a", gpu=1)
    stage.waits("g2", "borrowing: its pool has reached its borrowing limit of nvidia.com/gpu.")


def test_own_nodes_never_count_against_a_limit(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="4")
    stage.pools("a", borrowingLimit={"cpu": "1"}, lendingLimit={"cpu": "1"})
    stage.node("b1", pool="b", cpu="4")
    stage.pools("b")
    stage.pod("own", pool="a", cpu="4")
    stage.goes(own="a1")
    stage.pod("p", pool="a", cpu="1")
    stage.goes(p="b1")


def test_limit_of_zero_lends_none_of_a_resource(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", cpu="8", gpu=8)
    stage.pools("b", lendingLimit={"nvidia.com/gpu": 0})
    stage.pod("gpu", pool="a", gpu=1)
    stage.waits("gpu", "borrowing: over its lending limit: b;")
    stage.pod("cpu", pool="a", cpu="4")
    stage.goes(cpu="b1")


def test_loan_that_ends_makes_room_under_the_limit(stage: Stage) -> None:
    stage.pools("a", borrowingLimit={"cpu": "2"})
    stage.node("b1", pool="b", cpu="64")
    stage.pools("b")
    stage.pod("p1", pool="a", cpu="2")
    stage.goes(p1="b1")
    stage.pod("p2", pool="a", cpu="2")
    stage.waits("p2", "borrowing: its pool has reached its borrowing limit of cpu.")
    stage.delete("Pod", "p1")
    stage.goes(p2="b1")


def test_limits_hold_for_many_pods_that_borrow_at_once_from_many_pools(stage: Stage) -> None:
    stage.pools("a", borrowingLimit={"cpu": "3"})
    stage.pools("b")
    stage.node("c1", pool="c", cpu="64")
    stage.pools("c", lendingLimit={"cpu": "5"})
    mine = [f"a-p{number}" for number in range(6)]
    theirs = [f"b-p{number}" for number in range(6)]
    for own, other in zip(mine, theirs, strict=True):
        stage.pod(own, pool="a", cpu="1")
        stage.pod(other, pool="b", cpu="1")

    def bound(names: list[str]) -> int:
        return sum(stage.node_of(name) == "c1" for name in names)

    stage.until(lambda: bound(mine + theirs) == 5)
    stage.stays(lambda: bound(mine + theirs) == 5 and bound(mine) <= 3)


def test_loans_are_known_to_the_next_scheduler(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", cpu="8")
    stage.pools("b", lendingLimit={"cpu": "2"})
    stage.pod("p1", pool="a", cpu="2")
    stage.runs("p1")
    stage.restart_scheduler()
    stage.pod("p2", pool="a", cpu="2")
    stage.waits("p2", "borrowing: over its lending limit: b;")
    stage.pod("home", pool="b", cpu="8")
    stage.goes(home="b1")
    assert stage.victims() == ["p1"]
