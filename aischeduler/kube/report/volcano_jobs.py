"""Let Volcano's controller create the pods of the Volcano Jobs that name this scheduler.

The controller creates no pod before the PodGroup of the Job is in the phase "Inqueue", which Volcano's own scheduler
writes. Without this a Job that moves here by its `schedulerName` would have no pods for ever.

Invariants:
- A PodGroup is admitted only if its Volcano Job names this scheduler, by `spec.schedulerName` or in a task.
- A PodGroup is written only at the resource version that was seen; a newer one is looked at again.
- The Job of a PodGroup is read once for each version that waits to be admitted, and not again if it is another's.

Source: phases of PodGroup, scheduling.volcano.sh/v1beta1; Job of batch.volcano.sh/v1alpha1.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from http import HTTPStatus
from typing import Any, Final

import msgspec
from cachetools import LRUCache
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from aischeduler.kube.decode.gang_objects import PodGroupDocument
from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError, RefusedError
from aischeduler.kube.http.paths import object_path
from aischeduler.kube.report.gang_status_writer import patch_status
from aischeduler.kube.report.gang_writes import object_paths, status_paths
from aischeduler.kube.report.log_sampler import RefusalLog
from aischeduler.model.gang import Gang, GangKey, GangSource

WAITING_MAX: Final = 10_000
"""How many PodGroups may wait to be admitted; beyond that the oldest are left until their next change."""
REMEMBERED_MAX: Final = 10_000
RETRY_SECONDS: Final = 5.0
NOT_ADMITTED: Final = ("", "Pending")
"""The phases in which the controller creates no pods."""
ADMITTED: Final = "Inqueue"


class _Scheduled(Struct, rename="camel"):
    scheduler_name: str | None = None


class _Template(Struct):
    spec: _Scheduled | None = None


class _Task(Struct):
    template: _Template | None = None


class _JobSpec(Struct, rename="camel"):
    scheduler_name: str | None = None
    tasks: list[_Task] | None = None


class _Job(Struct):
    spec: _JobSpec | None = None


class VolcanoJobs:
    """The PodGroups of Volcano Jobs that wait to be admitted; `schedulers` are the names of this one."""

    def __init__(self, client: Client, schedulers: Collection[str], timing: Timing, log: FilteringBoundLogger) -> None:
        self._client = client
        self._schedulers = frozenset(schedulers)
        self._timing = timing
        self._log = log
        self._refusals = RefusalLog(log, timing.clock)
        self._waiting: OrderedDict[str, PodGroupDocument] = OrderedDict()
        self._filled = asyncio.Event()
        self._foreign: LRUCache[str, bool] = LRUCache(REMEMBERED_MAX)

    def pod_group_seen(self, document: PodGroupDocument) -> None:
        """Observe a PodGroup of Volcano."""
        uid, phase = document.metadata.uid, _phase(document.status)
        self._waiting.pop(uid, None)
        if phase in NOT_ADMITTED and _job_of(document) and uid not in self._foreign:
            self._waiting[uid] = document
            if len(self._waiting) > WAITING_MAX:
                self._waiting.popitem(last=False)
            self._filled.set()

    async def run(self) -> None:
        """Admit PodGroups until cancelled."""
        while True:
            await self._filled.wait()
            while self._waiting:
                _, document = self._waiting.popitem(last=False)
                if not await self._admit(document):
                    self._waiting.setdefault(document.metadata.uid, document)
                    await self._timing.sleep(RETRY_SECONDS)
            self._filled.clear()

    async def _admit(self, document: PodGroupDocument) -> bool:
        """Admit a PodGroup if its Job is for this scheduler; return whether that is decided."""
        metadata = document.metadata
        try:
            if not await self._is_own(document):
                self._foreign[metadata.uid] = True
                return True
            (path,) = object_paths(Gang(GangKey(GangSource.VOLCANO, metadata.namespace, metadata.name), 1))
            body = {"metadata": {"resourceVersion": metadata.resource_version}, "status": {"phase": ADMITTED}}
            await patch_status(self._client, status_paths(path, GangSource.VOLCANO), msgspec.json.encode(body))
        except RefusedError as error:
            if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                return True  # it is gone, or a newer version is about to be seen
            self._refusals.refused("admission of a Volcano Job", error)
            return False
        except ApiError:
            return False
        self._log.info("Volcano Job admitted", namespace=metadata.namespace, pod_group=metadata.name)
        return True

    async def _is_own(self, document: PodGroupDocument) -> bool:
        path = object_path("batch.volcano.sh/v1alpha1", "jobs", _job_of(document), document.metadata.namespace)
        try:
            body = await self._client.get(path)
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND and error.no_such_object:
                return False
            raise
        try:
            spec = msgspec.json.decode(body, type=_Job).spec or _JobSpec()
        except UNREADABLE:
            return False
        templates = [task.template for task in spec.tasks or () if task.template is not None]
        names = [
            spec.scheduler_name,
            *(template.spec.scheduler_name for template in templates if template.spec is not None),
        ]
        return not self._schedulers.isdisjoint(names)


def _job_of(document: PodGroupDocument) -> str:
    """Return the name of the Volcano Job that controls a PodGroup; empty where none does."""
    owners = document.metadata.owner_references or ()
    found = (owner.name for owner in owners if owner.controller and owner.api_version.startswith("batch.volcano.sh/"))
    return next(found, "")


def _phase(status: Any) -> Any:
    return status.get("phase", "") if isinstance(status, dict) else ""
