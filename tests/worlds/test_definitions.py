"""Definitions of resources that bring validation rules: which are taken, and what they then say of values."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.worlds.conftest import DEFINITIONS
from tests.worlds.world import Answer, Call, Json, World

FIELDS: Json = {
    "n": {"type": "integer"},
    "s": {"type": "string", "maxLength": 10},
    "b": {"type": "boolean"},
    "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}},
    "m": {"type": "object", "maxProperties": 4, "additionalProperties": {"type": "integer"}},
    "q": {"x-kubernetes-int-or-string": True},
}
QUANTITY_SYNTAX = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NO_OVERLOAD = "'no such overload': call arguments did not match a supported operator, function or macro signature"
SPEC_PATH = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"


def definition(group: str, *rules: Json) -> Json:
    spec = {"type": "object", "properties": FIELDS, "x-kubernetes-validations": list(rules)}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [version],
        },
    }


def define(world: World, *rules: Json, dry: bool = True) -> Answer:
    query = "?dryRun=All" if dry else ""
    return world.post(DEFINITIONS + query, definition(f"{world.namespace}.example.com", *rules))


class Gadgets:
    """A resource of which nothing is ever stored: every write is a dry run."""

    def __init__(self, world: World, *rules: Json) -> None:
        self._world = world
        self._group = f"{world.namespace}.example.com"
        assert define(world, *rules, dry=False).status == 201
        world.until(lambda: self.asked().status == 201)

    def remove(self) -> None:
        assert self._world.send(Call("DELETE", f"{DEFINITIONS}/gadgets.{self._group}")).status == 200

    def asked(self, **spec: Any) -> Answer:
        gadget = {"apiVersion": f"{self._group}/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": spec}
        url = f"/apis/{self._group}/v1/gadgets?dryRun=All"
        return self._world.post(url, gadget)

    def causes(self, **spec: Any) -> list[tuple[str, str]]:
        answer = self.asked(**spec)
        assert answer.status == 422, answer
        return [(cause["field"], cause["message"]) for cause in answer.body["details"]["causes"]]


@pytest.fixture
def serve(world: World) -> Iterator[Callable[..., Gadgets]]:
    """A way to define the resource with these rules; the definition goes when the scenario ends."""
    served: list[Gadgets] = []

    def with_rules(*rules: Json) -> Gadgets:
        served.append(Gadgets(world, *rules))
        return served[-1]

    yield with_rules
    for gadgets in served:
        gadgets.remove()


@pytest.mark.parametrize(
    "rule",
    [
        "self.n == 1",
        "self.n < 1.5 || self.n >= 3",
        "self.l.all(one, one.size() < 3) && size(self.l) > 0",
        "self.m.all(key, self.m[key] > 0) || self.m.k == 1",
        "self.l[0] == 'a' && 'a' in self.l && self.l == ['a']",
        "has(self.n) ? self.n % 2 == 0 : !self.b",
        "self.s.matches('^[a-z]+$') && self.s.startsWith('a')",
        "type(self.q) == int ? self.q > 1 : isQuantity(self.q) && quantity(self.q).isLessThan(quantity('5'))",
        "oldSelf.n <= self.n",
    ],
)
def test_rule_that_makes_sense_is_taken(world: World, rule: str) -> None:
    assert define(world, {"rule": rule}).status == 201


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("self.x == 1", "ERROR: <input>:1:5: undefined field 'x'\n | self.x == 1\n | ....^"),
        ("foo == 1", "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')"),
        ("self.nope()", "ERROR: <input>:1:10: undeclared reference to 'nope' (in container '')"),
        ("self.n == 'a'", "ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.n in self.l", "1:8: found no matching overload for '@in' applied to '(int, list(string))'"),
        ("size(self.n) > 1", "1:5: found no matching overload for 'size' applied to '(int)'"),
        ("!self.n", "1:1: found no matching overload for '!_' applied to '(int)'"),
        ("self.n.foo == 1", "1:7: type 'int' does not support field selection"),
        ("has(self.x)", "1:4: undefined field 'x'"),
        ("self.s.matches('[')", "1:16: invalid matches argument"),
        ("self.l.exists(x, y == x)", "1:18: undeclared reference to 'y' (in container '')"),
        ("self.n == 1 ? true : 'a'", "1:13: found no matching overload for '_?_:_' applied to '(bool, bool, string)'"),
        ("self.n +", "ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>'"),
        ("self.n", "cel expression must evaluate to a bool"),
    ],
)
def test_rule_that_makes_no_sense_is_refused_with_its_definition(world: World, rule: str, why: str) -> None:
    answer = define(world, {"rule": rule})
    assert (answer.status, answer.reason) == (422, "Invalid")
    (cause,) = answer.body["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", f"{SPEC_PATH}.rule")
    assert why in cause["message"]


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"rule": ""}, "rule"),
        ({"rule": "self.n == 1", "fieldPath": "n"}, "fieldPath"),
        ({"rule": "self.n == 1", "fieldPath": ".x"}, "fieldPath"),
        ({"rule": "self.n == 1", "fieldPath": ".l[0]"}, "fieldPath"),
        ({"rule": "self.n == 1", "message": "two\nlines"}, "message"),
        ({"rule": "self.n == 1", "optionalOldSelf": True}, "optionalOldSelf"),
    ],
)
def test_rule_with_a_wrong_part_is_refused_with_its_definition(world: World, rule: Json, field: str) -> None:
    answer = define(world, rule)
    assert (answer.status, answer.cause_fields) == (422, [f"{SPEC_PATH}.{field}"])


@pytest.mark.newest
def test_rule_names_what_it_blames(serve: Callable[..., Gadgets]) -> None:
    gadgets = serve(
        {"rule": "!has(self.n) || self.n > 0"},
        {"rule": "!has(self.n) || self.n < 100", "message": "small, please", "fieldPath": ".n"},
    )
    assert gadgets.causes(n=0) == [("spec", "Invalid value: failed rule: !has(self.n) || self.n > 0")]
    assert gadgets.causes(n=100) == [("spec.n", "Invalid value: small, please")]


@pytest.mark.newest
@pytest.mark.parametrize(
    ("rule", "spec", "why"),
    [
        ("self.n > 0", {}, 'Invalid value: "object": no such key: n evaluating rule: self.n > 0'),
        ("1 / self.n == 1", {"n": 0}, 'Invalid value: "object": division by zero evaluating rule: 1 / self.n == 1'),
        (
            "quantity(self.s) == quantity('1')",
            {"s": "aaa"},
            f"Invalid value: \"object\": {QUANTITY_SYNTAX} evaluating rule: quantity(self.s) == quantity('1')",
        ),
        (
            "self.q < 5",
            {"q": "x"},
            f'Invalid value: "object": {NO_OVERLOAD} for rule: self.q < 5',
        ),
    ],
)
def test_rule_without_an_answer_refuses_and_says_why(
    serve: Callable[..., Gadgets], rule: str, spec: Json, why: str
) -> None:
    guarded = f"has(self.b) ? {rule} : true"
    assert serve({"rule": guarded}).causes(b=True, **spec) == [("spec", why.replace(rule, guarded))]
