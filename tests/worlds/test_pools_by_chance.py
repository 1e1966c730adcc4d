"""Pool specs by chance, right and wrong, to this world and to a fresh virtual one: the same causes and words."""

from itertools import count
from random import Random  # noqa: TID251 - for its type
from typing import Any

import pytest

from tests.objects import pool_object
from tests.seeds import random
from tests.worlds.conftest import with_pools
from tests.worlds.test_alike import differences, essence
from tests.worlds.virtual import VirtualTransport
from tests.worlds.world import MERGE_PATCH, Answer, Call, Json, Transport, encode

SPECS = 60
CASES = 6
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"

_numbers = count(1)

TEXTS = ["", "a", "A", "gpu", "a b", "-a", "a/b", "a/b/c", "x" * 64, "x" * 254, "x" * 320, "é", "a\n", "default"]
ODD: list[Any] = [None, True, 0, -1, 1.5, 2.0, "", "yes", [], {}, [None], {"a": None}, [[]]]
QUANTITIES: list[Any] = [
    *("1", "500m", "64Gi", "1.5", "-1", "-0", "1e3", "1E3", "", " 1", "+1", "1GiB", "0x1", "9" * 40, "9" * 41),
    *(0, 8, -8, 1.0, 1.5, True, None, [], {}),
]
OPERATORS: list[Any] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "in", "", None, 1]


def a_selector(chance: Random) -> Any:
    if chance.random() < 0.1:
        return chance.choice(ODD)
    selector: Json = {}
    if chance.random() < 0.5:
        labels = {chance.choice(TEXTS): chance.choice([*TEXTS, *ODD]) for _ in range(chance.randrange(3))}
        selector["matchLabels"] = labels if chance.random() < 0.9 else chance.choice(ODD)
    if chance.random() < 0.7:
        selector["matchExpressions"] = [an_expression(chance) for _ in range(chance.randrange(3))]
    return selector


def an_expression(chance: Random) -> Any:
    fields: Json = {
        "key": chance.choice(["gpu", "example.com/model", *TEXTS, *ODD[:4]]),
        "operator": chance.choice(OPERATORS),
        "values": chance.choice([[], ["a"], ["a", "b c"], ["a", "a"], *ODD]),
    }
    return {key: value for key, value in fields.items() if chance.random() < 0.8}


def amounts(chance: Random) -> Any:
    if chance.random() < 0.1:
        return chance.choice(ODD)
    names = ("cpu", "memory", "nvidia.com/gpu", "")
    return {chance.choice(names): chance.choice(QUANTITIES) for _ in range(chance.randrange(4))}


def a_spec(chance: Random, name: str) -> Json:
    makers = {
        "nodeSelector": lambda: a_selector(chance),
        "allowedNamespaces": lambda: a_selector(chance),
        "lendingLimit": lambda: amounts(chance),
        "borrowingLimit": lambda: amounts(chance),
        "borrowingPools": lambda: chance.choice([[name], ["a", name], ["a", "a"], ["a", "b"], TEXTS, *ODD]),
        "makeRoom": lambda: chance.choice(["PreemptThenBorrow", "BorrowThenPreempt", "Never", *ODD]),
        "reclaimPolicy": lambda: chance.choice(["OnDemand", "Evict", *ODD]),
        "placement": lambda: chance.choice(["Spread", "Fragmentation", "pack", *ODD]),
        "disableSharing": lambda: chance.choice([True, False, *ODD]),
        "wish": lambda: chance.choice(ODD),
    }
    chosen = chance.sample(sorted(makers), chance.randrange(1, 4))
    return {field: makers[field]() for field in chosen}


def verdict(answer: Answer) -> Any:
    """Return what must be alike: of a refusal all that it blames, in whatever order."""
    if answer.status < 400:
        return {"status": answer.status, "body": essence(answer.body)}
    causes = answer.body.get("details", {}).get("causes", [])
    return {"status": answer.status, "reason": answer.reason, "causes": sorted(map(_line, causes))}


def _line(cause: Json) -> str:
    return f"{cause['field']} | {cause['reason']} | {cause['message']}"


@pytest.mark.newest
@pytest.mark.parametrize("case", range(CASES))
def test_pools_by_chance_are_judged_as_in_the_virtual_world(transport: Transport, case: int) -> None:
    virtual, chance = with_pools(VirtualTransport()), random(f"pools {case}")
    name = f"by-chance-{next(_numbers)}"
    for one in (virtual, transport):
        assert one.request(Call("POST", POOLS, encode(pool_object(name, labels={"a": "b"})))).status == 201
    for number in range(SPECS):
        spec = a_spec(chance, name)
        made = Call("POST", f"{POOLS}?dryRun=All", encode(pool_object(f"{name}-new", **spec)))
        changed = Call("PATCH", f"{POOLS}/{name}", encode({"spec": spec}), MERGE_PATCH)
        for call in (made, changed):
            found = differences(verdict(transport.request(call)), verdict(virtual.request(call)))
            assert found == [], f"spec {number}: {call.method} {spec}"
    assert transport.request(Call("DELETE", f"{POOLS}/{name}")).status == 200
