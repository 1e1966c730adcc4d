"""Events as they stand in journals and snapshots: a name, and the fields of the event."""

from typing import Any, Final, get_args

import msgspec
from msgspec.structs import astuple

from aischeduler.model.device import NodeDevices
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import Event, Gone, Refreshed, RefreshFailed, Seen
from aischeduler.model.gang import Gang, GangKey
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pod_set import PodSet
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.storage_objects import StorageObject
from aischeduler.model.tenant_queue import TenantQueue
from aischeduler.model.volumes import Volume, VolumeClaim
from aischeduler.model.workload import Workload

_FIELDS: Final[dict[type, tuple[str, str, tuple[str, ...]]]] = {
    Pod: ("Pod", "pod", ("uid",)),
    Node: ("Node", "node", ("name",)),
    Pool: ("Pool", "pool", ("name",)),
    DisruptionBudget: ("Budget", "budget", ("namespace", "name")),
    Namespace: ("Namespace", "", ("name",)),
    VolumeClaim: ("VolumeClaim", "claim", ("namespace", "name")),
    Volume: ("Volume", "volume", ("name",)),
    PodSet: ("PodSet", "pod_set", ("kind", "namespace", "name")),
    Gang: ("Gang", "gang", ()),
    TenantQueue: ("TenantQueue", "queue", ("source", "name")),
    Workload: ("Workload", "workload", ("kind", "namespace", "name")),
    NodeDevices: ("Devices", "devices", ("node",)),
}
"""Type -> the begin of the names of its events, the field of the object, and those of the key."""
_STORAGE: Final = frozenset(kind.__name__ for kind in get_args(StorageObject))


def as_line(event: Event) -> tuple[str, Any]:
    """Return the name of an event, and what is written of it."""
    match event:
        case Seen(seen) if type(seen) in _FIELDS:
            name, field, _ = _FIELDS[type(seen)]
            return f"{name}Seen", {field: seen} if field else seen
        case Seen(seen):
            return "StorageSeen", {"object": seen}
        case Gone("Gang", (source, namespace, name)):
            return "GangGone", {"key": {"source": source, "namespace": namespace, "name": name}}
        case Gone(kind, (namespace, name)) if kind in _STORAGE:
            return "StorageGone", {"kind": kind, "name": name, "namespace": namespace}
        case Gone(kind, key):
            name, fields = next((said[0], said[2]) for of, said in _FIELDS.items() if of.__name__ == kind)
            return f"{name}Gone", dict(zip(fields, key, strict=True))
        case _:
            return type(event).__name__, event


def read_event(name: str, line: msgspec.Raw) -> Event:
    """Return the event of this name; raises KeyError for an unknown name, and msgspec's errors."""
    if name in _OF_THE_PAST:
        return _OF_THE_PAST[name]
    told = _DECODERS[name].decode(line)
    if isinstance(told, get_args(Event)):
        return told  # type: ignore[no-any-return]
    if isinstance(told, Namespace):
        return Seen(told)
    values = astuple(told)
    if name.endswith("Seen"):
        return Seen(values[0])
    match name:
        case "GangGone":
            return Gone("Gang", tuple(str(part) for part in astuple(values[0])))
        case "StorageGone":
            return Gone(values[0], (values[2], values[1]))
        case _:
            kind = next(of for of, said in _FIELDS.items() if f"{said[0]}Gone" == name)
            return Gone(kind.__name__, values)


_OF_THE_PAST: Final[dict[str, Event]] = {
    "PoolRead": Refreshed(""),
    "PoolsListed": Refreshed(""),
    "PoolUnread": RefreshFailed("", "the Pool could not be read"),
}
"""Events of older journals, whose engines asked for one Pool or for all of them in words of their own."""


def _decoders() -> dict[str, msgspec.json.Decoder[Any]]:
    found: dict[str, Any] = {kind.__name__: kind for kind in get_args(Event) if kind not in (Seen, Gone)}
    for of, (name, field, key) in _FIELDS.items():
        found[f"{name}Seen"] = msgspec.defstruct("_Seen", [(field, of)]) if field else of
        found[f"{name}Gone"] = msgspec.defstruct("_Gone", [(part, str) for part in key] or [("key", GangKey)])
    found["StorageSeen"] = msgspec.defstruct("_Seen", [("object", StorageObject)])
    found["StorageGone"] = msgspec.defstruct("_Gone", [("kind", str), ("name", str), ("namespace", str, "")])
    return {name: msgspec.json.Decoder(of) for name, of in found.items()}


_DECODERS: Final = _decoders()
"""Name of an event -> the decoder of its fields."""
