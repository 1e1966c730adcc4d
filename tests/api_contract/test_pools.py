"""Pools: a custom resource with a schema, defaults, a status of its own and columns."""

import pytest

from tests.api_contract.world import JSON_PATCH, TABLE, Call, Json, World, condition, encode
from tests.crds import columns_of_pools
from tests.objects import pool_object

ACCEPTED = {
    "type": "Accepted",
    "status": "True",
    "reason": "SpecAccepted",
    "message": "The spec is in force.",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}


def test_pool_of_the_first_document_is_stored_with_its_switches(world: World) -> None:
    name = world.named("cpu")
    spec = {"disablePreemption": False, "disableBorrowing": False, "disableSharing": False}
    pool = world.create(pool_object(name, labels={"cpu": "true"}, **spec))
    filled = {"lendRareTypes": False, "reclaimPolicy": "OnDemand"}
    assert pool["spec"] == {"nodeSelector": {"matchLabels": {"cpu": "true"}}, **spec, **filled}
    assert pool["metadata"]["generation"] == 1
    assert "namespace" not in pool["metadata"]


def test_absent_switches_are_off(world: World) -> None:
    spec = world.create(pool_object(world.named("pool"), labels={"cpu": "true"}))["spec"]
    assert [spec[one] for one in ("disablePreemption", "disableBorrowing", "disableSharing")] == [False] * 3


def test_pools_are_listed_by_name(world: World) -> None:
    made = [world.named(name) for name in ("b", "a", "c")]
    for name in made:
        world.create(pool_object(name))
    answer = world.listed("Pool")
    assert answer.body["kind"] == "PoolList"
    assert [name for name in answer.names if name in made] == sorted(made)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"disableSharing": "yes"}, "spec.disableSharing"),
        ({"placement": "Sideways"}, "spec.placement"),
        ({"nodeSelector": {"matchLabels": {"cpu": True}}}, "spec.nodeSelector.matchLabels.cpu"),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "cpu", "operator": "Near"}]}},
            "spec.nodeSelector.matchExpressions[0].operator",
        ),
        (
            {"nodeSelector": {"matchExpressions": [{"operator": "Exists"}]}},
            "spec.nodeSelector.matchExpressions[0].key",
        ),
    ],
)
def test_pool_that_violates_its_schema_is_refused_with_the_path_of_the_field(
    world: World, spec: Json, field: str
) -> None:
    name = world.named("pool")
    answer = world.try_create(pool_object(name, **spec))
    assert (answer.status, answer.reason) == (422, "Invalid"), answer
    assert field in answer.cause_fields
    assert answer.message.startswith(f'Pool.resource.aibee.cn "{name}" is invalid: ')
    assert world.try_get("Pool", name).status == 404


def test_unknown_field_of_a_pool_is_refused_when_the_writer_is_strict(world: World) -> None:
    answer = world.try_create(pool_object(world.named("pool"), lendingLimits={}), fieldValidation="Strict")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'unknown field "spec.lendingLimits"' in answer.message


def test_unknown_field_of_a_pool_is_dropped_when_the_writer_is_not(world: World) -> None:
    answer = world.try_create(pool_object(world.named("pool"), lendingLimits={}), fieldValidation="Ignore")
    assert answer.status == 201
    assert "lendingLimits" not in answer.body["spec"]


def test_status_of_a_pool_is_written_only_through_its_own_path(world: World) -> None:
    name = world.named("pool")
    made = world.create(pool_object(name) | {"status": {"observedGeneration": 7}})
    assert "status" not in made
    world.patch(world.url("Pool", name), {"status": {"observedGeneration": 7}})
    assert "status" not in world.get("Pool", name)
    written = world.patch(world.url("Pool", name, "status"), {"status": {"conditions": [ACCEPTED]}})
    assert condition(written, "Accepted")["reason"] == "SpecAccepted"


def test_write_to_the_status_of_a_pool_does_not_change_its_spec(world: World) -> None:
    name = world.named("pool")
    before = world.create(pool_object(name, labels={"cpu": "true"}))
    change = {"spec": {"disableSharing": True}, "status": {"observedGeneration": 1}}
    after = world.patch(world.url("Pool", name, "status"), change)
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], 1)
    assert after["status"] == {"observedGeneration": 1}


def test_status_of_a_pool_that_violates_its_schema_is_refused(world: World) -> None:
    name = world.named("pool")
    world.create(pool_object(name))
    broken = {key: value for key, value in ACCEPTED.items() if key != "reason"}
    answer = world.try_patch(world.url("Pool", name, "status"), {"status": {"conditions": [broken]}})
    assert answer.status == 422
    assert "status.conditions[0].reason" in answer.cause_fields


def test_stale_status_of_a_pool_is_a_conflict(world: World) -> None:
    name = world.named("pool")
    pool = world.create(pool_object(name))
    world.patch(world.url("Pool", name), {"spec": {"disableSharing": True}})
    answer = world.try_replace(pool | {"status": {"observedGeneration": 1}}, "status")
    assert (answer.status, answer.reason) == (409, "Conflict")


def test_json_patch_of_a_pool_changes_one_field(world: World) -> None:
    name = world.named("pool")
    world.create(pool_object(name, labels={"cpu": "true"}))
    change = [{"op": "add", "path": "/spec/nodeSelector/matchLabels/zone", "value": "east"}]
    pool = world.patch(world.url("Pool", name), change, JSON_PATCH)
    assert pool["spec"]["nodeSelector"]["matchLabels"] == {"cpu": "true", "zone": "east"}


def test_table_of_pools_has_the_columns_of_the_definition(world: World) -> None:
    name = world.named("pool")
    world.create(pool_object(name))
    answer = world.send(Call("GET", world.url("Pool", name), accept=TABLE))
    columns = {column["name"]: column["priority"] for column in answer.body["columnDefinitions"]}
    narrow, wide = ["Name", *columns_of_pools(0)], columns_of_pools(1)
    assert list(columns.items()) == [*((column, 0) for column in narrow), *((column, 1) for column in wide)]
    assert answer.body["rows"][0]["cells"][0] == name


def test_columns_of_a_pool_show_its_status(world: World) -> None:
    name = world.named("pool")
    world.create(pool_object(name, makeRoom="BorrowThenPreempt", placement="Pack"))
    ready = ACCEPTED | {"type": "Ready"}
    columns = {"cpu": "3/8", "gpu": "1/4", "flags": "p✓ b✓ s✗", "own": "3 cpu, 1 gpu"}
    status = {"nodes": 2, "pods": 4, "pendingPods": 0, "columns": columns, "conditions": [ready]}
    world.patch(world.url("Pool", name, "status"), {"status": status})
    answer = world.send(Call("GET", world.url("Pool", name), accept=TABLE))
    heads = [column["name"] for column in answer.body["columnDefinitions"]]
    cells = dict(zip(heads, answer.body["rows"][0]["cells"], strict=True))
    shown = {"Nodes": 2, "Pending": 0, "CPU": "3/8", "GPU": "1/4", "Flags": "p✓ b✓ s✗", "Ready": "True"}
    wide = {"Own": "3 cpu, 1 gpu", "Pods": 4, "Placement": "Pack", "Make-Room": "BorrowThenPreempt"}
    assert cells | shown | wide == cells
    assert (cells["Shared"], cells["Free"], cells["Conflict"]) == (None, None, None)


def test_watch_of_pools_shows_created_and_deleted_ones(world: World) -> None:
    name = world.named("pool")
    watch = world.watch("Pool", resourceVersion=world.listed("Pool").body["metadata"]["resourceVersion"])
    world.create(pool_object(name))
    world.delete("Pool", name)
    watch.until("ADDED", name)
    assert watch.until("DELETED", name)["metadata"]["name"] == name


def test_deleted_pool_answers_with_a_status_that_names_it(world: World) -> None:
    name = world.named("pool")
    uid = world.create(pool_object(name))["metadata"]["uid"]
    answer = world.delete("Pool", name)
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": name, "group": "resource.aibee.cn", "kind": "pools", "uid": uid}


def test_pools_are_cluster_scoped(world: World) -> None:
    path = f"/apis/resource.aibee.cn/v1alpha1/namespaces/{world.namespace}/pools"
    assert world.send(Call("POST", path, encode(pool_object("a")))).status == 404


def test_discovery_names_pools_and_their_status(world: World) -> None:
    answer = world.send(Call("GET", "/apis/resource.aibee.cn/v1alpha1"))
    found = {one["name"]: one for one in answer.body["resources"]}
    assert (found["pools"]["kind"], found["pools"]["namespaced"]) == ("Pool", False)
    assert found["pools"]["singularName"] == "pool"  # by which `kubectl get pool` finds it
    assert "shortNames" not in found["pools"]
    assert "pools/status" in found
