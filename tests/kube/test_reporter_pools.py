import asyncio
from typing import Any

import pytest

from aischeduler.kube.report import report_queue
from aischeduler.kube.report.pool_writes import pool_status
from aischeduler.model.actions import CreatePool, Nominate
from tests.build import a_pod
from tests.kube.pool_reports import WRITER, a_report
from tests.kube.reporter_world import POOL, POOLS, World, written
from tests.kube.scripted_server import Answer, reply, slam, status, until


def pool_document(**parts: Any) -> Any:
    return reply(200, {"metadata": {"name": "cpu", "uid": "u-cpu", "resourceVersion": "7"}, **parts})


async def test_pool_conditions_are_written_at_the_version_that_was_read() -> None:
    world = World()
    world.script.on("get", POOL, pool_document())
    world.script.on("patch", f"{POOL}/status", reply(200))
    async with world.running() as reports:
        reports.report_pool(a_report("cpu", uid="u-cpu", generation=3))
        await written(reports)
    (patch,) = world.script.asked("patch")
    assert patch.headers["content-type"] == "application/merge-patch+json"
    assert patch.json["metadata"] == {"resourceVersion": "7"}
    assert patch.json["status"]["observedGeneration"] == 3
    assert patch.json["status"]["conditions"][0]["lastTransitionTime"] == "2026-01-02T03:04:05Z"


def nominated(pod: str) -> Nominate:
    return Nominate(a_pod(pod), "n1", "cpu", "d")


async def test_pool_conflict_is_read_again() -> None:
    world = World()
    world.script.on("get", POOL, pool_document(), pool_document())
    world.script.on("patch", f"{POOL}/status", status(409, "Conflict"), reply(200))
    async with world.running() as reports:
        reports.report_pool(a_report("cpu", uid="u-cpu", generation=3))
        await written(reports)
        assert reports.counts.written == 1
    assert len(world.script.asked("get")) == 2


async def test_pool_with_another_uid_or_the_same_status_is_not_written() -> None:
    world = World()
    said = pool_status(a_report("cpu", generation=3), {}, WRITER)
    world.script.on("get", POOL, pool_document(status=said))
    world.script.on("get", POOL, pool_document())
    async with world.running() as reports:
        reports.report_pool(a_report("cpu", uid="u-cpu", generation=3))
        await written(reports)
        reports.report_pool(a_report("cpu", uid="another", generation=3))
        await written(reports)
        reports.report_pool(a_report("gone", uid="u-gone", generation=3))
        await written(reports)
        assert (reports.counts.written, reports.counts.refused) == (3, 0)
    assert world.script.asked("patch") == []


async def test_status_is_retried_until_it_is_written() -> None:
    world = World()
    world.script.on("get", POOL, *[slam] * 4, status(503, "ServiceUnavailable"), pool_document())
    world.script.on("patch", f"{POOL}/status", reply(200))
    async with world.running() as reports:
        reports.report_pool(a_report("cpu"))
        await written(reports)
        assert (reports.counts.written, reports.counts.dropped) == (1, 0)
    assert len(world.script.asked("patch")) == 1


async def test_older_status_never_overwrites_a_newer_one() -> None:
    world, release = World(), asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await pool_document()(writer)

    world.script.on("get", POOL, late, pool_document())
    world.script.on("patch", f"{POOL}/status", reply(200))
    async with world.running() as reports:
        reports.report_pool(a_report("cpu", generation=1))
        await until(lambda: world.script.asked("get"))
        reports.report_pool(a_report("cpu", generation=2))
        release.set()
        await written(reports)
    assert [request.json["status"]["observedGeneration"] for request in world.script.asked("patch")] == [2]


async def test_no_status_is_lost_when_reports_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_queue, "WAITING_MAX", 2)
    world = World().accept_all()
    world.binds_done.clear()
    names = ("cpu", "gpu", "masters")
    for name in ("c", "d"):
        world.script.on("patch", f"/api/v1/namespaces/default/pods/{name}/status", reply(200))
    for name in names:
        world.script.on("get", f"{POOLS}/{name}", pool_document())
        world.script.on("patch", f"{POOLS}/{name}/status", reply(200))
    async with world.running() as reports:
        for name in names:
            reports.report_pool(a_report(name, uid="u-cpu"))
        for name in ("a", "b", "c", "d"):
            reports.report_nominated(nominated(name))
        world.binds_done.set()
        await written(reports)
        assert (reports.counts.dropped, reports.counts.written) == (2, 5)
    assert len(world.script.asked("patch", POOLS)) == 3


@pytest.mark.parametrize(
    ("answer", "written_and_refused"),
    [(reply(201), (1, 0)), (status(409, "AlreadyExists"), (1, 0)), (status(404, "NotFound"), (0, 1))],
    ids=["created", "there already", "not served"],
)
async def test_pool_is_created_unless_there_is_one(answer: Answer, written_and_refused: tuple[int, int]) -> None:
    world = World()
    world.script.on("post", POOLS, answer)
    world.waits.hold()
    async with world.running() as reports:
        reports.create_pool(CreatePool("default"))
        await written(reports)
        assert (reports.counts.written, reports.counts.refused) == written_and_refused
    (request,) = world.script.asked("post")
    assert request.json["metadata"] == {"name": "default"}
