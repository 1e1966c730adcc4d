"""Invalid objects: each refusal names the field, and nothing is stored."""

from tests.api_contract.world import Call, Json, World, encode
from tests.objects import node_object, pdb_object, pod_object

LONG_KEPT = "x" * 250_000


def container(**fields: object) -> Json:
    return {"containers": [{"name": "main", "image": "registry.example/worker:1", **fields}]}


WRONG_SPECS: list[tuple[Json, str]] = [
    ({"containers": []}, "spec.containers"),
    (container(name="Not_A_Name"), "spec.containers"),
    (container(image=""), "spec.containers"),
    ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
    ({"schedulingGates": [{"name": "example.com/wait"}], "nodeName": "n"}, "spec.nodeName"),
]
WRONG_METADATA: list[tuple[Json, str]] = [
    ({"name": "Upper"}, "metadata.name"),
    ({"name": ""}, "metadata.name"),
    ({"annotations": {"example.com/long": "x" * 262_145}}, "metadata.annotations"),
]


def test_pod_with_an_invalid_field_is_refused_and_the_field_is_named(world: World) -> None:
    for part, wrong in (("spec", WRONG_SPECS), ("metadata", WRONG_METADATA)):
        for fields, path in wrong:
            document = pod_object("a", namespace=world.namespace)
            document[part] |= fields
            answer = world.try_create(document)
            assert (answer.status, answer.reason) == (422, "Invalid"), (fields, answer)
            assert any(field.startswith(path) for field in answer.cause_fields), (path, answer)
    assert world.names("Pod") == []


def test_annotation_of_250_kilobytes_and_a_pool_name_with_line_breaks_are_stored_as_they_are(world: World) -> None:
    odd = {"example.com/long": LONG_KEPT, "resource.aibee.cn/pool": "cpu\n\x1b[31mpool {{}}"}
    world.create(pod_object("a", namespace=world.namespace, annotations=odd))
    assert world.get("Pod", "a")["metadata"]["annotations"] == odd


def test_field_of_another_type_is_refused(world: World) -> None:
    document = pod_object("a", namespace=world.namespace)
    document["spec"]["priority"] = "high"
    answer = world.try_create(document)
    assert answer.status in {400, 422}
    assert "priority" in answer.message


def test_body_that_is_not_json_is_refused(world: World) -> None:
    answer = world.send(Call("POST", world.url("Pod"), b"{"))
    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_object_of_another_kind_than_its_path_is_refused(world: World) -> None:
    answer = world.send(Call("POST", world.url("Pod"), encode(node_object(world.named("n")))))
    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_budget_with_an_invalid_selector_is_refused_with_the_path_of_the_field(world: World) -> None:
    document = pdb_object("a", namespace=world.namespace, min_available=1, labels={})
    document["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["a"]}]}
    answer = world.try_create(document)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "spec.selector.matchExpressions[0].operator" in answer.cause_fields


def test_node_with_an_invalid_taint_is_refused_with_the_path_of_the_field(world: World) -> None:
    answer = world.try_create(node_object(world.named("n"), taints=[{"key": "a", "effect": "Sometimes"}]))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert any(field.endswith("taints[0].effect") for field in answer.cause_fields)


def test_path_of_no_resource_is_not_found(world: World) -> None:
    for path in ("/api/v1/wishes", "/apis/nowhere.example/v1/things", "/api/v1/namespaces/default/nodes"):
        answer = world.send(Call("GET", path))
        assert answer.status == 404, path


def test_method_that_a_resource_does_not_support_is_refused(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    answer = world.send(Call("POST", world.url("Pod", "a"), encode({})))
    assert (answer.status, answer.reason) == (405, "MethodNotAllowed")
