"""The shared parts of controllers: an informer for each collection, and requests to the server."""

from msgspec import Struct, field

from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.request import Request, Response
from aischeduler.sandbox.store import Collection, Entry, StoreEvent
from aischeduler.sandbox.watches import WatchStream


class Informer(Struct):
    """Returns every write to one collection once. If history is lost, it lists the collection and compares."""

    collection: Collection
    _position: int = -1
    _known: dict[str, Entry] = field(default_factory=dict)

    def new_events(self) -> list[StoreEvent]:
        """Return the writes since the last call; the first call returns all objects as ADDED."""
        history, start = self.collection.history, self.collection.history_start
        events = self._relist() if self._position < start else history[self._position - start :]
        self._position = start + len(history)
        for event in events:
            if event.kind == "DELETED":
                self._known.pop(event.entry.key, None)
            else:
                self._known[event.entry.key] = event.entry
        return events

    def _relist(self) -> list[StoreEvent]:
        found = {entry.key: entry for entry in self.collection.in_order()}
        deleted = [
            StoreEvent("DELETED", entry, entry)
            for key, entry in self._known.items()
            if key not in found or found[key].uid != entry.uid
        ]
        changed = [entry for key, entry in found.items() if self._known.get(key) is not entry]
        return deleted + [StoreEvent("ADDED", entry, None) for entry in changed]


def send(server: ApiServer, method: str, path: str, body: JsonObject | None, now: float) -> Response:
    """Send a request as a client does, and return the response."""
    response = server.handle(Request(method, path, body=encode(body) if body is not None else b""), now)
    if isinstance(response, WatchStream):
        raise TypeError(f"{path} is a watch")
    return response


def delete_pod(server: ApiServer, pod: Entry, now: float, grace_seconds: int | None = None) -> None:
    """Delete the pod with this UID; a pod that is already gone or replaced is no error."""
    options: JsonObject = {"preconditions": {"uid": pod.uid}}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    send(server, "DELETE", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", options, now)


def earliest(*times: float | None) -> float | None:
    """Return the first of some times; None when there is none."""
    return min((time for time in times if time is not None), default=None)
