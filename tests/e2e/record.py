"""The record of every change of pods, nodes, Pools, budgets and namespaces, and the cluster at any moment.

Invariants:
- One thread reads a direct watch of each kind; after an outage a list shows what changed.
- A fact has the time at which it arrived here, so it never counts as older than it is.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final, Self

import aiohttp
import msgspec

from tests.controlplane.plane import ControlPlane
from tests.objects import Json

LINE_BYTES_MAX: Final = 2**24
RETRY_SECONDS: Final = 0.05
POLL_SECONDS: Final = 0.02
CHANGES_KEPT: Final = 256
CLOSE_SECONDS: Final = 0.01
"""How long a TLS connection takes to leave the event loop."""
LATE_SECONDS: Final = 2.0
"""How much later than another the watch of one kind may be."""
PATHS: Final = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "pools": "/apis/resource.aibee.cn/v1alpha1/pools",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "namespaces": "/api/v1/namespaces",
}

Objects = dict[tuple[str, str], Json]
"""Objects by namespace and name; the namespace is empty where a kind has none."""


@dataclass(frozen=True, slots=True)
class Change:
    """A new state of an object; `at` is when the record got it, in seconds of the monotonic clock."""

    at: float
    document: Json
    gone: bool

    @property
    def key(self) -> tuple[str, str]:
        return key(self.document)

    @property
    def version(self) -> int:
        """The resource version, by which changes of all kinds are in order; 0 where there is none."""
        return int(self.document["metadata"].get("resourceVersion") or 0)


class Changes:
    """All changes by kind, in the order in which the record got them."""

    def __init__(self) -> None:
        self.changes: dict[str, list[Change]] = {plural: [] for plural in PATHS}
        self._now: dict[str, Objects] = {plural: {} for plural in PATHS}
        self._earlier: dict[str, list[Objects]] = {plural: [] for plural in PATHS}
        """The objects before each of some changes, so that the state at an early moment is found quickly."""
        self._made: dict[str, float] = {}

    def hear(self, plural: str, document: Json, *, gone: bool, at: float) -> None:
        """Record a new state of an object."""
        if len(self.changes[plural]) % CHANGES_KEPT == 0:
            self._earlier[plural].append(dict(self._now[plural]))
        self.changes[plural].append(Change(at, document, gone))
        self._made.setdefault(document["metadata"].get("uid", ""), at)
        if gone:
            self._now[plural].pop(key(document), None)
        else:
            self._now[plural][key(document)] = document

    def now(self, plural: str) -> Objects:
        """Return the objects of a kind as they are now."""
        return dict(self._now[plural])

    def at(self, plural: str, moment: float) -> Objects:
        """Return the objects of a kind as they were at a moment."""
        changes = self.changes[plural]
        end = bisect_right(changes, moment, key=lambda one: one.at)
        kept = (end - 1) // CHANGES_KEPT
        found: Objects = dict(self._earlier[plural][kept]) if end else {}
        for change in changes[max(kept, 0) * CHANGES_KEPT : end]:
            if change.gone:
                found.pop(change.key, None)
            else:
                found[change.key] = change.document
        return found

    def made(self, document: Json) -> float:
        """Return when the record got an object first."""
        return self._made[document["metadata"]["uid"]]

    def nodes_of(self) -> dict[str, list[str]]:
        """Return the nodes of each pod, by uid, in order, without repetition."""
        found: dict[str, dict[str, None]] = {}
        for change in self.changes["pods"]:
            nodes = found.setdefault(change.document["metadata"]["uid"], {})
            if name := change.document["spec"].get("nodeName"):
                nodes[name] = None
        return {uid: list(nodes) for uid, nodes in found.items()}

    def told_by(self, change: Change, plurals: Sequence[str]) -> float:
        """Return until when the record got what had happened to objects of other kinds before this change.

        Each kind comes by a watch of its own, which may be later than that of the change: versions tell the order.
        """
        version, end = change.version, change.at
        for plural in plurals:
            late = (one for one in self.changes[plural] if change.at < one.at <= change.at + LATE_SECONDS)
            end = max((one.at for one in late if 0 < one.version < version), default=end)
        return end

    def moments(self, plural: str, begin: float, end: float) -> list[float]:
        """Return the begin, and each moment up to the end at which an object of the kind changed."""
        return [begin, *sorted({one.at for one in self.changes[plural] if begin < one.at <= end})]


class Record(Changes):
    """Records while its context is open."""

    def __init__(self, plane: ControlPlane, paths: Mapping[str, str] = PATHS) -> None:
        super().__init__()
        self._plane, self._paths = plane, paths
        self._versions = dict.fromkeys(paths, "")
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_until(lambda: all(self._versions.values()), "the first lists")
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self._loop.close()

    def wait_until(
        self, holds: Callable[[], bool], what: str, seconds: float = 60.0, lacks: Callable[[], object] = lambda: ""
    ) -> None:
        """Wait until the condition holds; else the error says what is awaited, and what it `lacks`."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert self._thread.is_alive(), "the record has ended"
            assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s; {lacks()}"
            time.sleep(POLL_SECONDS)

    def wait_until_calm(self, quiet_seconds: float, within_seconds: float) -> None:
        """Wait until no pod has changed for a while."""

        def calm() -> bool:
            return time.monotonic() - self.changes["pods"][-1].at > quiet_seconds

        self.wait_until(calm, "calm", within_seconds)

    def _run(self) -> None:
        self._task = self._loop.create_task(self._record())
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.run_until_complete(asyncio.sleep(CLOSE_SECONDS))

    async def _record(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._plane.tls)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with (
            aiohttp.ClientSession(
                self._plane.url, connector=connector, timeout=timeout, read_bufsize=LINE_BYTES_MAX
            ) as session,
            asyncio.TaskGroup() as kinds,
        ):
            for plural in self._paths:
                kinds.create_task(self._follow(session, plural))

    async def _follow(self, session: aiohttp.ClientSession, plural: str) -> None:
        while True:
            with suppress(aiohttp.ClientError, ConnectionError):
                if not self._versions[plural]:
                    await self._list(session, plural)
                await self._watch(session, plural)
            await asyncio.sleep(RETRY_SECONDS)

    async def _list(self, session: aiohttp.ClientSession, plural: str) -> None:
        async with session.get(self._paths[plural]) as answer:
            if answer.status != 200:
                return
            listed: Any = msgspec.json.decode(await answer.read())
        there = {document["metadata"]["uid"] for document in listed["items"]}
        for document in [one for one in self._now[plural].values() if one["metadata"]["uid"] not in there]:
            self.hear(plural, document, gone=True, at=time.monotonic())
        for document in listed["items"]:
            before = self._now[plural].get(key(document))
            if before is None or _version(before) != _version(document):
                self.hear(plural, document, gone=False, at=time.monotonic())
        self._versions[plural] = listed["metadata"]["resourceVersion"]

    async def _watch(self, session: aiohttp.ClientSession, plural: str) -> None:
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": self._versions[plural]}
        async with session.get(self._paths[plural], params=query) as answer:
            if answer.status != 200:
                self._versions[plural] = ""
                return
            try:
                while line := await answer.content.readline():
                    if not self._take_in(plural, msgspec.json.decode(line)):
                        return
            finally:
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()  # closing TLS takes longer than the event loop exists

    def _take_in(self, plural: str, told: Any) -> bool:
        """Record a line of a watch; return False if a list is due."""
        if told["type"] == "ERROR":
            self._versions[plural] = ""
            return False
        self._versions[plural] = _version(told["object"])
        if told["type"] != "BOOKMARK":
            self.hear(plural, told["object"], gone=told["type"] == "DELETED", at=time.monotonic())
        return True


def key(document: Json) -> tuple[str, str]:
    """Return the namespace and name of an object."""
    metadata = document["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _version(document: Json) -> str:
    version: str = document["metadata"]["resourceVersion"]
    return version
