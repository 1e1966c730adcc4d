"""Invalid Pools: every invalid spec is refused when it is written, and the refusal names the field.

Only the real API server evaluates the rules of the definition. `read_pool` validates specs that were stored before a
rule existed; the API server accepts such a spec as long as it does not change.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from aischeduler.kube.crds import pool_crd
from tests.api_contract.conftest import DEFINITIONS
from tests.api_contract.world import Call, Json, World, encode
from tests.objects import pool_object

pytestmark = [pytest.mark.real, pytest.mark.parametrize("transport", ["real"], indirect=True, scope="package")]
POOL_DEFINITION = f"{DEFINITIONS}/pools.resource.aibee.cn"


def expression(**fields: Any) -> Json:
    return {"matchExpressions": [{"key": "gpu", **fields}]}


SELECTORS: list[tuple[Any, str]] = [
    ("all", ""),
    ([], ""),
    ({"matchLabels": "all"}, ".matchLabels"),
    ({"matchLabels": {"cpu": True}}, ".matchLabels.cpu"),
    ({"matchLabels": {"cpu": "a b"}}, ".matchLabels.cpu"),
    ({"matchLabels": {"cpu": "-a"}}, ".matchLabels.cpu"),
    ({"matchLabels": {"cpu": "a\n"}}, ".matchLabels.cpu"),
    ({"matchLabels": {"cpu": "a" * 64}}, ".matchLabels.cpu"),
    ({"matchLabels": {"a b": "c"}}, ".matchLabels"),
    ({"matchLabels": {"": "c"}}, ".matchLabels"),
    ({"matchLabels": {"/a": "c"}}, ".matchLabels"),
    ({"matchLabels": {"a/b/c": "c"}}, ".matchLabels"),
    ({"matchLabels": {"a" * 64: "c"}}, ".matchLabels"),
    ({"matchLabels": {"A.example/a": "c"}}, ".matchLabels"),
    ({"matchLabels": {f"l{number}": "" for number in range(65)}}, ".matchLabels"),
    ({"matchExpressions": {}}, ".matchExpressions"),
    ({"matchExpressions": [{"operator": "Exists"}]}, ".matchExpressions[0].key"),
    ({"matchExpressions": [{"key": "gpu"}]}, ".matchExpressions[0].operator"),
    ({"matchExpressions": [{"key": "", "operator": "Exists"}]}, ".matchExpressions[0].key"),
    ({"matchExpressions": [{"key": "a b", "operator": "Exists"}]}, ".matchExpressions[0].key"),
    ({"matchExpressions": [{"key": "a", "operator": "Exists"}] * 65}, ".matchExpressions"),
    (expression(operator="Near", values=["a"]), ".matchExpressions[0].operator"),
    (expression(operator="Gt", values=["1"]), ".matchExpressions[0].operator"),
    (expression(operator="In"), ".matchExpressions[0].values"),
    (expression(operator="In", values=[]), ".matchExpressions[0].values"),
    (expression(operator="NotIn"), ".matchExpressions[0].values"),
    (expression(operator="Exists", values=["a"]), ".matchExpressions[0].values"),
    (expression(operator="DoesNotExist", values=["a"]), ".matchExpressions[0].values"),
    (expression(operator="In", values="a"), ".matchExpressions[0].values"),
    (expression(operator="In", values=["a", "b c"]), ".matchExpressions[0].values[1]"),
    (expression(operator="In", values=[None]), ".matchExpressions[0].values[0]"),
    (expression(operator="In", values=["a"] * 257), ".matchExpressions[0].values"),
]

AMOUNTS: list[tuple[Any, str]] = [
    (8, ""),
    (["cpu"], ""),
    ({"cpu": -1}, "[cpu]"),
    ({"cpu": "-1"}, "[cpu]"),
    ({"cpu": "-500m"}, "[cpu]"),
    ({"memory": "-1Gi"}, "[memory]"),
    ({"memory": "much"}, "[memory]"),
    ({"memory": ""}, "[memory]"),
    ({"memory": "1 Gi"}, "[memory]"),
    ({"memory": "1.5.3"}, "[memory]"),
    ({"memory": "1GiB"}, "[memory]"),
    ({"nvidia.com/gpu": "two"}, "[nvidia.com/gpu]"),
    ({"cpu": "1" * 41}, ".cpu"),
    ({"cpu": 1.5}, ".cpu"),
    ({"cpu": True}, ".cpu"),
    ({"cpu": {"max": 1}}, ".cpu"),
    ({f"example.com/r{number}": 1 for number in range(65)}, ""),
    ({"gpu": 1}, ""),
    ({"not a name!": 1}, ""),
    ({"": 1}, ""),
    ({"CPU": 1}, ""),
    ({"cpu ": 1}, ""),
    ({"requests.cpu": 1}, ""),
    ({"cpu\n": 1}, ""),
    ({"storage": "1Gi"}, ""),
    ({"hugepages-": "1Gi"}, ""),
    ({"nvidia.com/": 1}, ""),
    ({"/gpu": 1}, ""),
    ({"nvidia.com/a/b": 1}, ""),
    ({"NVIDIA.com/gpu": 1}, ""),
    ({"nvidia.com/" + "g" * 64: 1}, ""),
    ({"n" * 254 + "/gpu": 1}, ""),
]

OTHERS: list[tuple[Json, str]] = [
    ({"disablePreemption": "yes"}, "spec.disablePreemption"),
    ({"disableBorrowing": 1}, "spec.disableBorrowing"),
    ({"disableSharing": []}, "spec.disableSharing"),
    ({"placement": "Sideways"}, "spec.placement"),
    ({"placement": "pack"}, "spec.placement"),
    ({"makeRoom": "Never"}, "spec.makeRoom"),
    ({"makeRoom": ""}, "spec.makeRoom"),
    ({"reclaimPolicy": "Always"}, "spec.reclaimPolicy"),
    ({"reclaimPolicy": ["Evict"]}, "spec.reclaimPolicy"),
    ({"borrowingPools": "gpu"}, "spec.borrowingPools"),
    ({"borrowingPools": {"gpu": True}}, "spec.borrowingPools"),
    ({"borrowingPools": [7]}, "spec.borrowingPools[0]"),
    ({"borrowingPools": [None]}, "spec.borrowingPools[0]"),
    ({"borrowingPools": [""]}, "spec.borrowingPools[0]"),
    ({"borrowingPools": ["gpu", "GPU pool"]}, "spec.borrowingPools[1]"),
    ({"borrowingPools": ["gpu\n"]}, "spec.borrowingPools[0]"),
    ({"borrowingPools": ["a" * 254]}, "spec.borrowingPools[0]"),
    ({"borrowingPools": ["gpu", "cpu", "gpu"]}, "spec.borrowingPools[2]"),
    ({"borrowingPools": [f"p{number}" for number in range(257)]}, "spec.borrowingPools"),
]

WRONG = [
    *OTHERS,
    *(
        ({field: value}, f"spec.{field}{path}")
        for field in ("nodeSelector", "allowedNamespaces")
        for value, path in SELECTORS
    ),
    *(
        ({field: value}, f"spec.{field}{path}")
        for field in ("lendingLimit", "borrowingLimit")
        for value, path in AMOUNTS
    ),
]

RIGHT: list[Json] = [
    {},
    {"nodeSelector": {}},
    {"nodeSelector": {"matchLabels": {"a.example/b_c.d-e": "", "x": "A.b_c-9"}}},
    {"nodeSelector": expression(operator="NotIn", values=["", "a"])},
    {"nodeSelector": expression(operator="Exists", values=[])},
    {"allowedNamespaces": {"matchLabels": {"kubernetes.io/metadata.name": "vision"}}},
    {"lendingLimit": {}, "borrowingLimit": {"cpu": 0}},
    {"lendingLimit": {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": "2", "ephemeral-storage": "1.5e3"}},
    {"borrowingLimit": {"cpu": "500m", "pods": "0"}},
    {"lendingLimit": {"hugepages-2Mi": "1Gi", "hugepages-1Gi": 0, "a.example/b_C.d-9": "1.5", "0/0": 1}},
    {"lendingLimit": {"n" * 253 + "/" + "g" * 63: 1}},
    {"borrowingPools": []},
    {"borrowingPools": ["default", "gpu.a100"]},
    {"makeRoom": "BorrowThenPreempt", "reclaimPolicy": "Evict", "placement": "Fragmentation"},
]


def test_every_invalid_spec_is_refused_and_the_field_is_named(world: World) -> None:
    for spec, field in WRONG:
        answer = world.try_create(pool_object(world.named("pool"), **spec), dryRun="All")
        assert (answer.status, answer.reason) == (422, "Invalid"), (spec, answer)
        assert field in answer.cause_fields, (spec, answer)


def test_every_valid_spec_is_stored_as_it_is_written(world: World) -> None:
    for spec in RIGHT:
        stored = world.create(pool_object(world.named("pool"), **spec), dryRun="All")["spec"]
        assert stored | spec == stored


FIELD_CPU = "spec.lendingLimit[cpu]"
RESOURCES = "such as cpu, memory, ephemeral-storage, pods, hugepages-2Mi or nvidia.com/gpu"
WORDS: list[tuple[Json, str, str]] = [
    ({"lendingLimit": {"cpu": -1}}, FIELD_CPU, "-1: must not be below zero"),
    (
        {"lendingLimit": {"cpu": "8 cores"}},
        FIELD_CPU,
        '"8 cores": must be a quantity such as 8, 500m, 64Gi or, in quotes, "1.5"',
    ),
    ({"lendingLimit": {"gpu": 1}}, "spec.lendingLimit", f"every name must be that of a resource, {RESOURCES}"),
    (
        {"nodeSelector": expression(operator="In")},
        "spec.nodeSelector.matchExpressions[0].values",
        "In and NotIn need at least one value",
    ),
    (
        {"borrowingPools": ["other", "itself"]},
        "spec.borrowingPools",
        "a pool cannot borrow from itself: take its own name out of the list",
    ),
]


@pytest.mark.newest
def test_refusal_says_what_is_allowed(world: World) -> None:
    for spec, field, words in WORDS:
        answer = world.try_create(pool_object("itself", **spec), dryRun="All")
        cause = {"reason": "FieldValueInvalid", "message": f"Invalid value: {words}", "field": field}
        assert answer.body["details"]["causes"] == [cause]


def test_pool_cannot_be_changed_to_borrow_from_itself(world: World) -> None:
    name = world.named("pool")
    world.create(pool_object(name, borrowingPools=["other"]))
    answer = world.try_patch(world.url("Pool", name), {"spec": {"borrowingPools": [name]}})
    assert (answer.status, answer.cause_fields) == (422, ["spec.borrowingPools"])


def test_every_invalid_field_is_named_at_once(world: World) -> None:
    name = world.named("pool")
    spec: Json = {"borrowingPools": [name], "lendingLimit": {"cpu": -1}, "nodeSelector": expression(operator="In")}
    answer = world.try_create(pool_object(name, **spec))
    assert sorted(answer.cause_fields) == [
        "spec.borrowingPools",
        FIELD_CPU,
        "spec.nodeSelector.matchExpressions[0].values",
    ]


def test_rules_are_evaluated_once_the_types_are_valid(world: World) -> None:
    answer = world.try_create(pool_object(world.named("pool"), disableSharing="yes", lendingLimit={"cpu": -1}))
    assert answer.cause_fields == ["spec.disableSharing", "<nil>"]


def test_null_fields_are_absent_fields(world: World) -> None:
    fields = ("nodeSelector", "disableSharing", "borrowingPools", "lendingLimit", "makeRoom", "placement")
    nulls = world.create(pool_object(world.named("nulls"), **dict.fromkeys(fields)))
    assert nulls["spec"] == world.create(pool_object(world.named("nothing")))["spec"]


def test_invalid_change_of_a_valid_pool_is_refused_and_changes_nothing(world: World) -> None:
    name = world.named("pool")
    world.create(pool_object(name, lendingLimit={"cpu": 8}))
    answer = world.try_patch(world.url("Pool", name), {"spec": {"lendingLimit": {"cpu": "-8"}}})
    assert (answer.status, answer.cause_fields) == (422, [FIELD_CPU])
    assert world.get("Pool", name)["spec"]["lendingLimit"] == {"cpu": 8}


STORED_WRONG: dict[str, Json] = {
    "spec.lendingLimit": {"lendingLimit": {"cpu": -1}},
    "spec.makeRoom": {"makeRoom": "Never"},
    "spec.disableSharing": {"disableSharing": "yes"},
    "spec.nodeSelector": {"nodeSelector": expression(operator="In")},
    "spec.borrowingPools": {"borrowingPools": ["gpu", "gpu"]},
}


@pytest.fixture
def old_pools(world: World) -> Iterator[list[str]]:
    """Yield Pools that were stored under a definition without rules; the present definition is back."""
    made = {world.named(f"old-{number}"): spec for number, spec in enumerate(STORED_WRONG.values())}
    itself = world.named("old-itself")
    made[itself] = {"borrowingPools": [itself]}
    _define(world, lax=True)
    probe = world.named("probe")
    world.until(lambda: world.try_create(pool_object(probe, lendingLimit={"cpu": -1})).status == 201)
    for name, spec in made.items():
        world.create(pool_object(name, **spec))
    world.delete("Pool", probe)
    _define(world, lax=False)
    world.until(lambda: world.try_create(pool_object(probe, lendingLimit={"cpu": -1})).status == 422)
    yield list(made)
    for name in made:
        world.delete("Pool", name)


def _define(world: World, *, lax: bool) -> None:
    definition = pool_crd()
    if lax:
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        del schema["x-kubernetes-validations"]
        schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    current = world.send(Call("GET", POOL_DEFINITION)).body
    answer = world.send(Call("PUT", POOL_DEFINITION, encode(current | {"spec": definition["spec"]})))
    assert answer.status == 200, answer


@pytest.mark.newest
def test_status_of_a_pool_that_is_stored_invalid_can_be_written(world: World, old_pools: list[str]) -> None:
    for name in old_pools:
        written = world.patch(world.url("Pool", name, "status"), {"status": {"nodes": 1}})
        assert written["status"] == {"nodes": 1}


def test_pool_that_is_stored_invalid_can_be_changed_in_other_fields_and_corrected(
    world: World, old_pools: list[str]
) -> None:
    for name in old_pools:
        changed = world.patch(world.url("Pool", name), {"spec": {"disableBorrowing": True}})
        assert changed["spec"]["disableBorrowing"] is True
        wrong = [key for key in changed["spec"] if f"spec.{key}" in STORED_WRONG]
        world.patch(world.url("Pool", name), {"spec": dict.fromkeys(wrong)})


def test_pool_that_is_stored_invalid_cannot_be_made_invalid_in_another_way(world: World, old_pools: list[str]) -> None:
    for name in old_pools:
        answer = world.try_patch(world.url("Pool", name), {"spec": {"borrowingLimit": {"cpu": -1}}})
        assert answer.cause_fields == ["spec.borrowingLimit[cpu]"]
