"""What is watched: pods, nodes, Pools, budgets, namespaces, claims and volumes, and how each turns into events.

Laws:
- A document becomes one event; an object that left becomes one event.
- A store's key is namespace and name; the uid tells one life of a name from the next.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from aischeduler.kube.api_types import (
    BudgetDocument,
    ClaimDocument,
    NamespaceDocument,
    NodeDocument,
    PodDocument,
    PoolDocument,
    VolumeDocument,
)
from aischeduler.kube.backoff import RandomSource
from aischeduler.kube.decode import (
    budget_problem,
    read_budget,
    read_claim,
    read_namespace,
    read_node,
    read_pod,
    read_volume,
)
from aischeduler.kube.decode_pod_spec import SpecCache
from aischeduler.kube.decode_pool import read_pool
from aischeduler.kube.meta_types import Metadata, Page, WatchEvent
from aischeduler.model.events import (
    BudgetGone,
    BudgetSeen,
    ClaimGone,
    ClaimSeen,
    Event,
    NamespaceGone,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PoolGone,
    PoolSeen,
    VolumeGone,
    VolumeSeen,
)
from aischeduler.model.names import GROUP, VERSION

UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Finished pods use nothing; the server leaves them out."""
WATCH_SECONDS_MIN: Final = 300.0
"""The server ends a watch after so long, or up to twice as long by chance."""
RARE_WATCH_SECONDS_MAX: Final = 60.0
"""The server ends the watch of a quiet resource after so long at most: without changes it may send no bookmark."""


class ApiObject(Protocol):
    """An API object as far as it was read."""

    @property
    def metadata(self) -> Metadata:
        """Its name, uid and version."""


D = TypeVar("D", bound=ApiObject)


@dataclass(frozen=True, slots=True)
class WatchedResource(Generic[D]):
    """One kind of objects to list and watch.

    `seen` turns a document into an event, `gone` namespace, name and uid. `problem` says what of a document that
    counts could not be read, or nothing. Where an `optional` resource is not served, there are none of its objects.
    A `quiet` one may not change for days; of one that is `heard_often` most news say nothing new.
    """

    kind: str
    path: str
    watch_event_decoder: msgspec.json.Decoder[WatchEvent[D]]
    page_decoder: msgspec.json.Decoder[Page[D]]
    object_decoder: msgspec.json.Decoder[D]
    seen_event: Callable[[D], Event]
    gone_event: Callable[[str, str, str], Event]
    problem: Callable[[D], str] | None = None
    field_selector: str = ""
    optional: bool = False
    rarely_changes: bool = False
    often_unchanged: bool = False

    def watch_query(self, version: str, chance: RandomSource) -> dict[str, str]:
        """Return the query of a watch from a version on; how long it lasts is by chance."""
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


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object that could not be read at all, as far as it says who it is."""

    kind: str
    namespace: str
    name: str
    uid: str
    message: str


@dataclass(slots=True)
class ReflectorCounts:
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


def pods(specs: SpecCache) -> WatchedResource[PodDocument]:
    """All unfinished pods, whoever schedules them: every one of them uses its node."""
    return WatchedResource(
        kind="Pod",
        path="/api/v1/pods",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[PodDocument]),
        page_decoder=msgspec.json.Decoder(Page[PodDocument]),
        object_decoder=msgspec.json.Decoder(PodDocument),
        seen_event=lambda document: PodSeen(read_pod(document, specs)),
        gone_event=lambda _namespace, _name, uid: PodGone(uid),
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
        seen_event=lambda document: NodeSeen(read_node(document)),
        gone_event=lambda _namespace, name, _uid: NodeGone(name),
        often_unchanged=True,
    )


class PoolObserver(Protocol):
    """Who is told of Pools beside the core: see `pool_statuses`."""

    def pool_seen(self, document: PoolDocument) -> None:
        """Take in a Pool as it now is."""

    def pool_gone(self, name: str) -> None:
        """Take in that there is no Pool of this name."""


def pools(witness: PoolObserver | None = None) -> WatchedResource[PoolDocument]:
    """All Pools; before the resource is defined there are none. `witness` is told of each before the core is."""

    def seen(document: PoolDocument) -> Event:
        pool = read_pool(document)
        if witness is not None:
            witness.pool_seen(document)
        return PoolSeen(pool)

    def gone(_namespace: str, name: str, _uid: str) -> Event:
        if witness is not None:
            witness.pool_gone(name)
        return PoolGone(name)

    return WatchedResource(
        kind="Pool",
        path=f"/apis/{GROUP}/{VERSION}/pools",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[PoolDocument]),
        page_decoder=msgspec.json.Decoder(Page[PoolDocument]),
        object_decoder=msgspec.json.Decoder(PoolDocument),
        seen_event=seen,
        gone_event=gone,
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
        seen_event=lambda document: BudgetSeen(read_budget(document)),
        gone_event=lambda namespace, name, _uid: BudgetGone(namespace, name),
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
        gone_event=lambda _namespace, name, _uid: NamespaceGone(name),
        rarely_changes=True,
    )


def claims() -> WatchedResource[ClaimDocument]:
    """All PersistentVolumeClaims."""
    return WatchedResource(
        kind="PersistentVolumeClaim",
        path="/api/v1/persistentvolumeclaims",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[ClaimDocument]),
        page_decoder=msgspec.json.Decoder(Page[ClaimDocument]),
        object_decoder=msgspec.json.Decoder(ClaimDocument),
        seen_event=lambda document: ClaimSeen(read_claim(document)),
        gone_event=lambda namespace, name, _uid: ClaimGone(namespace, name),
        rarely_changes=True,
    )


def volumes() -> WatchedResource[VolumeDocument]:
    """All PersistentVolumes."""
    return WatchedResource(
        kind="PersistentVolume",
        path="/api/v1/persistentvolumes",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[VolumeDocument]),
        page_decoder=msgspec.json.Decoder(Page[VolumeDocument]),
        object_decoder=msgspec.json.Decoder(VolumeDocument),
        seen_event=lambda document: VolumeSeen(read_volume(document)),
        gone_event=lambda _namespace, name, _uid: VolumeGone(name),
        rarely_changes=True,
    )
