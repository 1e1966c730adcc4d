"""JSON patch, merge patch and strategic merge patch."""

import pytest

from tests.api_contract.world import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, World
from tests.objects import node_object, pod_object, pool_object

TAINT = {"key": "dedicated", "value": "a", "effect": "NoSchedule"}


def test_merge_patch_sets_replaces_and_removes(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace, labels={"tier": "gold", "zone": "east"}))
    change = {"metadata": {"labels": {"tier": "tin", "zone": None, "rack": "7"}}}
    assert world.patch(world.url("Pod", "a"), change)["metadata"]["labels"] == {"tier": "tin", "rack": "7"}


def test_merge_patch_replaces_a_whole_list(world: World) -> None:
    name = world.named("n")
    world.create(node_object(name, taints=[TAINT]))
    other = {"key": "maintenance", "effect": "NoExecute"}
    node = world.patch(world.url("Node", name), {"spec": {"taints": [other]}}, MERGE_PATCH)
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["maintenance"]
    assert "taints" not in world.patch(world.url("Node", name), {"spec": {"taints": None}})["spec"]


def test_json_patch_adds_replaces_and_removes(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace, labels={"tier": "gold"}))
    change = [
        {"op": "test", "path": "/metadata/labels/tier", "value": "gold"},
        {"op": "replace", "path": "/metadata/labels/tier", "value": "tin"},
        {"op": "add", "path": "/metadata/labels/example.com~1rack", "value": "7"},
    ]
    labels = world.patch(world.url("Pod", "a"), change, JSON_PATCH)["metadata"]["labels"]
    assert labels == {"tier": "tin", "example.com/rack": "7"}
    gone = [{"op": "remove", "path": "/metadata/labels/tier"}]
    assert world.patch(world.url("Pod", "a"), gone, JSON_PATCH)["metadata"]["labels"] == {"example.com/rack": "7"}


def test_json_patch_whose_test_fails_changes_nothing(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace, labels={"tier": "gold"}))
    change = [
        {"op": "replace", "path": "/metadata/labels/tier", "value": "tin"},
        {"op": "test", "path": "/metadata/labels/tier", "value": "gold"},
    ]
    answer = world.try_patch(world.url("Pod", "a"), change, JSON_PATCH)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert world.get("Pod", "a")["metadata"]["labels"] == {"tier": "gold"}


def test_json_patch_removes_a_gate_by_its_index(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace, gates=["example.com/one", "example.com/two"]))
    change = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    pod = world.patch(world.url("Pod", "a"), change, JSON_PATCH)
    assert pod["spec"]["schedulingGates"] == [{"name": "example.com/two"}]


def test_strategic_patch_merges_containers_by_name(world: World) -> None:
    document = pod_object("a", namespace=world.namespace)
    document["spec"]["containers"].append({"name": "side", "image": "registry.example/side:1"})
    world.create(document)
    change = {"spec": {"containers": [{"name": "side", "image": "registry.example/side:2"}]}}
    containers = world.patch(world.url("Pod", "a"), change, STRATEGIC_PATCH)["spec"]["containers"]
    assert [(one["name"], one["image"]) for one in containers] == [
        ("main", "registry.example/worker:1"),
        ("side", "registry.example/side:2"),
    ]


def test_strategic_patch_adds_a_toleration_to_the_list_it_names_whole(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    given = world.get("Pod", "a")["spec"].get("tolerations", [])
    extra = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
    change = {"spec": {"tolerations": [*given, extra]}}
    pod = world.patch(world.url("Pod", "a"), change, STRATEGIC_PATCH)
    assert pod["spec"]["tolerations"] == [*given, extra]


def test_strategic_patch_removes_a_label_by_null(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace, labels={"tier": "gold", "zone": "east"}))
    pod = world.patch(world.url("Pod", "a"), {"metadata": {"labels": {"tier": None}}}, STRATEGIC_PATCH)
    assert pod["metadata"]["labels"] == {"zone": "east"}


def test_strategic_patch_deletes_a_condition_by_directive(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    url = world.url("Pod", "a", "status")
    for kind in ("Ready", "Initialized"):
        world.patch(url, {"status": {"conditions": [{"type": kind, "status": "True"}]}}, STRATEGIC_PATCH)
    change = {"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}
    pod = world.patch(url, change, STRATEGIC_PATCH)
    assert [one["type"] for one in pod["status"]["conditions"]] == ["Initialized"]


def test_strategic_patch_of_a_pool_is_refused(world: World) -> None:
    name = world.named("pool")
    world.create(pool_object(name))
    answer = world.try_patch(world.url("Pool", name), {"spec": {"disableSharing": True}}, STRATEGIC_PATCH)
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize("kind", ["Pod", "Pool"])
def test_patch_may_not_rename_an_object(world: World, kind: str) -> None:
    name = world.named("a")
    world.create(pod_object(name, namespace=world.namespace) if kind == "Pod" else pool_object(name))
    answer = world.try_patch(world.url(kind, name), {"metadata": {"name": "b"}})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == f"the name of the object (b) does not match the name on the URL ({name})"
    assert world.try_get(kind, name).status == 200


@pytest.mark.parametrize("kind", ["Pod", "Pool"])
def test_patch_may_not_give_an_object_another_identity(world: World, kind: str) -> None:
    name = world.named("a")
    world.create(pod_object(name, namespace=world.namespace) if kind == "Pod" else pool_object(name))
    answer = world.try_patch(world.url(kind, name), {"metadata": {"uid": "another"}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert {*answer.cause_fields} == {"metadata.uid"}


def test_patch_of_an_unknown_kind_is_refused(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    answer = world.try_patch(world.url("Pod", "a"), {}, "application/unheard-of+json")
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


def test_patch_of_a_missing_object_is_not_found(world: World) -> None:
    assert world.try_patch(world.url("Pod", "a"), {"metadata": {"labels": {"tier": "gold"}}}).status == 404


@pytest.mark.parametrize("content_type", [MERGE_PATCH, JSON_PATCH, STRATEGIC_PATCH])
def test_patch_that_is_not_json_is_refused(world: World, content_type: str) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    answer = world.try_patch(world.url("Pod", "a"), b"{", content_type)
    assert (answer.status, answer.reason) == (400, "BadRequest")
