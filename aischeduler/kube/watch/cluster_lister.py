"""List everything that the engine observes, once, with the rights of the caller.

Invariants:
- Paths and decoders are those of the daemon's watches; the events come in the order of the daemon's start.
- Without nodes, pods or Pools there is no answer. Without another kind there is a gap, and the other kinds count.
- A kind of tenant queues that is served without having objects counts as served, as for the daemon.
- An object that cannot be decoded is a gap of its own.
- Nothing is written.
"""

from collections.abc import Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, PriorityClass
from aischeduler.config.schema import ElasticKind
from aischeduler.kube.crds import NOT_INSTALLED
from aischeduler.kube.decode.meta_types import UNREADABLE, Metadata, Page, read_metadata
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.http.client import LIST_SECONDS, Client
from aischeduler.kube.http.errors import ApiError, RefusedError, UnreachableError
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.device_resources import devices
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.list_pager import pages, read_raw
from aischeduler.kube.watch.pod_set_resources import pod_set_resources
from aischeduler.kube.watch.queue_resources import queue_resources
from aischeduler.kube.watch.storage_resources import storage_resources
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.events import Event
from aischeduler.model.pod_set import CONTROLLERS, SERVICE

PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
WITHOUT: Final = {
    "PodDisruptionBudget": "the answer may evict pods that a budget protects",
    "Device": "the answer knows no single GPU or other device, and so no shares of one",
    "Namespace": "the answer lets no pod into a Pool with allowedNamespaces, or a machine group with rules",
    "Queue": "the answer limits no pod by the quota of such a queue",
    "PersistentVolumeClaim": "the answer holds every pod that uses a claim",
    "PersistentVolume": "the answer holds every pod that uses a claim",
    "StorageClass": "the answer holds every pod with a claim that is bound for its first pod",
    "CSINode": "the answer knows no limits of volumes per node",
    "CSIDriver": "the answer takes every driver to have enough storage",
    "CSIStorageCapacity": "the answer finds no storage where a driver tells how much is left",
    "VolumeAttachment": "the answer counts only the volumes of pods",
    "PodGroup": "the answer holds every pod that names such a PodGroup",
    "JobSet": "the answer takes the pods of a JobSet for no gang",
    "Job": "the answer takes the pods of a Job for no gang",
    "DaemonSet": "the answer knows only what the pods of a DaemonSet themselves say of their tenant",
    **dict.fromkeys(
        (SERVICE, *CONTROLLERS), "the answer may choose another node for pods that kube-scheduler spreads by default"
    ),
    "HorizontalPodAutoscaler": "the answer may take a workload for elastic that an autoscaler scales",
    "PriorityClass": "a new pod with a priorityClassName counts with priority 0",
}
"""What an answer is worth without a kind; other kinds that are not needed are read to know what is elastic."""


class ListError(ApiError):
    """A kind without which there is no answer cannot be listed; the message is a sentence that names it."""


class _Listed(Struct):
    """The events of one kind, and the gaps."""

    events: list[Event] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)


class _PriorityClass(Struct, rename="camel"):
    """A PriorityClass as the API server has it."""

    metadata: Metadata
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


async def list_cluster(
    client: Client, url: str, now: float, *, cached: bool = False, kinds: Sequence[ElasticKind] = ()
) -> ClusterSnapshot:
    """List the cluster at this unix time; `url` names it in messages. Raises ListError.

    `cached` lists it as the API server has it in its watch cache. `kinds` are those that the configuration lets be
    elastic.
    """
    try:
        listed = [await _list(client, url, resource, cached=cached) for resource in resources(kinds)]
        classes, class_gaps = await _priority_classes(client, url)
    except UnreachableError as error:
        raise ListError(f"{url} cannot be reached: {error}") from error
    events = tuple(event for kind in listed for event in kind.events)
    gaps = [gap for kind in listed for gap in kind.gaps]
    return ClusterSnapshot(int(now), events, classes, (*gaps, *class_gaps))


def resources(kinds: Sequence[ElasticKind] = ()) -> Sequence[WatchedResource[Any]]:
    """Return the kinds in the order in which the engine observes them, these kinds of elastic objects among them."""
    specs = SpecCache()
    return (
        watched_resources.namespaces(),
        watched_resources.pools(),
        watched_resources.nodes(),
        watched_resources.budgets(),
        devices(),
        *queue_resources(),
        *storage_resources(),
        *gang_resources(specs.owners),
        *pod_set_resources(kinds),
        watched_resources.pods(specs),
    )


async def _list(client: Client, url: str, resource: WatchedResource[Any], *, cached: bool) -> _Listed:
    listed, unreadable = _Listed(), list[str]()
    try:
        async with aclosing(pages(client, resource, read_raw, cached=cached)) as found:
            async for page in found:
                for item in page.items or ():
                    try:
                        listed.events += resource.read(item)
                    except UNREADABLE as error:
                        unreadable.append(f"{_named(resource.kind, item)}: {decode_problem(error)}")
    except UnreachableError:
        raise
    except ApiError as error:
        absent = not resource.needed and isinstance(error, RefusedError) and error.status == HTTPStatus.NOT_FOUND
        return _Listed(gaps=[] if absent else [_gap(url, resource.kind, error, needed=resource.needed)])
    listed.events += resource.listed(served=True)
    if unreadable:
        more = f" (and {len(unreadable) - 1} more)" if len(unreadable) > 1 else ""
        listed.gaps.append(f"{unreadable[0]}{more}: the answer leaves the object out")
    return listed


def _named(kind: str, item: Raw) -> str:
    metadata = read_metadata(item)
    return f"{kind} {metadata.namespace}/{metadata.name}" if metadata.namespace else f"{kind} {metadata.name}"


def _gap(url: str, kind: str, error: ApiError, *, needed: bool = True) -> str:
    """Return the gap that the error leaves; raises ListError where there is no answer without the kind."""
    status, message = (error.status, error.message) if isinstance(error, RefusedError) else (None, str(error))
    if kind == "Pool" and status == HTTPStatus.NOT_FOUND:
        raise ListError(f"{url} does not serve Pools: {NOT_INSTALLED}") from error
    if status == HTTPStatus.UNAUTHORIZED:
        raise ListError(f"{url} does not accept your credentials: {message}") from error
    what = f"{url} does not allow you to list" if status == HTTPStatus.FORBIDDEN else f"{url} cannot list"
    sentence = f"{what} {_plural(kind)} ({message})"
    without = WITHOUT.get(kind.partition(".")[0]) or ("" if needed else f"the answer takes no {kind} for elastic")
    if not without:
        raise ListError(f"{sentence}: there is no answer without them") from error
    return f"{sentence}: {without}"


def _plural(kind: str) -> str:
    name, _, group = kind.partition(".")
    return f"{name}{'es' if name.endswith('s') else 's'}{f' of {group}' if group else ''}"


async def _priority_classes(client: Client, url: str) -> tuple[tuple[PriorityClass, ...] | None, tuple[str, ...]]:
    """Return the PriorityClasses by name, and the gap where they cannot be listed."""
    try:
        body = await client.get(PRIORITY_CLASSES, {}, LIST_SECONDS)
        page = msgspec.json.decode(body, type=Page[_PriorityClass])
    except UnreachableError:
        raise
    except (ApiError, *UNREADABLE) as error:
        problem = error if isinstance(error, ApiError) else ApiError(decode_problem(error))
        return None, (_gap(url, "PriorityClass", problem),)
    found = [
        PriorityClass(item.metadata.name, item.value, item.global_default, item.preemption_policy)
        for item in page.items or ()
    ]
    return tuple(sorted(found, key=lambda priority_class: priority_class.name)), ()
