"""Write the status of a gang into its PodGroup.

Invariants:
- The PodGroup is read first: a status is written only if it differs, and only at the resource version that was read.
- A PodGroup that is deleted or recreated is not written.
- Where the definition of Volcano's PodGroup has no subresource `status`, the object itself is patched.

Source: the definition of Volcano's PodGroup, which had no subresource for years.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import MalformedAnswerError, RefusedError, is_answer
from aischeduler.kube.report import gang_writes
from aischeduler.kube.write import pod_writes
from aischeduler.model.actions import ReportGang
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.times import time_text


class GangStatusWriter:
    """Writes statuses; `wall` is a clock in unix seconds."""

    def __init__(self, client: Client, wall: Callable[[], float]) -> None:
        self._client = client
        self._wall = wall

    async def write(self, report: ReportGang, wanted: Callable[[ReportGang], bool]) -> None:
        """Write the status unless it is current, or `wanted` rejects the report after the read. Raises ApiError."""
        for path in gang_writes.object_paths(report.gang):
            document = await self._read(path)
            if document is None:
                continue
            if wanted(report):
                patch = gang_writes.status_patch(report, document, time_text(self._wall()))
                if patch is not None:
                    await patch_status(self._client, gang_writes.status_paths(path, report.gang.key.source), patch)
            return

    async def _read(self, path: str) -> dict[str, Any] | None:
        try:
            return msgspec.json.decode(await self._client.get(path), type=dict[str, Any])
        except RefusedError as error:
            if is_answer(error.status):
                return None
            raise
        except UNREADABLE as error:
            raise MalformedAnswerError(f"{path}: {decode_problem(error)}") from error


async def patch_status(client: Client, paths: tuple[str, ...], patch: bytes) -> None:
    """Patch the status of a PodGroup in the first of `paths` that exists, none if it was deleted. Raises ApiError."""
    for path in paths:
        try:
            await client.patch(path, patch, pod_writes.MERGE_PATCH)
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        else:
            return
