"""The API server as a pure object: requests in, answers out, and time as an argument.

Laws: no clock, no socket, no chance; the same requests at the same times give the same bytes. `restart` is what a
restart of a real server looks like from outside: watches end, history is gone, objects stay.
"""

from dataclasses import dataclass

from aischeduler.sandbox.binding import bind
from aischeduler.sandbox.call import Call, Cluster
from aischeduler.sandbox.clusterkinds import SYSTEM_PRIORITIES
from aischeduler.sandbox.deleting import delete, delete_collection
from aischeduler.sandbox.documents import document
from aischeduler.sandbox.eviction import evict
from aischeduler.sandbox.kinds import INDEXED_FIELD, Kinds, fields_reader
from aischeduler.sandbox.objects import Ids, encode
from aischeduler.sandbox.protocol import JSON, Request, Response
from aischeduler.sandbox.reading import get, list_or_watch
from aischeduler.sandbox.scale import scale
from aischeduler.sandbox.status import Refusal, method_not_allowed, no_such_path
from aischeduler.sandbox.store import HISTORY_EVENTS, Store
from aischeduler.sandbox.watches import WatchStream
from aischeduler.sandbox.writing import create, finalize, patch, replace

FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


@dataclass(frozen=True, slots=True)
class Options:
    """How a server is made: the seed of its identities and how many events each kind remembers."""

    seed: int = 0
    history_events: int = HISTORY_EVENTS


class ApiServer:
    """A Kubernetes API server in memory."""

    def __init__(self, options: Options | None = None, now: float = 0.0) -> None:
        options = options or Options()
        self.cluster = Cluster(Store(options.history_events), Kinds(), Ids(options.seed))
        for name in sorted({resource.collection for resource in self.cluster.kinds.all()}):
            fields = self.cluster.kinds.stored_fields(name)
            self.cluster.store.add_collection(name, fields_reader(fields), INDEXED_FIELD.get(name))
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
        except Refusal as refusal:
            wait = refusal.status.get("details", {}).get("retryAfterSeconds", 0)
            return Response(refusal.code, encode(refusal.status), JSON, wait)

    def restart(self) -> None:
        """End all watches and forget their history, as a restart of a real server does."""
        for collection in self.cluster.store.collections.values():
            collection.end_watches()
            collection.forget_history()

    def _route(self, request: Request, now: float) -> Response | WatchStream:
        call = self._call(request, now)
        if call is None:
            answer = document(self.cluster.kinds, request)
            if answer is None:
                raise no_such_path()
            return answer
        call.refuse_bad_options(request.method)
        if call.subresource not in {"", "status"}:
            return self._subresource(call, request.method)
        match request.method, bool(call.name):
            case "GET", True:
                return get(call)
            case "GET", False:
                return list_or_watch(call)
            case "POST", False if call.namespace or not call.resource.namespaced:
                return create(call)
            case "PUT", True:
                return replace(call)
            case "PATCH", True:
                return patch(call)
            case "DELETE", True if not call.subresource:
                return delete(call)
            case "DELETE", False:
                return delete_collection(call)
            case _:
                raise method_not_allowed()

    @staticmethod
    def _subresource(call: Call, method: str) -> Response:
        match call.resource.plural, call.subresource, method:
            case "pods", "binding", "POST":
                return bind(call)
            case "pods", "eviction", "POST":
                return evict(call)
            case _, "scale", _:
                return scale(call, method)
            case "namespaces", "finalize", "PUT":
                return finalize(call)
            case _:
                raise method_not_allowed()

    def _call(self, request: Request, now: float) -> Call | None:
        """Return what a resource path is about: /api/v1/… or /apis/GROUP/VERSION/…."""
        steps = request.path.strip("/").split("/")
        match steps:
            case ["api", version, *rest] if rest:
                group = ""
            case ["apis", group, version, *rest] if rest:
                pass
            case _:
                return None
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
            namespace, rest = rest[1], rest[2:]
        resource = self.cluster.kinds.find(group, version, rest[0])
        if resource is None or len(rest) > 3:
            return None
        name, subresource = [*rest[1:], "", ""][:2]
        if subresource and subresource not in resource.subresources:
            return None
        if (namespace and not resource.namespaced) or (name and resource.namespaced and not namespace):
            return None
        return Call(
            self.cluster,
            resource,
            now,
            namespace,
            name,
            subresource,
            request.query,
            request.accept,
            request.content_type,
            request.body,
        )
