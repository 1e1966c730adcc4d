"""The selection of a list or a watch: a namespace, labels, and fields, of which each resource has its own."""

import re
from collections.abc import Mapping

from msgspec import Struct

from aischeduler.model.selectors import Operator, Requirement
from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.status_errors import bad_request
from aischeduler.sandbox.store import Entry

_SET = re.compile(r"\s*(?P<key>[^\s!=<>(),]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)\s*(,|\Z)")
_EQUAL = re.compile(r"\s*(?P<key>[^\s!=<>(),]+)\s*(?P<operator>==|=|!=)\s*(?P<values>[^\s!=<>(),]*)\s*(,|\Z)")
_EXISTS = re.compile(r"\s*(?P<operator>!?)\s*(?P<key>[^\s!=<>(),]+)\s*(,|\Z)")
_IN, _NOT_IN = Operator.IN, Operator.NOT_IN
_EQUALITY = {"=": _IN, "==": _IN, "!=": _NOT_IN}
_OPERATORS = {"in": _IN, "notin": _NOT_IN, "": Operator.EXISTS, "!": Operator.DOES_NOT_EXIST, **_EQUALITY}
_FIELD_TERM = re.compile(r"([^=!]+)(==|=|!=)(.*)")

Requirements = tuple[Requirement, ...]


def labels_match(requirements: Requirements, labels: Mapping[str, str]) -> bool:
    """Say whether all requirements hold; without requirements everything matches."""
    return all(requirement.matches(labels) for requirement in requirements)


def parse_label_selector(text: str) -> Requirements:
    """Return the requirements of `a=b,c in (d,e),!f`; an invalid text is refused with 400."""
    found: list[Requirement] = []
    position = 0
    while position < len(text.rstrip()):
        match = next(filter(None, (pattern.match(text, position) for pattern in (_SET, _EQUAL, _EXISTS))), None)
        if match is None:
            raise bad_request(f"unable to parse requirement: labelSelector has {text[position:].strip()!r}")
        parts = match.groupdict()
        values = tuple(part.strip() for part in parts["values"].split(",")) if "values" in parts else ()
        found.append(Requirement(parts["key"], _OPERATORS[parts["operator"]], values))
        position = match.end()
    return tuple(found)


def selector_requirements(selector: JsonObject | None) -> Requirements | None:
    """Return the requirements of a `LabelSelector` object; None where it is absent, which matches nothing."""
    if selector is None:
        return None
    found = [Requirement(key, Operator.IN, (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    expressions = selector.get("matchExpressions") or ()
    found += [
        Requirement(expression["key"], Operator(expression["operator"]), tuple(expression.get("values") or ()))
        for expression in expressions
    ]
    return tuple(found)


def parse_field_selector(text: str) -> Requirements:
    """Return the terms of `a=b,c!=d`; an invalid text is refused with 400."""
    terms: list[Requirement] = []
    for part in filter(None, re.split(r"(?<!\\),", text)):
        match = _FIELD_TERM.fullmatch(part)
        if match is None:
            raise bad_request(f"fieldSelector: {part!r} is not of the form field=value or field!=value")
        value = re.sub(r"\\([\\,=])", r"\1", match[3])
        terms.append(Requirement(match[1], _EQUALITY[match[2]], (value,)))
    return tuple(terms)


class Selection(Struct, frozen=True):
    """The selection of a list or a watch."""

    namespace: str | None = None
    labels: Requirements = ()
    fields: Requirements = ()

    @property
    def everything(self) -> bool:
        """Whether it has neither label nor field requirements."""
        return not self.labels and not self.fields

    def matches(self, entry: Entry) -> bool:
        """Say whether an object is selected; an absent field has the empty value."""
        if self.namespace is not None and entry.namespace != self.namespace:
            return False
        if self.everything:
            return True
        return labels_match(self.labels, entry.labels) and all(_holds(term, entry) for term in self.fields)


def _holds(term: Requirement, entry: Entry) -> bool:
    key = term.key
    stored = entry.fields.get(key, "")
    value = entry.name if key == "metadata.name" else entry.namespace if key == "metadata.namespace" else stored
    return (value == term.values[0]) is (term.operator is _IN)
