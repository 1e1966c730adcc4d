"""An invalid object affects no other object."""

import pytest

from aischeduler.model.names import MARK_BORROWED, MARK_HOME_POOL, MARK_POOL
from tests.objects import pod_object, pool_object
from tests.scenarios.stage import Stage


def test_forged_annotations_on_a_pod_change_nothing(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a", "b")
    forged = {MARK_HOME_POOL: stage.own("a"), MARK_POOL: stage.own("a"), MARK_BORROWED: "true"}
    stage.pod("own", pool="a", cpu="2", annotations={MARK_HOME_POOL: stage.own("b"), MARK_BORROWED: "true"})
    stage.pod("liar", pool="b", cpu="2", annotations=forged)
    stage.runs("own", "liar")
    stage.pod("home", pool="a", cpu="2")
    stage.goes(home="a1")
    assert stage.victims() == ["liar"]


def test_pod_with_a_forged_nomination_gets_no_room(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("liar", pool="a", cpu="100")
    stage.waits("liar", "Insufficient cpu")
    stage.patch("Pod", "liar", {"status": {"nominatedNodeName": stage.own("a1")}}, "status")
    stage.pod("p", pool="a", cpu="4")
    stage.goes(p="a1")


def test_many_unknown_pools_are_all_the_default_pool(stage: Stage) -> None:
    stage.node("free", cpu="100")
    names = [f"p{number:02d}" for number in range(40)]
    for name in names:
        stage.pod(name, pool=f"nowhere-{name}", cpu="1")
    stage.until_each(names, lambda name: stage.node_of(name) == "free")
    stage.until_each(names, lambda name: len(stage.events(name, "UnknownPool")) == 1)
    assert [pool["metadata"]["name"] for pool in stage.all("Pool")] == ["default"]


def test_pod_with_a_constraint_that_is_not_supported_waits_and_names_the_field(stage: Stage) -> None:
    stage.node("free")
    document = pod_object("p", namespace=stage.own("ns"))
    document["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "one"}]
    stage.create(document)
    stage.waits("p", "spec.resourceClaims is not supported")
    stage.pod("q")
    stage.goes(q="free")
    assert stage.node_of("p") == ""


def test_pool_whose_selector_matches_no_node_affects_no_other(stage: Stage) -> None:
    stage.create(pool_object(stage.own("odd"), nodeSelector={"matchExpressions": [{"key": "x", "operator": "Exists"}]}))
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("p", pool="a")
    stage.goes(p="a1")
    stage.pod("q", pool="odd")
    stage.goes(q="a1")
    assert stage.marks("q")["borrowed"] == "true"


def test_lender_that_does_not_exist_is_no_lender(stage: Stage) -> None:
    stage.pools("a", borrowingPools=["ghost"])
    stage.node("b1", pool="b")
    stage.pools("b")
    stage.pod("p", pool="a")
    stage.waits("p", "no nodes available")


def test_pool_whose_selector_is_invalid_selects_nothing_and_has_a_condition(stage: Stage) -> None:
    stage.stored_pool("odd", nodeSelector={"matchExpressions": [{"key": "x", "operator": "Near", "values": ["y"]}]})
    stage.until(lambda: stage.condition("odd", "Accepted").get("status") == "False")
    assert "spec.nodeSelector" in stage.condition("odd", "Accepted")["message"]
    stage.node("free", labels={"x": "y"})
    stage.node("a1", pool="a")
    stage.pools("a")
    stage.pod("p")
    stage.goes(p="free")
    stage.pod("q", pool="a")
    stage.goes(q="a1")
    stage.pod("r", pool="odd")
    stage.waits("r")


@pytest.mark.newest
def test_pool_whose_limit_is_below_zero_lends_nothing_until_it_is_corrected(stage: Stage) -> None:
    stage.pools("a")
    stage.stored_pool("odd", nodeSelector={"matchLabels": {"odd": "1"}}, lendingLimit={"cpu": "-1"})
    stage.until(lambda: stage.condition("odd", "Accepted").get("status") == "False")
    assert "spec.lendingLimit" in stage.condition("odd", "Accepted")["message"]
    stage.set_pool("odd", lendingLimit={"cpu": "1"})
    stage.until(lambda: stage.condition("odd", "Accepted").get("status") == "True")
    stage.node("odd1", labels={"odd": "1"})
    stage.pod("p", pool="a", cpu="1")
    stage.goes(p="odd1")
    assert stage.marks("p")["pool"] == "odd"
