"""Which pool may borrow from which, the order of lenders, and the annotations of a loan."""

from tests.scenarios.stage import CLOSED, Stage


def a_lender(stage: Stage, name: str, cpu: str = "4", **spec: object) -> None:
    """Create a pool of one idle node, named after the pool."""
    stage.node(f"{name}1", pool=name, cpu=cpu)
    stage.pools(name, **spec)


def a_home_pod_that_waits(stage: Stage, *, running: str, waiting: str) -> None:
    """Let `waiting` of pool b request more CPU than `running` leaves on b1, and than any other node has."""
    stage.pod("running", pool="b", cpu=running, on="b1")
    stage.goes(running="b1")
    stage.pod("waiting", pool="b", cpu=waiting)
    stage.waits("waiting", "Insufficient cpu")


def test_loan_has_annotations_of_home_pool_and_lender(stage: Stage) -> None:
    stage.pools("a")
    a_lender(stage, "b")
    stage.pod("p", pool="a")
    stage.goes(p="b1")
    assert stage.marks("p").items() >= {"home-pool": "a", "pool": "b", "borrowed": "true"}.items()


def test_pool_that_does_not_borrow_waits(stage: Stage) -> None:
    stage.pools("a", disableBorrowing=True)
    a_lender(stage, "b")
    stage.pod("p", pool="a")
    stage.waits("p", "no nodes available to schedule pods")


def test_pool_that_does_not_share_lends_nothing(stage: Stage) -> None:
    stage.pools("a")
    a_lender(stage, "b", disableSharing=True)
    stage.pod("p", pool="a")
    stage.waits("p", "borrowing: not sharing: b;")


def test_pods_of_the_default_pool_borrow_too(stage: Stage) -> None:
    a_lender(stage, "b")
    stage.pod("p")
    stage.goes(p="b1")
    assert stage.marks("p").items() >= {"home-pool": "default", "borrowed": "true"}.items()


def test_default_pool_lends_its_idle_nodes(stage: Stage) -> None:
    stage.node("free")
    stage.pools("a")
    stage.pod("p", pool="a")
    stage.goes(p="free")
    assert stage.marks("p").items() >= {"home-pool": "a", "pool": "default", "borrowed": "true"}.items()


def test_pool_that_names_its_lenders_borrows_from_no_other(stage: Stage) -> None:
    a_lender(stage, "b", cpu="64")
    a_lender(stage, "c")
    stage.pools("a", borrowingPools=["c"])
    stage.pod("p", pool="a", cpu="2")
    stage.pod("q", pool="a", cpu="4")
    stage.goes(p="c1")
    stage.waits("q")


def test_node_that_refuses_a_pod_is_not_lent_to_it(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", taints=[CLOSED])
    stage.node("c1", pool="c", labels={"disk": "hdd"})
    stage.pools("b", "c")
    stage.pod("p", pool="a", node_selector={"disk": "ssd"}, tolerations=[{"key": "other", "operator": "Exists"}])
    stage.waits("p", "borrowing: no node fits: default, b, c.")


def test_home_pod_that_needs_more_than_is_free_blocks_no_loan(stage: Stage) -> None:
    stage.pools("a")
    a_lender(stage, "b", cpu="4")
    stage.pod("huge", pool="b", cpu="100")
    stage.waits("huge", "Insufficient cpu")
    stage.pod("p", pool="a", cpu="4")
    stage.goes(p="b1")


def test_lender_that_may_not_evict_keeps_the_nodes_on_which_its_waiting_pod_could_run(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", cpu="8")
    stage.node("b2", pool="b", cpu="4")
    stage.pools("b", disablePreemption=True)
    a_home_pod_that_waits(stage, running="4", waiting="8")
    stage.pod("p", pool="a", cpu="4")
    stage.goes(p="b2")
    stage.pod("q", pool="a", cpu="4")
    stage.waits("q", "own pods wait for that room: b.")


def test_next_lender_lends_when_one_refuses(stage: Stage) -> None:
    stage.pools("a")
    a_lender(stage, "b", cpu="64", disablePreemption=True)
    a_lender(stage, "c", cpu="4")
    a_home_pod_that_waits(stage, running="1", waiting="64")
    stage.pod("p", pool="a", cpu="4")
    stage.goes(p="c1")


def test_lender_with_the_largest_idle_share_lends_not_the_one_with_the_most_room(stage: Stage) -> None:
    stage.pools("a")
    a_lender(stage, "b", cpu="16")
    a_lender(stage, "c", cpu="6")
    stage.pod("theirs", pool="b", cpu="8")
    stage.goes(theirs="b1")
    stage.pod("p", pool="a", cpu="2")
    stage.goes(p="c1")


def test_idle_share_is_that_of_the_scarcest_requested_resource(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", cpu="100", gpu=4)
    stage.node("c1", pool="c", cpu="10", gpu=8)
    stage.pools("b", "c")
    stage.pod("gpu", pool="a", cpu="1", gpu=2)
    stage.goes(gpu="c1")
    stage.pod("cpu", pool="a", cpu="1")
    stage.goes(cpu="b1")


def test_of_equally_idle_lenders_the_one_with_the_fewest_pods_lends(stage: Stage) -> None:
    stage.pools("a")
    a_lender(stage, "b", cpu="8")
    a_lender(stage, "c", cpu="8")
    stage.pods("b-p1", "b-p2", pool="b", cpu="1")
    stage.pod("c-p1", pool="c", cpu="2")
    stage.runs("b-p1", "b-p2", "c-p1")
    stage.pod("p", pool="a", cpu="2")
    stage.goes(p="c1")


def test_finished_pods_of_a_lender_are_not_counted(stage: Stage) -> None:
    stage.pools("a")
    a_lender(stage, "b", cpu="8")
    a_lender(stage, "c", cpu="8")
    stage.pods("b-p1", "b-p2", pool="b", cpu="1", annotations={"sandbox.resource.aibee.cn/run-seconds": "0.1"})
    stage.pod("b-p3", pool="b", cpu="2")
    stage.pods("c-p1", "c-p2", pool="c", cpu="1")
    stage.runs("b-p3", "c-p1", "c-p2")
    stage.until_each(("b-p1", "b-p2"), lambda name: stage.phase(name) == "Succeeded")
    stage.until(lambda: stage.status("b").get("pods") == 1)
    stage.pod("p", pool="a", cpu="2")
    stage.goes(p="b1")


def test_pod_without_gpus_borrows_where_it_strands_none(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", cpu="8", gpu=8)
    stage.node("c1", pool="c", cpu="8")
    stage.pools("b", "c")
    stage.pod("p", pool="a", cpu="2")
    stage.goes(p="c1")


def test_of_equal_lenders_the_first_by_name_lends(stage: Stage) -> None:
    stage.pools("a")
    a_lender(stage, "c")
    a_lender(stage, "b")
    stage.pod("p", pool="a", cpu="2")
    stage.goes(p="b1")


def test_many_borrowers_at_once_share_the_lenders_and_overbook_none(stage: Stage) -> None:
    stage.pools("a")
    for name in ("b", "c", "d"):
        a_lender(stage, name, cpu="4")
    names = [f"p{number:02d}" for number in range(16)]
    stage.pods(*names, pool="a", cpu="1")
    stage.until(lambda: sum(stage.node_of(name) != "" for name in names) == 12)
    stage.stays(lambda: sum(stage.node_of(name) != "" for name in names) == 12)


def test_pod_without_requests_may_borrow(stage: Stage) -> None:
    stage.pools("a")
    a_lender(stage, "b")
    stage.pod("p", pool="a", cpu="", memory="")
    stage.goes(p="b1")


def test_pod_that_selects_a_node_of_another_pool_borrows_it_although_it_fits_at_home(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    a_lender(stage, "b")
    stage.pod("p", pool="a", on="b1")
    stage.goes(p="b1")
    assert stage.marks("p")["borrowed"] == "true"
