"""Validation rules of custom resources (`x-kubernetes-validations`): taken with a definition, asked of every write.

Laws:
- A rule that this server cannot evaluate is refused with the definition that brings it, never ignored.
- What was wrong before and has not changed is let through on an update, as everywhere in a schema.
- What a rule costs is not estimated; its text and the values that it sees are bounded.

Source: `k8s.io/apiextensions-apiserver` (schema/cel) of Kubernetes 1.36.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aischeduler.sandbox.celsyntax import Call, CelError, Fold, Listing, Name, Node, Select, parse
from aischeduler.sandbox.celtypes import CelType, check, type_of, type_of_root
from aischeduler.sandbox.celvalues import NO_OVERLOAD, Optional, Undefined, evaluate
from aischeduler.sandbox.correlation import ABSENT, child, counterpart, same
from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.status import Cause, forbidden_field, invalid_value, required

RULES: Final = "x-kubernetes-validations"
NOT_EVALUATED: Final = "is not evaluated by this server"
NOT_CHECKED: Final = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)
BLOCKING: Final = frozenset(
    "FieldValue" + word for word in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid")
)
"""Reasons after which rules are not asked: they could not rely on the schema."""
_OVERLOAD_TEXT: Final = (
    f"'{NO_OVERLOAD}': call arguments did not match a supported operator, function or macro signature for rule: "
)


def definition_errors(schema: JsonObject, path: str, *, root: bool = True) -> list[Cause]:
    """Say which rules of a schema cannot be taken; `path` is where the schema lies in its definition."""
    causes = []
    for index, rule in enumerate(schema.get(RULES) or ()):
        here = type_of_root(schema) if root else type_of(schema)
        causes += _rule_errors(rule, schema, here, f"{path}.{RULES}[{index}]")
    for where, inner in _inner_schemas(schema):
        causes += definition_errors(inner, path + where, root=False)
    return causes


def has_rules(schema: JsonObject) -> bool:
    """Say whether there is anything to ask."""
    return bool(schema.get(RULES)) or any(has_rules(inner) for _, inner in _inner_schemas(schema))


def violations(value: Any, schema: JsonObject, path: str = "", old: Any = ABSENT) -> list[Cause]:
    """Ask all rules of a value that its schema allows; `old` is what stood there before."""
    if value is None or same(value, old):
        return []
    causes = []
    for rule in schema.get(RULES) or ():
        causes += _asked(rule, value, schema, path, old)
    for step, one, inner, before in _inner_values(value, schema, old):
        causes += violations(one, inner, f"{path}{step}".removeprefix("."), before)
    return causes


def _inner_schemas(schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for key, inner in (schema.get("properties") or {}).items():
        yield f".properties[{key}]", inner
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield f".{key}", schema[key]


def _inner_values(value: Any, schema: JsonObject, old: Any) -> Iterator[tuple[str, Any, JsonObject, Any]]:
    """Give the parts of a value: the step to it, the part, its schema, what it was."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        for index, one in enumerate(value):
            yield f"[{index}]", one, items, counterpart(one, schema, old)
    if not isinstance(value, dict):
        return
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, one in value.items():
        if key in known:
            yield f".{key}", one, known[key], child(old, key)
        elif isinstance(others, dict):
            yield f"[{key}]", one, others, child(old, key)


def _rule_errors(rule: JsonObject, schema: JsonObject, here: CelType, path: str) -> list[Cause]:
    text = rule.get("rule") or ""
    if not text.strip():
        return [required(f"{path}.rule", "rule is not specified")]
    causes = [
        forbidden_field(f"{path}.{key}", NOT_EVALUATED)
        for key in ("messageExpression", "reason")
        if rule.get(key) not in {None, "", "FieldValueInvalid"}
    ]
    if "\n" in (rule.get("message") or ""):
        causes.append(invalid_value(f"{path}.message", rule["message"], "must not contain line breaks"))
    if rule.get("fieldPath") and not _leads_somewhere(rule["fieldPath"], schema):
        causes.append(invalid_value(f"{path}.fieldPath", rule["fieldPath"], "must be a valid path"))
    try:
        tree = parse(text)
        before = CelType("optional_type", here) if rule.get("optionalOldSelf") else here
        check(tree, {"self": here, "oldSelf": before})
    except CelError as error:
        shown = encode({"Rule": text}).decode()
        why = error.why if error.at < 0 else f"compilation failed: {error.pointed(text)}"
        return [*causes, Cause(f"{path}.rule", "FieldValueInvalid", f"Invalid value: {shown}: {why}")]
    if rule.get("optionalOldSelf") is not None and not _looks_back(tree):
        why = "may not be set if oldSelf is not used in rule"
        causes.append(invalid_value(f"{path}.optionalOldSelf", rule["optionalOldSelf"], why))
    return causes


def _leads_somewhere(path: str, schema: JsonObject) -> bool:
    """Say whether a path of plain fields, such as `.spec.values`, is one of the schema's."""
    if not path.startswith("."):
        return False
    for step in path[1:].split("."):
        inner = (schema.get("properties") or {}).get(step, schema.get("additionalProperties"))
        if not isinstance(inner, dict):
            return False
        schema = inner
    return True


def _looks_back(tree: Node) -> bool:
    """Say whether a rule speaks of what was before."""
    match tree:
        case Name(name):
            return name == "oldSelf"
        case Select(operand):
            return _looks_back(operand)
        case Call(_, args) | Listing(args):
            return any(map(_looks_back, args))
        case Fold(_, over, _, body):
            return _looks_back(over) or _looks_back(body)
        case _:
            return False


def _asked(rule: JsonObject, value: Any, schema: JsonObject, path: str, old: Any) -> list[Cause]:
    tree = parse(rule["rule"])
    optional = bool(rule.get("optionalOldSelf"))
    if old is ABSENT and not optional and _looks_back(tree):
        return []
    variables: Mapping[str, Any] = {"self": value, "oldSelf": Optional(old is not ABSENT, old) if optional else old}
    said = rule.get("message") or ""
    if schema.get("x-kubernetes-int-or-string") and isinstance(value, float):
        why = "invalid data, expected XIntOrString value to be either a string or integer evaluating rule: "
        return [invalid_value(path, "", why + (said or rule["rule"]))]
    try:
        if evaluate(tree, variables) is True:
            return []
    except Undefined as undefined:
        if str(undefined) == NO_OVERLOAD:
            return [invalid_value(path, _type_word(value), _OVERLOAD_TEXT + rule["rule"])]
        return [invalid_value(path, _type_word(value), f"{undefined} evaluating rule: {said or rule['rule']}")]
    said = said or f"failed rule: {rule['rule']}"
    field = f"{path}{rule.get('fieldPath') or ''}".removeprefix(".")
    if rule.get("fieldPath") or isinstance(value, dict | list):
        return [Cause(field, "FieldValueInvalid", f"Invalid value: {said}")]
    return [invalid_value(field, value, said)]


def _type_word(value: Any) -> str:
    match value:
        case dict():
            return "object"
        case list():
            return "array"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case _:
            return "string"
