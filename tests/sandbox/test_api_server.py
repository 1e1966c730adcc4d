"""The API server in memory, with a clock and a history that the test controls; `tests/api_contract` compares it."""

from typing import Any

import orjson
import pytest

from aischeduler.kube.crds import pool_crd
from aischeduler.sandbox.api_server import Options
from aischeduler.sandbox.request import Request, Response
from tests.objects import event_object, pool_object
from tests.sandbox.cluster import PODS, Cluster, a_pod

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVENTS, CORE_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/namespaces/default/events"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def with_pools() -> Cluster:
    cluster = Cluster()
    cluster.ok("POST", CRDS, pool_crd())
    return cluster


def test_same_calls_give_the_same_bytes() -> None:
    first, second = Cluster(), Cluster()
    for cluster in (first, second):
        cluster.ok("POST", PODS, {"metadata": {"generateName": "p-"}, "spec": a_pod("x")["spec"]})
    assert first.call("GET", PODS).body == second.call("GET", PODS).body


def test_continue_token_expires_after_five_minutes() -> None:
    cluster = Cluster()
    for number in range(3):
        cluster.add_pod(f"p{number}")
    token = cluster.ok("GET", f"{PODS}?limit=2")["metadata"]["continue"]
    cluster.now += 299
    assert cluster.names(f"{PODS}?limit=2&continue={token}") == ["p2"]
    cluster.now += 1
    status = cluster.refused("GET", f"{PODS}?limit=2&continue={token}")
    assert (status["code"], status["reason"]) == (410, "Expired")


def test_items_of_built_in_lists_have_no_kind_but_a_single_object_has() -> None:
    cluster = Cluster()
    cluster.add_pod("p0")
    listed = cluster.ok("GET", PODS)
    assert (listed["kind"], "kind" in listed["items"][0]) == ("PodList", False)
    assert cluster.ok("GET", f"{PODS}/p0")["kind"] == "Pod"


def test_bookmark_comes_every_minute_with_the_latest_revision() -> None:
    cluster = Cluster()
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion=1&allowWatchBookmarks=true")
    cluster.add_node("n1")
    assert watch.next_time == cluster.now + 60
    cluster.now += 60
    [(kind, bookmark)] = cluster.events(watch)
    assert (kind, bookmark["metadata"]["resourceVersion"]) == ("BOOKMARK", str(cluster.server.cluster.store.revision))


def test_watch_whose_position_left_the_history_is_closed() -> None:
    cluster = Cluster(Options(history_events=4))
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion=1")
    for number in range(10):
        cluster.add_pod(f"p{number}")
    assert cluster.events(watch) == []
    assert watch.closed


def test_restart_answers_410_below_its_revision_and_not_at_it() -> None:
    cluster = Cluster()
    old = cluster.add_pod("p1")["metadata"]["resourceVersion"]
    cluster.add_pod("p2")
    cluster.server.restart()
    [(kind, status)] = cluster.events(cluster.watch(f"{PODS}?watch=1&resourceVersion={old}"))
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert not cluster.watch(f"{PODS}?watch=1&resourceVersion={cluster.server.cluster.store.revision}").closed


def test_on_ready_is_called_for_each_write() -> None:
    cluster = Cluster()
    calls: list[str] = []
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion=1")
    watch.on_ready = lambda: calls.append("ready")
    cluster.add_pod("p1")
    assert calls == ["ready"]


def test_deleted_event_shows_the_last_state_at_a_new_revision() -> None:
    cluster = Cluster()
    pod = cluster.add_pod("p1")
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion={pod['metadata']['resourceVersion']}")
    cluster.ok("DELETE", f"{PODS}/p1")
    (first, marked), (second, last) = cluster.events(watch)
    assert (first, second) == ("MODIFIED", "DELETED"), "a pod that is deleted at once is shown as terminating first"
    assert last["spec"] == pod["spec"]
    assert int(last["metadata"]["resourceVersion"]) == int(marked["metadata"]["resourceVersion"]) + 1


def test_watch_of_the_core_group_shows_events_with_its_field_names() -> None:
    cluster = Cluster()
    watch = cluster.watch(f"{CORE_EVENTS}?watch=1&resourceVersion=1")
    about = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p1", "namespace": "default", "uid": "u1"}}
    cluster.ok("POST", EVENTS, event_object("e1", namespace="default", regarding=about, reason="R", note="no room"))
    [(kind, event)] = cluster.events(watch)
    assert (kind, event["apiVersion"], event["message"]) == ("ADDED", "v1", "no room")
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}}
    patched = cluster.ok("PATCH", f"{CORE_EVENTS}/e1", series, MERGE)
    assert (patched["series"]["count"], patched["message"]) == (2, "no room")
    assert cluster.ok("GET", f"{EVENTS}/e1")["note"] == "no room"


def test_definition_is_served_at_once_and_its_deletion_ends_objects_and_watches() -> None:
    cluster = with_pools()
    definition = cluster.ok("GET", f"{CRDS}/pools.resource.aibee.cn")
    kinds = {condition["type"]: condition["status"] for condition in definition["status"]["conditions"]}
    assert kinds == {"NamesAccepted": "True", "Established": "True"}
    cluster.ok("POST", POOLS, pool_object("demo"))
    watch = cluster.watch(f"{POOLS}?watch=1&resourceVersion={cluster.server.cluster.store.revision}")
    cluster.ok("DELETE", f"{CRDS}/pools.resource.aibee.cn")
    assert watch.closed
    assert cluster.refused("GET", POOLS)["code"] == 404
    cluster.ok("POST", CRDS, pool_crd())
    assert cluster.names(POOLS) == []


def test_new_definition_changes_the_schema_and_leaves_the_objects() -> None:
    cluster = with_pools()
    cluster.ok("POST", POOLS, pool_object("demo"))
    definition = cluster.ok("GET", f"{CRDS}/pools.resource.aibee.cn")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["extra"] = {"type": "integer", "default": 7}
    cluster.ok("PUT", f"{CRDS}/pools.resource.aibee.cn", definition)
    changed = cluster.ok("PATCH", f"{POOLS}/demo", {"spec": {"disableSharing": True}}, MERGE)
    assert (changed["spec"]["extra"], changed["metadata"]["generation"]) == (7, 2)


def test_pool_that_violates_a_cel_rule_is_stored() -> None:
    assert with_pools().ok("POST", POOLS, pool_object("itself", borrowingPools=["itself"]))["spec"]["borrowingPools"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scope": "Everywhere"}, "spec.scope"),
        ({"group": "other.example.com"}, "metadata.name"),
        ({"versions": []}, "spec.versions"),
    ],
)
def test_invalid_definition_is_refused(change: Any, field: str) -> None:
    definition = pool_crd()
    definition["spec"] = {**definition["spec"], **change}
    status = Cluster().refused("POST", CRDS, definition)
    assert field in [cause["field"] for cause in status["details"]["causes"]]


def test_table_has_column_definitions_cells_and_metadata() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    cluster.now += 65
    answer = cluster.server.handle(Request("GET", PODS, accept=TABLE), cluster.now)
    assert isinstance(answer, Response)
    table = orjson.loads(answer.body)
    assert [column["name"] for column in table["columnDefinitions"]][:5] == [
        "Name",
        "Ready",
        "Status",
        "Restarts",
        "Age",
    ]
    assert table["rows"][0]["cells"][:5] == ["p1", "0/1", "Pending", "0", "65s"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_strategic_merge_patch_merges_extends_or_replaces_lists() -> None:
    cluster = Cluster()
    cluster.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1", "finalizers": ["example.com/a"]}})
    taint = {"key": "b", "effect": "NoSchedule"}
    for change in (
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
        {"spec": {"taints": [taint]}, "metadata": {"finalizers": ["example.com/b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"], "labels": {"$patch": "replace"}}},
    ):
        cluster.ok("PATCH", "/api/v1/nodes/n1", change, STRATEGIC)
    node = cluster.ok("GET", "/api/v1/nodes/n1")
    assert (node["spec"]["taints"], node["metadata"]["finalizers"]) == ([taint], ["example.com/b"])
    status = {"status": {"conditions": [{"status": "True"}]}}
    assert cluster.refused("PATCH", "/api/v1/nodes/n1/status", status, STRATEGIC)["code"] == 400


@pytest.mark.parametrize(
    ("method", "query", "content_type", "code", "words"),
    [
        ("PATCH", "?fieldManager=me", "application/apply-patch+yaml", 415, "no server-side apply"),
        ("PUT", "", "application/vnd.kubernetes.protobuf", 415, "the sandbox reads application/json"),
        ("PUT", "?dryRun=All", "application/json", 400, "no server-side dry run"),
    ],
)
def test_unsupported_request_is_refused_with_one_sentence(
    method: str, query: str, content_type: str, code: int, words: str
) -> None:
    cluster = Cluster()
    cluster.add_node("n1")
    status = cluster.refused(method, f"/api/v1/nodes/n1{query}", {"metadata": {"name": "n1"}}, content_type)
    assert (status["code"], words in status["message"]) == (code, True)


def test_budget_without_a_status_refuses_evictions_for_a_while() -> None:
    cluster = Cluster()
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    cluster.ok("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    cluster.add_pod("p1", {"app": "a"})
    cluster.bind("p1", "n1")
    cluster.ok("PATCH", f"{PODS}/p1/status", {"status": {"phase": "Running"}}, MERGE)
    answer = cluster.call("POST", f"{PODS}/p1/eviction", {"metadata": {"name": "p1"}})
    assert (answer.status, answer.retry_after_seconds) == (429, 10)


def test_global_default_priority_class_is_used_where_none_is_named() -> None:
    cluster = Cluster()
    usual = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True}
    cluster.ok("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", usual)
    spec = cluster.add_pod("p1")["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)


def test_initial_namespaces_cannot_be_deleted() -> None:
    assert Cluster().refused("DELETE", "/api/v1/namespaces/default")["code"] == 403


def test_discovery_names_the_groups_the_release_and_health() -> None:
    cluster = with_pools()
    assert "resource.aibee.cn" in {group["name"] for group in cluster.ok("GET", "/apis")["groups"]}
    assert cluster.ok("GET", "/version")["gitVersion"].startswith("v1.36.3")
    assert cluster.call("GET", "/readyz").body == b"ok"
    assert cluster.refused("GET", "/nothing")["code"] == 404
