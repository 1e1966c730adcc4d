"""Volcano Jobs that name this scheduler get their pods: their PodGroups are admitted, and no others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
import structlog
from structlog.testing import CapturingLogger

from aischeduler.kube.decode.gang_objects import PodGroupDocument
from aischeduler.kube.http.client import Client
from aischeduler.kube.report.volcano_jobs import RETRY_SECONDS, VolcanoJobs
from tests.gang_objects import volcano_pod_group_object
from tests.kube.scripted_server import Script, Waits, reply, serving, settled, status, until

GROUP = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups/group"
JOB = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/train"
OWNER = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": "j", "controller": True}


def seen(phase: str = "", *, version: int = 7, owner: Any = OWNER) -> PodGroupDocument:
    document = volcano_pod_group_object()
    document["metadata"] |= {"uid": "u", "resourceVersion": str(version), "ownerReferences": [owner] if owner else []}
    document["status"] = {"phase": phase} if phase else {}
    return msgspec.json.decode(msgspec.json.encode(document), type=PodGroupDocument)


def volcano_job(scheduler: str, task: str = "") -> Any:
    template = {"spec": {"schedulerName": task}} if task else {}
    return reply(200, {"spec": {"schedulerName": scheduler, "tasks": [{"name": "w", "template": template}]}})


@dataclass
class World:
    script: Script = field(default_factory=Script)
    waits: Waits = field(default_factory=Waits)
    lines: CapturingLogger = field(default_factory=CapturingLogger)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[VolcanoJobs]:
        log = structlog.wrap_logger(self.lines, processors=[], wrapper_class=structlog.BoundLogger).bind()
        async with serving(self.script) as server, Client(server) as client:
            jobs = VolcanoJobs(client, ("ai-scheduler",), self.waits.timing(), log)
            task = asyncio.create_task(jobs.run())
            try:
                yield jobs
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    @property
    def asked(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.script.requests]


@pytest.mark.parametrize(("scheduler", "task"), [("ai-scheduler", ""), ("volcano", "ai-scheduler")])
@pytest.mark.parametrize("phase", ["", "Pending"])
async def test_pod_group_of_a_job_that_names_this_scheduler_is_admitted(scheduler: str, task: str, phase: str) -> None:
    world = World()
    world.script.on("get", JOB, volcano_job(scheduler, task))
    world.script.on("patch", f"{GROUP}/status", reply(200))
    async with world.running() as jobs:
        jobs.pod_group_seen(seen(phase))
        await until(lambda: len(world.lines.calls) == 1)
    (patch,) = world.script.asked("patch")
    assert patch.json == {"metadata": {"resourceVersion": "7"}, "status": {"phase": "Inqueue"}}
    assert world.lines.calls[0].kwargs["event"] == "Volcano Job admitted"


async def test_pod_group_of_another_scheduler_is_left_alone_and_its_job_is_read_once() -> None:
    world = World()
    world.script.on("get", JOB, volcano_job("volcano"))
    async with world.running() as jobs:
        jobs.pod_group_seen(seen())
        await until(lambda: world.asked == [f"GET {JOB}"])
        await settled()
        jobs.pod_group_seen(seen("Pending", version=8))
        await settled()
    assert world.asked == [f"GET {JOB}"]


@pytest.mark.parametrize(
    "document", [seen("Inqueue"), seen("Running"), seen(owner=None), seen(owner={**OWNER, "apiVersion": "batch/v1"})]
)
async def test_pod_group_that_is_admitted_or_of_no_volcano_job_costs_no_request(document: PodGroupDocument) -> None:
    world = World()
    async with world.running() as jobs:
        jobs.pod_group_seen(document)
        await settled()
    assert world.asked == []


async def test_failed_read_is_tried_again() -> None:
    world = World()
    world.script.on("get", JOB, status(403, "Forbidden", "no right"), status(503, "Busy"), volcano_job("ai-scheduler"))
    world.script.on("patch", f"{GROUP}/status", reply(200))
    async with world.running() as jobs:
        jobs.pod_group_seen(seen())
        await until(lambda: len(world.script.asked("patch")) == 1)
    assert world.waits.seconds == [RETRY_SECONDS] * 2
    assert world.lines.calls[0].kwargs["event"] == "write refused"


@pytest.mark.parametrize("answer", [status(409, "Conflict"), status(404, "NotFound")])
async def test_changed_or_deleted_pod_group_is_not_tried_again_until_it_is_seen(answer: Any) -> None:
    world = World()
    world.script.on("get", JOB, volcano_job("ai-scheduler"), volcano_job("ai-scheduler"))
    world.script.on("patch", f"{GROUP}/status", answer, reply(200))
    world.script.always["patch", GROUP] = lambda _: status(404, "NotFound")
    async with world.running() as jobs:
        jobs.pod_group_seen(seen())
        await until(lambda: len(world.script.asked("patch")) >= 1)
        await settled()
        jobs.pod_group_seen(seen(version=8))
        await until(lambda: world.script.asked("patch")[-1].json["metadata"]["resourceVersion"] == "8")
    assert world.waits.seconds == []


async def test_job_of_a_name_that_no_job_can_have_ends_the_wait_of_its_pod_group_and_no_other() -> None:
    world = World()
    world.script.on("get", JOB, status(400, "BadRequest", "may not contain '%'"))
    async with world.running() as jobs:
        jobs.pod_group_seen(seen())
        await until(lambda: world.asked == [f"GET {JOB}"])
        await settled()
        jobs.pod_group_seen(seen(version=8))
        await settled()
    assert world.asked == [f"GET {JOB}"]
    assert world.waits.seconds == []


async def test_job_that_is_gone_ends_the_wait() -> None:
    world = World()
    world.script.on("get", JOB, status(404, "NotFound"))
    async with world.running() as jobs:
        jobs.pod_group_seen(seen())
        await until(lambda: world.asked == [f"GET {JOB}"])
        await settled()
    assert world.waits.seconds == []
