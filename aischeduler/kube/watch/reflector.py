"""A reflector: it lists and watches one resource, and lists again whenever the watch may have missed an event.

Invariants:
- A new list compared with the known objects is a normal case: every restart of an API server causes one.
- The read loop decodes and emits events; it waits only for a full event queue.
- What cannot be decoded costs one object or one event, never the watch for long.
- Every retry waits, by `Timing`.

Source: Kubernetes list and watch, with the numbers of client-go's reflector.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import aclosing
from http import HTTPStatus
from typing import Final, Generic, cast

from msgspec import Raw, Struct, field

from aischeduler.kube.access.server_version import Discovery
from aischeduler.kube.decode.meta_types import UNREADABLE, Metadata, Page, read_metadata
from aischeduler.kube.http.backoff import ExponentialBackoff, RetrySignal, Timing
from aischeduler.kube.http.client import Client, LineSplitter
from aischeduler.kube.http.errors import (
    ApiError,
    MalformedAnswerError,
    RefusedError,
    ResourceNotServedError,
    UnreachableError,
)
from aischeduler.kube.watch.known_objects import KnownObjects, VersionWaiters, object_key, version_number
from aischeduler.kube.watch.list_pager import pages, read_raw
from aischeduler.kube.watch.watched_resources import (
    D,
    ReflectorCounts,
    UnreadableObject,
    WatchedResource,
    read_unusual_line,
)
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.events import Event

SLICE_OBJECTS: Final = 250
"""How many objects of a page are processed before other tasks may run."""
WATCH_IDLE_SECONDS_MAX: Final = 75.0
"""A watch without a byte for this long is silent: bookmarks arrive about once a minute. `dialer` finds dead peers."""
SHORT_WATCH_SECONDS: Final = 1.0
"""A watch that ends sooner and without an event counts as a failure."""
WATCH_FAILURES_MAX: Final = 3
"""How many failed watches in a row lead to a new list."""
OLDER_LISTS_MAX: Final = 5
"""After so many lists older than the known objects the next one is accepted: the cluster was restored from a backup."""
NOT_SERVED_POLL_SECONDS: Final = 5.0
"""How often an optional resource is looked for while it is not served."""
NOT_NEEDED_POLL_SECONDS: Final = 60.0
"""The same for a resource that is not needed, or that the scheduler may not list."""
CURRENT_SECONDS_MAX: Final = 2 * WATCH_IDLE_SECONDS_MAX
"""A resource whose watch has been silent for longer may have objects that are not known."""
MESSAGE_LENGTH_MAX: Final = 300
LIST_STATUSES: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
"""The answers to a watch that another watch cannot mend: the resource is not served any more, or the version is old."""


async def _no_wait() -> None:
    return


class Handlers(Struct, frozen=True):
    """The callbacks of a reflector.

    `on_failure` gets the kind of the resource; `wait_for_room` waits while the event queue is full; all reflectors of
    one API server share `retry_signal`, and `discovery`, which is one reflector's own if it is None.
    """

    on_event: Callable[[Event], None]
    on_unreadable: Callable[[UnreadableObject], None]
    on_failure: Callable[[str, ApiError], None]
    wait_for_room: Callable[[], Awaitable[None]] = _no_wait
    retry_signal: RetrySignal = field(default_factory=RetrySignal)
    discovery: Discovery | None = None


class Reflector(Generic[D]):
    """Lists and watches one resource until cancelled; `synced` is set after the first complete list.

    `watching` is set while a watch is open, `not_served` while the server does not serve an optional resource, or
    forbids to list one that is not needed.
    """

    def __init__(self, client: Client, resource: WatchedResource[D], handlers: Handlers, timing: Timing) -> None:
        self.synced = asyncio.Event()
        self.watching = asyncio.Event()
        self.not_served = False
        self.counts = ReflectorCounts()
        self.resource = resource
        self._client = client
        self._handlers = handlers
        self._discovery = handlers.discovery or Discovery(client, timing)
        self._timing = timing
        self._backoff = ExponentialBackoff(timing)
        self._known_objects = KnownObjects(resource, self.counts)
        self._version = ""
        self._failed_watches = self._older_lists = 0
        self._failing = False
        self._version_waiters = VersionWaiters()
        self._relist_requested = False
        """Whether a list was requested and has not started."""
        self._watch_scope: asyncio.Timeout | None = None
        """The scope of the current watch; `reopen_watch` ends it."""
        self._opened_at = self._last_byte_at = 0.0

    @property
    def version(self) -> str:
        """The resource version up to which all events were received; empty if a list is due."""
        return self._version

    def __len__(self) -> int:
        """Return the number of known objects."""
        return len(self._known_objects)

    @property
    def newest_version(self) -> int:
        """The newest version of a known object."""
        return self._known_objects.newest_version

    async def run(self) -> None:
        """List and watch until cancelled; an empty version means that a list is due."""
        while True:
            try:
                if not self._version or self._relist_requested:
                    self._version, self._relist_requested = "", False
                    await self._list()
                if not self._relist_requested:
                    await self._watch_until_reopened()
            except ApiError as error:
                self._record_failure(error)
                await self._wait(error)

    async def wait_for_version(self, version: str) -> None:
        """Return once all events up to this version were received, or at once if versions are not numbers."""
        number = version_number(version)
        while number is not None and number > (version_number(self._version) or -1):
            await self._version_waiters.wait(number)

    async def refresh(self, label_selector: str = "", expected: Collection[str] = ()) -> str:
        """List all objects, or those with these labels, and emit what changed; raises ApiError.

        The watch continues. If one of the `expected` objects is missing, all objects are listed. Return the version of
        the list; empty where the resource is not served.
        """
        if self.not_served:
            return ""
        names, version = set[str](), ""
        async with aclosing(pages(self._client, self.resource, self._decode, label_selector)) as found:
            async for page in found:
                version = version or page.metadata.resource_version
                items = page.items or ()
                names.update(
                    object_key(read_metadata(item) if isinstance(item, Raw) else item.metadata) for item in items
                )
                await self._read_items(page.items)
        if not label_selector:
            self._emit(self._known_objects.delete_missing(names, version))
        elif not names.issuperset(expected):
            return await self.refresh()
        return version

    def reopen_watch(self) -> None:
        """Leave the watch, which may be dead, or the current backoff, and open another watch at the same version."""
        self.watching.clear()
        if self._watch_scope is not None:
            self._watch_scope.reschedule(asyncio.get_running_loop().time())
            self._watch_scope = None
        self._handlers.retry_signal.wake()

    async def relist(self) -> None:
        """Return once all objects are listed by a list that starts after this call: the watch may lag behind."""
        self._relist_requested = True
        self.synced.clear()
        self.reopen_watch()
        await self.synced.wait()

    @property
    def watch_open_seconds(self) -> float:
        """How long the watch has been open; 0 if none is."""
        return self._timing.clock() - self._opened_at if self.watching.is_set() else 0.0

    @property
    def watch_idle_seconds(self) -> float:
        """How long ago the last byte of a watch arrived, or the watch was opened; 0 before the first one."""
        return self._timing.clock() - self._last_byte_at if self._opened_at else 0.0

    def current(self) -> bool:
        """Say whether all objects are known, but for those of the last moments."""
        return self.synced.is_set() and not self.not_served and self.watch_idle_seconds < CURRENT_SECONDS_MAX

    def _watch_opened(self) -> None:
        """Record that a watch is open."""
        self._opened_at = self._last_byte_at = self._timing.clock()
        self.watching.set()

    def observe(self, body: bytes) -> None:
        """Observe an object from a single GET; older watch events of it are dropped afterwards."""
        self._read_object(Raw(body))

    def observe_gone(self, metadata: Metadata) -> None:
        """Observe that a GET did not find an object."""
        self._emit(self._known_objects.delete(metadata))

    def _record_failure(self, error: ApiError) -> None:
        """Count a failure and decide whether a list is next. That a resource is not served is no failure."""
        absent = isinstance(error, ResourceNotServedError)
        if not (absent and self.not_served):
            self._handlers.on_failure(self.resource.kind, error)
        if absent:
            self.not_served = True
            return
        self.counts.failures += 1
        self._failed_watches += 1
        gone = isinstance(error, RefusedError) and error.status in LIST_STATUSES
        if gone or isinstance(error, MalformedAnswerError) or self._failed_watches >= WATCH_FAILURES_MAX:
            self._version = ""
            self._failed_watches = 0

    async def _wait(self, error: ApiError) -> None:
        """Wait before a retry: Retry-After, then a backoff that ends when the server answers another reflector."""
        if isinstance(error, ResourceNotServedError):
            period = NOT_SERVED_POLL_SECONDS if self.resource.needed else NOT_NEEDED_POLL_SECONDS
            if error.status == HTTPStatus.FORBIDDEN:
                await self._timing.sleep(period)
            else:
                await self._discovery.wait_until_served(self.resource.path, period)
            return
        self._failing, seconds = True, self._backoff.next_seconds()
        retry_after = error.retry_after_seconds if isinstance(error, RefusedError) else None
        await self._handlers.retry_signal.wait(self._timing, seconds, retry_after or 0.0)

    def _answered(self) -> None:
        """Record an answer; wake the other reflectors if this one was failing."""
        if self._failing:
            self._failing = False
            self._handlers.retry_signal.wake()

    def _is_not_served(self, error: ApiError) -> bool:
        status, resource = error.status if isinstance(error, RefusedError) else 0, self.resource
        forbidden = status == HTTPStatus.FORBIDDEN and not resource.needed
        return forbidden or (resource.optional and status == HTTPStatus.NOT_FOUND)

    async def _list(self) -> None:
        self.counts.lists += 1
        self._known_objects.begin_list()
        version = ""
        try:
            async with aclosing(pages(self._client, self.resource, self._decode)) as found:
                async for page in found:
                    self._answered()
                    version = version or page.metadata.resource_version
                    self._reject_older_list(version)
                    await self._read_items(page.items)
        except RefusedError as error:
            if self._is_not_served(error) and not (error.status == HTTPStatus.FORBIDDEN and len(self)):
                if error.status == HTTPStatus.NOT_FOUND:
                    await self._discovery.confirm_not_served(self.resource.path)
                self._emit(self.resource.listed(served=False))
                self._complete_list("")
                raise ResourceNotServedError(error.status, error.reason, error.message) from error
            raise
        self._emit(self.resource.listed(served=True))
        self._complete_list(version)
        self.not_served = False

    def _complete_list(self, version: str) -> None:
        self._emit(self._known_objects.end_list())
        self._older_lists = 0
        self._advance(version)
        if not self._relist_requested:
            self.synced.set()

    def _decode(self, body: bytes) -> Page[D | Raw]:
        """Decode a page; if one object cannot be decoded, all stay `Raw` and are decoded one by one."""
        try:
            return cast(Page[D | Raw], self.resource.page_decoder.decode(body))
        except UNREADABLE:
            return cast(Page[D | Raw], read_raw(body))

    async def _read_items(self, items: list[D | Raw] | None) -> None:
        for number, item in enumerate(items or (), start=1):
            if isinstance(item, Raw):
                self._read_object(item)
            else:
                self._observe_document(item)
            if number % SLICE_OBJECTS == 0:
                await asyncio.sleep(0)
        await self._handlers.wait_for_room()

    def _reject_older_list(self, version: str) -> None:
        """Reject a list that is older than the known objects, because its server lags behind, but not forever."""
        if not self._known_objects.is_older(version):
            return
        self.counts.older_lists += 1
        self._older_lists += 1
        if self._older_lists <= OLDER_LISTS_MAX:
            raise MalformedAnswerError(f"GET {self.resource.path}: the list at {version} is older than known objects")
        self._known_objects.reset_versions()

    async def _watch_until_reopened(self) -> None:
        """Follow a watch until it ends or `reopen_watch` is called."""
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._watch_scope = scope
                await self._watch()
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            self._watch_scope = None

    async def _watch(self) -> None:
        """Follow a watch to its end; raises ApiError if it breaks."""
        self.counts.watches += 1
        started, events_before = self._timing.clock(), self.counts.events
        splitter, query = LineSplitter(), self.resource.watch_query(self._version, self._timing.jitter)
        async with self._client.watch(self.resource.path, query, WATCH_IDLE_SECONDS_MAX) as watch:
            self._watch_opened()
            self._answered()
            try:
                while piece := await watch.read():
                    self._last_byte_at = self._timing.clock()
                    for line in splitter.feed(piece):
                        self._read_line(line)
                    await self._handlers.wait_for_room()
            finally:
                self.watching.clear()
        if self.counts.events == events_before and self._timing.clock() - started < SHORT_WATCH_SECONDS:
            raise UnreachableError(f"GET {self.resource.path}: the watch ended at once without an event")

    def _read_line(self, line: bytes) -> None:
        """Process a line of the watch; the fast path decodes event and object at once."""
        try:
            event = self.resource.watch_event_decoder.decode(line)
        except UNREADABLE:
            self._read_unusual_line(line)
            return
        metadata = event.object.metadata
        match event.type:
            case "MODIFIED" | "ADDED" if metadata.name:
                self._observe_readable(event.object)
            case "DELETED":
                self._emit(self._known_objects.delete(metadata))
            case "BOOKMARK":
                pass
            case _:
                self._read_unusual_line(line)
                return
        self.counts.events += 1
        self._advance(metadata.resource_version)

    def _read_unusual_line(self, line: bytes) -> None:
        """Process an ERROR event, an object that cannot be decoded, or an unknown event type."""
        event = read_unusual_line(line, self.resource.path, self.counts)
        metadata = read_metadata(event.object)
        match event.type:
            case "MODIFIED" | "ADDED":
                self._read_object(event.object)
            case "DELETED":
                self._emit(self._known_objects.delete(metadata))
            case "BOOKMARK":
                pass
            case _:
                self.counts.unknown_events += 1
                return
        self.counts.events += 1
        self._advance(metadata.resource_version)

    def _read_object(self, raw: Raw) -> None:
        try:
            document = self.resource.object_decoder.decode(raw)
        except UNREADABLE as error:
            self._skip_object(read_metadata(raw), decode_problem(error))
        else:
            self._observe_document(document)

    def _observe_document(self, document: D) -> None:
        if document.metadata.name:
            self._observe_readable(document)
        else:
            self._skip_object(document.metadata, "it has no metadata.name")

    def _observe_readable(self, document: D) -> None:
        try:
            self._emit(self._known_objects.upsert(document))
        except Exception as error:  # noqa: BLE001 - an error costs one object, not the watch
            self._emit_unreadable(document.metadata, f"an internal error of the scheduler: {error!r}")
            return
        if self.resource.problem is not None and (problem := self.resource.problem(document)):
            self._emit_unreadable(document.metadata, problem)

    def _skip_object(self, metadata: Metadata, message: str) -> None:
        self._emit(self._known_objects.keep(metadata))
        self._emit_unreadable(metadata, message)

    def _emit_unreadable(self, metadata: Metadata, message: str) -> None:
        self.counts.unreadable_objects += 1
        where, message = (metadata.namespace, metadata.name, metadata.uid), message[:MESSAGE_LENGTH_MAX]
        self._handlers.on_unreadable(UnreadableObject(self.resource.kind, *where, message))

    def _advance(self, version: str) -> None:
        if version:
            self._version = version
            self._failed_watches = 0
            self._known_objects.advance(version)
            self._version_waiters.advance(version)

    def _emit(self, events: Iterable[Event]) -> None:
        for event in events:
            self._handlers.on_event(event)
