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
    Line,
    Metadata,
    NamespaceDocument,
    NodeDocument,
    Page,
    PodDocument,
    PoolDocument,
)
from aischeduler.kube.backoff import Chance
from aischeduler.kube.decode import read_node, read_pod
from aischeduler.kube.decode_budget import budget_problem, read_budget, read_namespace
from aischeduler.kube.decode_pod_spec import SpecCache
from aischeduler.kube.decode_pool import read_pool
from aischeduler.kube.decode_storage import ClaimDocument, VolumeDocument, read_claim, read_volume
from aischeduler.model.events import (
    BudgetGone,
    BudgetSeen,
    Event,
    NamespaceGone,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PoolGone,
    PoolSeen,
    VolumeClaimGone,
    VolumeClaimSeen,
    VolumeGone,
    VolumeSeen,
)
from aischeduler.model.names import GROUP, VERSION

UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Finished pods use nothing; the server leaves them out."""
WATCH_SECONDS_MIN: Final = 300.0
"""The server ends a watch after so long, or up to twice as long by chance."""
QUIET_WATCH_SECONDS_MAX: Final = 60.0
"""The server ends the watch of a quiet resource after so long at most: without changes it may send no bookmark."""


class Document(Protocol):
    """An API object as far as it was read."""

    @property
    def metadata(self) -> Metadata:
        """Its name, uid and version."""


D = TypeVar("D", bound=Document)


@dataclass(frozen=True, slots=True)
class Resource(Generic[D]):
    """One kind of objects to list and watch.

    `seen` turns a document into an event, `gone` namespace, name and uid. `problem` says what of a document that
    counts could not be read, or nothing. Where an `optional` resource is not served, there are none of its objects.
    A `quiet` one may not change for days; of one that is `heard_often` most news say nothing new.
    """

    kind: str
    path: str
    line: msgspec.json.Decoder[Line[D]]
    page: msgspec.json.Decoder[Page[D]]
    document: msgspec.json.Decoder[D]
    seen: Callable[[D], Event]
    gone: Callable[[str, str, str], Event]
    problem: Callable[[D], str] | None = None
    selector: str = ""
    optional: bool = False
    quiet: bool = False
    heard_often: bool = False

    def watch_query(self, version: str, chance: Chance) -> dict[str, str]:
        """Return the query of a watch from a version on; how long it lasts is by chance."""
        share = chance.random()
        seconds = WATCH_SECONDS_MIN * (1 + share)
        if self.quiet:
            seconds = QUIET_WATCH_SECONDS_MAX * (1 - share / 4)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(int(seconds)),
        }
        if self.selector:
            query["fieldSelector"] = self.selector
        return query


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
        page=msgspec.json.Decoder(Page[PodDocument]),
        document=msgspec.json.Decoder(PodDocument),
        seen=lambda document: PodSeen(read_pod(document, specs)),
        gone=lambda _namespace, _name, uid: PodGone(uid),
        selector=UNFINISHED,
    )


def nodes() -> Resource[NodeDocument]:
    """All nodes."""
    return Resource(
        kind="Node",
        path="/api/v1/nodes",
        line=msgspec.json.Decoder(Line[NodeDocument]),
        page=msgspec.json.Decoder(Page[NodeDocument]),
        document=msgspec.json.Decoder(NodeDocument),
        seen=lambda document: NodeSeen(read_node(document)),
        gone=lambda _namespace, name, _uid: NodeGone(name),
        heard_often=True,
    )


class Witness(Protocol):
    """Who is told of Pools beside the core: see `pool_statuses`."""

    def seen(self, document: PoolDocument) -> None:
        """Take in a Pool as it now is."""

    def gone(self, name: str) -> None:
        """Take in that there is no Pool of this name."""


def pools(witness: Witness | None = None) -> Resource[PoolDocument]:
    """All Pools; before the resource is defined there are none. `witness` is told of each before the core is."""

    def seen(document: PoolDocument) -> Event:
        pool = read_pool(document)
        if witness is not None:
            witness.seen(document)
        return PoolSeen(pool)

    def gone(_namespace: str, name: str, _uid: str) -> Event:
        if witness is not None:
            witness.gone(name)
        return PoolGone(name)

    return Resource(
        kind="Pool",
        path=f"/apis/{GROUP}/{VERSION}/pools",
        line=msgspec.json.Decoder(Line[PoolDocument]),
        page=msgspec.json.Decoder(Page[PoolDocument]),
        document=msgspec.json.Decoder(PoolDocument),
        seen=seen,
        gone=gone,
        optional=True,
        quiet=True,
    )


def budgets() -> Resource[BudgetDocument]:
    """All PodDisruptionBudgets."""
    return Resource(
        kind="PodDisruptionBudget",
        path="/apis/policy/v1/poddisruptionbudgets",
        line=msgspec.json.Decoder(Line[BudgetDocument]),
        page=msgspec.json.Decoder(Page[BudgetDocument]),
        document=msgspec.json.Decoder(BudgetDocument),
        seen=lambda document: BudgetSeen(read_budget(document)),
        gone=lambda namespace, name, _uid: BudgetGone(namespace, name),
        problem=budget_problem,
        quiet=True,
    )


def namespaces() -> Resource[NamespaceDocument]:
    """All namespaces."""
    return Resource(
        kind="Namespace",
        path="/api/v1/namespaces",
        line=msgspec.json.Decoder(Line[NamespaceDocument]),
        page=msgspec.json.Decoder(Page[NamespaceDocument]),
        document=msgspec.json.Decoder(NamespaceDocument),
        seen=read_namespace,
        gone=lambda _namespace, name, _uid: NamespaceGone(name),
        quiet=True,
    )


def claims() -> Resource[ClaimDocument]:
    """All PersistentVolumeClaims."""
    return Resource(
        kind="PersistentVolumeClaim",
        path="/api/v1/persistentvolumeclaims",
        line=msgspec.json.Decoder(Line[ClaimDocument]),
        page=msgspec.json.Decoder(Page[ClaimDocument]),
        document=msgspec.json.Decoder(ClaimDocument),
        seen=lambda document: VolumeClaimSeen(read_claim(document)),
        gone=lambda namespace, name, _uid: VolumeClaimGone(namespace, name),
        quiet=True,
    )


def volumes() -> Resource[VolumeDocument]:
    """All PersistentVolumes."""
    return Resource(
        kind="PersistentVolume",
        path="/api/v1/persistentvolumes",
        line=msgspec.json.Decoder(Line[VolumeDocument]),
        page=msgspec.json.Decoder(Page[VolumeDocument]),
        document=msgspec.json.Decoder(VolumeDocument),
        seen=lambda document: VolumeSeen(read_volume(document)),
        gone=lambda _namespace, name, _uid: VolumeGone(name),
        quiet=True,
    )
