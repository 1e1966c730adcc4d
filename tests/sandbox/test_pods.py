from typing import Any

import pytest

from tests.sandbox.cluster import PODS, Cluster, a_pod

MERGE = "application/merge-patch+json"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def test_pod_gets_the_defaults_of_the_real_server() -> None:
    pod = Cluster().add_pod("p1")
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    spec = {key: value for key, value in pod["spec"].items() if key not in {"containers", "tolerations"}}
    assert spec == {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert [one["key"] for one in pod["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"


def with_resources(**resources: Any) -> Any:
    pod = a_pod("p1")
    pod["spec"]["containers"][0]["resources"] = resources
    return pod


def test_requests_come_from_limits_in_canonical_form() -> None:
    pod = Cluster().ok("POST", PODS, with_resources(limits={"cpu": "1000m", "memory": "0.5Gi"}))
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "512Mi"}
    assert pod["status"]["qosClass"] == "Guaranteed"


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, "must be less than or equal to cpu limit of 1"),
        ({"requests": {"cpu": "-1"}}, "must be greater than or equal to 0"),
        ({"requests": {"example.com/gpu": "1"}}, "Limit must be set for non overcommitable resources"),
        ({"limits": {"example.com/gpu": "500m"}}, "must be an integer"),
        ({"limits": {"gpu": "1"}}, "must be a standard resource type or fully qualified"),
    ],
)
def test_impossible_resources_are_refused_at_their_path(resources: Any, message: str) -> None:
    status = Cluster().refused("POST", PODS, with_resources(**resources))
    assert status["code"] == 422
    assert status["details"]["causes"][0]["field"].startswith("spec.containers[0].resources.")
    assert message in status["message"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": []}, "spec.containers"),
        ({"containers": [{"name": "a"}]}, "spec.containers[0].image"),
        ({"containers": [{"name": "A", "image": "i"}]}, "spec.containers[0].name"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
        ({"nodeSelector": {"a": "b c"}}, "spec.nodeSelector"),
        ({"tolerations": [{"key": "a", "operator": "Near"}]}, "spec.tolerations[0].operator"),
        ({"tolerations": [{"key": "a", "effect": "Never"}]}, "spec.tolerations[0].effect"),
        ({"schedulingGates": [{"name": "a"}], "nodeName": "n1"}, "spec.nodeName"),
    ],
)
def test_bad_spec_is_refused_at_its_path(spec: Any, field: str) -> None:
    status = Cluster().refused("POST", PODS, a_pod("p1", **spec))
    assert status["code"] == 422
    assert field in [cause["field"] for cause in status["details"]["causes"]]


def test_priority_comes_from_its_class() -> None:
    cluster = Cluster()
    cluster.ok("POST", CLASSES, {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})
    spec = cluster.add_pod("p1", priorityClassName="high")["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")
    assert cluster.add_pod("p2", priorityClassName="system-node-critical")["spec"]["priority"] == 2_000_001_000


def test_global_default_class_is_used_where_none_is_named() -> None:
    cluster = Cluster()
    cluster.ok("POST", CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    spec = cluster.add_pod("p1")["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)


def test_priority_against_its_class_is_forbidden() -> None:
    status = Cluster().refused("POST", PODS, a_pod("p1", priority=5))
    assert (status["code"], "computed 0 from the given PriorityClass name" in status["message"]) == (403, True)


def test_gated_pod_says_so_and_gates_can_only_go() -> None:
    cluster = Cluster()
    pod = cluster.add_pod("p1", schedulingGates=[{"name": "example.com/a"}])
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
    more = {"spec": {"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/b"}]}}
    assert cluster.refused("PATCH", f"{PODS}/p1", more, MERGE)["code"] == 422
    free = cluster.ok("PATCH", f"{PODS}/p1", {"spec": {"schedulingGates": None}}, MERGE)
    assert (free["metadata"]["generation"], "schedulingGates" in free["spec"]) == (2, False)


def test_spec_of_a_pod_cannot_be_changed() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    status = cluster.refused("PATCH", f"{PODS}/p1", {"spec": {"nodeName": "n1"}}, MERGE)
    assert (status["code"], status["details"]["causes"][0]["field"]) == (422, "spec")
    assert "pod updates may not change fields other than `spec.containers[*].image`" in status["message"]


def test_status_of_a_pod_keeps_its_spec_and_generation() -> None:
    cluster = Cluster()
    pod = cluster.add_pod("p1")
    pod["spec"]["nodeName"] = "n1"
    pod["status"]["nominatedNodeName"] = "n2"
    written = cluster.ok("PUT", f"{PODS}/p1/status", pod)
    assert (written["spec"].get("nodeName"), written["status"]["nominatedNodeName"]) == (None, "n2")
    assert written["metadata"]["generation"] == 1
    assert cluster.names("/api/v1/pods?fieldSelector=status.nominatedNodeName%3Dn2") == ["p1"]
