"""The types of CEL: what a schema gives `self`, and whether a rule makes sense over it.

Laws:
- A rule that passes here can fail at run time only by what a value lacks (a key, an index), never by a wrong name.
- The words of a refusal are those of the API server where it has them.

Source: `k8s.io/apiserver` cel libraries (types of schemas, quantity) and cel-go's checker.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aischeduler.sandbox.celsyntax import Call, CelError, Fold, Listing, Literal, Name, Node, Select
from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.patterns import go_pattern


@dataclass(frozen=True, slots=True)
class CelType:
    """A type: a scalar, a list or map or optional of `inner`, or an object with these fields."""

    name: str
    inner: "CelType | None" = None
    fields: "Mapping[str, CelType] | None" = None

    def __str__(self) -> str:
        match self.name:
            case "map":
                return f"map(string, {self.inner})"
            case "list" | "optional_type":
                return f"{self.name}({self.inner})"
            case _:
                return self.name


BOOL, INT, DOUBLE, STRING = CelType("bool"), CelType("int"), CelType("double"), CelType("string")
DYN, NULL, TYPE, QUANTITY = CelType("dyn"), CelType("null"), CelType("type"), CelType("kubernetes.Quantity")
TYPE_NAMES: Final = ("bool", "int", "double", "string", "list", "map", "null_type")
METADATA: Final = CelType("object", fields={"name": STRING, "generateName": STRING})
_SCALARS: Final = {"string": STRING, "integer": INT, "number": DOUBLE, "boolean": BOOL}
_NUMBERS: Final = ("int", "double")
_ORDERED: Final = (*_NUMBERS, "string")

SIGNATURES: Final[Mapping[str, tuple[tuple[tuple[CelType, ...], CelType], ...]]] = {
    "!_": (((BOOL,), BOOL),),
    "-_": (((INT,), INT), ((DOUBLE,), DOUBLE)),
    "_&&_": (((BOOL, BOOL), BOOL),),
    "_||_": (((BOOL, BOOL), BOOL),),
    "_+_": (((INT, INT), INT), ((DOUBLE, DOUBLE), DOUBLE), ((STRING, STRING), STRING)),
    "_-_": (((INT, INT), INT), ((DOUBLE, DOUBLE), DOUBLE)),
    "_*_": (((INT, INT), INT), ((DOUBLE, DOUBLE), DOUBLE)),
    "_/_": (((INT, INT), INT), ((DOUBLE, DOUBLE), DOUBLE)),
    "_%_": (((INT, INT), INT),),
    "contains": (((STRING, STRING), BOOL),),
    "startsWith": (((STRING, STRING), BOOL),),
    "endsWith": (((STRING, STRING), BOOL),),
    "matches": (((STRING, STRING), BOOL),),
    "type": (((DYN,), TYPE),),
    "isQuantity": (((STRING,), BOOL),),
    "quantity": (((STRING,), QUANTITY),),
    "isLessThan": (((QUANTITY, QUANTITY), BOOL),),
    "isGreaterThan": (((QUANTITY, QUANTITY), BOOL),),
    "compareTo": (((QUANTITY, QUANTITY), INT),),
}
"""Functions of fixed types; the others are in `_Checker._generic`."""
METHODS: Final = frozenset({"contains", "startsWith", "endsWith", "isLessThan", "isGreaterThan", "compareTo"})
FUNCTIONS: Final = frozenset({"type", "isQuantity", "quantity"})
OPTIONAL_METHODS: Final = frozenset({"hasValue", "value"})


def type_of(schema: JsonObject) -> CelType:
    """Return what a rule sees of a value of this schema."""
    if schema.get("x-kubernetes-int-or-string"):
        return DYN
    match schema.get("type"):
        case "array":
            return CelType("list", type_of(schema.get("items") or {}))
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return CelType("map", type_of(schema["additionalProperties"]))
        case "object":
            fields = {key: type_of(one) for key, one in (schema.get("properties") or {}).items()}
            return CelType("object", fields=fields)
        case kind:
            return _SCALARS.get(str(kind), DYN)


def type_of_root(schema: JsonObject) -> CelType:
    """Return what a rule sees of a whole object: its schema, and of its metadata the name alone."""
    fields = type_of(schema).fields or {}
    return CelType("object", fields={**fields, "apiVersion": STRING, "kind": STRING, "metadata": METADATA})


def check(tree: Node, variables: Mapping[str, CelType]) -> None:
    """Refuse, with CelError, a rule that makes no sense over these variables or is no question."""
    found = _Checker(variables).type(tree)
    if found.name not in {"bool", "dyn"}:
        raise CelError("cel expression must evaluate to a bool", -1)


class _Checker:
    def __init__(self, variables: Mapping[str, CelType]) -> None:
        self._variables = dict(variables)

    def type(self, node: Node) -> CelType:
        match node:
            case Literal():
                return _literal_type(node)
            case Name():
                return self._name(node)
            case Select():
                return self._select(node)
            case Listing():
                return self._listing(node)
            case Fold():
                return self._fold(node)
            case Call():
                return self._call(node)

    def _name(self, node: Name) -> CelType:
        if node.name in self._variables:
            return self._variables[node.name]
        if node.name in TYPE_NAMES:
            return TYPE
        raise CelError(f"undeclared reference to '{node.name}' (in container '')", node.at)

    def _select(self, node: Select) -> CelType:
        operand = self.type(node.operand)
        match operand.name:
            case "object" if operand.fields is not None and node.field in operand.fields:
                found = operand.fields[node.field]
            case "object":
                raise CelError(f"undefined field '{node.field}'", node.at)
            case "map":
                found = operand.inner or DYN
            case "dyn":
                found = DYN
            case _:
                raise CelError(f"type '{operand}' does not support field selection", node.at)
        return BOOL if node.test else found

    def _listing(self, node: Listing) -> CelType:
        kinds = [self.type(item) for item in node.items]
        if not kinds:
            return CelType("list", DYN)
        return CelType("list", kinds[0] if all(_agree(kinds[0], one) for one in kinds) else DYN)

    def _fold(self, node: Fold) -> CelType:
        over = self.type(node.over)
        match over.name:
            case "list":
                item = over.inner or DYN
            case "map":
                item = STRING
            case "dyn":
                item = DYN
            case _:
                raise CelError(f"expression of type '{over}' cannot be range of a comprehension", node.over.at)
        outer = dict(self._variables)
        self._variables[node.variable] = item
        body = self.type(node.body)
        self._variables = outer
        if not _agree(body, BOOL):
            raise CelError(f"expected type 'bool' but found '{body}'", node.body.at)
        return BOOL

    def _call(self, node: Call) -> CelType:
        kinds = tuple(self.type(arg) for arg in node.args)
        known = node.name in SIGNATURES or node.name in _GENERIC or node.name in OPTIONAL_METHODS
        if not known:
            raise CelError(f"undeclared reference to '{node.name}' (in container '')", node.at)
        found = self._fixed(node, kinds) or _generic(node, kinds)
        if found is None:
            raise CelError(f"found no matching overload for '{node.name}' applied to '{_given(node, kinds)}'", node.at)
        if node.name == "matches":
            _check_pattern(node.args[1])
        return found

    @staticmethod
    def _fixed(node: Call, kinds: tuple[CelType, ...]) -> CelType | None:
        if (node.name in METHODS and not node.method) or (node.name in FUNCTIONS and node.method):
            return None
        for wanted, result in SIGNATURES.get(node.name, ()):
            if len(wanted) == len(kinds) and all(_agree(one, other) for one, other in zip(wanted, kinds, strict=True)):
                return result
        return None


_GENERIC: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "_[_]", "_?_:_", "size", "_+_"})


def _generic(node: Call, kinds: tuple[CelType, ...]) -> CelType | None:
    """Return the result of a function whose types depend on each other; None when these do not fit."""
    if len(kinds) == 2 and _relates(node.name, *kinds):
        return BOOL
    match node.name, kinds:
        case "_[_]", (CelType("list", inner), index) if _agree(index, INT):
            return inner
        case "_[_]", (CelType("map", inner), index) if _agree(index, STRING):
            return inner
        case "_[_]", (CelType("dyn"), _):
            return DYN
        case "_?_:_", (condition, yes, no) if _agree(condition, BOOL) and _agree(yes, no):
            return yes if yes.name != "dyn" else no
        case "size", (CelType("string" | "list" | "map" | "dyn"),):
            return INT
        case "_+_", (CelType("list") as left, CelType("list") as right) if _agree(left, right):
            return left
        case "hasValue", (CelType("optional_type"),) if node.method:
            return BOOL
        case "value", (CelType("optional_type", inner),) if node.method:
            return inner
        case _:
            return None


def _relates(name: str, left: CelType, right: CelType) -> bool:
    """Say whether two types can be compared in this way."""
    match name:
        case "_==_" | "_!=_":
            return _agree(left, right)
        case "_<_" | "_<=_" | "_>_" | "_>=_":
            return _comparable(left, right)
        case "@in" if right.name == "list":
            return right.inner is not None and _agree(left, right.inner)
        case "@in":
            return right.name in {"map", "dyn"} and _agree(left, STRING)
        case _:
            return False


def _agree(one: CelType, other: CelType) -> bool:
    if "dyn" in {one.name, other.name}:
        return True
    if one.name != other.name:
        return False
    if one.inner is not None and other.inner is not None:
        return _agree(one.inner, other.inner)
    return one.fields == other.fields


def _comparable(left: CelType, right: CelType) -> bool:
    names = {left.name, right.name} - {"dyn"}
    return names <= set(_NUMBERS) or (len(names) == 1 and names <= set(_ORDERED))


def _given(node: Call, kinds: tuple[CelType, ...]) -> str:
    shown = [str(kind) for kind in kinds]
    return f"{shown[0]}.({', '.join(shown[1:])})" if node.method else f"({', '.join(shown)})"


def _literal_type(node: Literal) -> CelType:
    match node.value:
        case None:
            return NULL
        case bool():
            return BOOL
        case int():
            return INT
        case float():
            return DOUBLE
        case str():
            return STRING


def _check_pattern(node: Node) -> None:
    if not (isinstance(node, Literal) and isinstance(node.value, str)):
        raise CelError("a pattern that is not written out is not evaluated by this server", node.at)
    try:
        go_pattern(node.value)
    except re.error as error:
        raise CelError("invalid matches argument", node.at) from error
