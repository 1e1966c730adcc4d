"""Reads beside the watches: the state that an eviction depends on, and Pools that pods name but no watch has shown.

Invariants:
- `Refreshed` is emitted after all events of the refresh, so the engine has processed them before it.
- Every resource is listed, or its watch has shown all changes up to a version that was read first. Nothing is written.
- Every request gets an answer. A failure is emitted, and the next try follows after a backoff; where only the nodes of
  one pool could not be read, only that pool waits.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from aischeduler.kube.decode.meta_types import UNREADABLE, read_metadata
from aischeduler.kube.http.backoff import ExponentialBackoff, Timing
from aischeduler.kube.http.client import Client, LineSplitter
from aischeduler.kube.http.errors import (
    ApiError,
    MalformedAnswerError,
    OnInternalError,
    RefusedError,
    WatchLagError,
    raise_internal_error,
)
from aischeduler.kube.watch.known_objects import version_number
from aischeduler.kube.watch.list_pager import read_raw
from aischeduler.kube.watch.reflector import Reflector
from aischeduler.kube.watch.watched_resources import read_unusual_line
from aischeduler.model.actions import Refresh
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.events import Event, Refreshed, RefreshFailed
from aischeduler.model.selectors import LabelSelector, Operator

WATCH_LAG_SECONDS_MAX: Final = 5.0
"""How long a watch has to show what was before the refresh; a bookmark takes up to half of it."""
REFRESH_SECONDS_MAX: Final = 30.0
INITIAL_RETRY_SECONDS: Final = 0.5
RETRY_SECONDS_MAX: Final = 5.0
"""The longest wait (doubled by jitter) after failed refreshes; all pools with evictions wait for it."""
LARGE_CLUSTER_NODES: Final = 500
"""A cluster of this many nodes waits for the watch before it lists nodes: some node always changes."""
NODE_WATCH_WAIT_SECONDS: Final = 0.3
LISTED_MAX: Final = 500
"""Fewer pods, or workloads of a kind, are listed, which is one page; of more the watch has to show the changes."""
WATCH_WAIT_SECONDS: Final = 0.3
"""How long to wait until one of them changes, before a watch of its own says that none does."""
PROOF_TIMEOUT_SECONDS: Final = 3
"""The timeout of that watch: a bookmark comes two seconds before it ends.

Source: the cacher of apiserver; its bookmarks also come once a minute, which would be too late.
"""
NOTHING: Final = {"fieldSelector": "metadata.name=none"}
"""The query of a list without objects, in one namespace, for its version.

Source: it is as new as the last write, and the API server reads it from the cache that also serves the watches. With a
limit instead of a name it would read etcd, and the cache could be behind.
"""


class OfPools(Struct, frozen=True):
    """The reflectors of the resources that every eviction depends on."""

    pods: Reflector[Any]
    nodes: Reflector[Any]
    pools: Reflector[Any]
    budgets: Reflector[Any]
    namespaces: Reflector[Any]


class Reflectors(OfPools, frozen=True, kw_only=True):
    """The reflectors of all resources that an eviction depends on; those of tenants only where there are queues."""

    queues: tuple[Reflector[Any], ...] = ()
    workloads: tuple[Reflector[Any], ...] = ()


class Refresher:
    """Carries out `Refresh`; `emit` gets the results."""

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
        self._pools_due = asyncio.Event()
        self._resting: dict[str, tuple[ExponentialBackoff, bool]] = {}
        """Pools whose own reads failed -> their backoff, and whether it has not ended."""
        self._rested: dict[str, Refresh] = {}
        """What was requested for pools that rest."""
        self._on_internal_error: OnInternalError = raise_internal_error
        self._logged_problem = ""
        """The last logged reason of a failed refresh."""
        self._logged_list_problem = ""
        """The last logged reason of a failed list of Pools."""

    def submit(self, action: Refresh) -> None:
        """Start to refresh a pool, together with all others that are due, or to list the Pools alone."""
        if not action.pool:
            self._pools_due.set()
        elif self._resting.get(action.pool, (None, False))[1]:
            self._rested[action.pool] = action
        else:
            self._due[action.pool] = action
            self._refresh_due.set()

    async def run(self, on_internal_error: OnInternalError) -> None:
        """Carry out requests until cancelled."""
        self._on_internal_error = on_internal_error
        async with asyncio.TaskGroup() as group:
            group.create_task(self._refresh_all(group), name="refresher")
            group.create_task(self._list_pools(), name="Pool reader")

    async def _refresh_all(self, group: asyncio.TaskGroup) -> None:
        for pool in tuple(self._resting):  # an earlier run left it
            self._end_rest(pool)
        backoff = ExponentialBackoff(self._timing, INITIAL_RETRY_SECONDS, RETRY_SECONDS_MAX)
        while True:
            await self._refresh_due.wait()
            self._refresh_due.clear()
            due, self._due = list(self._due.values()), {}
            problem, of_pools = await self._refresh(due)
            self._log_problems(due, problem, of_pools)
            for refresh in due:
                why = problem or of_pools.get(refresh.pool, "")
                if refresh.pool in of_pools:
                    seconds = self._rest(refresh.pool)
                    group.create_task(self._wake(refresh.pool, seconds), name=f"rest of {refresh.pool}")
                elif not problem:
                    self._resting.pop(refresh.pool, None)
                self._emit(RefreshFailed(refresh.pool, why) if why else Refreshed(refresh.pool))
            if problem:
                await backoff.wait()
            else:
                backoff = ExponentialBackoff(self._timing, INITIAL_RETRY_SECONDS, RETRY_SECONDS_MAX)

    def _log_problems(self, due: list[Refresh], problem: str, of_pools: dict[str, str]) -> None:
        """Log each problem once, until it is another."""
        pools = [refresh.pool for refresh in due] if problem else sorted(of_pools)
        reason = problem or "; ".join(dict.fromkeys(of_pools[pool] for pool in pools))
        if reason and reason != self._logged_problem:
            self._log.warning("not refreshed", pools=pools, reason=reason)
        self._logged_problem = reason

    def _rest(self, pool: str) -> float:
        """Have a pool wait before its next refresh; return how long."""
        backoff, _ = self._resting.get(pool, (None, False))
        if backoff is None:
            backoff = ExponentialBackoff(self._timing, INITIAL_RETRY_SECONDS, RETRY_SECONDS_MAX)
        self._resting[pool] = backoff, True
        return backoff.next_seconds()

    async def _wake(self, pool: str, seconds: float) -> None:
        await self._timing.sleep(seconds)
        self._end_rest(pool)

    def _end_rest(self, pool: str) -> None:
        """Refresh a pool that has rested, if that was requested meanwhile; its next failure lets it wait longer."""
        self._resting[pool] = self._resting[pool][0], False
        action = self._rested.pop(pool, None)
        if action is not None:
            self.submit(action)

    async def _refresh(self, due: list[Refresh]) -> tuple[str, dict[str, str]]:
        """Refresh these pools; return the problem of all, or empty, and the problems of some."""
        try:
            async with asyncio.timeout(REFRESH_SECONDS_MAX):
                return "", await self._read(due)
        except TimeoutError:
            return f"reading took longer than {REFRESH_SECONDS_MAX:g} s", {}
        except ExceptionGroup as group:
            return self._reason(group.exceptions[0]), {}
        except Exception as error:  # noqa: BLE001 - an error costs one try; no eviction happens before the next
            return self._reason(error), {}

    def _reason(self, error: Exception) -> str:
        if not isinstance(error, ApiError):
            self._on_internal_error("refresher", error)
        return str(error)

    async def _read(self, due: list[Refresh]) -> dict[str, str]:
        """Return once everything that these evictions depend on was emitted; say what failed for single pools."""
        reflectors = self._reflectors
        few = len(reflectors.pods) < LISTED_MAX
        version = await (reflectors.pods.refresh() if few else self._newest_version(reflectors.pods))
        async with asyncio.TaskGroup() as group:
            if not few:
                group.create_task(self._wait_for_watch(reflectors.pods, version), name="refresh of pods")
            nodes = group.create_task(self._read_nodes(due, version), name="refresh of nodes")
            group.create_task(reflectors.pools.refresh(), name="refresh of pools")
            group.create_task(reflectors.budgets.refresh(), name="refresh of budgets")
            if any(refresh.namespaces for refresh in due):
                group.create_task(reflectors.namespaces.refresh(), name="refresh of namespaces")
            if any(refresh.tenants for refresh in due):
                for reflector in (*reflectors.queues, *reflectors.workloads):
                    if not reflector.not_served:
                        group.create_task(self._read_tenants(reflector), name=f"refresh of {reflector.resource.kind}")
        return nodes.result()

    async def _read_tenants(self, reflector: Reflector[Any]) -> None:
        """Return once the queues or workloads of this kind were emitted; of a kind that may not be listed none are."""
        listed = reflector in self._reflectors.queues or len(reflector) < LISTED_MAX
        try:
            if listed:
                await reflector.refresh()
            else:
                await self._wait_for_watch(reflector, await self._newest_version(reflector))
        except RefusedError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise

    async def _newest_version(self, reflector: Reflector[Any]) -> str:
        """Return a version that no earlier change of an object of this kind is newer than."""
        group, _, plural = reflector.resource.path.rpartition("/")
        path = f"{group}/namespaces/default/{plural}"
        body = await self._client.get(path, NOTHING)
        try:
            return read_raw(body).metadata.resource_version
        except UNREADABLE as error:
            raise MalformedAnswerError(f"GET {path}: the answer is not a list: {decode_problem(error)}") from error

    async def _wait_for_watch(self, reflector: Reflector[Any], version: str) -> None:
        """Return once the watch of this kind has shown all changes up to this version."""
        if await _within(WATCH_WAIT_SECONDS, reflector.wait_for_version(version)):
            return
        try:
            async with asyncio.timeout(WATCH_LAG_SECONDS_MAX):
                await reflector.wait_for_version(await self._last_change(reflector, version))
        except TimeoutError as error:
            why = f"the watch of {_plural(reflector)} is more than {WATCH_LAG_SECONDS_MAX:g} s behind"
            raise WatchLagError(why) from error

    async def _last_change(self, reflector: Reflector[Any], version: str) -> str:
        """Return the version of the last change up to this version, as a watch beside the other shows it."""
        resource, splitter = reflector.resource, LineSplitter()
        path, last, wanted = resource.path, reflector.version, version_number(version) or 0
        query = resource.watch_query(last, self._timing.jitter) | {"timeoutSeconds": str(PROOF_TIMEOUT_SECONDS)}
        async with self._client.watch(path, query, WATCH_LAG_SECONDS_MAX) as watch:
            while piece := await watch.read():
                for line in splitter.feed(piece):
                    event = read_unusual_line(line, path, reflector.counts)
                    at = read_metadata(event.object).resource_version
                    if event.type != "BOOKMARK":
                        last = at
                    if (version_number(at) or 0) >= wanted:
                        return last
        raise WatchLagError(f"the API server does not say whether the watch of {_plural(reflector)} is behind")

    async def _read_nodes(self, due: list[Refresh], version: str) -> dict[str, str]:
        """Read the nodes of these pools; return why those of single pools could not be read."""
        nodes, problems = self._reflectors.nodes, dict[str, str]()
        large = len(nodes) >= LARGE_CLUSTER_NODES
        if large and await _within(NODE_WATCH_WAIT_SECONDS, nodes.wait_for_version(version)):
            return problems
        if any(refresh.selector is None for refresh in due):
            await nodes.refresh()
            return problems
        for refresh in due:
            if refresh.selector is not None:
                try:
                    await nodes.refresh(selector_text(refresh.selector), [f"/{name}" for name in refresh.nodes])
                except RefusedError as error:
                    problems[refresh.pool] = str(error)
        return problems

    async def _list_pools(self) -> None:
        """List the Pools when that is due, and again after a failure, until there is an answer."""
        while True:
            await self._pools_due.wait()
            self._pools_due.clear()
            backoff = ExponentialBackoff(self._timing)
            while why := await self._pools_problem():
                self._emit(RefreshFailed("", why))
                await backoff.wait()
            self._emit(Refreshed(""))

    async def _pools_problem(self) -> str:
        """List the Pools once; return why that gave no answer, or empty."""
        try:
            await self._reflectors.pools.refresh()
        except Exception as error:  # noqa: BLE001 - an error costs one try
            reason = self._reason(error)
            if reason != self._logged_list_problem:
                self._log.warning("pools not listed", reason=reason)
            self._logged_list_problem = reason
            return reason
        self._logged_list_problem = ""
        return ""


def selector_text(selector: LabelSelector) -> str:
    """Return a label selector as a query parameter.

    Source: `labels.Selector` of apimachinery.
    """
    parts: list[str] = []
    for requirement in selector.requirements:
        values = ",".join(requirement.values)
        match requirement.operator:
            case Operator.IN:
                parts.append(f"{requirement.key} in ({values})")
            case Operator.NOT_IN:
                parts.append(f"{requirement.key} notin ({values})")
            case Operator.EXISTS:
                parts.append(requirement.key)
            case Operator.DOES_NOT_EXIST:
                parts.append(f"!{requirement.key}")
            case Operator.GT | Operator.LT:
                raise ValueError(f"{requirement.operator} is no operator of a label selector")
    return ",".join(parts)


def _plural(reflector: Reflector[Any]) -> str:
    return reflector.resource.path.rpartition("/")[2]


async def _within(seconds: float, shown: Awaitable[None]) -> bool:
    """Return whether a watch has shown something within this time."""
    try:
        async with asyncio.timeout(seconds):
            await shown
    except TimeoutError:
        return False
    return True
