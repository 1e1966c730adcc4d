"""Reads the documents of `ai-scheduler check` with the scheduler's own readers, and finds what the readers refuse.

Invariants:
- An object of which a reader refuses a part takes no part in the other checks.
- An object is read as the API server stores it: with the defaults that the scheduler relies on.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson
from msgspec import Struct, field

from aischeduler.cli.check_documents import Body, Document, Finding, mapping_at, text_at
from aischeduler.cli.check_pods import Template, templates
from aischeduler.cli.check_pools import schema_findings
from aischeduler.config.schema import API_VERSION, KIND
from aischeduler.config.spelling import nearest
from aischeduler.kube import watched_resources
from aischeduler.kube.decode_pod_spec import SpecCache
from aischeduler.kube.errors import decode_finding
from aischeduler.kube.gang_owners import GangOwners
from aischeduler.kube.gang_resources import gang_resources
from aischeduler.kube.meta_types import UNREADABLE
from aischeduler.model.events import Event, Seen
from aischeduler.model.gang import Gang
from aischeduler.model.names import GROUP, VERSION
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.quantity import shorten

POOL: Final = (f"{GROUP}/{VERSION}", "Pool")
NODE: Final = ("v1", "Node")
NAMESPACE: Final = ("v1", "Namespace")
NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label of a namespace that the API server sets."""
OWN_KINDS: Final = {POOL[0]: POOL[1], API_VERSION: KIND}
"""The versions of the scheduler's own API, and the kind of each."""
READERS: Final[dict[tuple[str, str], watched_resources.WatchedResource[Any]]] = {
    NAMESPACE: watched_resources.namespaces(),
    NODE: watched_resources.nodes(),
    POOL: watched_resources.pools(),
    ("policy/v1", "PodDisruptionBudget"): watched_resources.budgets(),
    **{
        (one.path.removeprefix("/apis/").rpartition("/")[0], one.kind.partition(".")[0]): one
        for one in gang_resources(GangOwners())
    },
}
"""How the scheduler reads each kind of objects except pods."""


class Objects(Struct):
    """What the readers made of the documents."""

    findings: list[Finding] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    pools: dict[str, tuple[Document, Pool]] = field(default_factory=dict)
    templates: list[Template] = field(default_factory=list)
    pods: list[tuple[Template, Pod]] = field(default_factory=list)
    _first: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Where each object is defined first, by version, kind, namespace and name."""

    def add(self, document: Document, pods: watched_resources.WatchedResource[Any]) -> None:
        """Read a document: the object, and the pods that are made from its templates."""
        self.findings += _kind_findings(document)
        if first := self._defined(document):
            self.findings.append(Finding(document, "", f"is already defined at {first}"))
            return
        kind = (document.api_version, document.kind)
        if kind in READERS:
            event, findings = _decoded(document, READERS[kind], _as_stored(document))
            if kind == POOL:
                findings = _merged([*schema_findings(document)], findings)
            self.findings += findings
            if event is not None and not findings:
                self.events.append(event)
                if isinstance(event, Seen) and isinstance(event.object, Pool):
                    self.pools[event.object.name] = document, event.object
        for template in templates(document):
            self.templates.append(template)
            event, findings = _decoded(document, pods, template.pod(), template.lead)
            self.findings += findings
            if isinstance(event, Seen) and isinstance(event.object, Pod) and not findings:
                self.pods.append((template, event.object))

    def _defined(self, document: Document) -> str:
        """Return where an earlier document defines the same object, or nothing."""
        name = text_at(mapping_at(document.body, "metadata"), "name")
        key = (document.api_version, document.kind, document.namespace, name)
        first = self._first.setdefault(key, document.where)
        return first if name and first != document.where else ""


def read_objects(documents: Iterable[Document]) -> Objects:
    """Read every object that the scheduler reads, and every pod and pod template."""
    objects, pods = Objects(), watched_resources.pods(SpecCache())
    for document in documents:
        objects.add(document, pods)
    return objects


def _kind_findings(document: Document) -> Iterator[Finding]:
    version, kind = document.api_version, document.kind
    for name, value in (("apiVersion", version), ("kind", kind)):
        if not value:
            yield Finding(document, name, "is missing")
    if version in OWN_KINDS:
        if kind and kind != OWN_KINDS[version]:
            sentence = f"{shorten(kind)} is not a kind of {version}; the kind is {OWN_KINDS[version]}"
            yield Finding(document, "kind", sentence)
    elif GROUP in version or nearest(version, OWN_KINDS):
        near = nearest(version, OWN_KINDS) or POOL[0]
        yield Finding(document, "apiVersion", f"{shorten(version)} does not exist; did you mean {near}?")


def _as_stored(document: Document) -> Body:
    """Return an object that is no pod as the API server stores it."""
    kind = (document.api_version, document.kind)
    body = {name: value for name, value in document.body.items() if name != "status" or kind == NODE}
    status, metadata = body.get("status"), body.get("metadata")
    if isinstance(status, dict) and "capacity" in status:
        body["status"] = {"allocatable": status["capacity"], **status}
    if isinstance(metadata, dict):
        body["metadata"] = {**metadata, "uid": document.where, "generation": 1}
        if kind == NAMESPACE:
            body["metadata"]["labels"] = {NAME_LABEL: document.name, **mapping_at(metadata, "labels")}
    return body


def _decoded(
    document: Document, resource: watched_resources.WatchedResource[Any], body: Body, lead: str = ""
) -> tuple[Event | None, list[Finding]]:
    """Return the event that the scheduler makes of an object, and what its reader refuses.

    `lead` is the path of the object in the document, with a dot at the end, where the object is a template.
    """
    try:
        decoded = resource.object_decoder.decode(orjson.dumps(body))
    except TypeError as error:
        return None, [Finding(document, lead.removesuffix("."), f"cannot be written as JSON: {error}")]
    except UNREADABLE as error:
        field, sentence = decode_finding(error)
        return None, [Finding(document, f"{lead}{field}", sentence)]
    findings = []
    if not lead and not document.name:
        findings.append(Finding(document, "metadata.name", "is missing"))
    event = resource.seen_event(decoded)
    problem = resource.problem(decoded) if resource.problem is not None else _invalid(event)
    if problem:
        field, _, sentence = problem.partition(": ")
        findings.append(Finding(document, f"{lead}{field}", sentence))
    return event, findings


def _invalid(event: Event | None) -> str:
    match event:
        case Seen(Pool() as pool):
            return pool.invalid
        case Seen(Node() as node):
            return node.invalid
        case Seen(Pod() as pod):
            return pod.spec.invalid or (_of_gang(pod.gang.said) if pod.gang is not None else "")
        case Seen(Gang() as gang):
            return _of_gang(gang)
        case _:
            return ""


def _of_gang(gang: Gang | None) -> str:
    """Return what is invalid of a gang, without the name of its object."""
    return gang.invalid.partition(": ")[2] if gang is not None else ""


def _merged(of_schema: list[Finding], of_reader: list[Finding]) -> list[Finding]:
    """Return both without what the reader says of a field that the schema names; the reader quotes names."""
    named = {one.field for one in of_schema}
    return of_schema + [one for one in of_reader if one.field.replace("'", "") not in named]
