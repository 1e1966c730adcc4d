"""Bad objects: each refusal names the field, and nothing is stored."""

import pytest

from tests.objects import node_object, pdb_object, pod_object
from tests.worlds.world import Call, Json, World, encode

TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
LONG_KEPT = "x" * 250_000


def required(expression: Json) -> Json:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def container(**fields: object) -> Json:
    return {"containers": [{"name": "main", "image": "registry.example/worker:1", **fields}]}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": []}, "spec.containers"),
        (container(name="Not_A_Name"), "spec.containers[0].name"),
        (container(image=""), "spec.containers[0].image"),
        (container(resources={"requests": {"cpu": "-1"}}), "spec.containers[0].resources.requests[cpu]"),
        (
            container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "spec.containers[0].resources.requests",
        ),
        (
            container(resources={"requests": {"nvidia.com/gpu": "1"}}),
            "spec.containers[0].resources.limits",
        ),
        (
            container(resources={"limits": {"nvidia.com/gpu": "500m"}}),
            "spec.containers[0].resources.limits[nvidia.com/gpu]",
        ),
        (container(ports=[{"containerPort": 70000}]), "spec.containers[0].ports[0].containerPort"),
        ({"nodeSelector": {"not a key": "x"}}, "spec.nodeSelector"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
        ({"tolerations": [{"key": "a", "operator": "Near"}]}, "spec.tolerations[0].operator"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "spec.tolerations[0].operator"),
        ({"schedulingGates": [{"name": "not a name"}]}, "spec.schedulingGates[0]"),
        (required({"key": "a", "operator": "Near"}), f"{TERMS}.matchExpressions[0].operator"),
        (required({"key": "a", "operator": "In", "values": []}), f"{TERMS}.matchExpressions[0].values"),
        (required({"key": "a", "operator": "Gt", "values": ["1", "2"]}), f"{TERMS}.matchExpressions[0].values"),
    ],
)
def test_pod_with_a_bad_field_is_refused_by_the_path_of_the_field(world: World, spec: Json, field: str) -> None:
    document = pod_object("a", namespace=world.namespace)
    document["spec"] |= spec
    answer = world.try_create(document)
    assert (answer.status, answer.reason) == (422, "Invalid"), answer
    assert field in answer.cause_fields
    assert answer.message.startswith('Pod "a" is invalid: ')
    assert world.names("Pod") == []


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "Upper"}, "metadata.name"),
        ({"name": ""}, "metadata.name"),
        ({"labels": {"tier": "not a value"}}, "metadata.labels"),
        ({"labels": {"not a key": "x"}}, "metadata.labels"),
        ({"annotations": {"not a key": "x"}}, "metadata.annotations"),
        ({"annotations": {"example.com/long": "x" * 262_145}}, "metadata.annotations"),
    ],
)
def test_object_with_bad_metadata_is_refused_by_the_path_of_the_field(world: World, metadata: Json, field: str) -> None:
    document = pod_object("a", namespace=world.namespace)
    document["metadata"] |= metadata
    answer = world.try_create(document)
    assert (answer.status, answer.reason) == (422, "Invalid"), answer.status
    assert field in answer.cause_fields


def test_annotation_of_250_kilobytes_and_a_pool_name_with_line_breaks_are_stored_as_they_are(world: World) -> None:
    odd = {"example.com/long": LONG_KEPT, "resource.aibee.cn/pool": "cpu\n\x1b[31mpool {{}}"}
    world.create(pod_object("a", namespace=world.namespace, annotations=odd))
    assert world.get("Pod", "a")["metadata"]["annotations"] == odd


def test_bound_that_is_no_number_is_stored_for_schedulers_to_judge(world: World) -> None:
    document = pod_object("a", namespace=world.namespace)
    document["spec"] |= required({"key": "a", "operator": "Gt", "values": ["x"]})
    assert world.try_create(document).status == 201


def test_unknown_field_is_refused_when_the_writer_is_strict(world: World) -> None:
    document = pod_object("a", namespace=world.namespace)
    document["spec"]["wether"] = "fine"
    answer = world.try_create(document, fieldValidation="Strict")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.wether"' in answer.message
    assert world.names("Pod") == []


def test_unknown_field_is_dropped_with_a_warning_when_the_writer_is_not(world: World) -> None:
    document = pod_object("a", namespace=world.namespace)
    document["spec"]["wether"] = "fine"
    answer = world.try_create(document, fieldValidation="Warn")
    assert answer.status == 201
    assert answer.warnings == ('unknown field "spec.wether"',)
    assert "wether" not in answer.body["spec"]


def test_field_of_another_type_is_refused(world: World) -> None:
    document = pod_object("a", namespace=world.namespace)
    document["spec"]["hostNetwork"] = "yes"
    answer = world.try_create(document)
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'Pod in version "v1" cannot be handled as a Pod' in answer.message
    assert "hostNetwork" in answer.message


def test_body_that_is_no_json_is_refused(world: World) -> None:
    answer = world.send(Call("POST", world.url("Pod"), b"{"))
    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_object_of_another_kind_than_its_path_is_refused(world: World) -> None:
    answer = world.send(Call("POST", world.url("Pod"), encode(node_object(world.named("n")))))
    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_budget_with_a_bad_selector_is_refused_by_the_path_of_the_field(world: World) -> None:
    document = pdb_object("a", namespace=world.namespace, min_available=1, labels={})
    document["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["a"]}]}
    answer = world.try_create(document)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "spec.selector.matchExpressions[0].operator" in answer.cause_fields


def test_node_with_a_bad_taint_is_refused_by_the_path_of_the_field(world: World) -> None:
    answer = world.try_create(node_object(world.named("n"), taints=[{"key": "a", "effect": "Sometimes"}]))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "metadata.taints[0].effect" in answer.cause_fields


def test_path_of_no_resource_is_not_found(world: World) -> None:
    for path in ("/api/v1/wishes", "/apis/nowhere.example/v1/things", "/api/v1/namespaces/default/nodes"):
        answer = world.send(Call("GET", path))
        assert answer.status == 404, path


def test_method_that_a_resource_does_not_know_is_refused(world: World) -> None:
    world.create(pod_object("a", namespace=world.namespace))
    answer = world.send(Call("POST", world.url("Pod", "a"), encode({})))
    assert (answer.status, answer.reason) == (405, "MethodNotAllowed")
