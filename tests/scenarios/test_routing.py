"""The pool of a node and of a pod."""

from aischeduler.model.names import POOL_KEY
from tests.objects import NO_POOL_NOWHERE, pool_object
from tests.scenarios.stage import Stage


def test_pod_runs_on_a_node_of_the_pool_that_it_names(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.node("b1", pool="b")
    stage.node("free")
    stage.pools("a", "b")
    stage.pods("p", pool="b")
    stage.goes(p="b1")
    assert stage.marks("p").items() >= {"home-pool": "b", "pool": "b"}.items()


def test_pool_may_be_named_by_a_label(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.node("free")
    stage.pools("a")
    stage.pod("p", labels={POOL_KEY: stage.own("a")})
    stage.goes(p="a1")


def test_annotation_wins_over_the_label(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.node("b1", pool="b")
    stage.pools("a", "b")
    stage.pod("p", pool="a", labels={POOL_KEY: stage.own("b")})
    stage.goes(p="a1")
    assert stage.marks("p")["home-pool"] == "a"


def test_home_pool_of_a_pod_that_names_no_pool_is_the_default_pool(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.node("free")
    stage.pools("a")
    stage.pod("p")
    stage.goes(p="free")
    assert stage.marks("p")["home-pool"] == "default"


def test_pod_of_an_unknown_pool_waits_in_the_default_pool_and_is_warned_once(stage: Stage) -> None:
    stage.node("free", cpu="1")
    stage.pod("p", pool="nowhere", cpu="2")
    stage.waits("p", "0/1 nodes are available: 1 Insufficient cpu.")
    stage.patch("Node", "free", {"status": {"allocatable": {"cpu": "1500m"}}}, "status")
    stage.node("free2", cpu="2")
    stage.goes(p="free2")
    assert stage.events("p", "UnknownPool") == [NO_POOL_NOWHERE]


def test_names_of_pools_are_compared_exactly(stage: Stage) -> None:
    stage.node("a1", pool="a")
    stage.node("free")
    stage.pools("a")
    stage.pod("p", annotations={POOL_KEY: stage.own("A")})
    stage.goes(p="free")
    stage.until(lambda: len(stage.events("p", "UnknownPool")) == 1)


def test_pod_that_names_what_no_pool_can_be_called_runs_in_the_default_pool_and_is_warned(stage: Stage) -> None:
    stage.node("free", cpu="4")
    for name, pool in (("p", "%s{0}{}"), ("q", "a/../../b"), ("r", "x" * 254)):
        stage.pod(name, annotations={POOL_KEY: pool})
    stage.goes(p="free", q="free", r="free")
    stage.until_each(("p", "q", "r"), lambda name: len(stage.events(name, "UnknownPool")) == 1)
    (warning,) = stage.events("p", "UnknownPool")
    assert warning.startswith('The Pool "%s{0}{}" does not exist (annotation or label resource.aibee.cn/pool);')
    assert warning.endswith("; no Pool can have this name, so the pod belongs to the pool default.")


def test_node_that_two_pools_select_belongs_to_the_default_pool_and_both_have_a_condition(stage: Stage) -> None:
    stage.node("n1", labels={"one": "1", "two": "1"})
    for name, label in (("one", "one"), ("two", "two")):
        stage.create(pool_object(stage.own(name), labels={label: "1"}))
    stage.until_each(("one", "two"), lambda name: stage.condition(name, "Conflict").get("status") == "True")
    for name in ("one", "two"):
        assert stage.condition(name, "Conflict")["message"].endswith(": n1.")
    stage.pod("p")
    stage.goes(p="n1")
    stage.patch("Node", "n1", {"metadata": {"labels": {"two": None}}})
    stage.until_each(("one", "two"), lambda name: stage.condition(name, "Conflict").get("status") == "False")
    stage.pod("q", pool="one")
    stage.goes(q="n1")


def test_pool_whose_selector_matches_no_node_has_a_condition_with_its_time(stage: Stage) -> None:
    stage.create(pool_object(stage.own("typo"), labels={"gpu": "a100-typo"}))
    stage.create(pool_object(stage.own("guest")))
    stage.until(lambda: stage.condition("typo", "NodesMissing").get("status") == "True")
    found = stage.condition("typo", "NodesMissing")
    assert (found["reason"], found["message"]) == (
        "NoNodeMatched",
        "No node matches spec.nodeSelector: gpu=a100-typo",
    )
    stage.until(lambda: stage.condition("guest", "NodesMissing").get("status") == "False")
    stage.until(lambda: stage.condition("default", "NodesMissing").get("status") == "False")
    stage.node("other")
    stage.set_pool("typo", nodeSelector={"matchLabels": {"gpu": "a100-slip"}})
    stage.until(lambda: stage.condition("typo", "NodesMissing")["message"].endswith("gpu=a100-slip"))
    assert stage.condition("typo", "NodesMissing")["lastTransitionTime"] == found["lastTransitionTime"]
    stage.node("n1", labels={"gpu": "a100-slip"})
    stage.until(lambda: stage.condition("typo", "NodesMissing")["status"] == "False")
    stage.until(lambda: stage.status("typo")["nodes"] == 1)


def test_pool_that_is_created_later_gets_its_waiting_pods(stage: Stage) -> None:
    stage.pod("p", pool="late")
    stage.waits("p", "no nodes available to schedule pods")
    stage.pools("late")
    stage.node("late1", pool="late")
    stage.goes(p="late1")
    assert stage.marks("p")["home-pool"] == "late"


def test_waiting_pods_of_a_deleted_pool_become_pods_of_the_default_pool(stage: Stage) -> None:
    stage.node("free", cpu="1")
    stage.pools("a", disableBorrowing=True)
    stage.pod("p", pool="a")
    stage.until(lambda: stage.why("p") != "")
    stage.delete("Pool", "a")
    stage.goes(p="free")
    assert stage.marks("p")["home-pool"] == "default"
