"""The files of `ai-scheduler check` and `plan`: their documents, what the scheduler reads in them, and what is wrong.

Invariants:
- The items of a List, as `kubectl get -o yaml` writes one, count as documents.
- A file that stops being YAML is a finding; the documents before that place are read.
- A line of output is printable and has a limited length, whatever a file says.
- A template is found by its shape, so templates in objects of unknown kinds are found too.
- An object is read as the API server stores it: with the defaults that the scheduler relies on. One of which a reader
  refuses a part takes no part in the other checks.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from msgspec import Struct, field
from msgspec.structs import replace
from typer import TyperException

from aischeduler.cli.workload_documents import owner_of
from aischeduler.config.load import JsonLoader, yaml_problem
from aischeduler.config.schema import API_VERSION, KIND
from aischeduler.kube.crds import Json, schema
from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.device_resources import devices
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.queue_resources import queue_resources
from aischeduler.model.decode_errors import decode_finding
from aischeduler.model.device import NodeDevices
from aischeduler.model.events import Event, Seen, objects_of
from aischeduler.model.gang import Gang
from aischeduler.model.names import GROUP, POOL_KEY, VERSION, can_be_pool_name
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.tenant_queue import TenantQueue
from aischeduler.model.user_text import nearest, quoted, shown
from aischeduler.model.workload import Workload
from aischeduler.observability.logging import printable

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
VALUES_MAX: Final = 1_000_000
"""Values of one document; aliases can make a few lines many more."""
SENTENCE_LENGTH_MAX: Final = 1000
NAME_LENGTH_MAX: Final = 300
DEPTH_MAX: Final = 12
TEMPLATES_MAX: Final = 64
STDIN: Final = "-"
POOL: Final = (f"{GROUP}/{VERSION}", "Pool")
QUEUE: Final = (f"{GROUP}/{VERSION}", "Queue")
NODE: Final = ("v1", "Node")
NAMESPACE: Final = ("v1", "Namespace")
NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label of a namespace that the API server sets."""
SCHEMAS: Final = {POOL: "pools", QUEUE: "queues"}
"""The kinds whose documents are compared with their definition, and the plural of each."""
OWN_KINDS: Final = {POOL[0]: ("Pool", "Queue", "BatchProcess", "TrainingJob"), API_VERSION: (KIND,)}
"""The versions of the scheduler's own API, and the kinds of each."""
READERS: Final[dict[tuple[str, str], watched_resources.WatchedResource[Any]]] = {
    NAMESPACE: watched_resources.namespaces(),
    NODE: watched_resources.nodes(),
    POOL: watched_resources.pools(),
    ("policy/v1", "PodDisruptionBudget"): watched_resources.budgets(),
    ("scheduling.koordinator.sh/v1alpha1", "Device"): devices(),
    **{
        (resource.path.removeprefix("/apis/").rpartition("/")[0], resource.kind.partition(".")[0]): resource
        for resource in (*gang_resources(GangOwners()), *queue_resources())
    },
}
"""How the scheduler reads each kind of objects except pods, by version and kind."""
_OF_A_RUNNING_POD: Final = frozenset(("creationTimestamp", "deletionTimestamp"))
_TYPES: Final[dict[str, tuple[type[Any], str]]] = {
    "object": (dict, "a mapping"),
    "array": (list, "a list"),
    "string": (str, "a string"),
    "boolean": (bool, "true or false"),
    "integer": (int, "a whole number"),
}

Body = Mapping[str, Any]
Steps = tuple[str | int, ...]


class Document(Struct, frozen=True):
    """One object, its file, and its position in the file, such as `2` or `2.items[0]`."""

    source: str
    position: str
    body: Body

    @property
    def type(self) -> tuple[str, str]:
        """The apiVersion and the kind, each empty where it is missing."""
        return text_at(self.body, "apiVersion"), text_at(self.body, "kind")

    @property
    def kind(self) -> str:
        """The kind, or nothing."""
        return self.type[1]

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


class Template(Struct, frozen=True):
    """A pod or a pod template; `lead` is its path with a dot at the end, and empty for a Pod.

    `steps` are the keys and indexes of the path.
    """

    document: Document
    lead: str
    body: Body
    steps: Steps = ()

    @property
    def pool(self) -> str:
        """The pool that its pods name, or nothing."""
        metadata = mapping_at(self.body, "metadata")
        annotation, label = (text_at(mapping_at(metadata, part), POOL_KEY) for part in ("annotations", "labels"))
        return annotation or label

    @property
    def around(self) -> Body:
        """What is around the spec that has the template: the template of a Job in a CronJob or a JobSet."""
        value: Any = self.document.body
        for step in self.steps[:-2]:
            value = value[step]
        return value if isinstance(value, dict) else {}

    @property
    def spec(self) -> Body:
        """The spec of its pods."""
        return mapping_at(self.body, "spec")

    def pod(self) -> Body:
        """Return a new pod of it, with the requests that the API server derives from limits."""
        metadata, spec = self.body.get("metadata") or {}, self.body.get("spec")
        if isinstance(metadata, dict):
            metadata = {key: value for key, value in metadata.items() if key not in _OF_A_RUNNING_POD}
            metadata |= {"namespace": self.document.namespace, "uid": f"{self.document.where}:{self.lead}"}
        if isinstance(spec, dict):
            lists = {name: spec[name] for name in ("containers", "initContainers") if isinstance(spec.get(name), list)}
            spec = _with_requests(spec) | {name: [_with_requests(held) for held in lists[name]] for name in lists}
        return {"metadata": metadata, "spec": spec}

    def finding(self, field: str, sentence: str) -> Finding:
        """Return a finding about a field of the template."""
        return Finding(self.document, f"{self.lead}{field}", sentence)


class Objects(Struct):
    """What the readers made of the documents."""

    findings: list[Finding] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    pools: dict[str, tuple[Document, Pool]] = field(default_factory=dict)
    queues: dict[tuple[str, str], tuple[Document, TenantQueue]] = field(default_factory=dict)
    """The tenant queues by source and name."""
    templates: list[Template] = field(default_factory=list)
    pods: list[tuple[Template, Pod]] = field(default_factory=list)
    _first: dict[tuple[str, ...], str] = field(default_factory=dict)
    """Where each object is defined first, by version, kind, namespace and name."""

    def add(self, document: Document, pods: watched_resources.WatchedResource[Any]) -> None:
        """Read a document: the object, and the pods that are made from its templates."""
        self.findings += _kind_findings(document)
        name = text_at(mapping_at(document.body, "metadata"), "name")
        first = self._first.setdefault((*document.type, document.namespace, name), document.where)
        if name and first != document.where:
            self.findings.append(Finding(document, "", f"is already defined at {first}"))
            return
        if document.type in READERS:
            events, findings = _decoded(document, READERS[document.type], _as_stored(document))
            if document.type in SCHEMAS:  # the reader quotes names, and says less of a field that the schema names
                of_schema = [*_schema_findings(document)]
                named = {_plain(finding.field) for finding in of_schema}
                findings = of_schema + [other for other in findings if _plain(other.field) not in named]
            self.findings += findings
            if not findings:
                self.events += events
                for pool in objects_of(events, Pool):
                    self.pools[pool.name] = document, pool
                for queue in objects_of(events, TenantQueue):
                    self.queues[queue.source, queue.name] = document, queue
        for template in templates(document):
            self.templates.append(template)
            events, findings = _decoded(document, pods, template.pod(), template.lead)
            self.findings += findings
            if not findings:
                self.pods += [(template, self._owned(template, pod)) for pod in objects_of(events, Pod)]

    def _owned(self, template: "Template", pod: Pod) -> Pod:
        """Return the pod with its owner, whose workload becomes known."""
        document = template.document
        owner, workloads = owner_of(
            document.kind,
            document.namespace,
            document.name,
            document.body,
            template.around,
            template.lead,
            document.where,
        )
        for workload in workloads:
            self.events.append(Seen(workload))
            if problem := workload.terms.invalid:
                refused, _, sentence = problem.partition(": ")
                self.findings.append(Finding(document, refused, sentence))
        return replace(pod, owner=owner)


def read_files(names: Iterable[str]) -> tuple[list[Document], list[Finding]]:
    """Return the documents of files, or of standard input, and what is no YAML in them; raises TyperException."""
    documents: list[Document] = []
    findings: list[Finding] = []
    for name in names:
        try:
            text = sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
        except OSError as error:
            raise usage_error(f"{name}: cannot be read: {error.strerror}") from error
        for position, body, sentence in _read(text):
            document = Document(name, position, body)
            if sentence:
                findings.append(Finding(document, "", sentence))
            else:
                documents.append(document)
    return documents, findings


def usage_error(sentence: str) -> TyperException:
    """Return the error of a wrong command line."""
    error = TyperException(sentence)
    error.exit_code = 2
    return error


def read_objects(documents: Iterable[Document]) -> Objects:
    """Read every object that the scheduler reads, and every pod and pod template."""
    objects, pods = Objects(), watched_resources.pods(SpecCache())
    for document in documents:
        objects.add(document, pods)
    return objects


def templates(document: Document) -> list[Template]:
    """Return the pod, or the pod templates, in a document."""
    if document.type == ("v1", "Pod"):
        return [Template(document, "", document.body)]
    found = _search(document.body, "", ())
    return [Template(document, f"{path}.", body, steps) for path, steps, body in found][:TEMPLATES_MAX]


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


def meant(name: str, known: Sequence[str]) -> str:
    """Return a spelling suggestion as the end of a sentence, or nothing."""
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else ""


def _read(text: bytes) -> Iterator[tuple[str, Body, str]]:
    """Yield the position and the body of each object in a file; a sentence where there is something else."""
    if len(text) > FILE_BYTES_MAX:
        yield "1", {}, f"is larger than {FILE_BYTES_MAX // 1024**2} MiB and cannot be a manifest"
        return
    number = 0
    try:
        for body in yaml.load_all(text, JsonLoader):
            number += 1
            if _size(body, {}) > VALUES_MAX:
                yield str(number), {}, f"has more than {VALUES_MAX} values"
                continue
            for position, item in _items(str(number), body):
                if isinstance(item, dict):
                    yield position, item, ""
                else:
                    yield position, {}, "is not a Kubernetes object, which is a mapping with apiVersion and kind"
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        yield str(number + 1), {}, yaml_problem(error)


def _size(value: Any, known: dict[int, int]) -> int:
    """Return the number of values with aliases written out; `known` has the values that are counted."""
    if not isinstance(value, dict | list):
        return 1
    found = known.get(id(value))
    if found is None:
        known[id(value)] = VALUES_MAX  # a value that contains itself has no end
        inner = value.values() if isinstance(value, dict) else value
        found = known[id(value)] = 1 + sum(_size(held, known) for held in inner)
    return found


def _items(position: str, body: Any) -> Iterator[tuple[str, Any]]:
    """Yield the items of a List, or else the object; an empty document yields nothing."""
    if isinstance(body, dict) and text_at(body, "kind").endswith("List") and isinstance(body.get("items"), list):
        for index, item in enumerate(body["items"]):
            yield f"{position}.items[{index}]", item
    elif body is not None:
        yield position, body


def _search(value: Any, path: str, steps: Steps) -> Iterator[tuple[str, Steps, Body]]:
    """Yield the path, the steps and the body of each pod template."""
    if len(steps) > DEPTH_MAX:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            where = f"{path}.{name}".removeprefix(".")
            if name == "template" and items_at(mapping_at(inner, "spec"), "containers"):
                yield where, (*steps, name), inner
            else:
                yield from _search(inner, where, (*steps, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _search(inner, f"{path}[{index}]", (*steps, index))


def _with_requests(holder: Any) -> Any:
    """Return a container, or the spec of a pod, whose limits count as requests where it states none."""
    resources = mapping_at(holder, "resources")
    limits, requests = mapping_at(resources, "limits"), resources.get("requests") or {}
    if not limits or not isinstance(requests, dict):
        return holder
    return {**holder, "resources": {**resources, "requests": {**limits, **requests}}}


def _as_stored(document: Document) -> Body:
    """Return an object that is no pod as the API server stores it."""
    body = {name: value for name, value in document.body.items() if name != "status" or document.type == NODE}
    status, metadata = body.get("status"), body.get("metadata")
    if isinstance(status, dict) and "capacity" in status:
        body["status"] = {"allocatable": status["capacity"], **status}
    if isinstance(metadata, dict):
        names = {"name": document.name, "namespace": document.namespace}
        body["metadata"] = {**names, **metadata, "uid": document.where, "generation": 1}
        if document.type == NAMESPACE:
            body["metadata"]["labels"] = {NAME_LABEL: document.name, **mapping_at(metadata, "labels")}
    return body


def _decoded(
    document: Document, resource: watched_resources.WatchedResource[Any], body: Body, lead: str = ""
) -> tuple[tuple[Event, ...], list[Finding]]:
    """Return the events that the scheduler makes of an object, and what its reader refuses.

    `lead` is the path of the object in the document, with a dot at the end, where the object is a template.
    """
    try:
        decoded = resource.object_decoder.decode(orjson.dumps(body))
    except TypeError as error:
        return (), [Finding(document, lead.removesuffix("."), f"cannot be written as JSON: {error}")]
    except UNREADABLE as error:
        refused, sentence = decode_finding(error)
        return (), [Finding(document, f"{lead}{refused}", sentence)]
    findings = [] if lead or document.name else [Finding(document, "metadata.name", "is missing")]
    events = resource.events(decoded)
    if problem := resource.problem(decoded) if resource.problem is not None else _invalid(events):
        refused, _, sentence = problem.partition(": ")
        findings.append(Finding(document, f"{lead}{refused}", sentence))
    return events, findings


def _invalid(events: Iterable[Event]) -> str:
    """Return what is invalid of an object; of a gang without the name of its object."""
    return next(filter(None, map(_problem, events)), "")


def _problem(event: Event) -> str:
    match event:
        case Seen(Pool() | Node() | TenantQueue() as read):
            return read.invalid
        case Seen(Pod() as pod):
            gang = pod.gang.said if pod.gang is not None else None
            of_gang = gang.invalid.partition(": ")[2] if gang is not None else ""
            return pod.spec.invalid or of_gang or (pod.terms.invalid if pod.terms is not None else "")
        case Seen(Workload() as workload):
            return workload.terms.invalid
        case Seen(Gang() as gang):
            return gang.invalid.partition(": ")[2]
        case Seen(NodeDevices() as found):
            return next(iter(found.faults), "")
        case _:
            return ""


def _kind_findings(document: Document) -> Iterator[Finding]:
    """Find a missing version or kind, and misspelt ones of the scheduler's own API."""
    version, kind = document.type
    for name, value in (("apiVersion", version), ("kind", kind)):
        if not value:
            yield Finding(document, name, "is missing")
    if version in OWN_KINDS:
        kinds = OWN_KINDS[version]
        if kind and kind not in kinds:
            known = (
                f"the kinds are {', '.join(kinds[:-1])} and {kinds[-1]}"
                if len(kinds) > 1
                else f"the kind is {kinds[0]}"
            )
            sentence = f"{quoted(kind)} is not a kind of {version}; {known}"
            yield Finding(document, "kind", sentence)
    elif GROUP in version or nearest(version, OWN_KINDS):
        near = nearest(version, OWN_KINDS) or POOL[0]
        yield Finding(document, "apiVersion", f"{quoted(version)} does not exist; did you mean {near}?")


def _schema_findings(document: Document) -> Iterator[Finding]:
    """Find the unknown fields of a Pool or a Queue, and fields of a wrong type or value; users write no status."""
    name = text_at(mapping_at(document.body, "metadata"), "name")
    if name and not can_be_pool_name(name):
        yield Finding(document, "metadata.name", f"{quoted(name)} is not the name of a {document.kind}")
    body = {key: value for key, value in document.body.items() if key != "status"}
    for path, sentence in _differences(body, schema(SCHEMAS[document.type]), ""):
        yield Finding(document, path, sentence)


def _plain(field: str) -> str:
    """Return the path of a field in one form: readers write a key in brackets and quotes, the schema after a dot."""
    return field.replace("[", ".").translate(str.maketrans("", "", "'\"]"))


def _differences(value: Any, schema: Json, path: str) -> Iterator[tuple[str, str]]:
    """Yield each field that differs from a structural schema, with a sentence; amounts are left to the readers."""
    kind = schema.get("type")
    if value is None or kind not in _TYPES:
        return
    python_type, words = _TYPES[kind]
    if not isinstance(value, python_type) or (kind == "integer" and isinstance(value, bool)):
        yield path, f"must be {words}, not {shown(value)}"
    elif kind == "object":
        for name, inner in value.items():
            inner_path = f"{path}.{name}".removeprefix(".")
            if "properties" in schema and name not in schema["properties"]:
                yield inner_path, f"is not a field{meant(str(name), tuple(schema['properties']))}"
            else:
                inner_schema = schema.get("properties", {}).get(name) or schema.get("additionalProperties", {})
                yield from _differences(inner, inner_schema, inner_path)
    elif kind == "array":
        for index, inner in enumerate(value):
            yield from _differences(inner, schema["items"], f"{path}[{index}]")
    elif value not in schema.get("enum", (value,)):
        choices = schema["enum"]
        words = " or ".join(part for part in (", ".join(choices[:-1]), choices[-1]) if part)
        yield path, f"must be {words}, not {quoted(value)}{meant(value, choices)}"
