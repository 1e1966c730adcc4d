"""What `ai-scheduler check` reads and says: documents of YAML files, and findings about them.

Laws:
- Lists, as `kubectl get -o yaml` writes them, count as the documents that are in them.
- What is no YAML is a finding; the documents before it are read.
- A user's text stands in a line of output printable and cut.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from aischeduler.observability.logging import printable

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""A file beyond this is no manifest."""
VALUES_MAX: Final = 1_000_000
"""Values of one document; aliases can make a few lines many more."""
SENTENCE_LENGTH_MAX: Final = 1000
NAME_LENGTH_MAX: Final = 300

Body = Mapping[str, Any]


class JsonLoader(yaml.SafeLoader):
    """YAML as JSON has it: a text that looks like a date stays a text."""


JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Document:
    """One object: the file that it is in, and where in it, such as `2` or `2.items[0]`."""

    source: str
    place: str
    body: Body

    @property
    def api_version(self) -> str:
        """Its apiVersion, or nothing."""
        return text_at(self.body, "apiVersion")

    @property
    def kind(self) -> str:
        """Its kind, or nothing."""
        return text_at(self.body, "kind")

    @property
    def name(self) -> str:
        """Its name, or the beginning of one that is made up later."""
        metadata = mapping_at(self.body, "metadata")
        return text_at(metadata, "name") or text_at(metadata, "generateName")

    @property
    def namespace(self) -> str:
        """The namespace that it names, or `default`."""
        return text_at(mapping_at(self.body, "metadata"), "namespace") or "default"

    @property
    def where(self) -> str:
        """Where it stands."""
        return f"{self.source}:{self.place}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a document; `field` is its path, where there is one."""

    document: Document
    field: str
    sentence: str

    def line(self) -> str:
        """Return the finding on one line."""
        document = self.document
        title = "/".join(part for part in (document.kind, document.name) if part)[:NAME_LENGTH_MAX]
        said = " ".join(self.sentence.split())[:SENTENCE_LENGTH_MAX]
        return printable(": ".join(part for part in (f"{document.where} {title}".strip(), self.field, said) if part))


def read_documents(source: str, text: bytes) -> tuple[list[Document], list[Finding]]:
    """Return the documents of a file, and what is wrong with it as YAML."""
    nowhere = Document(source, "1", {})
    if len(text) > FILE_BYTES_MAX:
        return [], [Finding(nowhere, "", f"is larger than {FILE_BYTES_MAX // 1024**2} MiB and no manifest")]
    documents: list[Document] = []
    findings: list[Finding] = []
    number = 0
    try:
        for body in yaml.load_all(text, JsonLoader):
            number += 1
            if _size(body, {}) > VALUES_MAX:
                findings.append(Finding(Document(source, str(number), {}), "", f"has more than {VALUES_MAX} values"))
                continue
            for place, one in _unpacked(str(number), body):
                if isinstance(one, dict):
                    documents.append(Document(source, place, one))
                else:
                    findings.append(Finding(Document(source, place, {}), "", "is no object with apiVersion and kind"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        findings.append(Finding(Document(source, str(number + 1), {}), "", f"is not YAML{at}: {error.problem}"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = f"is not YAML that can be read: {error}"
        findings.append(Finding(Document(source, str(number + 1), {}), "", problem))
    return documents, findings


def _size(value: Any, known: dict[int, int]) -> int:
    """Return how many values there are once aliases are written out; `known` has those that were counted."""
    if not isinstance(value, dict | list):
        return 1
    found = known.get(id(value))
    if found is None:
        known[id(value)] = VALUES_MAX  # one that holds itself has no end
        inner = value.values() if isinstance(value, dict) else value
        found = known[id(value)] = 1 + sum(_size(one, known) for one in inner)
    return found


def _unpacked(place: str, body: Any) -> Iterator[tuple[str, Any]]:
    """Give an object, or those of a list; an empty document is nothing."""
    if isinstance(body, dict) and text_at(body, "kind").endswith("List") and isinstance(body.get("items"), list):
        for index, item in enumerate(body["items"]):
            yield f"{place}.items[{index}]", item
    elif body is not None:
        yield place, body


def mapping_at(body: Any, *path: str) -> Body:
    """Return the mapping at a path; an empty one where there is none."""
    for step in path:
        body = body.get(step) if isinstance(body, dict) else None
    return body if isinstance(body, dict) else {}


def items_at(body: Body, name: str) -> Sequence[Any]:
    """Return the list of this name; an empty one where there is none."""
    value = body.get(name)
    return value if isinstance(value, list) else ()


def text_at(body: Body, name: str) -> str:
    """Return the text of this name; an empty one where there is none."""
    value = body.get(name)
    return value if isinstance(value, str) else ""
