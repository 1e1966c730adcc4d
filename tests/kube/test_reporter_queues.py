"""Queue statuses: written on change, again where another client overwrote them, and not those of another scheduler."""

import json
from typing import Any

import msgspec
import pytest

from aischeduler.kube.decode.api_types import QueueDocument
from aischeduler.kube.report import reporter as module
from aischeduler.kube.report.queue_writes import queue_status
from aischeduler.kube.report.reporter import Reporter
from aischeduler.kube.report.status_writes import StatusWriter
from tests.build import replace
from tests.kube.queue_reports import BUSY, a_queue_report
from tests.kube.reporter_world import WALL, World, written
from tests.kube.scripted_server import Answer, Request, reply, settled, status, until

QUEUE = "/apis/resource.aibee.cn/v1alpha1/queues/q"


class Server:
    """A Queue as an API server keeps it: every write increases its version."""

    def __init__(self, world: World) -> None:
        self.version = 7
        self.status: dict[str, Any] = {}
        self._script = world.script
        world.script.always["get", QUEUE] = lambda _: reply(200, self.queue)
        world.script.always["patch", f"{QUEUE}/status"] = self.patch

    @property
    def queue(self) -> dict[str, Any]:
        metadata = {"name": "q", "uid": "u-q", "resourceVersion": str(self.version)}
        return {"metadata": metadata, "status": dict(self.status)}

    @property
    def writes(self) -> int:
        return len(self._script.asked("patch", QUEUE))

    def patch(self, request: Request) -> Answer:
        assert request.json["metadata"] == {"resourceVersion": str(self.version)}
        return self.change(request.json["status"])

    def change(self, fields: dict[str, Any]) -> Answer:
        self.status |= fields
        self.version += 1
        return reply(200, self.queue)

    def tell(self, reports: Reporter) -> None:
        reports.queue_seen(msgspec.json.decode(json.dumps(self.queue).encode(), type=QueueDocument))


async def test_status_is_written_once_and_again_where_another_client_overwrote_it() -> None:
    world = World()
    server = Server(world)
    async with world.running() as reports:
        server.tell(reports)
        for _ in range(2):
            reports.report_queue(a_queue_report(summary=BUSY))
            await written(reports)
        assert (server.writes, server.status["pods"]) == (1, 5)
        server.tell(reports)
        server.change({"pods": 99})
        server.tell(reports)
        await until(lambda: server.status["pods"] == 5)
    assert server.writes == 2


async def test_newest_status_wins_and_that_of_a_deleted_queue_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    server = Server(world)
    monkeypatch.setattr(module, "BINDS_POLL_SECONDS", 0.001)
    async with world.running() as reports:
        server.tell(reports)
        for pods in (1, 2, 3):
            reports.report_queue(a_queue_report(summary=replace(BUSY, pods=pods)))
        await written(reports)
        assert (server.writes, server.status["pods"]) == (1, 3)
        reports.queue_gone("q")
        reports.renew_statuses()
        await settled()
    assert server.writes == 1


async def test_status_that_another_scheduler_holds_is_not_written_and_the_log_says_so_once() -> None:
    world = World()
    server = Server(world)
    server.status = queue_status(a_queue_report(), {}, StatusWriter("other", WALL))
    async with world.running() as reports:
        server.tell(reports)
        for pods in (1, 2):
            reports.report_queue(a_queue_report(summary=replace(BUSY, pods=pods)))
            await written(reports)
    assert server.writes == 0
    (line,) = world.logged("queue statuses not written")
    assert (line["queue"], line["scheduler"]) == ("q", "other")


async def test_queue_that_was_deleted_before_its_status_was_written_is_no_failure() -> None:
    world = World()
    world.script.always["get", QUEUE] = lambda _: status(404, "NotFound", 'queues "q" not found')
    async with world.running() as reports:
        reports.report_queue(a_queue_report())
        await written(reports)
    assert world.logged("write refused") == []
