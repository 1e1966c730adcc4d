"""Rules of CEL asked of values: `self` and what it holds are JSON.

Laws:
- No rule ends in anything but true, false or an Undefined with the server's words: a missing key, a wrong operand.
- `&&` and `||` take either side's word where that settles it, whatever the other side is.

Source: cel-go's evaluation and `k8s.io/apiserver`'s quantity library.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aischeduler.model.quantity import QuantityError, parse_nano
from aischeduler.sandbox.celsyntax import Call, Fold, Listing, Literal, Name, Node, Select
from aischeduler.sandbox.decoding import QUANTITY_SYNTAX, READ_AS_ZERO
from aischeduler.sandbox.patterns import go_pattern

INT_MAX: Final = 2**63 - 1
NO_OVERLOAD: Final = "no such overload"


class Undefined(Exception):  # noqa: N818  (an outcome of the language, no fault of ours)
    """A rule that has no answer for a value; the text says why."""


@dataclass(frozen=True, slots=True, order=True)
class Amount:
    """A quantity, in thousand-millionths of a unit."""

    nano: int


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    there: bool
    value: Any = None


@dataclass(frozen=True, slots=True)
class _Type:
    name: str


Variables = Mapping[str, Any]


def evaluate(node: Node, variables: Variables) -> Any:
    """Return the value of a checked tree. Raises Undefined."""
    match node:
        case Literal(value):
            return value
        case Name(name):
            return variables[name] if name in variables else _Type(name)
        case Listing(items):
            return [evaluate(item, variables) for item in items]
        case Select():
            return _select(node, variables)
        case Fold():
            return _fold(node, variables)
        case Call("_&&_" | "_||_"):
            return _either(node, variables)
        case Call("_?_:_", (condition, yes, no)):
            return evaluate(yes if _truth(evaluate(condition, variables)) else no, variables)
        case Call(name, args):
            return _apply(name, [evaluate(arg, variables) for arg in args])


def _select(node: Select, variables: Variables) -> Any:
    operand = evaluate(node.operand, variables)
    if not isinstance(operand, dict):
        raise Undefined(NO_OVERLOAD)
    if node.test:
        return node.field in operand
    return _item(operand, node.field)


def _item(of: dict[str, Any], key: str) -> Any:
    if key not in of:
        raise Undefined(f"no such key: {key}")
    return of[key]


def _either(node: Call, variables: Variables) -> bool:
    """Return && or ||: the value that settles it wins over an Undefined of the other side."""
    settles = node.name == "_||_"
    trouble: Undefined | None = None
    for arg in node.args:
        try:
            if _truth(evaluate(arg, variables)) is settles:
                return settles
        except Undefined as undefined:
            trouble = trouble or undefined
    if trouble is not None:
        raise trouble
    return not settles


def _fold(node: Fold, variables: Variables) -> bool:
    over = evaluate(node.over, variables)
    if not isinstance(over, dict | list):
        raise Undefined(NO_OVERLOAD)
    found, trouble = 0, None
    for item in over:
        try:
            holds = _truth(evaluate(node.body, {**variables, node.variable: item}))
        except Undefined as undefined:
            trouble = trouble or undefined
            continue
        if node.macro == "all" and not holds:
            return False
        if node.macro == "exists" and holds:
            return True
        found += holds
    if trouble is not None:
        raise trouble
    return found == 1 if node.macro == "exists_one" else node.macro == "all"


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Undefined(NO_OVERLOAD)
    return value


def _apply(name: str, args: list[Any]) -> Any:
    try:
        return _FUNCTIONS[name](*args)
    except (TypeError, AttributeError) as error:  # an operand of a type that only the value could tell
        raise Undefined(NO_OVERLOAD) from error


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null_type"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "double"
        case str():
            return "string"
        case list():
            return "list"
        case dict():
            return "map"
        case _:
            return type(value).__name__


def _equal(left: Any, right: Any) -> bool:
    """Compare as CEL does: numbers by value whatever their type, true is no number."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    kinds = {_kind(left), _kind(right)}
    return bool((len(kinds) == 1 or kinds <= {"int", "double"}) and left == right)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compared(left: Any, right: Any) -> bool:
        kinds = {_kind(left), _kind(right)}
        if not (kinds <= {"int", "double"} or kinds in ({"string"}, {"bool"})):
            raise Undefined(NO_OVERLOAD)
        return compare(left, right)

    return compared


def _arithmetic(act: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def acted(left: Any, right: Any) -> Any:
        if _kind(left) != _kind(right) or isinstance(left, bool):
            raise Undefined(NO_OVERLOAD)
        result = act(left, right)
        if isinstance(result, int) and not -INT_MAX - 1 <= result <= INT_MAX:
            raise Undefined("integer overflow")
        return result

    return acted


def _divided(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        return left / right if right else float("nan")
    if right == 0:
        raise Undefined("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Any, right: Any) -> Any:
    if right == 0:
        raise Undefined("modulus by zero")
    return left - right * _divided(left, right)


def _indexed(of: Any, key: Any) -> Any:
    if isinstance(of, dict):
        return _item(of, key)
    if not isinstance(of, list) or not isinstance(key, int):
        raise Undefined(NO_OVERLOAD)
    if not 0 <= key < len(of):
        raise Undefined(f"index out of bounds: {key}")
    return of[key]


def _is_in(item: Any, among: Any) -> bool:
    if not isinstance(among, dict | list):
        raise Undefined(NO_OVERLOAD)
    return any(_equal(item, one) for one in among)


def _amount(text: str) -> Amount:
    if not isinstance(text, str):
        raise Undefined(NO_OVERLOAD)
    try:
        return Amount(0) if text and text in READ_AS_ZERO else Amount(parse_nano(text))
    except QuantityError as error:
        raise Undefined(QUANTITY_SYNTAX) from error


def _is_quantity(text: str) -> bool:
    try:
        _amount(text)
    except Undefined as undefined:
        if str(undefined) == NO_OVERLOAD:
            raise
        return False
    return True


def _value(of: Optional) -> Any:
    if not of.there:
        raise Undefined("optional.none() dereference")
    return of.value


def _matches(text: str, pattern: str) -> bool:
    return go_pattern(pattern).search(text) is not None


def _negated(value: Any) -> Any:
    if isinstance(value, bool):
        raise Undefined(NO_OVERLOAD)
    return -value


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "!_": lambda value: not _truth(value),
    "-_": _negated,
    "_==_": _equal,
    "_!=_": lambda left, right: not _equal(left, right),
    "_<_": _ordered(operator.lt),
    "_<=_": _ordered(operator.le),
    "_>_": _ordered(operator.gt),
    "_>=_": _ordered(operator.ge),
    "_+_": _arithmetic(operator.add),
    "_-_": _arithmetic(operator.sub),
    "_*_": _arithmetic(operator.mul),
    "_/_": _arithmetic(_divided),
    "_%_": _arithmetic(_remainder),
    "@in": _is_in,
    "_[_]": _indexed,
    "size": len,
    "contains": operator.contains,
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
    "matches": _matches,
    "type": lambda value: _Type(_kind(value)),
    "isQuantity": _is_quantity,
    "quantity": _amount,
    "isLessThan": operator.lt,
    "isGreaterThan": operator.gt,
    "compareTo": lambda left, right: (left > right) - (left < right),
    "hasValue": lambda value: value.there,
    "value": _value,
}
