from typing import Any

import pytest

from tests.sandbox.cluster import PODS, Cluster, a_pod

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
NODES = "/api/v1/nodes"


def test_created_object_has_identity_revision_and_generation() -> None:
    pod = Cluster().add_pod("p1")
    metadata = pod["metadata"]
    assert (metadata["namespace"], metadata["generation"]) == ("default", 1)
    assert metadata["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert int(metadata["resourceVersion"]) > 1
    assert len(metadata["uid"]) == 36


def test_same_calls_give_the_same_bytes() -> None:
    first, second = Cluster(), Cluster()
    for cluster in (first, second):
        cluster.ok("POST", PODS, {"metadata": {"generateName": "p-"}, "spec": a_pod("x")["spec"]})
    assert first.call("GET", PODS).body == second.call("GET", PODS).body


def test_second_object_of_a_name_already_exists() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    status = cluster.refused("POST", PODS, a_pod("p1"))
    assert (status["code"], status["reason"], status["message"]) == (409, "AlreadyExists", 'pods "p1" already exists')


@pytest.mark.parametrize(
    ("metadata", "code", "words"),
    [
        ({}, 422, "metadata.name: Required value: name or generateName is required"),
        ({"name": "A"}, 422, 'metadata.name: Invalid value: "A"'),
        ({"name": "a", "namespace": "other"}, 400, "the namespace of the provided object does not match"),
        ({"name": "a", "labels": {"a": "b c"}}, 422, 'metadata.labels: Invalid value: "b c"'),
        ({"name": "a", "labels": {"-": "b"}}, 422, 'metadata.labels: Invalid value: "-"'),
        ({"name": "a", "annotations": {"k": "x" * 262145}}, 422, "may not be more than 262144 bytes"),
        (
            {"name": "a", "labels": {"a": 1}},
            400,
            "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels",
        ),
        ({"name": "a", "resourceVersion": "5"}, 500, "resourceVersion should not be set on objects to be created"),
    ],
)
def test_bad_metadata_is_refused(metadata: Any, code: int, words: str) -> None:
    status = Cluster().refused("POST", PODS, {"metadata": metadata, "spec": a_pod("x")["spec"]})
    assert status["code"] == code
    assert words in status["message"]


def test_annotation_of_250_kilobytes_with_line_breaks_is_kept() -> None:
    pod = a_pod("p1")
    pod["metadata"]["annotations"] = {"resource.aibee.cn/pool": "x\ny" * 85_000}
    assert Cluster().ok("POST", PODS, pod)["metadata"]["annotations"] == pod["metadata"]["annotations"]


def test_object_in_a_missing_namespace_is_refused() -> None:
    status = Cluster().refused("POST", "/api/v1/namespaces/none/pods", a_pod("p1"))
    assert (status["code"], status["message"]) == (404, 'namespaces "none" not found')


def test_put_with_a_stale_revision_is_a_conflict() -> None:
    cluster = Cluster()
    node = cluster.add_node("n1")
    cluster.ok("PATCH", f"{NODES}/n1", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    status = cluster.refused("PUT", f"{NODES}/n1", node)
    assert (status["code"], status["reason"]) == (409, "Conflict")
    words = "the object has been modified; please apply your changes to the latest version and try again"
    assert status["message"] == f'Operation cannot be fulfilled on nodes "n1": {words}'


def test_put_with_another_uid_is_a_failed_precondition() -> None:
    cluster = Cluster()
    node = cluster.add_node("n1")
    node["metadata"]["uid"] = "11111111-1111-4111-a111-111111111111"
    assert "Precondition failed: UID in precondition" in cluster.refused("PUT", f"{NODES}/n1", node)["message"]


def test_write_that_changes_nothing_makes_no_revision() -> None:
    cluster = Cluster()
    node = cluster.add_node("n1")
    before = cluster.server.cluster.store.revision
    assert cluster.ok("PUT", f"{NODES}/n1", node) == node
    cluster.ok("PATCH", f"{NODES}/n1", {}, MERGE)
    assert cluster.server.cluster.store.revision == before


def test_status_is_written_apart_from_the_rest() -> None:
    cluster = Cluster()
    node = cluster.ok("POST", NODES, {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4000m"}}})
    assert node["status"]["allocatable"] == {"cpu": "4"}
    node["status"]["capacity"] = {"cpu": "8"}
    node["spec"]["unschedulable"] = True
    assert cluster.ok("PUT", f"{NODES}/n1", node)["status"]["capacity"] == {"cpu": "4"}
    node = cluster.ok("GET", f"{NODES}/n1")
    node["status"]["capacity"], node["spec"] = {"cpu": "8"}, {}
    written = cluster.ok("PUT", f"{NODES}/n1/status", node)
    assert (written["status"]["capacity"], written["spec"]) == ({"cpu": "8"}, {"unschedulable": True})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "json parse error"),
        (b"[]", "cannot unmarshal array"),
        ({"apiVersion": "v2"}, 'no kind "Pod" is registered for version "v2"'),
        ({"kind": "Node"}, 'Node in version "v1" cannot be handled as a Pod'),
        ({"spec": {"containers": {}}}, "cannot unmarshal object into Go struct field PodSpec.spec.containers"),
        (
            {"spec": {"priority": 2**31}},
            "cannot unmarshal number 2147483648 into Go struct field PodSpec.spec.priority",
        ),
        ({"spec": {"overhead": {"cpu": "1.5.3"}}}, "quantities must match the regular expression"),
    ],
)
def test_undecodable_body_is_a_bad_request(body: Any, words: str) -> None:
    status = Cluster().refused("POST", PODS, body)
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert words in status["message"]


def test_unknown_fields_are_refused_told_or_dropped_as_asked() -> None:
    cluster = Cluster()
    pod = a_pod("p1", nodeSelectr={})
    words = 'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.nodeSelectr"'
    assert cluster.refused("POST", f"{PODS}?fieldValidation=Strict", pod)["message"] == words
    assert cluster.call("POST", PODS, pod).warnings == ('unknown field "spec.nodeSelectr"',)
    assert cluster.call("POST", f"{PODS}?fieldValidation=Ignore", a_pod("p2", nodeSelectr={})).warnings == ()
    assert "nodeSelectr" not in cluster.ok("GET", f"{PODS}/p1")["spec"]


def test_json_patch_tests_and_fails_with_the_path() -> None:
    cluster = Cluster()
    cluster.add_node("n1", {"a": "b"})
    good = [{"op": "test", "path": "/metadata/labels/a", "value": "b"}]
    good += [{"op": "add", "path": "/metadata/labels/x~1y", "value": "z"}]
    assert cluster.ok("PATCH", f"{NODES}/n1", good, JSON_PATCH)["metadata"]["labels"] == {"a": "b", "x/y": "z"}
    bad = [{"op": "remove", "path": "/metadata/labels/none"}]
    assert cluster.refused("PATCH", f"{NODES}/n1", bad, JSON_PATCH)["code"] == 422


def test_strategic_patch_merges_lists_by_their_key() -> None:
    cluster = Cluster()
    cluster.ok("POST", NODES, {"metadata": {"name": "n1"}, "status": {"conditions": [condition("Ready", "True")]}})
    patch = {"status": {"conditions": [condition("DiskPressure", "False"), {"type": "Ready", "status": "Unknown"}]}}
    node = cluster.ok("PATCH", f"{NODES}/n1/status", patch, STRATEGIC)
    assert [(one["type"], one["status"]) for one in node["status"]["conditions"]] == [
        ("DiskPressure", "False"),
        ("Ready", "Unknown"),
    ]
    gone = {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}
    node = cluster.ok("PATCH", f"{NODES}/n1/status", gone, STRATEGIC)
    assert [one["type"] for one in node["status"]["conditions"]] == ["DiskPressure"]


def condition(kind: str, status: str) -> Any:
    return {"type": kind, "status": status}


def test_strategic_patch_replaces_lists_without_a_key() -> None:
    cluster = Cluster()
    cluster.add_node("n1")
    for key in ("a", "b"):
        patch = {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}
        cluster.ok("PATCH", f"{NODES}/n1", patch, STRATEGIC)
    assert cluster.ok("GET", f"{NODES}/n1")["spec"]["taints"] == [{"key": "b", "effect": "NoSchedule"}]


def test_patch_with_a_stale_revision_is_a_conflict() -> None:
    cluster = Cluster()
    cluster.add_node("n1")
    patch = {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}
    assert cluster.refused("PATCH", f"{NODES}/n1", patch, MERGE)["code"] == 409


def test_apply_creates_merges_and_takes_out_what_it_no_longer_names() -> None:
    cluster = Cluster()
    url = f"{NODES}/n1?fieldManager=me"
    first = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"a": "1", "b": "1"}}}
    assert cluster.call("PATCH", url, first, APPLY).status == 201
    cluster.ok("PATCH", f"{NODES}/n1", {"metadata": {"labels": {"c": "1"}}}, MERGE)
    second = {**first, "metadata": {"name": "n1", "labels": {"a": "2"}}}
    assert cluster.ok("PATCH", url, second, APPLY)["metadata"]["labels"] == {"a": "2", "c": "1"}
    assert cluster.refused("PATCH", f"{NODES}/n1", second, APPLY)["details"]["causes"][0]["field"] == "fieldManager"


def test_patch_of_an_unknown_format_is_refused() -> None:
    cluster = Cluster()
    cluster.add_node("n1")
    assert cluster.refused("PATCH", f"{NODES}/n1", {}, "application/x")["code"] == 415


def test_dry_run_answers_and_stores_nothing() -> None:
    cluster = Cluster()
    assert cluster.ok("POST", f"{PODS}?dryRun=All", a_pod("p1"))["metadata"]["name"] == "p1"
    assert cluster.names(PODS) == []
