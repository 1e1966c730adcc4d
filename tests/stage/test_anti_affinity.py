"""Pods that the required anti-affinity of a pod on a node excludes."""

from tests.stage.stage import Stage

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}


def test_pod_that_a_pod_on_a_node_excludes_waits_until_that_pod_is_gone(stage: Stage) -> None:
    stage.node("far")
    stage.node("near")
    stage.pod("db", node="far", scheduler_name="other", affinity={"podAntiAffinity": {REQUIRED: [TERM]}})
    stage.until(lambda: stage.node_of("db") == "far")
    stage.pod("free", on="near")
    stage.goes(free="near")
    stage.pod("p", labels={"app": "db"}, on="near")
    stage.waits("p", "/db is on a node and excludes this pod by its", f"podAntiAffinity.{REQUIRED}")
    stage.delete("Pod", "db", gracePeriodSeconds=0)
    stage.goes(p="near")


def test_pod_that_is_excluded_by_its_labels_is_bound_once_they_change(stage: Stage) -> None:
    stage.node("far")
    stage.pod("db", node="far", scheduler_name="other", affinity={"podAntiAffinity": {REQUIRED: [TERM]}})
    stage.pod("p", labels={"app": "db"})
    stage.waits("p", "/db is on a node")
    stage.patch("Pod", "p", {"metadata": {"labels": {"app": "web"}}})
    stage.goes(p="far")
