"""Label and node selectors, and matching them against the labels of one object.

Invariants:
- A selector that the API server rejects raises SelectorError with the field.
- `state.label_index` matches the same requirements against all nodes at once.

Source: Kubernetes LabelSelector and NodeSelector.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from aischeduler.model.user_text import quoted

Labels = Mapping[str, str]

NAME_FIELD: Final = "metadata.name"
"""The only field that `matchFields` supports."""

_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_NO_KEY = "is not a label key, which is a name, or a prefix, a slash and a name"
_NO_VALUE = "is not a label value, which is up to 63 letters, digits, '-', '_' and '.'"
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INTEGER_MAX = 2**63 - 1
_DIGITS_MAX = 63
"""The longest label value."""
_NAMED_MAX = 8
"""The most requirements, and values of one requirement, that a text names; the others are counted."""


class SelectorError(ValueError):
    """An invalid selector; the message names the field and quotes the text."""


class Operator(StrEnum):
    """How a requirement compares a label with its values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


LABEL_OPERATORS: Final = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)
NODE_OPERATORS: Final = tuple(Operator)


class Requirement(Struct, frozen=True):
    """One requirement on one label; `values` are in the order of the object."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Return whether the labels satisfy the requirement; a missing label satisfies NotIn."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GT | Operator.LT:
                return value is not None and self.compares(value)

    def compares(self, value: str) -> bool:
        """Return whether the value satisfies Gt or Lt, compared as integers; other values satisfy neither.

        Where the bound is no integer, or no label value, nothing satisfies them.
        """
        bound, number = _bound(self.values[0]), _integer(value)
        if bound is None or number is None:
            return False
        return number > bound if self.operator is Operator.GT else number < bound

    def __str__(self) -> str:
        """Return the requirement as `kubectl get --selector` takes it, of many values the first."""
        values = f"({_first(self.values)})"
        match self.operator:
            case Operator.IN:
                return f"{self.key}={self.values[0]}" if len(self.values) == 1 else f"{self.key} in {values}"
            case Operator.NOT_IN:
                return f"{self.key}!={self.values[0]}" if len(self.values) == 1 else f"{self.key} notin {values}"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.GT | Operator.LT:
                return f"{self.key}{'>' if self.operator is Operator.GT else '<'}{self.values[0]}"


class LabelSelector(Struct, frozen=True):
    """A label selector: all requirements must hold; without requirements it matches everything."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Labels) -> bool:
        """Return whether the labels satisfy every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        """Return the selector as `kubectl get --selector` takes it, of many requirements the first; {} matches all."""
        return _first([str(requirement) for requirement in self.requirements]) or "{}"


class NodeSelectorTerm(Struct, frozen=True):
    """A node selector term: its expressions on labels and its fields on the node name are ANDed."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the term is empty; an empty term matches no node."""
        return not self.expressions and not self.fields

    def matches(self, name: str, labels: Labels) -> bool:
        """Return whether a node with this name and these labels satisfies the term."""
        return (
            not self.empty
            and all(requirement.matches(labels) for requirement in self.expressions)
            and all(requirement.matches({NAME_FIELD: name}) for requirement in self.fields)
        )


class PreferredSchedulingTerm(Struct, frozen=True):
    """A preferred term with its weight, 1 to 100."""

    weight: int
    term: NodeSelectorTerm


def node_requirement(field: str, key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    """Validate one expression of a node selector; `field` is its path, for the message.

    As for the API server, a bound of Gt or Lt may be any text.
    """
    checked = _checked(field, key, operator, values, NODE_OPERATORS)
    if checked.operator in (Operator.GT, Operator.LT) and len(values) != 1:
        raise SelectorError(f"{field}.values: {operator} takes exactly one value")
    return checked


def readable_requirement(field: str, key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    """Validate one expression as `node_requirement` does, and the bound of Gt and Lt too."""
    checked = node_requirement(field, key, operator, values)
    if checked.operator in (Operator.GT, Operator.LT) and not is_bound(values[0]):
        raise SelectorError(f"{field}.values: {operator} takes exactly one integer")
    return checked


def is_bound(text: str) -> bool:
    """Return whether the text may be the bound of Gt or Lt: an integer of 64 bits without a sign."""
    return _bound(text) is not None


def label_requirement(field: str, key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    """Validate one expression of a label selector, which has no Gt and Lt."""
    return _checked(field, key, operator, values, LABEL_OPERATORS)


def label_selector(field: str, match_labels: Labels, expressions: tuple[Requirement, ...]) -> LabelSelector:
    """Build a LabelSelector: the labels first, sorted by key, then the validated expressions in their order."""
    equal = tuple(_equal(f"{field}.matchLabels", key, value) for key, value in sorted(match_labels.items()))
    return LabelSelector(equal + expressions)


def is_label_value(text: str) -> bool:
    """Return whether the text may be the value of a label; an empty text may."""
    return _VALUE.fullmatch(text) is not None


def _bound(text: str) -> int | None:
    """Return the bound of Gt or Lt, which is a label value, so that it has no sign; None where it is none."""
    return _integer(text) if _VALUE.fullmatch(text) else None


def _integer(text: str) -> int | None:
    """Return the integer of 64 bits that a text is; None where it is none."""
    number = int(text) if _INTEGER.fullmatch(text) and len(text) <= _DIGITS_MAX else None
    return number if number is not None and -_INTEGER_MAX - 1 <= number <= _INTEGER_MAX else None


def _first(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _NAMED_MAX} more" if len(texts) > _NAMED_MAX else ""
    return ",".join(texts[:_NAMED_MAX]) + more


def _equal(field: str, key: str, value: str) -> Requirement:
    if not _KEY.fullmatch(key):
        raise SelectorError(f"{field}: {quoted(key)} {_NO_KEY}")
    if not _VALUE.fullmatch(value):
        raise SelectorError(f"{field}.{key}: {quoted(value)} {_NO_VALUE}")
    return Requirement(key, Operator.IN, (value,))


def _checked(
    field: str, key: str, operator: str, values: tuple[str, ...], operators: tuple[Operator, ...]
) -> Requirement:
    if operator not in operators:
        raise SelectorError(f"{field}.operator: {quoted(operator)} is not one of {', '.join(operators)}")
    if not _KEY.fullmatch(key):
        raise SelectorError(f"{field}.key: {quoted(key)} {_NO_KEY}")
    wants_values = operator not in (Operator.EXISTS, Operator.DOES_NOT_EXIST)
    if wants_values and not values:
        raise SelectorError(f"{field}.values: {operator} needs at least one value")
    if not wants_values and values:
        raise SelectorError(f"{field}.values: {operator} takes no values")
    for value in values:
        if not _VALUE.fullmatch(value) and operator not in (Operator.GT, Operator.LT) and key != NAME_FIELD:
            raise SelectorError(f"{field}.values: {quoted(value)} {_NO_VALUE}")
    return Requirement(key, Operator(operator), values)
