"""Inter-pod affinity: pods that exclude and attract others."""

from tests.stage.stage import Stage

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"
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
