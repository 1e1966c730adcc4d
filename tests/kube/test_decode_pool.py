import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.kube.crds import pool_schema
from aischeduler.kube.decode.api_types import PoolDocument
from aischeduler.kube.decode.pool import read_pool
from aischeduler.model.pool import MakeRoomOrder, PlacementStrategy, Pool, ReclaimPolicy
from aischeduler.model.selectors import Operator, Requirement
from tests.kube import api_objects


def decode_pool(spec: Any) -> Pool:
    return read_pool(msgspec.json.decode(json.dumps(api_objects.pool("cpu", spec=spec)).encode(), type=PoolDocument))


def test_pool_is_read() -> None:
    found = decode_pool(
        {
            "nodeSelector": {
                "matchLabels": {"pool": "cpu"},
                "matchExpressions": [{"key": "spot", "operator": "DoesNotExist"}],
            },
            "disableSharing": True,
            "placement": "Pack",
            "somethingNewer": {"x": 1},
        }
    )
    assert found.selector is not None
    assert found.selector.requirements == (
        Requirement("pool", Operator.IN, ("cpu",)),
        Requirement("spot", Operator.DOES_NOT_EXIST),
    )
    assert (found.uid, found.generation, found.placement) == ("uid-cpu", 3, PlacementStrategy.PACK)
    assert (found.disable_preemption, found.disable_borrowing, found.disable_sharing) == (False, False, True)
    assert found.invalid == ""


def test_pool_without_spec_owns_no_nodes() -> None:
    assert decode_pool(None).selector is None
    assert decode_pool({"nodeSelector": None}).selector is None


def test_empty_selector_matches_every_node() -> None:
    selector = decode_pool({"nodeSelector": {}}).selector
    assert selector is not None
    assert selector.matches({"any": "node"})


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (5, "spec: must be a mapping, not 5"),
        ({"placement": "Sideways"}, "spec.placement: 'Sideways' is not one of Spread, Pack, Fragmentation"),
        ({"placement": 1}, "spec.placement: must be a string, not 1"),
        ({"disableSharing": "yes"}, "spec.disableSharing: must be true or false, not 'yes'"),
        ({"nodeSelector": "all"}, "spec.nodeSelector: must be a mapping, not 'all'"),
        ({"nodeSelector": {"matchLabels": {"a": 1}}}, "spec.nodeSelector.matchLabels.'a': must be a string, not 1"),
        ({"nodeSelector": {"matchLabels": {"a b": "c"}}}, "spec.nodeSelector.matchLabels: 'a b' is not a label key"),
        ({"nodeSelector": {"matchLabels": {"gpu": "a b"}}}, "spec.nodeSelector.matchLabels.gpu: 'a b' is not a label"),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Contains", "values": ["b"]}]}},
            "spec.nodeSelector.matchExpressions[0].operator: 'Contains' is not one of In, NotIn, Exists, DoesNotExist",
        ),
        (
            {"nodeSelector": {"matchExpressions": {}}},
            "spec.nodeSelector.matchExpressions: must be a list, not a mapping",
        ),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.nodeSelector.matchExpressions[0].values: In needs at least one value",
        ),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
            "spec.nodeSelector.matchExpressions[0].operator: 'Gt' is not one of In, NotIn, Exists, DoesNotExist",
        ),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            "spec.nodeSelector.matchExpressions[0].values: Exists takes no values",
        ),
        (
            {"nodeSelector": {"matchExpressions": [5]}},
            "spec.nodeSelector.matchExpressions[0]: must be a mapping, not 5",
        ),
        ({"nodeSelector": {"matchExpressions": [{}] * 65}}, "spec.nodeSelector.matchExpressions: has 65 items"),
        ({"nodeSelector": {"matchLabels": {f"l{i}": "" for i in range(65)}}}, "spec.nodeSelector.matchLabels: has 65"),
        ({"allowedNamespaces": ["vision"]}, "spec.allowedNamespaces: must be a mapping, not ['vision']"),
        (
            {"allowedNamespaces": {"matchLabels": {"": "x"}}},
            "spec.allowedNamespaces.matchLabels: '' is not a label key",
        ),
        ({"borrowingPools": "gpu"}, "spec.borrowingPools: must be a list, not 'gpu'"),
        ({"borrowingPools": ["gpu", 7]}, "spec.borrowingPools[1]: must be a string, not 7"),
        ({"borrowingPools": [None]}, "spec.borrowingPools[0]: '' is not the name of a Pool"),
        ({"borrowingPools": ["gpu", "GPU"]}, "spec.borrowingPools[1]: 'GPU' is not the name of a Pool"),
        ({"borrowingPools": ["g" * 254]}, "spec.borrowingPools[0]: 'ggg"),
        ({"borrowingPools": ["gpu", "cpu"]}, "spec.borrowingPools: a pool cannot borrow from itself"),
        ({"borrowingPools": ["gpu", "gpu"]}, "spec.borrowingPools[1]: 'gpu' appears twice"),
        ({"borrowingPools": [f"p{i}" for i in range(257)]}, "spec.borrowingPools: has 257 items"),
        ({"lendingLimit": ["cpu"]}, "spec.lendingLimit: must be a mapping, not ['cpu']"),
        ({"lendingLimit": {"cpu": -1}}, "spec.lendingLimit.cpu: -1 is below zero"),
        ({"lendingLimit": {"memory": "-1Gi"}}, "spec.lendingLimit.memory: -1Gi is below zero"),
        ({"lendingLimit": {"cpu": "many"}}, "spec.lendingLimit.cpu: 'many' is not a quantity"),
        ({"lendingLimit": {"cpu": 1.5}}, 'spec.lendingLimit.cpu: a fraction must be in quotes: "1.5"'),
        ({"lendingLimit": {"gpu": 1}}, "spec.lendingLimit.'gpu': is not the name of a resource, such as cpu, memory, "),
        ({"borrowingLimit": {"not a name!": 1}}, "spec.borrowingLimit.'not a name!': is not the name of a resource"),
        (
            {"lendingLimit": {"cpu": True}},
            "spec.lendingLimit.cpu: must be a quantity such as 8, 500m or 64Gi, not true",
        ),
        (
            {"lendingLimit": {"cpu": None}},
            "spec.lendingLimit.cpu: must be a quantity such as 8, 500m or 64Gi, not empty",
        ),
        (
            {"lendingLimit": {"cpu": {"value": 1}}},
            "spec.lendingLimit.cpu: must be a quantity such as 8, 500m or 64Gi, not a mapping",
        ),
        ({"lendingLimit": {"cpu": "1e99"}}, "spec.lendingLimit.cpu: '1e99' has an exponent"),
        ({"lendingLimit": {"cpu\n": 1}}, "spec.lendingLimit.'cpu\\n': is not the name of a resource"),
        ({"lendingLimit": {f"r{i}": 1 for i in range(65)}}, "spec.lendingLimit: has 65 names"),
        ({"borrowingLimit": {"nvidia.com/gpu": "-1"}}, "spec.borrowingLimit.nvidia.com/gpu: -1 is below zero"),
        ({"makeRoom": "Never"}, "spec.makeRoom: 'Never' is not one of PreemptThenBorrow, BorrowThenPreempt"),
        ({"makeRoom": []}, "spec.makeRoom: must be a string, not an empty list"),
        ({"reclaimPolicy": "Always"}, "spec.reclaimPolicy: 'Always' is not one of OnDemand, Evict"),
        ({"rareTypes": "H200"}, "spec.rareTypes: must be a list, not 'H200'"),
        ({"rareTypes": ["H200", "nvidia"]}, "spec.rareTypes[1]: 'nvidia' is not the name of a card type"),
        ({"rareTypes": ["A"] * 33}, "spec.rareTypes: has 33 items, which is more than 32"),
        ({"maxLoad": 0}, "spec.maxLoad: must be a number from 0.001 to 1, not 0"),
        ({"maxLoad": 1.01}, "spec.maxLoad: must be a number from 0.001 to 1, not 1.01"),
        ({"maxLoad": True}, "spec.maxLoad: must be a number from 0.001 to 1, not true"),
        ({"maxLoad": "0.9"}, "spec.maxLoad: must be a number from 0.001 to 1, not '0.9'"),
        ({"lendRareTypes": 1}, "spec.lendRareTypes: must be true or false, not 1"),
        ({"machineGroups": [{"name": "a b"}]}, "spec.machineGroups[0].name: 'a b' is not the name of a machine group"),
        ({"machineGroups": [{"name": "v"}]}, "spec.machineGroups[0].namespaceSelector: is missing"),
        ({"machineGroups": ["v"]}, "spec.machineGroups[0]: must be a mapping, not 'v'"),
        (
            {"machineGroups": [{"name": "v", "namespaceSelector": {}}] * 2},
            "spec.machineGroups[1].name: 'v' appears twice",
        ),
        (
            {"machineGroups": [{"name": "v", "namespaceSelector": {"matchLabels": {"-": "x"}}}]},
            "spec.machineGroups[0].namespaceSelector.matchLabels: '-' is not a label key",
        ),
        ({"reclaimPolicy": ""}, "spec.reclaimPolicy: '' is not one of OnDemand, Evict"),
    ],
)
def test_invalid_pool_is_refused_as_a_whole_and_the_reason_names_the_field(spec: Any, reason: str) -> None:
    found = decode_pool(spec)
    assert found.invalid.startswith(reason)
    assert found == Pool("cpu", "uid-cpu", 3, invalid=found.invalid)


@pytest.mark.parametrize(("written", "thousandths"), [({}, 1000), ({"maxLoad": 0.97}, 970), ({"maxLoad": 1}, 1000)])
def test_load_up_to_which_elastic_jobs_grow_is_read(written: Any, thousandths: int) -> None:
    assert decode_pool(written).max_load_thousandths == thousandths


def test_lending_and_borrowing_are_read() -> None:
    found = decode_pool(
        {
            "borrowingPools": ["gpu", "default"],
            "lendingLimit": {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": "2"},
            "borrowingLimit": {"cpu": "1500m"},
            "makeRoom": "BorrowThenPreempt",
            "reclaimPolicy": "Evict",
            "allowedNamespaces": {"matchLabels": {"team": "vision"}},
        }
    )
    assert found.borrowing_pools == ("gpu", "default")
    assert found.lending_limit == {"cpu": 8000, "memory": 64 * 2**30, "nvidia.com/gpu": 2}
    assert found.borrowing_limit == {"cpu": 1500}
    assert (found.make_room, found.reclaim_policy) == (MakeRoomOrder.BORROW_THEN_PREEMPT, ReclaimPolicy.EVICT)
    assert found.allowed_namespaces is not None
    assert found.allowed_namespaces.matches({"team": "vision"})
    assert not found.allowed_namespaces.matches({"team": "speech"})
    assert found.invalid == ""


def test_rare_types_and_rules_of_groups_are_read() -> None:
    rule = {"name": "vision", "namespaceSelector": {"matchLabels": {"team": "vision"}}}
    found = decode_pool({"rareTypes": ["NVIDIA H200", "h200", "A100"], "lendRareTypes": True, "machineGroups": [rule]})
    assert (found.rare_types, found.lend_rare_types, found.invalid) == (("H200", "A100"), True, "")
    assert [(group.name, str(group.namespaces)) for group in found.machine_groups] == [("vision", "team=vision")]


def test_profile_is_read() -> None:
    assert decode_pool({"profile": "batch"}).profile == "batch"
    refused = decode_pool({"profile": "Batch!"})
    assert (refused.profile, refused.invalid) == ("", "spec.profile: 'Batch!' is not the name of a scheduler")


def test_defaults_are_those_of_the_schema() -> None:
    spec = pool_schema()["properties"]["spec"]["properties"]
    defaults = {name: field["default"] for name, field in spec.items() if "default" in field}
    assert decode_pool(defaults) == decode_pool({}) == Pool("cpu", "uid-cpu", 3)


def test_null_is_an_absent_field() -> None:
    nulls = dict.fromkeys(pool_schema()["properties"]["spec"]["properties"])
    assert decode_pool(nulls) == decode_pool({})


def test_empty_list_of_lenders_is_any_lender() -> None:
    assert decode_pool({"borrowingPools": []}).borrowing_pools is None


def test_pool_of_another_name_may_be_borrowed_from() -> None:
    assert decode_pool({"borrowingPools": ["gpu"]}).borrowing_pools == ("gpu",)


def test_zero_is_a_limit() -> None:
    assert decode_pool({"lendingLimit": {"nvidia.com/gpu": 0}}).lending_limit == {"nvidia.com/gpu": 0}


def test_reason_for_a_very_long_text_is_short() -> None:
    text = "x" * 200_000
    for spec in ({"placement": text}, {"lendingLimit": {text: 1}}, {"borrowingPools": [text]}, {"makeRoom": {text: 1}}):
        assert 0 < len(decode_pool(spec).invalid) < 200


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(("Pack", "Evict", "In", "Exists", "1Gi", "-1", "cpu", "1e400")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = tuple(pool_schema()["properties"]["spec"]["properties"])
EXPRESSIONS = st.lists(st.fixed_dictionaries({}, optional={"key": JSON, "operator": JSON, "values": JSON}), max_size=3)
SELECTORS = st.fixed_dictionaries({}, optional={"matchLabels": JSON, "matchExpressions": EXPRESSIONS | JSON})


@given(st.dictionaries(st.sampled_from(FIELDS), JSON | SELECTORS) | JSON)
def test_any_document_is_read_or_refused_and_never_raised(spec: Any) -> None:
    found = decode_pool(spec)
    assert (found.name, found.uid, found.generation) == ("cpu", "uid-cpu", 3)
    assert found.invalid.isprintable()
    assert len(found.invalid) <= 1000
