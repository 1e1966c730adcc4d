"""The controllers that delete: objects whose owner is gone, the content of namespaces, pods of missing nodes."""

from aischeduler.sandbox.api_resources import CollectionName, Resource
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.controllers.informer import Informer, delete_pod, earliest, send
from aischeduler.sandbox.deleting import FOREGROUND, ORPHAN
from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.store import Collection, Entry, is_going

POD_QUARANTINE_SECONDS = 40.0


def _resources(server: ApiServer) -> dict[str, Resource]:
    """Return one served resource for each collection, by the collection's name."""
    return {resource.collection: resource for resource in reversed(list(server.cluster.resources.all()))}


def _path(resource: Resource, entry: Entry) -> str:
    """Return the path of an object."""
    namespace = f"/namespaces/{entry.namespace}" if entry.namespace else ""
    return f"{resource.path}{namespace}/{resource.plural}/{entry.name}"


class GarbageCollector:
    """Deletes the objects that a deleted object owned, or orphans them when the deletion asks for it."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._store = server.cluster.store
        self._informers: dict[str, Informer] = {}
        self._waiting: dict[tuple[str, str], None] = {}

    def step(self, now: float) -> float | None:
        """Act on all deletions since the last step."""
        for name, collection in list(self._store.collections.items()):
            informer = self._informers.get(name)
            if informer is None or informer.collection is not collection:
                informer = self._informers[name] = Informer(collection)
            for event in informer.new_events():
                if event.kind == "DELETED":
                    self._delete_dependents(event.entry.uid, now)
                elif is_going(event.entry):
                    self._waiting[name, event.entry.key] = None
        for name, key in list(self._waiting):
            self._release(name, key, now)
        return None

    def _delete_dependents(self, uid: str, now: float) -> None:
        """Delete the objects that only this owner owns; remove the owner from other objects."""
        for collection, entry in self._store.dependents(uid):
            if len(entry.owner_uids) > 1:
                _remove_owner(collection, entry, uid)
            elif not is_going(entry):
                self._send("DELETE", collection, entry, {"preconditions": {"uid": entry.uid}}, now)

    def _release(self, name: str, key: str, now: float) -> None:
        """Remove the finalizer of the propagation policy from an object once its dependents are deleted or orphaned."""
        collection = self._store.collections.get(name)
        entry = collection.get(*key.split("/")) if collection is not None else None
        finalizers = entry.decoded()["metadata"].get("finalizers", ()) if entry is not None else ()
        if collection is None or entry is None or not {ORPHAN, FOREGROUND} & {*finalizers}:
            del self._waiting[name, key]
        elif ORPHAN in finalizers:
            for owned_in, dependent in self._store.dependents(entry.uid):
                _remove_owner(owned_in, dependent, entry.uid)
            self._remove_finalizer(collection, entry, ORPHAN, now)
        elif self._store.dependents(entry.uid):
            self._delete_dependents(entry.uid, now)
        else:
            self._remove_finalizer(collection, entry, FOREGROUND, now)

    def _remove_finalizer(self, collection: Collection, entry: Entry, finalizer: str, now: float) -> None:
        obj = entry.decoded()
        obj["metadata"]["finalizers"].remove(finalizer)
        self._send("PUT", collection, entry, obj, now)

    def _send(self, method: str, collection: Collection, entry: Entry, body: JsonObject, now: float) -> None:
        resources = _resources(self._server)
        [path] = [
            _path(resources[name], entry) for name, known in self._store.collections.items() if known is collection
        ]
        send(self._server, method, path, body, now)


def _remove_owner(collection: Collection, entry: Entry, uid: str) -> None:
    obj = entry.decoded()
    owners = [owner for owner in obj["metadata"].pop("ownerReferences") if owner["uid"] != uid]
    if owners:
        obj["metadata"]["ownerReferences"] = owners
    collection.put(obj)


class NamespaceController:
    """Deletes the content of terminating namespaces, then finalizes the namespaces."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._namespaces = server.cluster.store.collections[CollectionName.NAMESPACES]
        self._informer = Informer(self._namespaces)
        self._terminating: dict[str, None] = {}

    def step(self, now: float) -> float | None:
        """Delete the objects that are left in terminating namespaces."""
        for event in self._informer.new_events():
            if event.kind != "DELETED" and is_going(event.entry):
                self._terminating[event.entry.name] = None
        for name in list(self._terminating):
            entry = self._namespaces.get("", name)
            if entry is None:
                del self._terminating[name]
            elif self._delete_content(name, now):
                finalized = {**entry.decoded(), "spec": {}}
                send(self._server, "PUT", f"/api/v1/namespaces/{name}/finalize", finalized, now)
        return None

    def _delete_content(self, namespace: str, now: float) -> bool:
        """Delete every object of a namespace; returns whether none is left."""
        empty = True
        for name, resource in _resources(self._server).items():
            collection = self._server.cluster.store.collections[name]
            for entry in list(collection.in_order(namespace)) if resource.namespaced else ():
                if not is_going(entry):
                    send(self._server, "DELETE", _path(resource, entry), None, now)
                empty = empty and collection.get(namespace, entry.name) is None
        return empty


class PodGarbageCollector:
    """Deletes the pods of nodes that do not exist, after a quarantine."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._pods = server.cluster.store.collections[CollectionName.PODS]
        self._nodes = server.cluster.store.collections[CollectionName.NODES]
        self._informers = (Informer(self._pods), Informer(self._nodes))
        self._due: dict[str, float] = {}

    def step(self, now: float) -> float | None:
        """Start the quarantine of missing nodes; delete their pods at its end."""
        pod_events, node_events = (informer.new_events() for informer in self._informers)
        names = [event.entry.fields.get("spec.nodeName", "") for event in pod_events]
        names += [event.entry.name for event in node_events]
        for name in dict.fromkeys(filter(None, names)):
            if self._nodes.get("", name) is not None:
                self._due.pop(name, None)
            elif self._pods.with_field(name):
                self._due.setdefault(name, now + POD_QUARANTINE_SECONDS)
        for name in [name for name, due in self._due.items() if due <= now]:
            del self._due[name]
            for pod in self._pods.with_field(name):
                delete_pod(self._server, pod, now, 0)
        return earliest(*self._due.values())
