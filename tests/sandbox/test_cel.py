"""The language of validation rules: what it answers, and what it refuses before any value is there."""

from typing import Any

import pytest

from aischeduler.sandbox.celsyntax import DEPTH_MAX, LINKS_MAX, RULE_LENGTH_MAX, CelError, parse
from aischeduler.sandbox.celtypes import CelType, check, type_of
from aischeduler.sandbox.celvalues import Optional, Undefined, evaluate

SCHEMA: Any = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "s": {"type": "string"},
        "b": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "string"}},
        "ns": {"type": "array", "items": {"type": "integer"}},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "o": {"type": "object", "properties": {"deep": {"type": "integer"}}},
        "q": {"x-kubernetes-int-or-string": True},
    },
}
SELF: Any = {
    "n": 3,
    "x": 1.5,
    "s": "abc",
    "b": True,
    "l": ["a", "bb"],
    "ns": [1, 2, 3],
    "m": {"k": 1},
    "o": {},
    "q": "5Gi",
}


def answer(rule: str, value: Any = SELF, **variables: Any) -> Any:
    tree = parse(rule)
    here = type_of(SCHEMA)
    check(tree, {"self": here, "oldSelf": CelType("optional_type", here)})
    return evaluate(tree, {"self": value, **variables})


def refusal(rule: str) -> str:
    with pytest.raises(CelError) as caught:
        answer(rule)
    return caught.value.pointed(rule) if caught.value.at >= 0 else caught.value.why


@pytest.mark.parametrize(
    "rule",
    [
        "self.n == 3",
        "self.n != 4 && self.n > 2 && self.n >= 3 && self.n < 4 && self.n <= 3",
        "self.n < 3.5",
        "self.x == 1.5",
        "self.n + 1 == 4 && self.n - 1 == 2 && self.n * 2 == 6 && self.n / 2 == 1 && self.n % 2 == 1",
        "-7 / 2 == -3 && -7 % 2 == -1",
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9",
        "2 - 1 - 1 == 0",
        "-self.n == -3 && !(self.n == 4)",
        "'a' + 'b' == 'ab'",
        '"it\'s" == "it\\\'s" && "a\\n" != "a"',
        "0x10 == 16",
        "self.b ? self.n == 3 : self.n == 4",
        "false ? false : true ? true : false",
        "self.s.contains('b') && self.s.startsWith('a') && self.s.endsWith('c')",
        "self.s.matches('^a.c$') && self.s.matches('b') && !self.s.matches('^b')",
        "self.s.size() == 3 && size(self.l) == 2 && self.m.size() == 1",
        "self.l[1] == 'bb' && self.m['k'] == 1 && self.m.k == 1",
        "'a' in self.l && !('c' in self.l) && 'k' in self.m && !('z' in self.m)",
        "has(self.n) && !has(self.o.deep) && has(self.m.k) && !has(self.m.z)",
        "self.l.all(one, one.size() < 3) && self.l.exists(one, one == 'bb') && self.l.exists_one(one, one == 'a')",
        "!self.ns.exists_one(one, one > 1) && !self.ns.all(one, one > 1) && !self.ns.exists(one, one > 3)",
        "self.m.all(key, self.m[key] > 0)",
        "self.ns.all(a, self.ns.exists(b, a == b))",
        "self.l == ['a', 'bb'] && self.l + ['c'] == ['a', 'bb', 'c'] && [] == []",
        "type(self.q) == string && type(self.n) == int",
        "type(self.q) == int ? self.q > 3 : true",
        "isQuantity(self.q) && !isQuantity('five') && !isQuantity('')",
        "quantity(self.q).isGreaterThan(quantity('4Gi')) && quantity('1').isLessThan(quantity('1001m'))",
        "quantity('1Gi').compareTo(quantity('1024Mi')) == 0 && quantity('-1').compareTo(quantity('0')) == -1",
        "// a remark\nself.n == 3\n  // and another",
    ],
)
def test_rule_holds(rule: str) -> None:
    assert answer(rule) is True


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("self.o.deep == 1", "no such key: deep"),
        ("self.m['z'] == 1", "no such key: z"),
        ("self.l[5] == 'a'", "index out of bounds: 5"),
        ("self.l[-1] == 'a'", "index out of bounds: -1"),
        ("1 / (self.n - 3) == 1", "division by zero"),
        ("1 % (self.n - 3) == 1", "modulus by zero"),
        ("9223372036854775807 + self.n > 0", "integer overflow"),
        ("quantity(self.s) == quantity('1')", "quantities must match the regular expression"),
        ("self.q > 3", "no such overload"),
        ("self.l.all(one, self.o.deep == 1)", "no such key: deep"),
    ],
)
def test_rule_without_an_answer_says_why(rule: str, why: str) -> None:
    with pytest.raises(Undefined, match=why):
        answer(rule)


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("self.o.deep == 1 || true", True),
        ("true || self.o.deep == 1", True),
        ("self.o.deep == 1 && false", False),
        ("self.l.exists(one, one == 'a' || self.o.deep == 1)", True),
        ("self.l.all(one, one == 'z' && self.o.deep == 1)", False),
    ],
)
def test_what_settles_a_question_wins_over_what_has_no_answer(rule: str, holds: bool) -> None:
    assert answer(rule) is holds


@pytest.mark.parametrize(("rule", "value"), [("self.q == 3", 3), ("self.q == 3.0", 3), ("self.q != true", 1)])
def test_numbers_of_unknown_type_compare_by_value(rule: str, value: int) -> None:
    assert answer(rule, {"q": value}) is True


def test_true_is_no_number() -> None:
    assert answer("self.q == 1", {"q": True}) is False


def test_past_is_there_only_after_a_first_write() -> None:
    rule = "!oldSelf.hasValue() || oldSelf.value().n <= self.n"
    assert answer(rule, oldSelf=Optional(there=False)) is True
    assert answer(rule, oldSelf=Optional(there=True, value={"n": 9})) is False
    with pytest.raises(Undefined, match="none"):
        answer("oldSelf.value().n == 1", oldSelf=Optional(there=False))


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("self.nope == 1", "1:5: undefined field 'nope'"),
        ("has(self.nope)", "1:4: undefined field 'nope'"),
        ("foo == 1", "1:1: undeclared reference to 'foo' (in container '')"),
        ("self.nope()", "1:10: undeclared reference to 'nope' (in container '')"),
        ("self.n == 'a'", "1:8: found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.n == null", "1:8: found no matching overload for '_==_' applied to '(int, null)'"),
        ("self.n in self.l", "1:8: found no matching overload for '@in' applied to '(int, list(string))'"),
        ("self.n < 'a'", "1:8: found no matching overload for '_<_' applied to '(int, string)'"),
        ("'a' + 1 == 2", "1:5: found no matching overload for '_+_' applied to '(string, int)'"),
        ("!self.n", "1:1: found no matching overload for '!_' applied to '(int)'"),
        ("size(self.n) > 1", "1:5: found no matching overload for 'size' applied to '(int)'"),
        ("self.n ? true : false", "1:8: found no matching overload for '_?_:_' applied to '(int, bool, bool)'"),
        ("self.n.foo == 1", "1:7: type 'int' does not support field selection"),
        ("self['n'] == 1", "1:5: found no matching overload for '_[_]' applied to '(object, string)'"),
        ("contains('a', 'b')", "1:9: found no matching overload for 'contains'"),
        ("self.s.quantity().isLessThan(quantity('1'))", "1:16: found no matching overload for 'quantity'"),
        (
            "quantity(self.s).isLessThan(self.n)",
            "1:28: found no matching overload for 'isLessThan' applied to 'kubernetes.Quantity.(int)'",
        ),
        ("self.s.matches('[')", "1:16: invalid matches argument"),
        ("self.s.matches('(?=a)')", "1:16: invalid matches argument"),
        ("self.s.matches(self.s)", "1:20: a pattern that is not written out is not evaluated by this server"),
        ("self.l.exists(x, y == x)", "1:18: undeclared reference to 'y' (in container '')"),
        ("self.l.all(x, x)", "1:15: expected type 'bool' but found 'string'"),
        ("self.n.all(x, true)", "1:5: expression of type 'int' cannot be range of a comprehension"),
        ("self.l.all(x.y, true)", "1:13: argument must be a simple name"),
        ("has(self)", "1:4: invalid argument to has() macro"),
        ("self.n", "cel expression must evaluate to a bool"),
        ("self.n +", "1:9: Syntax error: mismatched input '<EOF>'"),
        ("self.n == 1 1", "1:13: Syntax error: mismatched input '1'"),
        ("(self.n == 1", "1:13: Syntax error: mismatched input '<EOF>'"),
        ("self.n == 1u", "1:11: Syntax error: '1' is not understood here"),
        ("{'a': 1}.a == 1", "1:1: Syntax error: '{' is not understood here"),
        ("r'a' == 'a'", "1:1: Syntax error: 'r' is not understood here"),
        ("self.s == '\\x41'", "1:11: Syntax error: escape \\x is not understood"),
        ("self.n == 1 &&\n  self.nope == 1", "2:7: undefined field 'nope'\n |   self.nope == 1\n | ......^"),
        ("", "1:1: Syntax error: mismatched input '<EOF>'"),
    ],
)
def test_rule_that_makes_no_sense_is_refused_where_it_goes_wrong(rule: str, why: str) -> None:
    assert why in refusal(rule)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("(" * (DEPTH_MAX + 1) + "true" + ")" * (DEPTH_MAX + 1), "nested deeper"),
        ("!" * (DEPTH_MAX + 1) + "true", "nested deeper"),
        ("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1) + " == []", "nested deeper"),
        ("true" + " || true" * (LINKS_MAX + 1), "more than 128 operators"),
        ("self" + ".o" * (LINKS_MAX + 1), "more than 128 operators"),
        ("true" + " || true" * RULE_LENGTH_MAX, "longer than"),
    ],
)
def test_endless_rule_is_refused(rule: str, why: str) -> None:
    assert why in refusal(rule)


def test_long_rule_within_bounds_is_asked() -> None:
    assert answer(" || ".join(["true == false"] * (LINKS_MAX // 2) + ["true"])) is True
