"""Write the statuses of Pools, or of Queues: only if it differs, and again if another client overwrote it.

Invariants:
- A status is written only if it differs from the stored one, and only at the resource version that was read.
- The answer to a write is the stored status; a newer watch event with another status means another client wrote it.
- While no other client writes, reports of unchanged objects cost no request.
- A status that another scheduler holds is not written and costs no request; that is told once.

Source: resource versions, which every write increases; Leases, which belong to their holder until they expire.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol

import msgspec
from msgspec import Struct

from aischeduler.kube.decode.meta_types import UNREADABLE, Metadata
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import MalformedAnswerError, RefusedError
from aischeduler.kube.report.status_writes import R, StatusWriter, status_holder, status_patch
from aischeduler.kube.watch.known_objects import version_number
from aischeduler.kube.write import pod_writes
from aischeduler.model.decode_errors import decode_problem


class StatusDocument(Protocol):
    """An object that was observed, with its status."""

    @property
    def metadata(self) -> Metadata:
        """The name and the resource version."""

    @property
    def status(self) -> Any:
        """The status as it is stored."""


class StatusKind(Struct, Generic[R], frozen=True):
    """The kind of the objects: paths, statuses, and what is told where another scheduler holds a status.

    `path` gets a name and a subresource, `status` a report, the status as read, and who writes; `tell_held` the name of
    an object and the other scheduler. The holder of the status of the object `default` holds all of them; where there
    is none, each status has its own.
    """

    path: Callable[[str, str], str]
    status: Callable[[R, Mapping[str, Any], StatusWriter], Mapping[str, Any]]
    tell_held: Callable[[str, str], None]
    default: str = ""


class _Stored(Struct, frozen=True):
    """The status of an object at one resource version."""

    version: str
    status: Any

    def overwrites(self, other: "_Stored") -> bool:
        """Say whether this status is newer than the other one and differs from it."""
        own_version, other_version = version_number(self.version), version_number(other.version)
        older = own_version is not None and other_version is not None and own_version <= other_version
        return not older and self.status != other.status


class ObjectStatuses(Generic[R]):
    """The statuses of all existing objects of a kind: as written last, and as observed last."""

    def __init__(self, kind: StatusKind[R], client: Client, scheduler: str, wall: Callable[[], float]) -> None:
        self._kind = kind
        self._client = client
        self._scheduler = scheduler
        self._wall = wall
        self._observed: dict[str, _Stored] = {}
        self._written: dict[str, tuple[R, _Stored]] = {}
        self._latest: dict[str, R] = {}
        """The last report of each object, written or not."""
        self._others: set[str] = set()
        """Other schedulers that were told of."""

    def seen(self, document: StatusDocument) -> None:
        """Record an observed object."""
        metadata = document.metadata
        self._observed[metadata.name] = _Stored(metadata.resource_version, document.status)

    def gone(self, name: str) -> None:
        """Forget a deleted object."""
        self._observed.pop(name, None)
        self._written.pop(name, None)
        self._latest.pop(name, None)

    def latest_reports(self) -> list[R]:
        """Return the last report of each object, to be renewed, or written once another scheduler's hold expires."""
        return list(self._latest.values())

    def overwritten(self, name: str) -> R | None:
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

    async def write(self, report: R, wanted: Callable[[R], bool]) -> None:
        """Write the status unless it is unchanged, another scheduler holds it, or `wanted` rejects the report.

        `wanted` says whether a report is still the newest of its object. An object that is deleted or recreated is not
        written. Raises ApiError.
        """
        self._latest[report.name] = report
        seen = self._observed.get(report.name)
        if seen is not None and self._held_by_another(report.name, seen.status):
            return
        path = self._kind.path(report.name, "")
        try:
            document = _decoded(path, await self._client.get(path))
        except RefusedError as error:
            if error.no_such_object and report.name not in self._observed:
                self._latest.pop(report.name, None)  # the report waited longer than the object lived
                return
            raise
        if not wanted(report) or self._held_by_another(report.name, document.get("status")):
            return
        patch = status_patch(self._kind.status, report, document, StatusWriter(self._scheduler, self._wall()))
        if patch is not None:
            path = self._kind.path(report.name, "status")
            document = _decoded(path, await self._client.patch(path, patch, pod_writes.MERGE_PATCH))
        self._remember(report, document)

    def _held_by_another(self, name: str, status: Any) -> bool:
        """Say whether another scheduler holds this status; each is told of once."""
        default = self._observed.get(self._kind.default)
        now = self._wall()
        holder_name = (status_holder(default.status, now) if default is not None else "") or status_holder(status, now)
        if holder_name in ("", self._scheduler):
            return False
        if holder_name not in self._others:
            self._others.add(holder_name)
            self._kind.tell_held(name, holder_name)
        return True

    def _remember(self, report: R, document: dict[str, Any]) -> None:
        metadata = document.get("metadata") or {}
        if report.name in self._observed and metadata.get("uid") == report.uid:
            stored = _Stored(str(metadata.get("resourceVersion")), document.get("status"))
            self._written[report.name] = report, stored


def _decoded(path: str, body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except UNREADABLE as error:
        raise MalformedAnswerError(f"{path}: {decode_problem(error)}") from error
