"""Pool statuses that the server refuses or that another client overwrites."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from aischeduler.kube.decode.api_types import PoolDocument
from aischeduler.kube.report import reporter as module
from aischeduler.kube.report.reporter import Reporter
from aischeduler.kube.watch.known_objects import KnownObjects
from aischeduler.kube.watch.watched_resources import ReflectorCounts, pools
from aischeduler.model.actions import CreatePool
from tests.build import a_pod
from tests.kube.pool_reports import a_report
from tests.kube.reporter_world import EVENTS, POD, POOL, POOLS, World, a_bind, written
from tests.kube.scripted_server import Answer, Request, reply, settled, status, until

FORBIDDEN = "pools/status is forbidden"


class Server:
    """A Pool as an API server keeps it: every write increases its version, and an older version is a conflict."""

    def __init__(self, world: World) -> None:
        self.version = 7
        self.uid = "u-cpu"
        self.status: dict[str, Any] = {}
        self.taken: list[float] = []
        """The times of the scheduler's status writes."""
        self._clock = world.timing.clock
        world.script.always["get", POOL] = lambda _: reply(200, self.pool)
        world.script.always["patch", f"{POOL}/status"] = self.patch

    @property
    def pool(self) -> dict[str, Any]:
        metadata = {"name": "cpu", "uid": self.uid, "resourceVersion": str(self.version)}
        return {"metadata": metadata, "status": dict(self.status)}

    def patch(self, request: Request) -> Answer:
        assert request.json["metadata"].keys() == {"resourceVersion"}
        if request.json["metadata"]["resourceVersion"] != str(self.version):
            return status(409, "Conflict")
        self.status |= request.json["status"]
        self.taken.append(self._clock())
        return self.raised()

    def raised(self) -> Answer:
        self.version += 1
        return reply(200, self.pool)

    def overwrite(self, nodes: int) -> None:
        self.status["nodes"] = nodes
        self.version += 1

    def tell(self, reports: Reporter) -> None:
        reports.pool_seen(msgspec.json.decode(json.dumps(self.pool).encode(), type=PoolDocument))


def writes(world: World) -> tuple[int, int]:
    return len(world.script.asked("get", POOL)), len(world.script.asked("patch", POOL))


async def test_status_that_another_client_overwrote_is_written_again() -> None:
    world = World()
    server = Server(world)
    async with world.running() as reports:
        server.tell(reports)
        reports.report_pool(a_report())
        await written(reports)
        ours = dict(server.status)
        server.tell(reports)
        server.overwrite(nodes=99)
        server.tell(reports)
        await until(lambda: server.status == ours)
        await settled()
    assert writes(world) == (2, 2)


async def test_pools_that_no_client_overwrites_cost_no_request() -> None:
    world = World()
    server = Server(world)
    async with world.running() as reports:
        server.tell(reports)
        reports.report_pool(a_report())
        await written(reports)
        for _ in range(5):
            server.tell(reports)
            server.raised()  # an edit of its spec or labels
        reports.report_pool(a_report())
        await written(reports)
        server.tell(reports)
        await settled()
    assert writes(world) == (2, 1)


async def test_status_that_is_overwritten_during_a_write_is_written_again() -> None:
    world, release = World(), asyncio.Event()
    server = Server(world)
    patch = server.patch

    def late(request: Request) -> Answer:
        answer = patch(request)

        async def after_the_other(writer: asyncio.StreamWriter) -> None:
            await release.wait()
            await answer(writer)

        return after_the_other

    world.script.always["patch", f"{POOL}/status"] = late
    async with world.running() as reports:
        server.tell(reports)
        reports.report_pool(a_report())
        await until(lambda: world.script.asked("patch"))
        ours = dict(server.status)
        server.tell(reports)
        server.overwrite(nodes=99)
        server.tell(reports)
        release.set()
        await until(lambda: server.status == ours)


async def test_two_writers_overwrite_each_other_at_most_once_a_second() -> None:
    world = World()
    server = Server(world)
    async with world.running() as reports:
        server.tell(reports)
        reports.report_pool(a_report())
        await written(reports)
        for nodes in range(30):
            server.overwrite(nodes=99 + nodes)
            server.tell(reports)
            await asyncio.sleep(0.001)
        await until(lambda: server.status["nodes"] == 0)
    pauses = [later - earlier for earlier, later in pairwise(server.taken)]
    assert pauses
    assert min(pauses) >= module.OVERWRITTEN_RETRY_SECONDS - 0.001


async def test_pool_that_is_gone_or_recreated_is_not_written_again() -> None:
    world = World()
    server = Server(world)
    async with world.running() as reports:
        server.tell(reports)
        reports.report_pool(a_report())
        await written(reports)
        reports.pool_gone("cpu")
        server.status, server.version = {}, 20
        server.tell(reports)
        await settled()
    assert writes(world) == (1, 1)


async def test_overwritten_status_of_a_pool_that_was_made_again_between_two_looks_is_written_again() -> None:
    world = World()
    server = Server(world)
    async with world.running() as reports:
        known = KnownObjects(pools(reports), ReflectorCounts())

        def look() -> None:
            list(known.upsert(msgspec.json.decode(json.dumps(server.pool).encode(), type=PoolDocument)))

        look()
        server.uid, server.version = "second", 20
        look()
        reports.report_pool(a_report(uid="second"))
        await written(reports)
        ours = dict(server.status)
        look()
        server.overwrite(nodes=99)
        look()
        await until(lambda: server.status == ours)


@pytest.mark.parametrize("answer", [status(404, "NotFound", 'pools "cpu" not found'), status(400, "BadRequest")])
async def test_pool_that_is_gone_when_its_status_is_written_costs_no_further_request(answer: Answer) -> None:
    world = World()
    world.script.always["get", POOL] = lambda _: answer
    async with world.running() as reports:
        reports.report_pool(a_report())
        await written(reports)
        reports.renew_statuses()
        await written(reports)


async def test_report_of_a_pool_that_was_deleted_before_the_write_is_forgotten() -> None:
    world = World()
    world.script.always["get", POOL] = lambda _: status(404, "NotFound")
    async with world.running() as reports:
        reports.report_pool(a_report())
        await until(lambda: writes(world)[0] == 1)
        await settled()
        reports.renew_statuses()
        await settled()
    assert writes(world) == (1, 0)


def of_another(name: str, scheduler: str = "other", renewed: str = "2026-01-02T03:03:00Z") -> PoolDocument:
    """Return a Pool whose status another scheduler wrote a minute ago."""
    metadata = {"name": name, "uid": f"u-{name}", "resourceVersion": "6"}
    status = {"scheduler": scheduler, "renewTime": renewed}
    return msgspec.convert({"metadata": metadata, "status": status}, PoolDocument)


async def test_statuses_of_another_scheduler_are_not_written_and_the_log_names_it_once() -> None:
    world = World()
    async with world.running() as reports:
        for name in ("cpu", "gpu"):
            reports.pool_seen(of_another(name))
            reports.report_pool(a_report(name))
        await written(reports)
        reports.report_pool(a_report(generation=4))
        reports.renew_statuses()
        await written(reports)
    assert world.script.requests == []
    (line,) = world.logged("pool statuses not written")
    assert (line["level"], line["pool"], line["scheduler"]) == ("warning", "cpu", "other")


@pytest.mark.parametrize("default_by", ["ai-scheduler", "other"])
async def test_holder_of_the_default_pools_status_holds_all_statuses(default_by: str) -> None:
    world = World()
    server = Server(world)
    server.status = {"scheduler": "other" if default_by == "ai-scheduler" else "ai-scheduler"}
    server.status["renewTime"] = "2026-01-02T03:03:00Z"
    async with world.running() as reports:
        reports.pool_seen(of_another("default", default_by))
        server.tell(reports)
        reports.report_pool(a_report())
        await written(reports)
    assert server.status["scheduler"] == "ai-scheduler"
    assert writes(world) == ((1, 1) if default_by == "ai-scheduler" else (0, 0))


async def test_status_that_another_scheduler_stopped_renewing_is_taken_over() -> None:
    world = World()
    server = Server(world)
    server.status = {"scheduler": "other", "renewTime": "2026-01-02T03:03:00Z"}
    async with world.running() as reports:
        server.tell(reports)
        reports.report_pool(a_report())
        await written(reports)
        assert writes(world) == (0, 0)
        server.status["renewTime"] = "2026-01-02T03:00:00Z"
        server.tell(reports)
        reports.renew_statuses()
        await written(reports)
    assert server.status["scheduler"] == "ai-scheduler"


async def test_renewal_reads_each_status_and_writes_those_older_than_a_minute() -> None:
    world = World()
    server = Server(world)
    async with world.running() as reports:
        server.tell(reports)
        reports.report_pool(a_report())
        await written(reports)
        reports.renew_statuses()
        await written(reports)
        assert writes(world) == (2, 1)
        server.status["renewTime"] = "2026-01-02T03:02:05Z"
        reports.renew_statuses()
        await written(reports)
    assert writes(world) == (3, 2)
    assert server.status["renewTime"] == "2026-01-02T03:04:05Z"


async def test_refused_status_is_written_after_the_permission_is_granted() -> None:
    world = World().accept_all()
    server = Server(world)
    granted = world.script.always["patch", f"{POOL}/status"]
    world.script.always["patch", f"{POOL}/status"] = lambda _: status(403, "Forbidden", FORBIDDEN)
    async with world.running() as reports:
        reports.report_pool(a_report())
        await written(reports)  # a refused status has no holder
        await until(lambda: writes(world)[1] >= 3)
        reports.report_scheduled(a_bind(POD))
        await until(lambda: world.events)
        world.script.always["patch", f"{POOL}/status"] = granted
        await until(lambda: reports.counts.written == 2)
        await settled()
    assert server.status
    assert world.waits.seconds == [module.REFUSED_RETRY_SECONDS] * (writes(world)[1] - 1)


async def test_newer_status_ends_the_wait_of_a_refused_one() -> None:
    world = World()
    server = Server(world)
    world.script.on("patch", f"{POOL}/status", status(403, "Forbidden", FORBIDDEN))
    async with world.running() as reports:
        world.waits.hold()
        reports.report_pool(a_report(generation=1))
        await written(reports)
        reports.report_pool(a_report(generation=2))
        await written(reports)
        world.waits.release()
        await settled()
    assert server.status["observedGeneration"] == 2
    assert writes(world) == (2, 2)


async def test_many_refused_statuses_are_tried_again_a_few_in_a_second() -> None:
    world, moments = World(), list[float]()

    def refused(_: Request) -> Answer:
        moments.append(world.waits.now)
        return status(403, "Forbidden", "pools is forbidden")

    names = [f"p{number:02}" for number in range(30)]
    for name in names:
        world.script.always["get", f"{POOLS}/{name}"] = refused
    async with world.running() as reports:
        world.waits.hold()
        for name in names:
            reports.report_pool(a_report(name))
        await until(lambda: len(moments) == 30)
        world.waits.release()
        await until(lambda: len(moments) >= 90)
    tried = [request.path.rsplit("/", 1)[1] for request in world.script.asked("get")]
    assert all(tried[30:90].count(name) == 2 for name in names)
    assert moments[30] - moments[29] >= module.REFUSED_RETRY_SECONDS
    assert moments[59] - moments[30] > 0.9 * 29 / module.REFUSED_PER_SECOND


async def test_refused_writes_are_logged_once_a_minute_for_each_kind_and_status() -> None:
    world = World()
    world.script.always["post", EVENTS] = lambda _: status(403, "Forbidden", "events is forbidden")
    world.script.always["post", POOLS] = lambda _: status(403, "Forbidden", "pools is forbidden")
    world.waits.hold()  # else the Pool is tried again and again
    async with world.running() as reports:
        for number in range(5):
            reports.report_scheduled(a_bind(a_pod(f"p{number}")))
        reports.create_pool(CreatePool("default"))
        await written(reports)
        world.waits.now += 61
        reports.report_scheduled(a_bind(POD))
        await written(reports)
    first = {
        "level": "warning",
        "write": "event",
        "request": f"POST {EVENTS}",
        "status": 403,
        "reason": "events is forbidden",
        "left_out": 0,
    }
    new_pool = first | {"write": "new pool", "request": f"POST {POOLS}", "reason": "pools is forbidden"}
    said = world.logged("write refused")
    assert sorted(said[:2], key=lambda line: str(line["write"])) == [first, new_pool], "each is a queue of its own"
    again = [line for line in said[2:] if line["write"] == "event"]
    assert again == [first | {"left_out": 4}]
    assert [line for line in said[2:] if line not in (*again, new_pool)] == [], "the Pool may have been tried again"
    assert world.logged("pool created") == []
