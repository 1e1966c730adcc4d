"""The types of the Kubernetes API, read from `types.txt`: which fields a type has, and how lists of it are merged.

Law: one table serves decoding, field validation, patches and the OpenAPI documents.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

SCALARS = frozenset(
    {"str", "bytes", "bool", "int32", "int64", "double", "quantity", "time", "microtime", "intstr", "any"}
)

_KIND = re.compile(
    r"(?P<element>[^#%@~]+)(?:#(?P<keys>[^@~%]+))?(?P<unique>%)?(?:(?P<merge>@)(?P<merge_key>[^~]*))?(?P<retain>~)?\Z"
)


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a field. `shape` is scalar, struct, list or map; `name` is a scalar's or a type's name.

    Lists: `keys` for server-side apply, `unique` for sets; `merges` by `merge_key` (None: as a set) in a strategic
    merge patch. `retains`: such a patch names the keys that stay.
    """

    shape: str
    name: str = ""
    element: "Kind | None" = None
    keys: tuple[str, ...] = ()
    unique: bool = False
    merges: bool = False
    merge_key: str | None = None
    retains: bool = False

    @property
    def inner(self) -> "Kind":
        """The kind of a list's or a map's elements."""
        if self.element is None:
            raise TypeError(f"{self.name} has no elements")
        return self.element


@dataclass(frozen=True, slots=True)
class ApiType:
    """A type with its fields. `atomic`: server-side apply replaces it as a whole."""

    name: str
    fields: dict[str, Kind]
    required: frozenset[str]
    atomic: bool


@cache
def api_types() -> dict[str, ApiType]:
    """Return all types by name."""
    text = files(__package__).joinpath("types.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = {}
    for line in "\n".join(lines).replace("\n ", " ").splitlines():
        name, *fields = line.split()
        atomic = name.endswith("*")
        pairs = [field.partition(":")[::2] for field in fields]
        kinds = {field.rstrip("!"): _kind(text) for field, text in pairs}
        required = frozenset(field[:-1] for field, _ in pairs if field.endswith("!"))
        found[name.rstrip("*")] = ApiType(name.rstrip("*"), kinds, required, atomic)
    return found


@cache
def _kind(text: str) -> Kind:
    match = _KIND.match(text)
    if match is None:
        raise ValueError(f"{text} is no kind")
    element = match["element"]
    if element in SCALARS:
        return Kind("scalar", element)
    if element[0] == "{":
        return Kind("map", element=_kind(element[1:-1]), retains=bool(match["retain"]))
    if element[0] != "[":
        return Kind("struct", element, retains=bool(match["retain"]))
    return Kind(
        "list",
        element=_kind(element[1:-1]),
        keys=tuple(match["keys"].split(",")) if match["keys"] else (),
        unique=bool(match["unique"]),
        merges=bool(match["merge"]),
        merge_key=match["merge_key"] or None,
        retains=bool(match["retain"]),
    )


def type_of_kind(kind: str, group: str) -> str:
    """Return the name of the type behind a served kind."""
    return "CoreEvent" if kind == "Event" and not group else kind
