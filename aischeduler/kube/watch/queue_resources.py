"""The watched resources of tenant queues: our own Queues, and those of Volcano where they are served.

Invariants:
- None of them is needed: one that is not served, or that the scheduler may not list, has no objects.
- The engine hears of an object only if its queue differs from before: most updates of a queue are of its status.
- The engine hears whether one of the kinds is served: where none is, names of queues mean nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from aischeduler.kube.decode.api_types import QueueDocument
from aischeduler.kube.decode.meta_types import Page, WatchEvent
from aischeduler.kube.decode.tenant_queue import read_queue, read_volcano_queue
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.model.events import QueuesServed, Seen, gone
from aischeduler.model.names import GROUP, VERSION
from aischeduler.model.tenant_queue import QueueSource, TenantQueue


class QueueObserver(Protocol):
    """Observes our own Queues beside the engine; see `reporter`."""

    def queue_seen(self, document: QueueDocument) -> None:
        """Observe a Queue."""

    def queue_gone(self, name: str) -> None:
        """Observe that a Queue was deleted."""


class _Served:
    """The kinds that are served."""

    def __init__(self) -> None:
        self._kinds: set[QueueSource] = set()

    def told(self, source: QueueSource, served: bool) -> QueuesServed | None:
        """Note whether a kind is served; return an event if another answer holds for all of them."""
        before = bool(self._kinds)
        if served:
            self._kinds.add(source)
        else:
            self._kinds.discard(source)
        return QueuesServed(bool(self._kinds)) if bool(self._kinds) != before else None


def queue_resources(observer: QueueObserver | None = None) -> Sequence[WatchedResource[Any]]:
    """Return the resources of tenant queues; `observer` learns of our own."""
    seen = observer.queue_seen if observer is not None else None
    on_gone = (lambda _namespace, name: observer.queue_gone(name)) if observer is not None else None
    served = _Served()
    return (
        _queues(QueueSource.OWN, f"{GROUP}/{VERSION}", read_queue, served, on_seen=seen, on_gone=on_gone),
        _queues(QueueSource.VOLCANO, "scheduling.volcano.sh/v1beta1", read_volcano_queue, served),
    )


def _queues(
    source: QueueSource,
    version: str,
    read: Callable[[QueueDocument], TenantQueue],
    served: _Served,
    *,
    on_seen: Callable[[QueueDocument], None] | None = None,
    on_gone: Callable[[str, str], None] | None = None,
) -> WatchedResource[QueueDocument]:
    return WatchedResource(
        kind=source.value,
        path=f"/apis/{version}/queues",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[QueueDocument]),
        page_decoder=msgspec.json.Decoder(Page[QueueDocument]),
        object_decoder=msgspec.json.Decoder(QueueDocument),
        seen_event=lambda document: Seen(read(document)),
        gone_event=lambda _namespace, name, _uid: gone(TenantQueue, source, name),
        on_seen=on_seen,
        on_gone=on_gone,
        on_served=lambda is_served: served.told(source, is_served),
        optional=True,
        needed=False,
        rarely_changes=True,
        often_unchanged=True,
    )
