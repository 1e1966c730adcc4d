"""The input and the output of `ai-scheduler check`: documents of YAML files, and findings about them.

Invariants:
- The items of a List, as `kubectl get -o yaml` writes one, count as documents.
- A file that stops being YAML is a finding; the documents before that place are read.
- A line of output is printable and has a limited length, whatever a file says.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml
from msgspec import Struct

from aischeduler.config.load import JsonLoader, yaml_problem
from aischeduler.observability.logging import printable

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
VALUES_MAX: Final = 1_000_000
"""Values of one document; aliases can make a few lines many more."""
SENTENCE_LENGTH_MAX: Final = 1000
NAME_LENGTH_MAX: Final = 300

Body = Mapping[str, Any]


class Document(Struct, frozen=True):
    """One object, its file, and its position in the file, such as `2` or `2.items[0]`."""

    source: str
    position: str
    body: Body

    @property
    def api_version(self) -> str:
        """The apiVersion, or nothing."""
        return text_at(self.body, "apiVersion")

    @property
    def kind(self) -> str:
        """The kind, or nothing."""
        return text_at(self.body, "kind")

    @property
    def name(self) -> str:
        """The name, or the generateName."""
        metadata = mapping_at(self.body, "metadata")
        return text_at(metadata, "name") or text_at(metadata, "generateName")

    @property
    def namespace(self) -> str:
        """The namespace, or `default`."""
        return text_at(mapping_at(self.body, "metadata"), "namespace") or "default"

    @property
    def where(self) -> str:
        """The file and the position."""
        return f"{self.source}:{self.position}"


class Finding(Struct, frozen=True):
    """One thing that is wrong with a document; `field` is its path, or nothing."""

    document: Document
    field: str
    sentence: str

    def line(self) -> str:
        """Return the finding on one line."""
        document = self.document
        title = "/".join(part for part in (document.kind, document.name) if part)[:NAME_LENGTH_MAX]
        sentence = " ".join(self.sentence.split())[:SENTENCE_LENGTH_MAX]
        parts = (f"{document.where} {title}".strip(), self.field[:NAME_LENGTH_MAX], sentence)
        return printable(": ".join(part for part in parts if part))


def read_documents(source: str, text: bytes) -> tuple[list[Document], list[Finding]]:
    """Return the documents of a file, and what is wrong with the file as YAML."""
    if len(text) > FILE_BYTES_MAX:
        sentence = f"is larger than {FILE_BYTES_MAX // 1024**2} MiB and cannot be a manifest"
        return [], [Finding(Document(source, "1", {}), "", sentence)]
    documents: list[Document] = []
    findings: list[Finding] = []
    number = 0
    try:
        for body in yaml.load_all(text, JsonLoader):
            number += 1
            if _size(body, {}) > VALUES_MAX:
                findings.append(Finding(Document(source, str(number), {}), "", f"has more than {VALUES_MAX} values"))
                continue
            for position, item in _items(str(number), body):
                if isinstance(item, dict):
                    documents.append(Document(source, position, item))
                else:
                    sentence = "is not a Kubernetes object, which is a mapping with apiVersion and kind"
                    findings.append(Finding(Document(source, position, {}), "", sentence))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        findings.append(Finding(Document(source, str(number + 1), {}), "", yaml_problem(error)))
    return documents, findings


def mapping_at(body: Any, *path: str) -> Body:
    """Return the mapping at a path, or an empty one."""
    for step in path:
        body = body.get(step) if isinstance(body, dict) else None
    return body if isinstance(body, dict) else {}


def items_at(body: Body, name: str) -> Sequence[Any]:
    """Return the list of this name, or an empty one."""
    value = body.get(name)
    return value if isinstance(value, list) else ()


def text_at(body: Body, name: str) -> str:
    """Return the string of this name, or an empty one."""
    value = body.get(name)
    return value if isinstance(value, str) else ""


def _size(value: Any, known: dict[int, int]) -> int:
    """Return the number of values with aliases written out; `known` has the values that are counted."""
    if not isinstance(value, dict | list):
        return 1
    found = known.get(id(value))
    if found is None:
        known[id(value)] = VALUES_MAX  # a value that contains itself has no end
        inner = value.values() if isinstance(value, dict) else value
        found = known[id(value)] = 1 + sum(_size(one, known) for one in inner)
    return found


def _items(position: str, body: Any) -> Iterator[tuple[str, Any]]:
    """Yield the items of a List, or else the object; an empty document yields nothing."""
    if isinstance(body, dict) and text_at(body, "kind").endswith("List") and isinstance(body.get("items"), list):
        for index, item in enumerate(body["items"]):
            yield f"{position}.items[{index}]", item
    elif body is not None:
        yield position, body
