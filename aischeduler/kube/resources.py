"""What is watched: pods, nodes and Pools, and how each turns into events.

Laws:
- A document becomes one event; an object that left becomes one event.
- A store's key is namespace and name; the uid tells one life of a name from the next.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from aischeduler.kube.decode import read_node, read_pod, read_pool
from aischeduler.kube.documents import Line, Metadata, NodeDocument, PodDocument, PoolDocument
from aischeduler.kube.podspec import SpecCache
from aischeduler.model.events import Event, NodeGone, NodeSeen, PodGone, PodSeen, PoolGone, PoolSeen
from aischeduler.model.names import GROUP, VERSION

UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Finished pods use nothing; the server leaves them out."""


class Document(Protocol):
    """An API object as far as it was read."""

    @property
    def metadata(self) -> Metadata:
        """Its name, uid and version."""


D = TypeVar("D", bound=Document)


@dataclass(frozen=True, slots=True)
class Resource(Generic[D]):
    """One kind of objects to list and watch.

    `seen` turns a document into an event, `gone` a name and a uid. Where an `optional` resource is not served,
    there are none of its objects.
    """

    kind: str
    path: str
    line: msgspec.json.Decoder[Line[D]]
    document: msgspec.json.Decoder[D]
    seen: Callable[[D], Event]
    gone: Callable[[str, str], Event]
    selector: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that could not be read at all, as far as it says who it is."""

    kind: str
    namespace: str
    name: str
    uid: str
    message: str


@dataclass(slots=True)
class Counts:
    """What a reflector met; it only grows."""

    events: int = 0
    lists: int = 0
    watches: int = 0
    failures: int = 0
    old_events: int = 0
    unreadable_objects: int = 0
    unreadable_lines: int = 0
    unknown_events: int = 0
    older_lists: int = 0
    recreated: int = 0
    found_gone: int = 0
    last_failure: str = field(default="")


def pods(specs: SpecCache) -> Resource[PodDocument]:
    """All unfinished pods, whoever schedules them: every one of them uses its node."""
    return Resource(
        kind="Pod",
        path="/api/v1/pods",
        line=msgspec.json.Decoder(Line[PodDocument]),
        document=msgspec.json.Decoder(PodDocument),
        seen=lambda document: PodSeen(read_pod(document, specs)),
        gone=lambda _name, uid: PodGone(uid),
        selector=UNFINISHED,
    )


def nodes() -> Resource[NodeDocument]:
    """All nodes."""
    return Resource(
        kind="Node",
        path="/api/v1/nodes",
        line=msgspec.json.Decoder(Line[NodeDocument]),
        document=msgspec.json.Decoder(NodeDocument),
        seen=lambda document: NodeSeen(read_node(document)),
        gone=lambda name, _uid: NodeGone(name),
    )


def pools() -> Resource[PoolDocument]:
    """All Pools; before the resource is defined there are none."""
    return Resource(
        kind="Pool",
        path=f"/apis/{GROUP}/{VERSION}/pools",
        line=msgspec.json.Decoder(Line[PoolDocument]),
        document=msgspec.json.Decoder(PoolDocument),
        seen=lambda document: PoolSeen(read_pool(document)),
        gone=lambda name, _uid: PoolGone(name),
        optional=True,
    )
