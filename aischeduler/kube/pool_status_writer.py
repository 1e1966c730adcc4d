"""What stands in the statuses of Pools: written where it differs, and put right where somebody else wrote over it.

Laws:
- A status is written only where it differs from what was read, and only at the version that was read.
- What the server answered is what stands there; where a later word of the watch says otherwise, somebody else wrote.
- As long as nobody does, what is told about Pools costs no request.
- A status that another scheduler keeps is left alone, which costs no request either; the log says so once.

Source: Kubernetes resource versions, which every write of an object raises; Leases, which are whose they name until
they are no longer renewed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from aischeduler.kube import pod_writes, pool_writes
from aischeduler.kube.api_types import PoolDocument
from aischeduler.kube.client import Client
from aischeduler.kube.errors import MalformedAnswerError, RefusedError
from aischeduler.kube.known_objects import version_number
from aischeduler.kube.meta_types import UNREADABLE
from aischeduler.kube.pool_writes import StatusWriter, status_holder
from aischeduler.model.actions import ReportPool
from aischeduler.model.names import DEFAULT_POOL

IsNewest = Callable[[ReportPool], bool]
"""Says whether a report is still the newest about its Pool."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """The status of a Pool at one version of it."""

    version: str
    status: Any

    def overwrites(self, ours: "_Stored") -> bool:
        """Say whether this is another status than ours, and later."""
        mine, other = version_number(ours.version), version_number(self.version)
        older = mine is not None and other is not None and other <= mine
        return not older and self.status != ours.status


class PoolStatusWriter:
    """The statuses of all Pools that exist, as we wrote them last and as they were seen last."""

    def __init__(self, client: Client, scheduler: str, wall: Callable[[], float], log: FilteringBoundLogger) -> None:
        self._client = client
        self._scheduler = scheduler
        self._wall = wall
        self._log = log
        self._observed: dict[str, _Stored] = {}
        self._written: dict[str, tuple[ReportPool, _Stored]] = {}
        self._latest: dict[str, ReportPool] = {}
        """The last report about each Pool, whether it was written or left to another scheduler."""
        self._others: set[str] = set()
        """Schedulers that the log has named."""

    def pool_seen(self, document: PoolDocument) -> None:
        """Take in a Pool as it now is."""
        metadata = document.metadata
        self._observed[metadata.name] = _Stored(metadata.resource_version, document.status)

    def pool_gone(self, name: str) -> None:
        """Take in that there is no Pool of this name."""
        self._observed.pop(name, None)
        self._written.pop(name, None)
        self._latest.pop(name, None)

    def latest_reports(self) -> list[ReportPool]:
        """Return the last report about each Pool: what is to be renewed, or taken over when another stops renewing."""
        return list(self._latest.values())

    def overwritten(self, name: str) -> ReportPool | None:
        """Return the report in whose place something else now stands; None where it stands there, or none does."""
        seen, ours = self._observed.get(name), self._written.get(name)
        if seen is None or ours is None or not seen.overwrites(ours[1]) or self._held_by_another(name, seen.status):
            return None
        return ours[0]

    async def write(self, report: ReportPool, wanted: IsNewest) -> None:
        """Write the status unless it says the same, another scheduler keeps it, or it is not wanted any more.

        Nothing is written either where the Pool is gone or another one by now. Raises ApiError.
        """
        self._latest[report.name] = report
        seen = self._observed.get(report.name)
        if seen is not None and self._held_by_another(report.name, seen.status):
            return
        path = pool_writes.pool_path(report.name)
        try:
            document = _decoded(path, await self._client.get(path))
        except RefusedError as error:
            if error.status == HTTPStatus.NOT_FOUND and error.reason == "NotFound":
                return
            raise
        if not wanted(report) or self._held_by_another(report.name, document.get("status")):
            return
        patch = pool_writes.status_patch(report, document, StatusWriter(self._scheduler, self._wall()))
        if patch is not None:
            path = f"{path}/status"
            document = _decoded(path, await self._client.patch(path, patch, pod_writes.MERGE_PATCH))
        self._remember(report, document)

    def _held_by_another(self, pool: str, status: Any) -> bool:
        """Say whether another scheduler keeps this status; the log names it once.

        One scheduler keeps them all: the one that keeps that of the default pool. Where nobody does, each has its own.
        """
        default = self._observed.get(DEFAULT_POOL)
        now = self._wall()
        keeper = (status_holder(default.status, now) if default is not None else "") or status_holder(status, now)
        if keeper in ("", self._scheduler):
            return False
        if keeper not in self._others:
            self._others.add(keeper)
            reason = f"the scheduler {keeper} writes the statuses of Pools; their numbers are what it sees"
            self._log.warning("pool statuses left alone", pool=pool, scheduler=keeper, reason=reason)
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
        raise MalformedAnswerError(f"{path}: {error}") from error
