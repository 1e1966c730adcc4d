"""The API server as an object without a socket and a clock: requests in, answers out, time as an argument.

Invariant: no clock, no socket, no randomness; the same requests at the same times give the same bytes.
"""

from collections.abc import Callable
from typing import Final

import orjson
from msgspec import Struct

from aischeduler.sandbox.api_resources import INDEXED_FIELD, ResourceRegistry, built_in, fields_reader
from aischeduler.sandbox.deleting import delete
from aischeduler.sandbox.discovery import server_document
from aischeduler.sandbox.objects import Ids, encode
from aischeduler.sandbox.pod_subresources import bind, evict
from aischeduler.sandbox.reading import TRUE, get, list_objects, watch
from aischeduler.sandbox.request import Call, Cluster, Request, Response
from aischeduler.sandbox.status_errors import Refusal, bad_request, failure
from aischeduler.sandbox.store import HISTORY_EVENTS, Collection, Store
from aischeduler.sandbox.strategies import SYSTEM_PRIORITIES
from aischeduler.sandbox.watches import WatchStream
from aischeduler.sandbox.writing import create, patch, replace

_ANSWERS: Final[dict[tuple[str, str, bool], Callable[[Call], Response]]] = {
    ("GET", "", False): list_objects,
    ("GET", "", True): get,
    ("POST", "", False): create,
    ("PUT", "", True): replace,
    ("PATCH", "", True): patch,
    ("DELETE", "", True): delete,
    ("POST", "binding", True): bind,
    ("POST", "eviction", True): evict,
    ("PUT", "finalize", True): replace,
}
"""The handlers by method, subresource (the status is handled like its object), and whether the path has a name."""
FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class Options(Struct, frozen=True):
    """The options of a server: the seed of its UIDs, and how many events each collection remembers."""

    seed: int = 0
    history_events: int = HISTORY_EVENTS


class ApiServer:
    """A Kubernetes API server in memory."""

    def __init__(self, options: Options | None = None, now: float = 0.0) -> None:
        options = options or Options()
        self.cluster = Cluster(Store(options.history_events), ResourceRegistry(), Ids(options.seed))
        for resource in built_in():
            name, reader = resource.collection, fields_reader(resource.selectable.values())
            collection = Collection(self.cluster.store, reader, INDEXED_FIELD.get(name))
            self.cluster.store.collections.setdefault(name, collection)
        for name in FIRST_NAMESPACES:
            body = encode({"metadata": {"name": name}})
            self.handle(Request("POST", "/api/v1/namespaces", body=body), now)
        for name, value in SYSTEM_PRIORITIES.items():
            body = encode({"metadata": {"name": name}, "value": value})
            self.handle(Request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body=body), now)

    def handle(self, request: Request, now: float) -> Response | WatchStream:
        """Answer one request at unix time `now`; failures are answers too."""
        try:
            return self._route(request, now)
        except Refusal as error:
            refusal = error
        except (RecursionError, orjson.JSONEncodeError):
            refusal = bad_request("the object is nested too deeply")
        wait = refusal.status.get("details", {}).get("retryAfterSeconds", 0)
        return Response(refusal.code, encode(refusal.status), retry_after_seconds=wait)

    def restart(self) -> None:
        """End all watches and forget their history, as a restart of a real server does; objects stay."""
        for collection in self.cluster.store.collections.values():
            collection.end_watches()
            collection.forget_history()

    def _route(self, request: Request, now: float) -> Response | WatchStream:
        call = self._call(request, now)
        if call is None:
            document = server_document(self.cluster.resources, request.path)
            if document is None:
                raise failure(404, "the server could not find the requested resource")
            return document
        if call.query.get("dryRun"):
            raise bad_request("the sandbox has no server-side dry run")
        if request.method == "GET" and not call.name and call.query.get("watch") in TRUE:
            return watch(call)
        answer = _ANSWERS.get((request.method, call.subresource.removesuffix("status"), bool(call.name)))
        if answer is None or (request.method == "DELETE" and call.subresource):
            raise failure(405, "the server does not allow this method on the requested resource")
        return answer(call)

    def _call(self, request: Request, now: float) -> Call | None:
        """Return the resource request of a path /api/v1/… or /apis/GROUP/VERSION/…; None for other paths."""
        match request.path.strip("/").split("/"):
            case ["api", version, *rest] if rest:
                group = ""
            case ["apis", group, version, *rest] if rest:
                pass
            case _:
                return None
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
            namespace, rest = rest[1], rest[2:]
        resource = self.cluster.resources.find(group, version, rest[0])
        name, subresource = [*rest[1:], "", ""][:2]
        if resource is None or len(rest) > 3 or (subresource and subresource not in resource.subresources):
            return None
        lacks_namespace = resource.namespaced and not namespace and (name or request.method == "POST")
        if lacks_namespace or (namespace and not resource.namespaced):
            return None
        return Call(self.cluster, resource, now, request, namespace, name, subresource)
