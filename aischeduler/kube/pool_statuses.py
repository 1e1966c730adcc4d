"""What stands in the statuses of Pools: written where it differs, and put right where somebody else wrote over it.

Laws:
- A status is written only where it differs from what was read, and only at the version that was read.
- What the server answered is what stands there; where a later word of the watch says otherwise, somebody else wrote.
- As long as nobody does, what is told about Pools costs no request.

Source: Kubernetes resource versions, which every write of an object raises.
"""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from aischeduler.kube import pool_requests, requests
from aischeduler.kube.client import Client
from aischeduler.kube.documents import UNREADABLE, PoolDocument
from aischeduler.kube.errors import GarbledError, RefusedError
from aischeduler.kube.store import version_number
from aischeduler.model.actions import ReportPool

Wanted = Callable[[ReportPool], bool]
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


class PoolStatuses:
    """The statuses of all Pools that exist, as we wrote them last and as they were seen last."""

    def __init__(self, client: Client, wall: Callable[[], float]) -> None:
        self._client = client
        self._wall = wall
        self._seen: dict[str, _Stored] = {}
        self._ours: dict[str, tuple[ReportPool, _Stored]] = {}

    def seen(self, document: PoolDocument) -> None:
        """Take in a Pool as it now is."""
        metadata = document.metadata
        self._seen[metadata.name] = _Stored(metadata.resource_version, document.status)

    def gone(self, name: str) -> None:
        """Take in that there is no Pool of this name."""
        self._seen.pop(name, None)
        self._ours.pop(name, None)

    def overwritten(self, name: str) -> ReportPool | None:
        """Return the report in whose place something else now stands; None where it stands there, or none does."""
        seen, ours = self._seen.get(name), self._ours.get(name)
        if seen is None or ours is None or not seen.overwrites(ours[1]):
            return None
        return ours[0]

    async def write(self, report: ReportPool, wanted: Wanted) -> None:
        """Write the status unless it says the same, is no longer wanted, or the Pool is gone or another one by now.

        Raises ApiError.
        """
        path = pool_requests.pool_path(report.name)
        try:
            document = _decoded(path, await self._client.get(path))
        except RefusedError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return
            raise
        if not wanted(report):
            return
        time_text = requests.time_text(self._wall(), "seconds")
        patch = pool_requests.status_patch(report, document, time_text)
        if patch is not None:
            path = f"{path}/status"
            document = _decoded(path, await self._client.patch(path, patch, requests.MERGE_PATCH))
        self._remember(report, document)

    def _remember(self, report: ReportPool, document: dict[str, Any]) -> None:
        metadata = document.get("metadata") or {}
        if report.name in self._seen and metadata.get("uid") == report.uid:
            stored = _Stored(str(metadata.get("resourceVersion")), document.get("status"))
            self._ours[report.name] = report, stored


def _decoded(path: str, body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except UNREADABLE as error:
        raise GarbledError(f"{path}: {error}") from error
