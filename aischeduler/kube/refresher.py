"""Reads beside the watches: the state that an eviction depends on, and Pools that pods name but no watch has shown.

Invariants:
- `Refreshed` is emitted after all events of the refresh, so the engine has processed them before it.
- The watch of pods has reached the version of the patch that the refresher sent; other resources are listed, or their
  watch has reached that version too.
- Every request gets an answer. A failure is emitted, and the next try follows after a backoff.
"""

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from cachetools import LRUCache
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from aischeduler.kube import pod_writes, pool_writes
from aischeduler.kube.backoff import ExponentialBackoff, Timing
from aischeduler.kube.client import Client
from aischeduler.kube.errors import (
    ApiError,
    MalformedAnswerError,
    OnInternalError,
    RefusedError,
    WatchLagError,
    decode_problem,
    raise_internal_error,
)
from aischeduler.kube.meta_types import UNREADABLE, PartialObjectMetadata
from aischeduler.kube.reflector import Reflector
from aischeduler.model.actions import ListPools, ReadPool, Refresh
from aischeduler.model.events import Event, PoolRead, PoolsListed, PoolUnread, Refreshed, RefreshFailed
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import LabelSelector, Operator

READERS: Final = 4
"""How many Pools are read at a time."""
WATCH_LAG_SECONDS_MAX: Final = 2.0
"""How far the watch of pods may lag behind for an eviction."""
REFRESH_SECONDS_MAX: Final = 30.0
"""The timeout of a refresh."""
INITIAL_RETRY_SECONDS: Final = 0.5
RETRY_SECONDS_MAX: Final = 5.0
"""The longest wait (doubled by jitter) after failed refreshes; all pools with evictions wait for it."""
LARGE_CLUSTER_NODES: Final = 500
"""A cluster of this many nodes waits for the watch before it lists nodes: some node always changes."""
NODE_WATCH_WAIT_SECONDS: Final = 0.3
PROBED_MAX: Final = 1000
"""How many pods have their last probe time remembered."""
POD_GONE_STATUSES: Final = (404, 409, 422)
"""The statuses of an API server that has no pod of this name and uid."""


class Reflectors(Struct, frozen=True):
    """The reflectors of the resources that an eviction depends on."""

    pods: Reflector[Any]
    nodes: Reflector[Any]
    pools: Reflector[Any]
    budgets: Reflector[Any]
    namespaces: Reflector[Any]


class Times(Struct, frozen=True):
    """Unix time in seconds, and since when a pod is pending, for its condition."""

    wall: Callable[[], float]
    since: Callable[[Pod], str]


class Refresher:
    """Carries out `Refresh`, `ReadPool` and `ListPools`; `emit` gets the results."""

    def __init__(
        self,
        client: Client,
        reflectors: Reflectors,
        timing: Timing,
        emit: Callable[[Event], None],
        log: FilteringBoundLogger,
    ) -> None:
        self._client = client
        self._reflectors = reflectors
        self._timing = timing
        self._emit = emit
        self._log = log
        self._due: dict[str, Refresh] = {}
        self._refresh_due = asyncio.Event()
        self._reads: asyncio.Queue[ReadPool | ListPools] = asyncio.Queue()
        self._probed: LRUCache[str, int] = LRUCache(PROBED_MAX)
        self._on_internal_error: OnInternalError = raise_internal_error
        self._logged_problem = ""
        """The last logged reason of a failed refresh."""
        self._logged_list_problem = ""
        """The last logged reason of a failed list of Pools."""

    def submit(self, action: Refresh | ReadPool | ListPools) -> None:
        """Start to refresh a pool, together with all others that are due, to read one Pool, or to list all Pools."""
        if isinstance(action, Refresh):
            self._due[action.pool] = action
            self._refresh_due.set()
        else:
            self._reads.put_nowait(action)

    async def run(self, times: Times, on_internal_error: OnInternalError) -> None:
        """Carry out requests until cancelled."""
        self._on_internal_error = on_internal_error
        async with asyncio.TaskGroup() as group:
            group.create_task(self._refresh_all(times), name="refresher")
            for number in range(READERS):
                group.create_task(self._read_pools(), name=f"Pool reader {number}")

    async def _refresh_all(self, times: Times) -> None:
        backoff = ExponentialBackoff(self._timing, INITIAL_RETRY_SECONDS, RETRY_SECONDS_MAX)
        while True:
            await self._refresh_due.wait()
            self._refresh_due.clear()
            due, self._due = list(self._due.values()), {}
            problem, retry_at_once = await self._refresh(due, times)
            if problem and problem != self._logged_problem:
                self._log.warning("not refreshed", pools=[one.pool for one in due], reason=problem)
            self._logged_problem = problem
            for one in due:
                self._emit(RefreshFailed(one.pool, problem) if problem else Refreshed(one.pool))
            if not problem:
                backoff = ExponentialBackoff(self._timing, INITIAL_RETRY_SECONDS, RETRY_SECONDS_MAX)
            elif not retry_at_once:
                await backoff.wait()

    async def _refresh(self, due: list[Refresh], times: Times) -> tuple[str, bool]:
        """Refresh these pools; return the problem, or empty, and whether to retry at once."""
        try:
            async with asyncio.timeout(REFRESH_SECONDS_MAX):
                version = await self._probe(due, times)
                if not version:
                    return "the pods that need the refresh are gone", True
                await self._read(due, version)
        except TimeoutError:
            return f"reading took longer than {REFRESH_SECONDS_MAX:g} s", False
        except ExceptionGroup as group:
            return self._reason(group.exceptions[0]), False
        except Exception as error:  # noqa: BLE001 - an error costs one try; no eviction happens before the next
            return self._reason(error), False
        return "", False

    def _reason(self, error: Exception) -> str:
        if not isinstance(error, ApiError):
            self._on_internal_error("refresher", error)
        return str(error)

    async def _probe(self, due: Iterable[Refresh], times: Times) -> str:
        """Patch one of the pods and return its new resource version; empty if all of them are gone."""
        for one in due:
            time_text = pod_writes.time_text(self._probe_time(one.pod, times.wall), "seconds")
            path, body = pod_writes.probe(one.pod, time_text, times.since(one.pod))
            try:
                answer = await self._client.patch(path.decode(), body, pod_writes.STRATEGIC_PATCH)
            except RefusedError as error:
                if error.status in POD_GONE_STATUSES:
                    continue
                raise
            try:
                return msgspec.json.decode(answer, type=PartialObjectMetadata).metadata.resource_version
            except UNREADABLE as error:
                raise MalformedAnswerError(
                    f"PATCH {path.decode()}: the answer is not a pod: {decode_problem(error)}"
                ) from error
        return ""

    def _probe_time(self, pod: Pod, wall: Callable[[], float]) -> int:
        """Return now, or the second before if the pod has now already: an unchanged pod causes no watch event."""
        now = int(wall())
        self._probed[pod.uid] = now - 1 if self._probed.get(pod.uid) == now else now
        return self._probed[pod.uid]

    async def _read(self, due: list[Refresh], version: str) -> None:
        """Return once everything that these evictions depend on was emitted."""
        reflectors = self._reflectors
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wait_for_pod_watch(version), name="refresh of pods")
            group.create_task(self._read_nodes(due, version), name="refresh of nodes")
            group.create_task(reflectors.pools.refresh(), name="refresh of pools")
            group.create_task(reflectors.budgets.refresh(), name="refresh of budgets")
            if any(one.namespaces for one in due):
                group.create_task(reflectors.namespaces.refresh(), name="refresh of namespaces")

    async def _wait_for_pod_watch(self, version: str) -> None:
        try:
            async with asyncio.timeout(WATCH_LAG_SECONDS_MAX):
                await self._reflectors.pods.wait_for_version(version)
        except TimeoutError as error:
            raise WatchLagError(f"the watch of pods is more than {WATCH_LAG_SECONDS_MAX:g} s behind") from error

    async def _read_nodes(self, due: list[Refresh], version: str) -> None:
        nodes = self._reflectors.nodes
        if len(nodes) >= LARGE_CLUSTER_NODES:
            try:
                async with asyncio.timeout(NODE_WATCH_WAIT_SECONDS):
                    await nodes.wait_for_version(version)
            except TimeoutError:
                pass
            else:
                return
        if any(one.selector is None for one in due):
            await nodes.refresh()
            return
        for one in due:
            if one.selector is not None:
                await nodes.refresh(selector_text(one.selector), [f"/{name}" for name in one.nodes])

    async def _read_pools(self) -> None:
        while True:
            action = await self._reads.get()
            backoff = ExponentialBackoff(self._timing)
            while not await (self._read_pool(action.name) if isinstance(action, ReadPool) else self._list_pools()):
                await backoff.wait()

    async def _list_pools(self) -> bool:
        """List the Pools once; return whether that gave an answer."""
        try:
            await self._reflectors.pools.refresh()
        except Exception as error:  # noqa: BLE001 - an error costs one try
            reason = self._reason(error)
            if reason != self._logged_list_problem:
                self._log.warning("pools not listed", reason=reason)
            self._logged_list_problem = reason
            return False
        self._logged_list_problem = ""
        self._emit(PoolsListed())
        return True

    async def _read_pool(self, name: str) -> bool:
        """Read a Pool once; return whether that gave an answer."""
        try:
            self._reflectors.pools.observe(await self._client.get(pool_writes.pool_path(name)))
        except RefusedError as error:
            if self._is_missing(error):
                self._emit(PoolRead(name, found=False))
                return True
            self._emit(PoolUnread(name, str(error)))
        except ApiError as error:
            self._emit(PoolUnread(name, str(error)))
        except Exception as error:  # noqa: BLE001 - an error costs one try
            self._emit(PoolUnread(name, self._reason(error)))
        else:
            self._emit(PoolRead(name, found=True))
            return True
        return False

    def _is_missing(self, error: RefusedError) -> bool:
        """Say whether the Pool does not exist, as an API server says that serves Pools, or because none serves them."""
        if error.status != HTTPStatus.NOT_FOUND:
            return error.no_such_object
        return self._reflectors.pools.not_served or (
            error.reason == "NotFound" and error.message.endswith(" not found")
        )


def selector_text(selector: LabelSelector) -> str:
    """Return a label selector as a query parameter.

    Source: `labels.Selector` of apimachinery.
    """
    parts: list[str] = []
    for one in selector.requirements:
        values = ",".join(one.values)
        match one.operator:
            case Operator.IN:
                parts.append(f"{one.key} in ({values})")
            case Operator.NOT_IN:
                parts.append(f"{one.key} notin ({values})")
            case Operator.EXISTS:
                parts.append(one.key)
            case Operator.DOES_NOT_EXIST:
                parts.append(f"!{one.key}")
            case Operator.GT | Operator.LT:
                raise ValueError(f"{one.operator} is no operator of a label selector")
    return ",".join(parts)
