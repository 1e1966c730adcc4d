"""An API server for scenarios, in process or real: requests, watches, restarts, and time that passes.

Invariants:
- A `Transport` sends requests and lets time pass; it does not interpret documents.
- A `World` is a transport and a namespace of its own, so that scenarios share a server without conflict.
- Nothing here depends on the kind of the transport.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

Json = dict[str, Any]
T = TypeVar("T")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

PATIENCE_SECONDS = 30.0
"""How long a scenario waits for an expected result."""

SETTLE_SECONDS = 0.1
"""How much time passes in one `settle`."""

PLACES: Mapping[str, tuple[str, str]] = {
    "CSINode": ("/apis/storage.k8s.io/v1", "csinodes"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Event": ("/apis/events.k8s.io/v1", "events"),
    "Job": ("/apis/batch/v1", "jobs"),
    "JobSet": ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "Namespace": ("/api/v1", "namespaces"),
    "Node": ("/api/v1", "nodes"),
    "PersistentVolume": ("/api/v1", "persistentvolumes"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "Pod": ("/api/v1", "pods"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "PodGroup.scheduling.volcano.sh": ("/apis/scheduling.volcano.sh/v1beta1", "podgroups"),
    "PodGroup.scheduling.x-k8s.io": ("/apis/scheduling.x-k8s.io/v1alpha1", "podgroups"),
    "Pool": ("/apis/resource.aibee.cn/v1alpha1", "pools"),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1", "priorityclasses"),
    "Queue": ("/apis/resource.aibee.cn/v1alpha1", "queues"),
    "Queue.scheduling.volcano.sh": ("/apis/scheduling.volcano.sh/v1beta1", "queues"),
    "Service": ("/api/v1", "services"),
    "StorageClass": ("/apis/storage.k8s.io/v1", "storageclasses"),
}

CLUSTER_SCOPED = (
    "CSINode",
    "Namespace",
    "Node",
    "PersistentVolume",
    "Pool",
    "PriorityClass",
    "Queue",
    "Queue.scheduling.volcano.sh",
    "StorageClass",
)


def kind_of(document: Json) -> str:
    """Return the kind of an object as `PLACES` has it: with the API group where several groups have the kind."""
    full = f"{document['kind']}.{document['apiVersion'].partition('/')[0]}"
    return full if full in PLACES else str(document["kind"])


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: the HTTP status, the document, and the number of Retry-After."""

    status: int
    body: Json
    retry_after_seconds: int = 0

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def cause_fields(self) -> list[str]:
        """Return the field paths that a refusal names."""
        return [cause.get("field", "") for cause in self.body.get("details", {}).get("causes", [])]

    @property
    def items(self) -> list[Json]:
        """Return the objects of a list."""
        found: list[Json] = self.body["items"]
        return found

    @property
    def names(self) -> list[str]:
        """Return the names of a list's objects, in their order."""
        return [item["metadata"]["name"] for item in self.items]


class Stream(Protocol):
    """One running watch."""

    def next(self, seconds: float) -> Json | None:
        """Return the next event; None if none comes within this time or the stream has ended."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the server has closed the stream."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    url: str
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON


class Transport(Protocol):
    """A transport to one API server."""

    def request(self, call: Call) -> Answer: ...

    def watch(self, url: str) -> Stream: ...

    def restart(self) -> None:
        """Restart the server with its stored objects."""
        ...

    def settle(self) -> None:
        """Let a little time pass in which controllers act."""
        ...

    def close(self) -> None: ...


class Watch:
    """A watch and the events that were read from it so far."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.events: list[Json] = []

    def until(self, kind: str, name: str = "", seconds: float = PATIENCE_SECONDS) -> Json:
        """Read until the next event of this type (about the object of this name), and return its object."""
        while event := self._stream.next(seconds):
            self.events.append(event)
            shown: Json = event["object"]
            if event["type"] == kind and name in ("", shown["metadata"].get("name")):
                return shown
        seen = [(event["type"], event["object"].get("metadata", {}).get("name")) for event in self.events]
        raise AssertionError(f"no {kind} event about {name or 'anything'} within {seconds} s; seen: {seen}")

    def until_end(self) -> None:
        """Read until the server closes the stream."""
        while event := self._stream.next(PATIENCE_SECONDS):
            self.events.append(event)
        assert self._stream.ended

    def kinds_of(self, name: str) -> list[str]:
        """Return the types of the events about one object that were read so far."""
        return [event["type"] for event in self.events if event["object"]["metadata"].get("name") == name]

    def close(self) -> None:
        self._stream.close()


class World:
    """An API server with a namespace that no other scenario uses."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self._transport = transport
        self.namespace = namespace
        self._watches: list[Watch] = []

    def named(self, name: str) -> str:
        """Return a name for a cluster-scoped object that no other scenario uses."""
        return f"{self.namespace}-{name}"

    def send(self, call: Call) -> Answer:
        """Send one request as it is."""
        return self._transport.request(call)

    def url(self, kind: str, name: str = "", subresource: str = "", **query: str) -> str:
        """Return the URL of an object of this scenario, or without a name of the collection."""
        prefix, plural = PLACES[kind]
        middle = "" if kind in CLUSTER_SCOPED else f"/namespaces/{self.namespace}"
        path = "/".join(filter(None, (f"{prefix}{middle}/{plural}", name, subresource)))
        return f"{path}?{urlencode(query)}" if query else path

    def try_create(self, document: Json, **query: str) -> Answer:
        """POST an object and return the answer, a refusal too."""
        return self.post(self.url(document["kind"], **query), document)

    def post(self, url: str, document: Any) -> Answer:
        """POST to a URL of `url`."""
        return self.send(Call("POST", url, encode(document)))

    def create(self, document: Json, **query: str) -> Json:
        """POST a valid object, and return it as stored."""
        answer = self.try_create(document, **query)
        assert answer.status == 201, answer
        return answer.body

    def try_get(self, kind: str, name: str) -> Answer:
        return self.send(Call("GET", self.url(kind, name)))

    def get(self, kind: str, name: str) -> Json:
        answer = self.try_get(kind, name)
        assert answer.status == 200, answer
        return answer.body

    def listed(self, kind: str, **query: str) -> Answer:
        """GET the collection of this scenario's namespace, or of a cluster-scoped kind."""
        return self.send(Call("GET", self.url(kind, **query)))

    def names(self, kind: str, **query: str) -> list[str]:
        """Return the names of the existing objects, in the order of the list."""
        answer = self.listed(kind, **query)
        assert answer.status == 200, answer
        return answer.names

    def try_replace(self, document: Json, subresource: str = "") -> Answer:
        """PUT a whole object."""
        url = self.url(document["kind"], document["metadata"]["name"], subresource)
        return self.send(Call("PUT", url, encode(document)))

    def replace(self, document: Json, subresource: str = "") -> Json:
        answer = self.try_replace(document, subresource)
        assert answer.status == 200, answer
        return answer.body

    def try_patch(self, url: str, change: Any, content_type: str = MERGE_PATCH) -> Answer:
        """PATCH the object at a URL of `url`."""
        return self.send(Call("PATCH", url, encode(change), content_type))

    def patch(self, url: str, change: Any, content_type: str = MERGE_PATCH) -> Json:
        answer = self.try_patch(url, change, content_type)
        assert answer.status == 200, answer
        return answer.body

    def try_delete(self, kind: str, name: str, options: Json | None = None) -> Answer:
        """DELETE an object with these options."""
        body = encode(options) if options is not None else b""
        return self.send(Call("DELETE", self.url(kind, name), body))

    def delete(self, kind: str, name: str, options: Json | None = None) -> Json:
        answer = self.try_delete(kind, name, options)
        assert answer.status == 200, answer
        return answer.body

    def bind(self, binding: Json) -> Answer:
        """POST a Binding to the pod of its name."""
        return self.post(self.url("Pod", binding["metadata"]["name"], "binding"), binding)

    def evict(self, eviction: Json) -> Answer:
        """POST an Eviction to the pod of its name."""
        return self.post(self.url("Pod", eviction["metadata"]["name"], "eviction"), eviction)

    def watch(self, kind: str, **query: str) -> Watch:
        """Start a watch of this scenario's collection; it is closed when the scenario ends."""
        watch = Watch(self._transport.watch(self.url(kind, watch="true", **query)))
        self._watches.append(watch)
        return watch

    def until(self, look: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
        """Call `look` while time passes, until it returns a value."""
        turns = int(seconds / SETTLE_SECONDS)
        for _ in range(turns):
            if found := look():
                return found
            self._transport.settle()
        raise AssertionError(f"did not come within {seconds} s; the last value is {look()!r}")

    def restart(self) -> None:
        """Restart the server."""
        self._transport.restart()

    def close(self) -> None:
        for watch in self._watches:
            watch.close()


def encode(document: Any) -> bytes:
    """Return a document as request body."""
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def condition(document: Json, kind: str) -> Json:
    """Return the condition of this type; an empty one when it is absent."""
    for one in document.get("status", {}).get("conditions") or ():
        if one["type"] == kind:
            found: Json = one
            return found
    return {}


def revision(document: Json) -> int:
    """Return an object's (or a list's) resource version, which is a number without a leading zero."""
    text = document["metadata"]["resourceVersion"]
    assert re.fullmatch(r"[1-9][0-9]*", text), text
    return int(text)
