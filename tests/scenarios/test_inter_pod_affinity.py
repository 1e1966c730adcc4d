"""Inter-pod affinity: pods that exclude and attract others."""

from collections.abc import Mapping
from typing import Any

from aischeduler.model.gang import GANG_KEY
from tests.api_contract.world import Json
from tests.scenarios.gangs import labelled, members, places, start_together
from tests.scenarios.stage import Stage

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE = "kubernetes.io/hostname", "stage.example/zone"
GANG = {GANG_KEY: "g"}
"""The label by which a term selects the pods of the gang g."""
TERM = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOST}
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


def test_pod_that_a_pod_on_a_node_excludes_waits_until_that_pod_is_gone(stage: Stage) -> None:
    stage.node("far", labels={HOST: "far"})
    stage.pod("db", node="far", scheduler_name="other", affinity={"podAntiAffinity": {REQUIRED: [TERM]}})
    stage.until(lambda: stage.node_of("db") == "far")
    stage.pod("free")
    stage.goes(free="far")
    stage.pod("p", labels={"app": "db"})
    stage.waits("p", EXISTING)
    stage.delete("Pod", "db", gracePeriodSeconds=0)
    stage.goes(p="far")


def test_pod_that_is_excluded_by_its_labels_is_bound_once_they_change(stage: Stage) -> None:
    stage.node("far", labels={HOST: "far"})
    stage.pod("db", node="far", scheduler_name="other", affinity={"podAntiAffinity": {REQUIRED: [TERM]}})
    stage.pod("p", labels={"app": "db"})
    stage.waits("p", EXISTING)
    stage.patch("Pod", "p", {"metadata": {"labels": {"app": "web"}}})
    stage.goes(p="far")


def test_replicas_keep_apart_and_follow_the_pod_that_they_need(stage: Stage) -> None:
    for name in ("a", "b"):
        stage.node(name, labels={HOST: name})
    apart = {"podAntiAffinity": {REQUIRED: [TERM]}}
    stage.pod("db-0", labels={"app": "db"}, affinity=apart, on="a")
    stage.goes(**{"db-0": "a"})
    stage.pod("web", affinity={"podAffinity": {REQUIRED: [TERM]}})
    stage.goes(web="a")
    stage.pod("db-1", labels={"app": "db"}, affinity=apart)
    stage.goes(**{"db-1": "b"})
    stage.pod("db-2", labels={"app": "db"}, affinity=apart)
    stage.waits("db-2", "node(s) didn't match pod anti-affinity rules")


def a_term(labels: Mapping[str, str], key: str, **more: Any) -> Json:
    """Return a term about the pods with these labels."""
    return {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": key, **more}


def apart_from(labels: Mapping[str, str], key: str = HOST, **more: Any) -> Json:
    """Return a required anti-affinity to the pods with these labels."""
    return {"podAntiAffinity": {REQUIRED: [a_term(labels, key, **more)]}}


def near_to(labels: Mapping[str, str], key: str = HOST, **more: Any) -> Json:
    """Return a required affinity to the pods with these labels."""
    return {"podAffinity": {REQUIRED: [a_term(labels, key, **more)]}}


def test_gang_whose_pods_keep_apart_starts_on_as_many_nodes(stage: Stage) -> None:
    for name in ("n1", "n2"):
        stage.node(name, labels={HOST: name})
    stage.settle()
    labelled(stage, "g", 3, affinity=apart_from(GANG))
    stage.waits("g-0", "2 of the 3 pods that start together fit", "2 node(s) didn't match pod anti-affinity rules")
    stage.node("n3", labels={HOST: "n3"})
    start_together(stage, *members("g", 3))
    assert sorted(places(stage, *members("g", 3))) == ["n1", "n2", "n3"]


def test_gang_whose_pods_belong_together_starts_in_the_zone_that_holds_all(stage: Stage) -> None:
    for name, zone in (("east-1", "east"), ("west-1", "west"), ("west-2", "west")):
        stage.node(name, cpu="1", labels={ZONE: zone})
    stage.settle()
    labelled(stage, "g", 2, affinity=near_to(GANG, ZONE))
    start_together(stage, "g-0", "g-1")
    assert sorted(places(stage, "g-0", "g-1")) == ["west-1", "west-2"]


def test_borrower_that_a_pod_of_the_lender_excludes_waits_until_that_pod_is_gone(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", labels={HOST: "b1"})
    stage.pools("b")
    stage.pod("own", pool="b", affinity=apart_from({"app": "db"}))
    stage.goes(own="b1")
    stage.pod("guest", pool="a", labels={"app": "db"})
    stage.pod("other", pool="a")
    stage.goes(other="b1")
    stage.waits("guest", "borrowing: no node fits: ")
    stage.delete("Pod", "own", gracePeriodSeconds=0)
    stage.goes(guest="b1")


def test_owner_takes_back_no_room_but_that_of_the_borrower_that_excludes_it(stage: Stage) -> None:
    stage.pools("a")
    stage.node("b1", pool="b", labels={HOST: "b1"})
    stage.pools("b")
    stage.pod("guard", pool="a", affinity=apart_from({"app": "db"}))
    stage.pod("guest", pool="a")
    stage.runs("guard", "guest")
    stage.pod("own", pool="b", labels={"app": "db"})
    stage.evicts("guard")
    stage.goes(own="b1")
    stage.stays(lambda: stage.victims() == ["guard"])


def test_pod_is_bound_once_a_pod_gets_the_label_that_it_needs(stage: Stage) -> None:
    stage.node("n", labels={ZONE: "east"})
    stage.node("m", labels={ZONE: "east"})
    stage.pod("other", node="m", scheduler_name="other")
    stage.pod("p", affinity=near_to({"app": "db"}, ZONE), on="n")
    stage.waits("p", "1 node(s) didn't match pod affinity rules")
    stage.patch("Pod", "other", {"metadata": {"labels": {"app": "db"}}})
    stage.goes(p="n")


def test_pod_is_bound_once_a_pod_on_another_node_of_the_domain_is_gone(stage: Stage) -> None:
    stage.node("n", labels={ZONE: "east"})
    stage.node("m", labels={ZONE: "east"}, taints=[{"key": "closed", "effect": "NoSchedule"}])
    stage.pod("db", node="m", labels={"app": "db"}, scheduler_name="other")
    stage.until(lambda: stage.node_of("db") == "m")
    stage.pod("p", affinity=apart_from({"app": "db"}, ZONE))
    stage.waits("p", "1 node(s) didn't match pod anti-affinity rules", "1 node(s) had untolerated taint(s)")
    stage.delete("Pod", "db", gracePeriodSeconds=0)
    stage.goes(p="n")


def test_pod_is_bound_once_there_is_a_node_of_another_domain(stage: Stage) -> None:
    stage.node("n", labels={ZONE: "east"})
    stage.pod("db-0", labels={"app": "db"}, affinity=apart_from({"app": "db"}, ZONE))
    stage.goes(**{"db-0": "n"})
    stage.pod("db-1", labels={"app": "db"}, affinity=apart_from({"app": "db"}, ZONE))
    stage.waits("db-1", "1 node(s) didn't match pod anti-affinity rules")
    stage.node("m", labels={ZONE: "west"})
    stage.goes(**{"db-1": "m"})


def test_pod_is_bound_once_the_namespace_of_the_pod_that_it_needs_is_labelled(stage: Stage) -> None:
    stage.namespace("data")
    stage.node("n", labels={HOST: "n"})
    stage.pod("db", namespace="data", node="n", labels={"app": "db"}, scheduler_name="other")
    stage.pod("p", affinity=near_to({"app": "db"}, namespaceSelector={"matchLabels": {"team": "blue"}}))
    stage.waits("p", "1 node(s) didn't match pod affinity rules")
    stage.patch("Namespace", "data", {"metadata": {"labels": {"team": "blue"}}})
    stage.goes(p="n")


def test_pod_is_bound_once_its_namespace_is_one_that_is_not_excluded(stage: Stage) -> None:
    stage.namespace("guests", team="guests")
    stage.node("n", labels={HOST: "n"})
    apart = apart_from({"app": "db"}, namespaceSelector={"matchLabels": {"team": "guests"}})
    stage.pod("guard", node="n", scheduler_name="other", affinity=apart)
    stage.pod("p", namespace="guests", labels={"app": "db"})
    stage.waits("p", EXISTING)
    stage.patch("Namespace", "guests", {"metadata": {"labels": {"team": "home"}}})
    stage.goes(p="n")


def test_pods_keep_apart_from_those_of_their_own_release_alone(stage: Stage) -> None:
    for name in ("n1", "n2"):
        stage.node(name, labels={HOST: name})
    apart = apart_from({"app": "db"}, matchLabelKeys=["release"])
    stage.pod("old-0", labels={"app": "db", "release": "old"}, affinity=apart, on="n1")
    stage.goes(**{"old-0": "n1"})
    stage.pod("new-0", labels={"app": "db", "release": "new"}, affinity=apart, on="n1")
    stage.goes(**{"new-0": "n1"})
    stage.pod("old-1", labels={"app": "db", "release": "old"}, affinity=apart)
    stage.goes(**{"old-1": "n2"})
    stage.pod("old-2", labels={"app": "db", "release": "old"}, affinity=apart)
    stage.waits("old-2", "2 node(s) didn't match pod anti-affinity rules")


def test_pods_keep_apart_from_those_of_other_tenants_alone(stage: Stage) -> None:
    stage.node("n", labels={HOST: "n"})
    apart = apart_from({"app": "db"}, mismatchLabelKeys=["tenant"])
    stage.pod("one", labels={"app": "db", "tenant": "one"}, affinity=apart)
    stage.goes(one="n")
    stage.pod("same", labels={"app": "db", "tenant": "one"}, affinity=apart)
    stage.goes(same="n")
    stage.pod("other", labels={"app": "db", "tenant": "two"}, affinity=apart)
    stage.waits("other", "1 node(s) didn't match pod anti-affinity rules")
