"""The watched resources of tenant queues: our own Queues, and those of Volcano where they are served.

Invariants:
- None of them is needed: one that is not served, or that the scheduler may not list, has no objects.
- The engine hears of an object only if its queue differs from before: most updates of a queue are of its status.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from aischeduler.kube.decode.api_types import QueueDocument
from aischeduler.kube.decode.meta_types import Page, WatchEvent
from aischeduler.kube.decode.tenant_queue import read_queue, read_volcano_queue
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.model.events import Seen, gone
from aischeduler.model.names import GROUP, VERSION
from aischeduler.model.tenant_queue import QueueSource, TenantQueue


class QueueObserver(Protocol):
    """Observes our own Queues beside the engine; see `reporter`."""

    def queue_seen(self, document: QueueDocument) -> None:
        """Observe a Queue."""

    def queue_gone(self, name: str) -> None:
        """Observe that a Queue was deleted."""


def queue_resources(observer: QueueObserver | None = None) -> Sequence[WatchedResource[Any]]:
    """Return the resources of tenant queues; `observer` learns of our own."""
    seen = observer.queue_seen if observer is not None else None
    on_gone = (lambda _namespace, name: observer.queue_gone(name)) if observer is not None else None
    return (
        _queues(QueueSource.OWN, f"{GROUP}/{VERSION}", read_queue, seen, on_gone),
        _queues(QueueSource.VOLCANO, "scheduling.volcano.sh/v1beta1", read_volcano_queue),
    )


def _queues(
    source: QueueSource,
    version: str,
    read: Callable[[QueueDocument], TenantQueue],
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
        optional=True,
        needed=False,
        rarely_changes=True,
        often_unchanged=True,
    )
