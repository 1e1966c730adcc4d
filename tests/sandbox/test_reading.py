import pytest

from tests.sandbox.cluster import PODS, Cluster

POOLED = "/api/v1/pods"


def many(count: int) -> Cluster:
    cluster = Cluster()
    for number in range(count):
        cluster.add_pod(f"p{number}", {"parity": str(number % 2)})
    return cluster


def test_list_is_ordered_by_namespace_and_name() -> None:
    cluster = Cluster()
    cluster.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "a-team"}})
    for namespace, name in (("default", "b"), ("default", "a"), ("a-team", "z")):
        body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        cluster.ok("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    assert cluster.names(POOLED) == ["z", "a", "b"]
    assert cluster.names("/api/v1/namespaces/default/pods") == ["a", "b"]


def test_pages_show_one_revision_whatever_happens_between_them() -> None:
    cluster = many(5)
    first = cluster.ok("GET", f"{POOLED}?limit=2")
    cluster.ok("DELETE", f"{PODS}/p4")
    cluster.add_pod("p9")
    second = cluster.ok("GET", f"{POOLED}?limit=2&continue={first['metadata']['continue']}")
    third = cluster.ok("GET", f"{POOLED}?limit=2&continue={second['metadata']['continue']}")
    shown = [item["metadata"]["name"] for page in (first, second, third) for item in page["items"]]
    assert shown == ["p0", "p1", "p2", "p3", "p4"]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }
    assert [page["metadata"].get("remainingItemCount") for page in (first, second, third)] == [3, 1, None]
    assert "continue" not in third["metadata"]


def test_continue_token_expires_after_five_minutes() -> None:
    cluster = many(3)
    token = cluster.ok("GET", f"{POOLED}?limit=2")["metadata"]["continue"]
    cluster.now += 300
    status = cluster.refused("GET", f"{POOLED}?limit=2&continue={token}")
    assert (status["code"], status["reason"]) == (410, "Expired")


def test_future_revision_is_a_timeout_that_names_both() -> None:
    cluster = many(1)
    status = cluster.refused("GET", f"{POOLED}?resourceVersion=999999999&resourceVersionMatch=NotOlderThan")
    current = cluster.server.cluster.store.revision
    assert status["message"] == f"Timeout: Too large resource version: 999999999, current: {current}"
    assert (status["code"], status["reason"]) == (504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_exact_match_of_another_revision_is_expired() -> None:
    cluster = many(2)
    status = cluster.refused("GET", f"{POOLED}?resourceVersion=2&resourceVersionMatch=Exact")
    assert status["code"] == 410


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("resourceVersionMatch=Exact", "resourceVersionMatch"),
        ("resourceVersion=1&resourceVersionMatch=Newest", "resourceVersionMatch"),
        ("sendInitialEvents=true", "sendInitialEvents"),
        ("watch=1&sendInitialEvents=true", "resourceVersionMatch"),
        ("watch=1&resourceVersionMatch=NotOlderThan", "resourceVersionMatch"),
    ],
)
def test_contradictory_options_are_invalid(query: str, field: str) -> None:
    status = Cluster().refused("GET", f"{POOLED}?{query}")
    assert (status["code"], status["details"]["causes"][0]["field"]) == (422, field)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("labelSelector=parity%3D0", ["p0", "p2"]),
        ("labelSelector=parity%20in%20(1,2)", ["p1"]),
        ("labelSelector=parity%20notin%20(1)", ["p0", "p2"]),
        ("labelSelector=parity,!missing", ["p0", "p1", "p2"]),
        ("labelSelector=parity!%3D0", ["p1"]),
        ("labelSelector=parity%3E0", ["p1"]),
        ("fieldSelector=spec.nodeName%3Dn1", ["p1"]),
        ("fieldSelector=spec.nodeName%3D", ["p0", "p2"]),
        ("fieldSelector=spec.nodeName!%3Dn1,status.phase%3DPending", ["p0", "p2"]),
        ("fieldSelector=metadata.name%3Dp2,metadata.namespace%3Ddefault", ["p2"]),
        ("fieldSelector=spec.schedulerName%3Ddefault-scheduler&labelSelector=parity%3D1", ["p1"]),
    ],
)
def test_selectors_choose(selector: str, names: list[str]) -> None:
    cluster = many(3)
    cluster.bind("p1", "n1")
    assert cluster.names(f"{POOLED}?{selector}") == names


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"{POOLED}?fieldSelector=spec.hostname%3Da", "field label not supported: spec.hostname"),
        ("/api/v1/configmaps?fieldSelector=data%3Da", '"data" is not a known field selector'),
        (f"{POOLED}?labelSelector=a%3D%3D%3Db", "unable to parse requirement"),
        (f"{POOLED}?resourceVersion=abc", "invalid syntax"),
        (f"{POOLED}?limit=x", "invalid syntax"),
    ],
)
def test_what_cannot_be_selected_is_a_bad_request(url: str, words: str) -> None:
    status = Cluster().refused("GET", url)
    assert status["code"] == 400
    assert words in status["message"]


def test_items_of_built_in_lists_carry_no_kind_but_a_single_object_does() -> None:
    cluster = many(1)
    listed = cluster.ok("GET", POOLED)
    assert (listed["kind"], "kind" in listed["items"][0]) == ("PodList", False)
    assert cluster.ok("GET", f"{PODS}/p0")["kind"] == "Pod"


@pytest.mark.parametrize("path", ["/api/v1/gizmos", "/apis/none/v1/pods", "/nothing", "/api/v1/nodes/n/nothing"])
def test_unknown_path_is_not_found(path: str) -> None:
    status = Cluster().refused("GET", path)
    assert (status["code"], status["message"]) == (404, "the server could not find the requested resource")
