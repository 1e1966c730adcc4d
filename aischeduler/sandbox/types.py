"""The types of the Kubernetes API, read from `types.txt`: which fields a type has, and how lists of it are merged.

Law: one table serves decoding, field validation, patches and the OpenAPI documents.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

SCALARS = frozenset(
    {"str", "bytes", "bool", "int32", "int64", "double", "quantity", "time", "microtime", "intstr", "any", "schema"}
)

_FIELD = re.compile(r"(?P<name>[^!?=:+]+)(?P<mark>[!?])?(?:=(?P<number>\d+))?:(?P<kind>.+)\Z")
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
    """A type with its fields.

    `atomic`: server-side apply replaces it as a whole. `zero_absent`: fields whose zero value is not written.
    `numbers`: the fields by protobuf number; `inlined`: types whose fields lie among this one's, by number.
    `null_times`: times that are written as null when they are not set.
    """

    name: str
    fields: dict[str, Kind]
    required: frozenset[str]
    zero_absent: frozenset[str]
    numbers: dict[int, str]
    inlined: dict[int, str]
    null_times: tuple[str, ...]
    atomic: bool


@cache
def api_types() -> dict[str, ApiType]:
    """Return all types by name."""
    text = files(__package__).joinpath("types.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = {}
    for line in "\n".join(lines).replace("\n ", " ").splitlines():
        name, *fields = line.split()
        found[name.rstrip("*")] = _type(name, fields)
    return found


def _type(name: str, fields: list[str]) -> ApiType:
    matches = [match for field in fields if (match := _FIELD.match(field))]
    inlined = [field.lstrip("+").partition("=")[::2] for field in fields if field.startswith("+")]
    kinds = {match["name"]: _kind(match["kind"]) for match in matches}
    marked = [match["name"] for match in matches if match["mark"] and match["name"] != "creationTimestamp"]
    return ApiType(
        name.rstrip("*"),
        kinds,
        frozenset(match["name"] for match in matches if match["mark"] == "!"),
        frozenset(match["name"] for match in matches if match["mark"] == "?"),
        {int(match["number"]): match["name"] for match in matches if match["number"]},
        {int(number): type_name for type_name, number in inlined},
        tuple(one for one in marked if kinds[one].name in {"time", "microtime"}),
        name.endswith("*"),
    )


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
