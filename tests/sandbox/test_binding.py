import orjson

from tests.sandbox.cluster import PODS, Cluster, a_pod


def message(cluster: Cluster, pod: str, node: str, **metadata: object) -> tuple[int, str]:
    answer = cluster.bind(pod, node, **metadata)
    return answer.status, orjson.loads(answer.body).get("message", "")


def test_binding_gives_node_condition_and_marks_in_one_revision() -> None:
    cluster = Cluster()
    pod = cluster.add_pod("p1", {"team": "a"})
    watch = cluster.watch(f"{PODS}?watch=1&resourceVersion={pod['metadata']['resourceVersion']}")
    answer = cluster.bind("p1", "n1", uid=pod["metadata"]["uid"], annotations={"x": "y"}, labels={"team": "b"})
    assert answer.status == 201
    [(kind, bound)] = cluster.events(watch)
    assert kind == "MODIFIED"
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"x": "y"}
    assert bound["metadata"]["labels"] == {"team": "b"}
    assert [(one["type"], one["status"]) for one in bound["status"]["conditions"]] == [("PodScheduled", "True")]


def test_second_binding_is_a_conflict_that_names_the_node() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    assert cluster.bind("p1", "n1").status == 201
    expected = 'Operation cannot be fulfilled on pods/binding "p1": pod p1 is already assigned to node "n1"'
    assert message(cluster, "p1", "n1") == (409, expected)
    assert message(cluster, "p1", "n2") == (409, expected)


def test_binding_with_another_uid_is_a_failed_precondition() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    code, text = message(cluster, "p1", "n1", uid="00000000-0000-0000-0000-000000000000")
    assert code == 409
    assert "Precondition failed: UID in precondition: 00000000-" in text


def test_binding_of_a_missing_pod_is_not_found() -> None:
    assert message(Cluster(), "gone", "n1") == (404, 'pods "gone" not found')


def test_terminating_pod_cannot_be_bound() -> None:
    cluster = Cluster()
    pod = a_pod("p1")
    pod["metadata"]["finalizers"] = ["example.com/stay"]
    cluster.ok("POST", PODS, pod)
    cluster.ok("DELETE", f"{PODS}/p1")
    code, text = message(cluster, "p1", "n1")
    assert (code, text.endswith("pod p1 is being deleted, cannot be assigned to a host")) == (409, True)


def test_gated_pod_cannot_be_bound() -> None:
    cluster = Cluster()
    cluster.add_pod("p1", schedulingGates=[{"name": "example.com/wait"}])
    code, text = message(cluster, "p1", "n1")
    assert (code, text.endswith("pod p1 has non-empty .spec.schedulingGates")) == (409, True)


def test_a_node_that_does_not_exist_takes_a_binding() -> None:
    cluster = Cluster()
    cluster.add_pod("p1")
    assert cluster.bind("p1", "ghost-node").status == 201
    assert cluster.ok("GET", f"{PODS}/p1")["status"]["phase"] == "Pending"
