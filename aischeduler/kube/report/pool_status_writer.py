"""Write the status of Pools: only if it differs, and again if another client overwrote it.

Invariants:
- A status is written only if it differs from the stored one, and only at the resource version that was read.
- The answer to a write is the stored status; a newer watch event with another status means another client wrote it.
- While no other client writes, reports of unchanged Pools cost no request.
- A status that another scheduler holds is not written and costs no request; the log says so once.

Source: resource versions, which every write increases; Leases, which belong to their holder until they expire.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from aischeduler.kube.decode.api_types import PoolDocument
from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import MalformedAnswerError, RefusedError
from aischeduler.kube.report import pool_writes
from aischeduler.kube.report.pool_writes import StatusWriter, status_holder
from aischeduler.kube.watch.known_objects import version_number
from aischeduler.kube.write import pod_writes
from aischeduler.model.actions import ReportPool
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.names import DEFAULT_POOL

IsNewest = Callable[[ReportPool], bool]
"""Says whether a report is still the newest of its Pool."""


class _Stored(Struct, frozen=True):
    """The status of a Pool at one resource version."""

    version: str
    status: Any

    def overwrites(self, other: "_Stored") -> bool:
        """Say whether this status is newer than the other one and differs from it."""
        own_version, other_version = version_number(self.version), version_number(other.version)
        older = own_version is not None and other_version is not None and own_version <= other_version
        return not older and self.status != other.status


class PoolStatusWriter:
    """The statuses of all existing Pools: as written last, and as observed last."""

    def __init__(self, client: Client, scheduler: str, wall: Callable[[], float], log: FilteringBoundLogger) -> None:
        self._client = client
        self._scheduler = scheduler
        self._wall = wall
        self._log = log
        self._observed: dict[str, _Stored] = {}
        self._written: dict[str, tuple[ReportPool, _Stored]] = {}
        self._latest: dict[str, ReportPool] = {}
        """The last report of each Pool, written or not."""
        self._others: set[str] = set()
        """Other schedulers that the log has named."""

    def pool_seen(self, document: PoolDocument) -> None:
        """Record an observed Pool."""
        metadata = document.metadata
        self._observed[metadata.name] = _Stored(metadata.resource_version, document.status)

    def pool_gone(self, name: str) -> None:
        """Forget a deleted Pool."""
        self._observed.pop(name, None)
        self._written.pop(name, None)
        self._latest.pop(name, None)

    def latest_reports(self) -> list[ReportPool]:
        """Return the last report of each Pool, to be renewed, or written once another scheduler's hold expires."""
        return list(self._latest.values())

    def overwritten(self, name: str) -> ReportPool | None:
        """Return the report whose status another client overwrote; None if it is intact or was never written."""
        seen, written = self._observed.get(name), self._written.get(name)
        if (
            seen is None
            or written is None
            or not seen.overwrites(written[1])
            or self._held_by_another(name, seen.status)
        ):
            return None
        return written[0]

    async def write(self, report: ReportPool, wanted: IsNewest) -> None:
        """Write the status unless it is unchanged, another scheduler holds it, or `wanted` rejects the report.

        A Pool that is deleted or recreated is not written. Raises ApiError.
        """
        self._latest[report.name] = report
        seen = self._observed.get(report.name)
        if seen is not None and self._held_by_another(report.name, seen.status):
            return
        path = pool_writes.pool_path(report.name)
        try:
            document = _decoded(path, await self._client.get(path))
        except RefusedError as error:
            if error.no_such_object and report.name not in self._observed:
                self._latest.pop(report.name, None)  # the report waited longer than the Pool lived
                return
            raise
        if not wanted(report) or self._held_by_another(report.name, document.get("status")):
            return
        patch = pool_writes.status_patch(report, document, StatusWriter(self._scheduler, self._wall()))
        if patch is not None:
            path = pool_writes.pool_path(report.name, "status")
            document = _decoded(path, await self._client.patch(path, patch, pod_writes.MERGE_PATCH))
        self._remember(report, document)

    def _held_by_another(self, pool: str, status: Any) -> bool:
        """Say whether another scheduler holds this status; the log names it once.

        The holder of the default pool's status holds all of them; without one, each status has its own holder.
        """
        default = self._observed.get(DEFAULT_POOL)
        now = self._wall()
        holder_name = (status_holder(default.status, now) if default is not None else "") or status_holder(status, now)
        if holder_name in ("", self._scheduler):
            return False
        if holder_name not in self._others:
            self._others.add(holder_name)
            reason = f"the scheduler {holder_name} writes the statuses of Pools; their numbers are that scheduler's"
            self._log.warning("pool statuses not written", pool=pool, scheduler=holder_name, reason=reason)
        return True

    def _remember(self, report: ReportPool, document: dict[str, Any]) -> None:
        metadata = document.get("metadata") or {}
        if report.name in self._observed and metadata.get("uid") == report.uid:
            stored = _Stored(str(metadata.get("resourceVersion")), document.get("status"))
            self._written[report.name] = report, stored


def _decoded(path: str, body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except UNREADABLE as error:
        raise MalformedAnswerError(f"{path}: {decode_problem(error)}") from error
