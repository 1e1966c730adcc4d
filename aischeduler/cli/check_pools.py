"""Checks of Pools beyond `read_pool`: names and values that the schema lacks, lenders, and overlapping selectors.

Invariant: without nodes, two selectors overlap only where every node of one Pool is a node of the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from aischeduler.cli.check_documents import Document, Finding, items_at, mapping_at, text_at
from aischeduler.config.spelling import nearest, shown
from aischeduler.kube.crds import Json, pool_schema
from aischeduler.model.names import DEFAULT_POOL, can_be_pool_name
from aischeduler.model.pool import Pool
from aischeduler.model.quantity import shorten
from aischeduler.model.selectors import LabelSelector

_TYPES: Final[dict[str, tuple[type[Any], str]]] = {
    "object": (dict, "a mapping"),
    "array": (list, "a list"),
    "string": (str, "a string"),
    "boolean": (bool, "true or false"),
}


def schema_findings(document: Document) -> Iterator[Finding]:
    """Find unknown fields, and fields of a wrong type or value; users do not write the status."""
    name = text_at(mapping_at(document.body, "metadata"), "name")
    if name and not can_be_pool_name(name):
        yield Finding(document, "metadata.name", f"{shorten(name)} is not the name of a Pool")
    body = {key: value for key, value in document.body.items() if key != "status"}
    for field, sentence in _differences(body, pool_schema(), ""):
        yield Finding(document, field, sentence)


def unknown_lenders(document: Document, pools: Sequence[str]) -> Iterator[Finding]:
    """Find names in `borrowingPools` that no Pool has; `pools` are all names, sorted."""
    for index, name in enumerate(items_at(mapping_at(document.body, "spec"), "borrowingPools")):
        if isinstance(name, str) and name not in pools:
            sentence = f"there is no Pool {shorten(name)}{meant(name, pools)}"
            yield Finding(document, f"spec.borrowingPools[{index}]", sentence)


def overlapping(pools: Mapping[str, tuple[Document, Pool]]) -> Iterator[Finding]:
    """Find Pools that can never own a node, because another Pool selects every node that they select."""
    selecting = [
        (document, pool.name, pool.selector)
        for _, (document, pool) in sorted(pools.items())
        if pool.selector is not None and pool.name != DEFAULT_POOL
    ]
    for one, other in combinations(selecting, 2):
        for (document, _, selector), (_, rival, rival_selector) in ((one, other), (other, one)):
            if implies(selector, rival_selector):
                sentence = (
                    f"every node that it selects is also selected by the Pool {rival}, and a node that two Pools "
                    f"select belongs to the pool {DEFAULT_POOL}"
                )
                yield Finding(document, "spec.nodeSelector", sentence)
                break


def implies(selector: LabelSelector, other: LabelSelector) -> bool:
    """Say whether some labels satisfy the first selector, and all labels that do also satisfy the other.

    Requirements on different keys are independent. For each key, every named value is tried, another value, and none.
    """
    requirements = (*selector.requirements, *other.requirements)
    for key in sorted({one.key for one in requirements}):
        values = sorted({value for one in requirements if one.key == key for value in one.values})
        candidates = [{}, *({key: value} for value in ("/", *values))]  # a slash is in no label value
        selected = [
            labels for labels in candidates if all(r.matches(labels) for r in selector.requirements if r.key == key)
        ]
        if not selected or not all(
            r.matches(labels) for labels in selected for r in other.requirements if r.key == key
        ):
            return False
    return True


def meant(name: str, known: Sequence[str]) -> str:
    """Return a spelling suggestion as the end of a sentence, or nothing."""
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else ""


def _differences(value: Any, schema: Json, path: str) -> Iterator[tuple[str, str]]:
    """Yield each field that differs from a structural schema, with a sentence; amounts are left to `read_pool`."""
    kind = schema.get("type")
    if value is None or kind not in _TYPES:
        return
    python_type, words = _TYPES[kind]
    if not isinstance(value, python_type):
        yield path, f"must be {words}, not {shown(value)}"
    elif kind == "object":
        for name, inner in value.items():
            field = f"{path}.{name}".removeprefix(".")
            if "properties" in schema and name not in schema["properties"]:
                yield field, f"is not a field{meant(str(name), tuple(schema['properties']))}"
            else:
                inner_schema = schema.get("properties", {}).get(name) or schema.get("additionalProperties", {})
                yield from _differences(inner, inner_schema, field)
    elif kind == "array":
        for index, inner in enumerate(value):
            yield from _differences(inner, schema["items"], f"{path}[{index}]")
    elif value not in schema.get("enum", (value,)):
        yield path, f"must be {_choice(schema['enum'])}, not {shorten(value)}{meant(value, schema['enum'])}"


def _choice(values: Sequence[str]) -> str:
    return " or ".join(part for part in (", ".join(values[:-1]), values[-1]) if part)
