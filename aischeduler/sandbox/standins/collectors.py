"""What clears away: objects whose owner is gone, the content of deleted namespaces, pods on nodes that do not exist."""

from aischeduler.sandbox.api_resources import CollectionName, Resource
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.deleting import FOREGROUND, ORPHAN
from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.standins.following import Follower, delete_pod, earliest, send
from aischeduler.sandbox.store import Collection, Entry, is_going


def _places(server: ApiServer) -> dict[str, Resource]:
    """Return one resource for each collection."""
    found: dict[str, Resource] = {}
    for resource in server.cluster.resources.all():
        found.setdefault(resource.collection, resource)
    return found


def path_of(resource: Resource, entry: Entry) -> str:
    """Return where an object is served."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    space = f"/namespaces/{entry.namespace}" if entry.namespace else ""
    return f"{root}{space}/{resource.plural}/{entry.name}"


class GarbageCollector:
    """Deletes what a deleted object owned; orphans or waits where the deletion asked for that."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._followers: dict[str, Follower] = {}
        self._waiting: dict[tuple[str, str], None] = {}

    def step(self, now: float) -> float | None:
        """Follow up all deletions since the last step."""
        places = _places(self._server)
        for name, collection in list(self._server.cluster.store.collections.items()):
            follower = self._followers.get(name)
            if follower is None or follower.collection is not collection:
                follower = self._followers[name] = Follower(collection)
            for event in follower.take():
                if event.kind == "DELETED":
                    self._owner_gone(event.entry.uid, places, now)
                elif is_going(event.entry):
                    self._waiting[name, event.entry.key] = None
        for name, key in list(self._waiting):
            self._look_after(name, key, places, now)
        return None

    def _dependents(self, uid: str) -> list[tuple[str, Collection, Entry]]:
        names = {id(one): name for name, one in self._server.cluster.store.collections.items()}
        found = self._server.cluster.store.dependents(uid)
        return [(names[id(collection)], collection, entry) for collection, entry in found]

    def _owner_gone(self, uid: str, places: dict[str, Resource], now: float) -> None:
        for name, collection, entry in self._dependents(uid):
            if len(entry.owner_uids) > 1:
                self._disown(collection, entry, uid)
            else:
                options = {"propagationPolicy": "Background", "preconditions": {"uid": entry.uid}}
                send(self._server, "DELETE", path_of(places[name], entry), options, now)

    @staticmethod
    def _disown(collection: Collection, entry: Entry, uid: str) -> None:
        obj = entry.decoded()
        owners = [one for one in obj["metadata"]["ownerReferences"] if one["uid"] != uid]
        obj["metadata"].pop("ownerReferences")
        if owners:
            obj["metadata"]["ownerReferences"] = owners
        collection.put(obj)

    def _look_after(self, name: str, key: str, places: dict[str, Resource], now: float) -> None:
        collection = self._server.cluster.store.collections.get(name)
        namespace, _, object_name = key.partition("/")
        entry = collection.get(namespace, object_name) if collection is not None else None
        if collection is None or entry is None:
            del self._waiting[name, key]
            return
        obj = entry.decoded()
        finalizers = obj["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            for _, place, dependent in self._dependents(entry.uid):
                self._disown(place, dependent, entry.uid)
            self._drop_finalizer(path_of(places[name], entry), obj, ORPHAN, now)
        elif FOREGROUND in finalizers:
            left = self._dependents(entry.uid)
            for place_name, _, dependent in left:
                if not is_going(dependent):
                    options = {"propagationPolicy": "Foreground"}
                    send(self._server, "DELETE", path_of(places[place_name], dependent), options, now)
            if not left:
                self._drop_finalizer(path_of(places[name], entry), obj, FOREGROUND, now)
        else:
            del self._waiting[name, key]

    def _drop_finalizer(self, path: str, obj: JsonObject, finalizer: str, now: float) -> None:
        obj["metadata"]["finalizers"] = [one for one in obj["metadata"]["finalizers"] if one != finalizer]
        send(self._server, "PUT", path, obj, now)


class NamespaceController:
    """Empties namespaces that are being deleted, then lets them go."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._namespaces = server.cluster.store.collections[CollectionName.NAMESPACES]
        self._follower = Follower(self._namespaces)
        self._ending: dict[str, None] = {}

    def step(self, now: float) -> float | None:
        """Delete what is left in namespaces that are to go."""
        for event in self._follower.take():
            if event.kind != "DELETED" and is_going(event.entry):
                self._ending[event.entry.name] = None
        for name in list(self._ending):
            entry = self._namespaces.get("", name)
            if entry is None:
                del self._ending[name]
            elif not self._empty(name, now):
                obj = entry.decoded()
                obj["spec"] = {}
                send(self._server, "PUT", f"/api/v1/namespaces/{name}/finalize", obj, now)
        return None

    def _empty(self, namespace: str, now: float) -> bool:
        """Delete everything in a namespace; says whether anything is left."""
        left = False
        for name, resource in _places(self._server).items():
            if not resource.namespaced:
                continue
            collection = self._server.cluster.store.collections[name]
            for entry in list(collection.in_order(namespace)):
                if not is_going(entry):
                    send(self._server, "DELETE", path_of(resource, entry), None, now)
                left = left or collection.get(namespace, entry.name) is not None
        return left


class PodCollector:
    """Deletes pods on nodes that do not exist, after a quarantine, as the real pod garbage collector does."""

    def __init__(self, server: ApiServer, quarantine_seconds: float = 40.0) -> None:
        self._server = server
        self._quarantine_seconds = quarantine_seconds
        self._pods = server.cluster.store.collections[CollectionName.PODS]
        self._nodes = server.cluster.store.collections[CollectionName.NODES]
        self._followers = (Follower(self._pods), Follower(self._nodes))
        self._lost: dict[str, float] = {}

    def step(self, now: float) -> float | None:
        """Note nodes that are missing; delete their pods when the quarantine is over."""
        pod_events, node_events = (follower.take() for follower in self._followers)
        names = [event.entry.fields.get("spec.nodeName", "") for event in pod_events]
        names += [event.entry.name for event in node_events]
        for name in dict.fromkeys(filter(None, names)):
            if self._nodes.get("", name) is not None:
                self._lost.pop(name, None)
            elif self._pods.with_field(name):
                self._lost.setdefault(name, now + self._quarantine_seconds)
        for name in [name for name, at in self._lost.items() if at <= now]:
            del self._lost[name]
            for pod in self._pods.with_field(name):
                delete_pod(self._server, pod, now, 0)
        return earliest(*self._lost.values())
