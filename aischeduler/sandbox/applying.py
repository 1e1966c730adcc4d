"""Server-side apply in a simple form: what an applier sends is merged in, what it no longer sends is taken out.

Laws: each applier's last configuration is remembered, so that fields it gives up go; other writers' fields stay. There
is no ownership beyond that: two appliers of one field do not conflict, and `metadata.managedFields` is not shown.
"""

from dataclasses import dataclass
from typing import Any

from aischeduler.sandbox.bodies import as_object, check_types, parse
from aischeduler.sandbox.call import Call
from aischeduler.sandbox.kinds import Resource
from aischeduler.sandbox.objects import JsonObject, copy_object, encode
from aischeduler.sandbox.status import invalid, required
from aischeduler.sandbox.store import Entry
from aischeduler.sandbox.types import Kind, api_types, type_of_kind
from aischeduler.sandbox.versions import from_stored

APPLIED_KEPT = 10_000
APPLIED_AS = "application/yaml"
# A list key that defaulting fills in, so that a configuration without it means the same item.
_KEY_DEFAULTS = {"protocol": "TCP"}


@dataclass(frozen=True, slots=True)
class TypedShape:
    """How values of a built-in type are merged."""

    kind: Kind | None

    @property
    def atomic(self) -> bool:
        """Whether a value is replaced as a whole."""
        if self.kind is None or self.kind.shape == "scalar":
            return True
        if self.kind.shape == "list":
            return not self.kind.keys and not self.kind.unique
        return self.kind.shape == "struct" and api_types()[self.kind.name].atomic

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that tell a list's items apart; none for sets."""
        return self.kind.keys if self.kind is not None else ()

    def field(self, key: str) -> "TypedShape":
        """Return the shape of a field."""
        if self.kind is not None and self.kind.shape == "struct":
            return TypedShape(api_types()[self.kind.name].fields.get(key))
        return self.item()

    def item(self) -> "TypedShape":
        """Return the shape of an element."""
        return TypedShape(self.kind.element if self.kind is not None else None)


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """How values of a custom resource are merged, by its structural schema."""

    schema: JsonObject

    @property
    def atomic(self) -> bool:
        """Whether a value is replaced as a whole."""
        if self.schema.get("type") == "array":
            return self.schema.get("x-kubernetes-list-type") not in {"map", "set"}
        return self.schema.get("x-kubernetes-map-type") == "atomic"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that tell a list's items apart; none for sets."""
        return tuple(self.schema.get("x-kubernetes-list-map-keys") or ())

    def field(self, key: str) -> "Shape":
        """Return the shape of a field."""
        known = self.schema.get("properties") or {}
        others = self.schema.get("additionalProperties")
        return SchemaShape(known.get(key) or (others if isinstance(others, dict) else {}))

    def item(self) -> "Shape":
        """Return the shape of an element."""
        return SchemaShape(self.schema.get("items") or {})


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """A custom resource as a whole: metadata is typed, the rest has a schema."""

    body: SchemaShape
    atomic: bool = False
    keys: tuple[str, ...] = ()

    def field(self, key: str) -> "Shape":
        """Return the shape of a field."""
        return TypedShape(Kind("struct", "ObjectMeta")) if key == "metadata" else self.body.field(key)

    def item(self) -> "Shape":
        """Return the shape of an element; an object has none."""
        return self.body


Shape = TypedShape | SchemaShape | ObjectShape


def applied(call: Call, entry: Entry | None) -> JsonObject:
    """Return what an apply request makes of an object (None: it does not exist yet)."""
    owner = call.query.get("fieldManager")
    if not owner:
        cause = required("fieldManager", "is required for apply patch")
        raise invalid("PatchOptions", "meta.k8s.io", "", [cause])
    config = as_object(call, parse(call.body, APPLIED_AS))
    config["metadata"].setdefault("name", call.name)
    check_types(call, config)
    if entry is None:
        return config
    shape = _shape(call.resource)
    live = from_stored(call.resource, entry.decoded())
    before = call.cluster.applied.get((entry.uid, owner))
    if before is not None:
        _take_out(live, copy_object(before), config, shape)
    merged: JsonObject = _merge(live, config, shape)
    return merged


def remember(call: Call, entry: Entry, config: bytes) -> None:
    """Keep an applier's configuration; the oldest goes when there are too many."""
    memory = call.cluster.applied
    memory[entry.uid, call.query["fieldManager"]] = encode(parse(config, APPLIED_AS))
    while len(memory) > APPLIED_KEPT:
        del memory[next(iter(memory))]


def _shape(resource: Resource) -> Shape:
    if resource.custom is not None:
        return ObjectShape(SchemaShape(resource.custom.schema))
    return TypedShape(Kind("struct", type_of_kind(resource.kind, resource.group)))


def _merge(live: Any, config: Any, shape: Shape) -> Any:
    if isinstance(config, dict) and isinstance(live, dict) and not shape.atomic:
        merged = {key: _merge(live.get(key), value, shape.field(key)) for key, value in config.items()}
        return {**live, **{key: value for key, value in merged.items() if value is not None}}
    if isinstance(config, list) and isinstance(live, list) and not shape.atomic:
        return _merge_list(live, config, shape)
    return config


def _identity(item: Any, keys: tuple[str, ...]) -> Any:
    if not keys or not isinstance(item, dict):
        return item
    return tuple(item.get(key, _KEY_DEFAULTS.get(key)) for key in keys)


def _merge_list(live: list[Any], config: list[Any], shape: Shape) -> list[Any]:
    result = list(live)
    for one in config:
        identity = _identity(one, shape.keys)
        place = next((at for at, old in enumerate(result) if _identity(old, shape.keys) == identity), None)
        if place is None:
            result.append(one)
        else:
            result[place] = _merge(result[place], one, shape.item())
    return result


def _take_out(live: Any, before: Any, config: Any, shape: Shape) -> None:
    """Take out of the live object, in place, what was applied before and is not any more."""
    if isinstance(before, dict) and isinstance(live, dict):
        wanted = config if isinstance(config, dict) else {}
        for key, old in before.items():
            inner = shape.field(key)
            if key not in wanted and (inner.atomic or not isinstance(old, dict | list)):
                live.pop(key, None)
            elif key in live:
                _take_out(live[key], old, wanted.get(key), inner)
                if key not in wanted and not live[key]:
                    del live[key]
    elif isinstance(before, list) and isinstance(live, list) and not shape.atomic:
        kept = [_identity(one, shape.keys) for one in config or ()]
        gone = [one for one in (_identity(item, shape.keys) for item in before) if one not in kept]
        live[:] = [one for one in live if _identity(one, shape.keys) not in gone]
        for one in live:
            identity = _identity(one, shape.keys)
            old = next((item for item in before if _identity(item, shape.keys) == identity), None)
            new = next((item for item in config or () if _identity(item, shape.keys) == identity), None)
            if old is not None:
                _take_out(one, old, new, shape.item())
