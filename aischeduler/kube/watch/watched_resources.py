"""The watched resources: path, decoders and events of pods, nodes, Pools, budgets and namespaces.

Invariants:
- An observed object gives one event, and so does a deleted one; one that is a workload too gives another one of that.
- Objects are known by namespace and name; the uid distinguishes two objects of the same name.
"""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from aischeduler.kube.decode.api_types import (
    BudgetDocument,
    NamespaceDocument,
    NodeDocument,
    PodDocument,
    PoolDocument,
)
from aischeduler.kube.decode.meta_types import UNREADABLE, Metadata, Page, RawWatchEvent, WatchEvent, read_status
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.pods import (
    budget_problem,
    read_budget,
    read_namespace,
    read_node,
    read_pod,
)
from aischeduler.kube.decode.pool import read_pool
from aischeduler.kube.http.backoff import RandomSource
from aischeduler.kube.http.errors import MalformedAnswerError, RefusedError
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import (
    Event,
    Seen,
    gone,
)
from aischeduler.model.names import GROUP, VERSION
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.workload import Workload

UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Finished pods use no resources; the server leaves them out."""
WATCH_SECONDS_MIN: Final = 300.0
"""The shortest timeout of a watch; the actual one is random, up to twice as long."""
RARE_WATCH_SECONDS_MAX: Final = 60.0
"""The longest timeout of a watch of a resource that rarely changes: without changes the server may send no bookmark."""


class ApiObject(Protocol):
    """A decoded API object."""

    @property
    def metadata(self) -> Metadata:
        """Name, uid and resource version."""


D = TypeVar("D", bound=ApiObject)


class WatchedResource(Struct, Generic[D], frozen=True):
    """A resource to list and watch.

    `kind` is unique; after a dot follows the group where several have the kind. `seen_event` converts an object to an
    event, `gone_event` gets namespace, name and uid; None tells the engine nothing. `workload` is what the object is
    beside that: the engine hears of it first, and only what differs from before. `others` are events about other
    objects that an object changes. `on_seen`, and `on_gone` with namespace and name, observe each object right before
    the engine. All six are called in the order of what happened.
    `problem` says which part of an object could not be decoded; empty if none. `on_served` hears after each list if the
    resource is served, and may be listed; it may have an event for the engine. An `optional` resource that is not
    served has no objects. Without a resource that is not `needed` the scheduler decides, also if it may not list it.
    A resource that `rarely_changes` may have no event for days; most updates of an `often_unchanged` one change nothing
    for the engine.
    """

    kind: str
    path: str
    watch_event_decoder: msgspec.json.Decoder[WatchEvent[D]]
    page_decoder: msgspec.json.Decoder[Page[D]]
    object_decoder: msgspec.json.Decoder[D]
    seen_event: Callable[[D], Event | None]
    gone_event: Callable[[str, str, str], Event | None]
    workload: Callable[[D], Workload] | None = None
    others: Callable[[D], tuple[Event, ...]] | None = None
    on_seen: Callable[[D], None] | None = None
    on_gone: Callable[[str, str], None] | None = None
    problem: Callable[[D], str] | None = None
    on_served: Callable[[bool], Event | None] | None = None
    field_selector: str = ""
    optional: bool = False
    needed: bool = True
    rarely_changes: bool = False
    often_unchanged: bool = False

    def read(self, body: bytes | msgspec.Raw) -> tuple[Event, ...]:
        """Return what the engine is told of an object that the server sent; raises what is in `UNREADABLE`."""
        return self.events(self.object_decoder.decode(body))

    def events(self, document: D) -> tuple[Event, ...]:
        """Return what the engine is told of an object that is new."""
        workload = (Seen(self.workload(document)),) if self.workload is not None else ()
        event = self.seen_event(document)
        others = self.others(document) if self.others is not None else ()
        return (*workload, event, *others) if event is not None else (*workload, *others)

    def listed(self, *, served: bool) -> tuple[Event, ...]:
        """Return what the engine is told after a list that found objects, or that the resource is not served."""
        event = self.on_served(served) if self.on_served is not None else None
        return (event,) if event is not None else ()

    def watch_query(self, version: str, chance: RandomSource) -> dict[str, str]:
        """Return the query of a watch from this version on, with a random timeout."""
        share = chance.random()
        seconds = WATCH_SECONDS_MIN * (1 + share)
        if self.rarely_changes:
            seconds = RARE_WATCH_SECONDS_MAX * (1 - share / 4)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(int(seconds)),
        }
        if self.field_selector:
            query["fieldSelector"] = self.field_selector
        return query


class UnreadableObject(Struct, frozen=True):
    """An object that could not be decoded, with the metadata that could."""

    kind: str
    namespace: str
    name: str
    uid: str
    message: str


class ReflectorCounts(Struct):
    """The counters of a reflector; they only increase."""

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


def read_unusual_line(line: bytes, path: str, counts: ReflectorCounts) -> RawWatchEvent:
    """Return the event of a line of a watch of `path`, with its object as bytes.

    Raises MalformedAnswerError for a line that is no event, and RefusedError for an ERROR event.
    """
    try:
        event = msgspec.json.decode(line, type=RawWatchEvent)
    except UNREADABLE as error:
        counts.unreadable_lines += 1
        raise MalformedAnswerError(f"GET {path}: a line cannot be read: {decode_problem(error)}") from error
    if event.type == "ERROR":
        status = read_status(bytes(event.object))
        raise RefusedError(status.code, status.reason, status.message)
    return event


def pods(specs: SpecCache) -> WatchedResource[PodDocument]:
    """All unfinished pods of all schedulers: each uses its node."""
    return WatchedResource(
        kind="Pod",
        path="/api/v1/pods",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[PodDocument]),
        page_decoder=msgspec.json.Decoder(Page[PodDocument]),
        object_decoder=msgspec.json.Decoder(PodDocument),
        seen_event=lambda document: Seen(read_pod(document, specs)),
        gone_event=lambda _namespace, _name, uid: gone(Pod, uid),
        field_selector=UNFINISHED,
    )


def nodes() -> WatchedResource[NodeDocument]:
    """All nodes."""
    return WatchedResource(
        kind="Node",
        path="/api/v1/nodes",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[NodeDocument]),
        page_decoder=msgspec.json.Decoder(Page[NodeDocument]),
        object_decoder=msgspec.json.Decoder(NodeDocument),
        seen_event=lambda document: Seen(read_node(document)),
        gone_event=lambda _namespace, name, _uid: gone(Node, name),
        often_unchanged=True,
    )


class PoolObserver(Protocol):
    """Observes Pools beside the engine; see `reporter`."""

    def pool_seen(self, document: PoolDocument) -> None:
        """Observe a Pool."""

    def pool_gone(self, name: str) -> None:
        """Observe that a Pool was deleted."""


def pools(observer: PoolObserver | None = None) -> WatchedResource[PoolDocument]:
    """All Pools; none before the resource is defined."""
    return WatchedResource(
        kind="Pool",
        path=f"/apis/{GROUP}/{VERSION}/pools",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[PoolDocument]),
        page_decoder=msgspec.json.Decoder(Page[PoolDocument]),
        object_decoder=msgspec.json.Decoder(PoolDocument),
        seen_event=lambda document: Seen(read_pool(document)),
        gone_event=lambda _namespace, name, _uid: gone(Pool, name),
        on_seen=observer.pool_seen if observer is not None else None,
        on_gone=(lambda _namespace, name: observer.pool_gone(name)) if observer is not None else None,
        optional=True,
        rarely_changes=True,
    )


def budgets() -> WatchedResource[BudgetDocument]:
    """All PodDisruptionBudgets."""
    return WatchedResource(
        kind="PodDisruptionBudget",
        path="/apis/policy/v1/poddisruptionbudgets",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[BudgetDocument]),
        page_decoder=msgspec.json.Decoder(Page[BudgetDocument]),
        object_decoder=msgspec.json.Decoder(BudgetDocument),
        seen_event=lambda document: Seen(read_budget(document)),
        gone_event=lambda namespace, name, _uid: gone(DisruptionBudget, namespace, name),
        problem=budget_problem,
        rarely_changes=True,
    )


def namespaces() -> WatchedResource[NamespaceDocument]:
    """All namespaces."""
    return WatchedResource(
        kind="Namespace",
        path="/api/v1/namespaces",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[NamespaceDocument]),
        page_decoder=msgspec.json.Decoder(Page[NamespaceDocument]),
        object_decoder=msgspec.json.Decoder(NamespaceDocument),
        seen_event=read_namespace,
        gone_event=lambda _namespace, name, _uid: gone(Namespace, name),
        rarely_changes=True,
    )
