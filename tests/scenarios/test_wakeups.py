"""Changes that wake a waiting pod: freed and new room at home and at lenders, and changes of flags."""

from collections.abc import Callable

import pytest

from tests.scenarios.stage import CLOSED, Stage

FULL = "4"
Change = Callable[[Stage], None]


def a_full_lender(stage: Stage, *, priority: int = 0) -> None:
    """Let `theirs` fill b1, the node of pool b, and `p` of pool a, which has no nodes, wait."""
    stage.pools("a")
    stage.node("b1", pool="b")
    stage.pools("b")
    stage.pod("theirs", pool="b", cpu=FULL)
    stage.runs("theirs")
    stage.pod("p", pool="a", cpu=FULL, priority=priority)
    stage.waits("p", "borrowing: ")


def test_freed_room_wakes_the_pools_own_waiting_pod(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("first", pool="a", cpu=FULL)
    stage.runs("first")
    stage.pod("second", pool="a", cpu=FULL)
    stage.waits("second", "Insufficient cpu")
    stage.delete("Pod", "first")
    stage.goes(second="a1")


def test_room_freed_by_a_pod_that_finished_wakes_too(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("first", pool="a", cpu=FULL, annotations={"sandbox.resource.aibee.cn/run-seconds": "0.3"})
    stage.goes(first="a1")
    stage.pod("second", pool="a", cpu=FULL)
    stage.goes(second="a1")
    assert stage.phase("first") == "Succeeded"


def test_freed_room_of_a_lender_wakes_pods_that_may_borrow_it(stage: Stage) -> None:
    a_full_lender(stage)
    stage.delete("Pod", "theirs")
    stage.goes(p="b1")


def test_freed_room_of_a_lender_goes_to_its_own_waiting_pod_first(stage: Stage) -> None:
    a_full_lender(stage, priority=1000)
    stage.pod("home", pool="b", cpu=FULL)
    stage.waits("home")
    stage.delete("Pod", "theirs")
    stage.goes(home="b1")
    stage.waits("p")


def waiting_borrower(stage: Stage, home: dict[str, object], lender: dict[str, object], taint: bool) -> None:
    """Let pod `p` of pool a, which has no nodes, wait for room that pool b may lend."""
    stage.pools("a", **home)
    stage.node("b1", pool="b", taints=[CLOSED] if taint else [])
    stage.pools("b", **lender)
    stage.pod("p", pool="a", cpu=FULL)
    stage.waits("p")


OPENINGS: dict[str, tuple[dict[str, object], dict[str, object], bool, Change]] = {
    "home borrows again": (
        {"disableBorrowing": True},
        {},
        False,
        lambda stage: stage.set_pool("a", disableBorrowing=False),
    ),
    "lender shares again": (
        {},
        {"disableSharing": True},
        False,
        lambda stage: stage.set_pool("b", disableSharing=False),
    ),
    "lender lends more": (
        {},
        {"lendingLimit": {"cpu": "1"}},
        False,
        lambda stage: stage.set_pool("b", lendingLimit={"cpu": "4"}),
    ),
    "home may borrow more": (
        {"borrowingLimit": {"cpu": "1"}},
        {},
        False,
        lambda stage: stage.set_pool("a", borrowingLimit=None),
    ),
    "home names the lender": (
        {"borrowingPools": ["other"]},
        {},
        False,
        lambda stage: stage.set_pool("a", borrowingPools=["b"]),
    ),
    "taint is removed": ({}, {}, True, lambda stage: stage.untaint("b1")),
}


@pytest.mark.parametrize("opening", sorted(OPENINGS))
def test_change_that_allows_a_loan_wakes(stage: Stage, opening: str) -> None:
    home, lender, taint, change = OPENINGS[opening]
    waiting_borrower(stage, home, lender, taint)
    change(stage)
    stage.goes(p="b1")


def test_new_lender_wakes(stage: Stage) -> None:
    stage.pools("a")
    stage.pod("p", pool="a", cpu=FULL)
    stage.waits("p")
    stage.node("b1", pool="b")
    stage.pools("b")
    stage.goes(p="b1")


def test_lenders_node_that_grows_wakes(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", cpu="2")
    stage.pools("b")
    stage.pod("p", pool="a", cpu=FULL)
    stage.waits("p")
    stage.allocatable("b1", cpu="4")
    stage.goes(p="b1")


def test_lenders_node_that_gets_the_selected_label_wakes(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", labels={"disk": "hdd"})
    stage.pools("b")
    stage.pod("p", pool="a", node_selector={"disk": "ssd"})
    stage.waits("p")
    stage.patch("Node", "b1", {"metadata": {"labels": {"disk": "ssd"}}})
    stage.goes(p="b1")


def test_pool_that_may_preempt_again_preempts(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a", disablePreemption=True)
    stage.pod("low", pool="a", cpu=FULL)
    stage.runs("low")
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.waits("high", "Insufficient cpu")
    stage.set_pool("a", disablePreemption=False)
    stage.goes(high="a1")
    assert stage.victims() == ["low"]


def test_borrowers_get_the_room_when_the_waiting_pod_of_the_lender_is_deleted(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b")
    stage.pools("b", disablePreemption=True)
    stage.pod("running", pool="b", cpu="2")
    stage.goes(running="b1")
    stage.pod("waiting", pool="b", cpu=FULL)
    stage.waits("waiting", "Insufficient cpu")
    stage.pod("p", pool="a", cpu="2")
    stage.waits("p", "borrowing: ")
    stage.delete("Pod", "waiting")
    stage.goes(p="b1")


def test_gated_pod_is_bound_when_its_gate_is_removed(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("gated", pool="a", cpu=FULL, gates=["example.com/quota"])
    stage.until(lambda: stage.get("Pod", "gated") != {})
    stage.stays(lambda: stage.node_of("gated") == "")
    stage.patch("Pod", "gated", {"spec": {"schedulingGates": []}})
    stage.goes(gated="a1")
