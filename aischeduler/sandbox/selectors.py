"""Label selectors and field selectors: their text form, their object form, and whether they match.

Sources: `k8s.io/apimachinery/pkg/labels` and `pkg/fields`; what a kind's fields are is in `kinds.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.status import bad_request

_SET = re.compile(r"\s*(?P<key>[^\s!=<>(),]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)\s*(,|\Z)")
_PLAIN = re.compile(
    r"\s*(?P<absent>!?)\s*(?P<key>[^\s!=<>(),]+)\s*(?:(?P<operator>==|=|!=|>|<)\s*(?P<value>[^\s!=<>(),]*)\s*)?(,|\Z)"
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label: `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether a set of labels meets it; NotIn also holds where the label is absent."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return _compare(value, self.operator, self.values[0])


def _compare(value: str | None, operator: str, bound: str) -> bool:
    try:
        have, want = int(value or ""), int(bound)
    except ValueError:
        return False
    return have > want if operator == "Gt" else have < want


Requirements = tuple[Requirement, ...]


def labels_match(requirements: Requirements, labels: Mapping[str, str]) -> bool:
    """Say whether all requirements hold; none at all match everything."""
    return all(one.matches(labels) for one in requirements)


def parse_label_selector(text: str) -> Requirements:
    """Return the requirements of `a=b,c in (d,e),!f`; a text that is none is refused with 400."""
    found: list[Requirement] = []
    position = 0
    while position < len(text.rstrip()):
        match = _SET.match(text, position) or _PLAIN.match(text, position)
        if match is None:
            raise bad_request(f"unable to parse requirement: found '{text[position:].strip()}', expected: identifier")
        found.append(_requirement(match.groupdict(), text))
        position = match.end()
    return tuple(found)


def _requirement(parts: Mapping[str, str | None], text: str) -> Requirement:
    key, operator = parts["key"] or "", parts["operator"]
    if "values" in parts:
        values = tuple(one.strip() for one in (parts["values"] or "").split(","))
        return Requirement(key, "In" if operator == "in" else "NotIn", values)
    if operator is None:
        return Requirement(key, "DoesNotExist" if parts["absent"] else "Exists")
    if parts["absent"]:
        expected = "expected: ',' or 'end of string'"
        raise bad_request(f"unable to parse requirement: found '{operator}' in '{text}', {expected}")
    word = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}[operator]
    return Requirement(key, word, (parts["value"] or "",))


def selector_requirements(selector: JsonObject | None) -> Requirements | None:
    """Return the requirements of a `LabelSelector` object; None where it is absent, which matches nothing."""
    if selector is None:
        return None
    pairs = sorted((selector.get("matchLabels") or {}).items())
    found = [Requirement(key, "In", (value,)) for key, value in pairs]
    expressions = selector.get("matchExpressions") or ()
    found += [Requirement(one["key"], one["operator"], tuple(one.get("values") or ())) for one in expressions]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One condition on a field: equal, or not equal."""

    field: str
    value: str
    equal: bool = True


def parse_field_selector(text: str) -> tuple[FieldTerm, ...]:
    """Return the terms of `a=b,c!=d`; a text that is none is refused with 400."""
    terms: list[FieldTerm] = []
    for part in filter(None, re.split(r"(?<!\\),", text)):
        match = re.match(r"([^=!]+)(==|=|!=)(.*)\Z", part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        value = re.sub(r"\\([\\,=])", r"\1", match[3])
        terms.append(FieldTerm(match[1], value, match[2] != "!="))
    return tuple(terms)


def fields_match(terms: tuple[FieldTerm, ...], fields: Mapping[str, str]) -> bool:
    """Say whether all terms hold; an absent field has the empty value."""
    return all((fields.get(term.field, "") == term.value) is term.equal for term in terms)
