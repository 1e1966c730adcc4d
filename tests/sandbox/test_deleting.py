import orjson
import pytest

from tests.sandbox.cluster import PODS, Cluster, a_pod

MERGE = "application/merge-patch+json"


def test_waiting_pod_goes_at_once() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    assert cluster.ok("DELETE", f"{PODS}/p1")["kind"] == "Pod"
    assert cluster.names(PODS) == []


def test_bound_pod_waits_for_its_kubelet() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    cluster.bind("p1", "n1")
    cluster.ok("DELETE", f"{PODS}/p1")
    metadata = cluster.ok("GET", f"{PODS}/p1")["metadata"]
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == ("2027-01-15T08:00:30Z", 30)
    cluster.ok("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 0})
    assert cluster.names(PODS) == []


def test_second_deletion_can_only_shorten_the_grace() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    cluster.bind("p1", "n1")
    for asked, grace in ((20, 20), (25, 20), (5, 5)):
        cluster.ok("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": asked})
        assert cluster.ok("GET", f"{PODS}/p1")["metadata"]["deletionGracePeriodSeconds"] == grace


@pytest.mark.parametrize("preconditions", [{"uid": "1-2"}, {"resourceVersion": "1"}])
def test_deletion_of_another_object_than_meant_is_a_conflict(preconditions: dict[str, str]) -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    status = cluster.refused("DELETE", f"{PODS}/p1", {"preconditions": preconditions})
    assert (status["code"], "in the precondition" in status["message"]) == (409, True)


def test_object_with_finalizers_goes_with_the_last_of_them() -> None:
    cluster = Cluster()
    pod = a_pod("p1")
    pod["metadata"]["finalizers"] = ["example.com/a", "example.com/b"]
    cluster.ok("POST", PODS, pod)
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion={cluster.server.cluster.store.revision}")
    cluster.ok("DELETE", f"{PODS}/p1")
    cluster.ok("PATCH", f"{PODS}/p1", {"metadata": {"finalizers": ["example.com/b"]}}, MERGE)
    assert cluster.names(PODS) == ["p1"]
    cluster.ok("PATCH", f"{PODS}/p1", {"metadata": {"finalizers": None}}, MERGE)
    assert cluster.names(PODS) == []
    assert cluster.events(watch)[-1][0] == "DELETED"


def test_deleted_event_shows_the_last_state_at_a_new_revision() -> None:
    cluster = Cluster()
    pod = cluster.add_pod("p1")
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion={pod['metadata']['resourceVersion']}")
    cluster.ok("DELETE", f"{PODS}/p1")
    (first, marked), (second, last) = cluster.events(watch)
    assert (first, second) == ("MODIFIED", "DELETED"), "even a pod that goes at once is marked first"
    for seen in (marked, last):
        assert (seen["metadata"]["deletionGracePeriodSeconds"], seen["metadata"]["generation"]) == (0, 2)
    assert last["spec"] == pod["spec"]
    assert int(last["metadata"]["resourceVersion"]) == int(marked["metadata"]["resourceVersion"]) + 1


def test_collection_is_deleted_as_selected() -> None:
    cluster = Cluster()
    for name, team in (("p1", "a"), ("p2", "b"), ("p3", "a")):
        cluster.add_pod(name, {"team": team})
    deleted = cluster.ok("DELETE", f"{PODS}?labelSelector=team%3Da")
    assert [item["metadata"]["name"] for item in deleted["items"]] == ["p1", "p3"]
    assert cluster.names(PODS) == ["p2"]


def test_other_kinds_answer_with_a_status_that_names_what_went() -> None:
    cluster = Cluster()
    uid = cluster.add_node("n1")["metadata"]["uid"]
    status = cluster.ok("DELETE", "/api/v1/nodes/n1")
    assert (status["status"], status["details"]) == ("Success", {"name": "n1", "kind": "nodes", "uid": uid})
    assert cluster.refused("DELETE", "/api/v1/nodes/n1")["message"] == 'nodes "n1" not found'


def test_first_namespaces_stay() -> None:
    assert Cluster().refused("DELETE", "/api/v1/namespaces/default")["code"] == 403


BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def budgeted(cluster: Cluster, allowed: int) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    budget = cluster.ok("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    status = {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2}
    cluster.ok("PUT", f"{BUDGETS}/b/status", {**budget, "status": {**budget["status"], **status}})


def running(cluster: Cluster, name: str) -> None:
    cluster.add_pod(name, {"app": "a"})
    cluster.bind(name, "n1")
    ready = {"type": "Ready", "status": "True"}
    cluster.ok("PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": [ready]}}, MERGE)


def evict(cluster: Cluster, name: str) -> tuple[int, str]:
    answer = cluster.call("POST", f"{PODS}/{name}/eviction", {"metadata": {"name": name}})
    causes = orjson.loads(answer.body).get("details", {}).get("causes") or [{"message": ""}]
    return answer.status, causes[0]["message"]


def test_eviction_spends_the_budget_and_is_refused_beyond_it() -> None:
    cluster = Cluster()
    budgeted(cluster, allowed=1)
    running(cluster, "p1")
    running(cluster, "p2")
    assert evict(cluster, "p1") == (201, "")
    pod = cluster.ok("GET", f"{PODS}/p1")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert pod["status"]["conditions"][-1]["reason"] == "EvictionByEvictionAPI"
    assert evict(cluster, "p2") == (429, "The disruption budget b needs 2 healthy pods and has 2 currently")
    status = cluster.ok("GET", f"{BUDGETS}/b")["status"]
    assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["p1"])


def test_budget_that_was_not_looked_at_yet_refuses() -> None:
    cluster = Cluster()
    cluster.ok(
        "POST",
        BUDGETS,
        {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}},
    )
    running(cluster, "p1")
    assert evict(cluster, "p1") == (429, "The disruption budget b is still being processed by the server.")
    assert cluster.call("POST", f"{PODS}/p1/eviction", {"metadata": {"name": "p1"}}).retry_after_seconds == 10


def test_waiting_pod_is_evicted_whatever_the_budget_says() -> None:
    cluster = Cluster()
    budgeted(cluster, allowed=0)
    cluster.add_pod("p1", {"app": "a"})
    assert evict(cluster, "p1")[0] == 201
    assert evict(cluster, "p1")[0] == 404
