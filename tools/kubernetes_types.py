#!/usr/bin/env python3
"""Write `aischeduler/sandbox/types.txt`, the sandbox's table of API types, from the released Kubernetes modules.

Laws:
- Field names, kinds, required fields and merge keys come from the OpenAPI document of `k8s.io/kubernetes`; protobuf
  numbers, inlined messages and which zero values are left out come from the tags of the Go structs.
- The module files of the real control plane name the version, so the sandbox and the real API server agree on it.
- A type is in the table when one of `ROOTS` leads to it. What the sources do not say is a table below with its reason.
- What cannot be placed is an error, never a gap: a field without a struct field, two types of one name.
- The same modules give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
MODULE_FILES = REPOSITORY / "tools" / "controlplane" / "kubernetes"
TABLE = REPOSITORY / "aischeduler" / "sandbox" / "types.txt"
MODULES = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver", "k8s.io/kubernetes")
LINE_CHARACTERS_MAX = 118

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"

ROOTS = (
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.api.core.v1.Binding",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.Event",
    "io.k8s.api.core.v1.Namespace",
    "io.k8s.api.core.v1.Node",
    "io.k8s.api.core.v1.PersistentVolume",
    "io.k8s.api.core.v1.PersistentVolumeClaim",
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.Service",
    "io.k8s.api.core.v1.ServiceAccount",
    "io.k8s.api.events.v1.Event",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.api.policy.v1.PodDisruptionBudget",
    "io.k8s.api.scheduling.v1.PriorityClass",
    f"{_EXTENSIONS}.CustomResourceDefinition",
    f"{_META}.DeleteOptions",
)
"""The kinds and request bodies that the sandbox reads."""

RENAMED = {
    "io.k8s.api.core.v1.Event": "CoreEvent",
    "io.k8s.api.core.v1.EventSeries": "CoreEventSeries",
}
"""A type's name in the table is the last word of its definition's; `events.k8s.io` has these two as well."""

SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intstr",
    f"{_META}.FieldsV1": "any",
    f"{_META}.MicroTime": "microtime",
    f"{_META}.Time": "time",
    f"{_EXTENSIONS}.JSON": "any",
    f"{_EXTENSIONS}.JSONSchemaPropsOrArray": "any",
    f"{_EXTENSIONS}.JSONSchemaPropsOrBool": "any",
    f"{_EXTENSIONS}.JSONSchemaPropsOrStringArray": "any",
}
"""Definitions that JSON writes as one value, or as a choice of values that OpenAPI cannot tell apart."""

FIELD_KINDS = {
    ("JSONSchemaProps", "additionalProperties"): "schema",
    ("JSONSchemaProps", "items"): "schema",
}
"""Of the fields with such a choice, those in which a structural schema may hold a schema: fields are checked in it.

`additionalItems` and `dependencies` have a choice too, but no structural schema may use them.
"""

HEADER = """\
# Types of the Kubernetes {minor} API as far as the sandbox serves them: names, fields and how lists are merged.
#
# TYPE[*] FIELD[!|?][=NUMBER]:KIND …   A line that begins with blanks goes on.
# `*`: applied as a whole. `!`: required. `?`: a zero value means absent. NUMBER: the field's number in protobuf, where
# `+TYPE=NUMBER` is a message whose fields lie among this type's own in JSON.
# KIND: a type, str, bytes, bool, int32, int64, double, quantity, time, microtime, intstr (number or text), any,
#       schema (a JSONSchemaProps or true or false),
#       [KIND] list, {{KIND}} map with text keys.
# After a list: `#a,b` is merged by these keys in server-side apply, `%` is a set, `@a` is merged by this key in a
# strategic merge patch (`@` alone: as a set), `~`: a patch names the keys that stay.
"""

_STRUCT = re.compile(r"type (?P<name>\w+) struct ?\{(?P<end>\})?")
_FIELD = re.compile(r"\s+(?:\w+\s+)?(?P<go_type>\*?[\w.\[\]*]+)\s+`(?P<tags>.*)`")
_JSON_TAG = re.compile(r'json:"(?P<name>[^",]*)(?P<options>[^"]*)"')
_PROTOBUF_TAG = re.compile(r'protobuf:"\w+,(?P<number>\d+),')
_TYPE_META = ("TypeMeta", "metav1.TypeMeta")

Schema = dict[str, Any]


class TypesError(Exception):
    """The table cannot be written; the text says why in one sentence, for the person who asked."""


@dataclass(frozen=True, slots=True)
class GoField:
    """A field of a Go struct by its tags. `name` is empty and `inlined` true where the fields of `go_type` lie here."""

    name: str
    go_type: str
    omits_empty: bool
    number: int | None
    inlined: bool

    @property
    def zero_absent(self) -> bool:
        """Whether a zero value is not written. A pointer to zero is."""
        return self.omits_empty and not self.go_type.startswith("*")


@dataclass(frozen=True, slots=True)
class Sources:
    """What is read: where the modules lie, by path; the Kubernetes version, as `v1.36.3`; the OpenAPI definitions."""

    directories: dict[str, Path]
    version: str
    definitions: dict[str, Schema]
    packages: dict[str, dict[str, tuple[GoField, ...]]] = field(default_factory=dict)

    def struct(self, definition: str) -> tuple[GoField, ...]:
        """Return the fields of the struct behind a definition such as `io.k8s.api.core.v1.Pod`."""
        package, _, name = definition.rpartition(".")
        if package not in self.packages:
            self.packages[package] = self._read_package(package)
        if name not in self.packages[package]:
            raise TypesError(f"the Go package behind {package} has no struct {name}.")
        return self.packages[package][name]

    def _read_package(self, package: str) -> dict[str, tuple[GoField, ...]]:
        module, *folders = package.removeprefix("io.k8s.").split(".")
        if f"k8s.io/{module}" not in self.directories:
            raise TypesError(f"{package} is in none of the modules {', '.join(MODULES)}.")
        directory = self.directories[f"k8s.io/{module}"].joinpath(*folders)
        structs: dict[str, tuple[GoField, ...]] = {}
        for path in sorted(directory.glob("types*.go")):
            structs.update(read_structs(path.read_text(encoding="utf-8")))
        return structs


def read_structs(text: str) -> Iterator[tuple[str, tuple[GoField, ...]]]:
    """Yield the structs of a Go file with those of their fields that have a JSON tag."""
    name, fields = "", list[GoField]()
    for line in text.splitlines():
        if opened := _STRUCT.match(line):
            name, fields = opened["name"], []
        if name and (line.startswith("}") or (opened and opened["end"])):
            yield name, tuple(fields)
            name = ""
        elif name and (found := _go_field(line)):
            fields.append(found)


def _go_field(line: str) -> GoField | None:
    match = _FIELD.match(line)
    json_tag = match and _JSON_TAG.search(match["tags"])
    if not match or not json_tag:
        return None
    options = json_tag["options"].split(",")
    protobuf = _PROTOBUF_TAG.search(match["tags"])
    number = int(protobuf["number"]) if protobuf else None
    return GoField(json_tag["name"], match["go_type"], "omitempty" in options, number, "inline" in options)


def read_sources() -> Sources:
    """Find the modules, fetching those that are not here, and read the OpenAPI document. Raises TypesError."""
    if shutil.which("go") is None:
        raise TypesError("there is no `go` in PATH, and it alone knows where the Kubernetes modules lie.")
    listed = _list_modules()
    if not all(directory for _, _, directory in listed):
        _go("mod", "download", *MODULES)
        listed = _list_modules()
    directories = {path: Path(directory) for path, _, directory in listed if directory}
    absent = [path for path in MODULES if path not in directories]
    if absent:
        raise TypesError(f"Go has downloaded no {', '.join(absent)}.")
    versions = {path: version for path, version, _ in listed}
    document = directories["k8s.io/kubernetes"] / "api" / "openapi-spec" / "swagger.json"
    if not document.is_file():
        raise TypesError(f"the module k8s.io/kubernetes has no OpenAPI document at {document}.")
    definitions = json.loads(document.read_text(encoding="utf-8"))["definitions"]
    return Sources(directories, versions["k8s.io/kubernetes"], definitions)


def _list_modules() -> list[tuple[str, str, str]]:
    """Return path, version and directory of each module; the directory is empty where it is not downloaded."""
    listed = _go("list", "-m", "-f", "{{.Path}}\t{{.Version}}\t{{.Dir}}", *MODULES)
    return [(path, version, directory) for path, version, directory in (line.split("\t") for line in listed)]


def _go(*arguments: str) -> list[str]:
    """Return the lines that Go prints, under the module files alone."""
    env = {**os.environ, "GOFLAGS": "", "GOWORK": "off"}
    command = ["go", *arguments]
    finished = subprocess.run(command, cwd=MODULE_FILES, env=env, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        said = finished.stderr.strip().splitlines() or [f"status {finished.returncode}"]
        raise TypesError(f"`go {' '.join(arguments[:2])}` cannot find the Kubernetes modules: {said[-1]}")
    return finished.stdout.splitlines()


def type_name(definition: str) -> str:
    """Return the name that a definition has in the table."""
    return RENAMED.get(definition, definition.rpartition(".")[2])


def kind(schema: Schema) -> str:
    """Return the kind of a value, without what is said of merging."""
    if "$ref" in schema:
        definition = _referenced(schema)
        return SCALARS.get(definition) or type_name(definition)
    match schema.get("type"):
        case "array":
            return f"[{kind(schema['items'])}]"
        case "object":
            return f"{{{kind(schema.get('additionalProperties', {}))}}}"
        case "string":
            return "bytes" if schema.get("format") == "byte" else "str"
        case "boolean":
            return "bool"
        case "integer":
            return str(schema["format"])
        case "number":
            return "double"
    return "any"


def merging(schema: Schema) -> str:
    """Return what follows a kind: how server-side apply and a strategic merge patch treat the field."""
    written = ""
    match schema.get("x-kubernetes-list-type"):
        case "map":
            written = "#" + ",".join(schema["x-kubernetes-list-map-keys"])
        case "set":
            written = "%"
    strategies = schema.get("x-kubernetes-patch-strategy", "").split(",")
    if "merge" in strategies:
        written += "@" + schema.get("x-kubernetes-patch-merge-key", "")
    return written + ("~" if "retainKeys" in strategies else "")


def references(schema: Schema) -> Iterator[str]:
    """Yield the definitions of types that the kind of a value names."""
    if "$ref" in schema:
        if _referenced(schema) not in SCALARS:
            yield _referenced(schema)
        return
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from references(schema[inner])


def _referenced(schema: Schema) -> str:
    return str(schema["$ref"]).removeprefix("#/definitions/")


def _written_field(owner: str, found: GoField, schema: Schema, *, required: bool) -> str:
    mark = "!" if required else "?" if found.zero_absent else ""
    number = "" if found.number is None else f"={found.number}"
    return f"{found.name}{mark}{number}:{FIELD_KINDS.get((owner, found.name)) or kind(schema)}{merging(schema)}"


@dataclass(slots=True)
class Table:
    """The types found so far, as words: a type's name first, then its fields, then its inlined messages.

    `origins`: the definition, or for a message without one the struct, behind each name.
    """

    sources: Sources
    types: dict[str, list[str]] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def add_all(self, roots: Sequence[str]) -> None:
        """Add the roots and every type that they lead to. Raises TypesError."""
        pending = list(roots)
        while pending:
            definition = pending.pop()
            if self._is_new(definition):
                pending += self._add(definition)

    def _is_new(self, definition: str) -> bool:
        known = self.origins.setdefault(type_name(definition), definition)
        if known != definition:
            raise TypesError(f"{known} and {definition} have one name in the table; give one of them another.")
        return type_name(definition) not in self.types

    def _add(self, definition: str) -> list[str]:
        """Add one type and return the definitions that its fields name."""
        name = type_name(definition)
        schema = self.sources.definitions[definition]
        properties: dict[str, Schema] = schema.get("properties", {})
        required = schema.get("required", [])
        fields, messages, left_out = self._fields(definition)
        words = [name + ("*" if schema.get("x-kubernetes-map-type") == "atomic" else "")]
        for one in sorted(set(properties) - left_out):
            if one not in fields:
                raise TypesError(f"{definition} has the field {one}, and its struct has not.")
            words.append(_written_field(name, fields[one], properties[one], required=one in required))
        words += [f"+{message.go_type}={message.number}" for message in messages]
        self.types[name] = words
        self._add_messages(definition, messages)
        return [found for one in sorted(properties) for found in references(properties[one])]

    def _fields(self, definition: str) -> tuple[dict[str, GoField], list[GoField], set[str]]:
        """Return a type's fields by name, its inlined messages, and the fields that the table leaves out.

        Protobuf numbers an inlined message, not its fields. `apiVersion` and `kind` of a whole object travel around
        the message, so the table has neither.
        """
        struct = self.sources.struct(definition)
        fields = {one.name: one for one in struct if not one.inlined}
        whole = any(one.inlined and one.go_type in _TYPE_META for one in struct)
        messages = [one for one in struct if one.inlined and one.go_type not in _TYPE_META]
        for message in messages:
            for one in self.sources.struct(_beside(definition, message)):
                fields.setdefault(one.name, replace(one, number=None))
        return fields, messages, {"apiVersion", "kind"} if whole else set()

    def _add_messages(self, definition: str, messages: list[GoField]) -> None:
        """Add the inlined messages that OpenAPI does not define, with the kinds that their fields have in the owner.

        Nothing is required in them: they are only read from protobuf, and the owner says what is required.
        """
        for message in messages:
            beside = _beside(definition, message)
            if beside in self.sources.definitions or not self._is_new(beside):
                continue
            name = type_name(beside)
            properties = self.sources.definitions[definition]["properties"]
            struct = sorted(self.sources.struct(beside), key=lambda one: one.name)
            absent = [one.name or one.go_type for one in struct if one.name not in properties]
            if absent:
                raise TypesError(f"the struct {beside} has {', '.join(absent)}, and {definition} has not.")
            words = [_written_field(name, one, properties[one.name], required=False) for one in struct]
            self.types[name] = [name, *words]


def _beside(definition: str, message: GoField) -> str:
    """Return the definition's name of a message of the same Go package."""
    return f"{definition.rpartition('.')[0]}.{message.go_type}"


def written(sources: Sources) -> str:
    """Return the text of the table. Raises TypesError."""
    table = Table(sources)
    table.add_all(ROOTS)
    lines = [line for name in sorted(table.types) for line in _wrapped(table.types[name])]
    minor = ".".join(sources.version.removeprefix("v").split(".")[:2])
    return HEADER.format(minor=minor) + "\n".join(lines) + "\n"


def _wrapped(words: list[str]) -> Iterator[str]:
    line = words[0]
    for word in words[1:]:
        if len(line) + 1 + len(word) > LINE_CHARACTERS_MAX:
            yield line
            line = f"  {word}"
        else:
            line += f" {word}"
    yield line


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description="Print the sandbox's table of Kubernetes API types.")
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.relative_to(REPOSITORY)} instead")
    options = parser.parse_args(arguments)
    try:
        text = written(read_sources())
    except TypesError as error:
        print(f"kubernetes_types: {error}", file=sys.stderr)
        return 1
    if options.write:
        TABLE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.buffer.write(text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
