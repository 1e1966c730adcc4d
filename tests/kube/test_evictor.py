import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from aischeduler.kube.http import connection_pool
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import OnInternalError
from aischeduler.kube.write import evictor as evictor_module
from aischeduler.kube.write.eviction_writes import EVICT_TRIES_MAX, Evicted, Eviction, EvictionOutcome, NotNeeded
from aischeduler.kube.write.evictor import EVICTIONS_IN_FLIGHT, EVICTIONS_IN_FLIGHT_MAX, Evictor, OnJobWrite
from aischeduler.model.actions import Evict, EvictionCause
from aischeduler.model.events import EvictRefusal, EvictRefused
from tests.build import a_pod, replace
from tests.kube.scripted_server import (
    PATIENCE_SECONDS,
    Answer,
    Counted,
    Script,
    Waits,
    broken,
    hang,
    reply,
    serving,
    slam,
    status,
    until,
)

OWNER = a_pod("owner", uid="u-owner")
POD = "/api/v1/namespaces/default/pods/v"
MARK = f"{POD}/status"


def evict(name: str = "v", *, terminating: bool = False, together: int = 1) -> Evict:
    victim = a_pod(name, uid=f"u-{name}", terminating=terminating)
    return Evict(victim, "n1", "cpu", "cpu", EvictionCause.PREEMPTED, OWNER, "d1", together)


@dataclass
class World:
    """An evictor and a scripted server."""

    script: Script = field(default_factory=Script)
    waits: Waits = field(default_factory=Waits)
    ends: list[EvictionOutcome] = field(default_factory=list)
    failed: OnInternalError = broken
    honour_budgets: bool = False
    engine: Counted = field(default_factory=Counted)
    bugs: list[Exception] = field(default_factory=list)
    """The errors that the next calls of the outcome callback raise."""

    def hear(self, _action: Evict, ended: EvictionOutcome, _seconds: float) -> None:
        if self.bugs:
            raise self.bugs.pop()
        self.ends.append(ended)

    @asynccontextmanager
    async def running(
        self, answer_seconds: float | None = None, on_job_write: OnJobWrite = lambda *_: None
    ) -> AsyncIterator[Evictor]:
        seconds = answer_seconds or self.script.answer_seconds
        async with serving(self.script) as server:
            connections = ConnectionPool(server, EVICTIONS_IN_FLIGHT_MAX, answer_seconds=seconds)
            evictor = Evictor(
                connections,
                self.waits.timing(),
                self.failed,
                controller="ai-scheduler",
                honour_budgets=self.honour_budgets,
                wall=lambda: 1_767_323_045.0,
                engine=self.engine,
            )
            task = asyncio.create_task(evictor.run(self.hear, on_job_write))
            try:
                yield evictor
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                await connections.close()

    async def evict(self, action: Evict | None = None) -> EvictionOutcome:
        async with self.running() as evictor:
            assert evictor.submit(action or evict())
            async with asyncio.timeout(PATIENCE_SECONDS):
                await evictor.work_queue.wait_finished()
        (ended,) = self.ends
        return ended

    @property
    def sent(self) -> list[str]:
        return [request.method for request in self.script.requests]


@pytest.fixture(autouse=True)
def quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "SWEEP_SECONDS", 0.01)


async def test_victim_gets_its_condition_and_is_then_deleted() -> None:
    world = World()
    world.script.on("patch", MARK, reply(200))
    world.script.on("delete", POD, reply(200))
    assert await world.evict() == Evicted()
    assert world.sent == ["PATCH", "DELETE"]
    (condition,) = world.script.requests[0].json["status"]["conditions"]
    assert condition["lastTransitionTime"] == "2026-01-02T03:04:05Z"


async def test_eviction_api_is_used_where_budgets_are_honoured() -> None:
    world = World(honour_budgets=True)
    world.script.on("post", f"{POD}/eviction", reply(201))
    assert await world.evict() == Evicted()
    assert world.sent == ["POST"]


async def test_victim_known_to_be_terminating_costs_no_request() -> None:
    world = World()
    assert isinstance(await world.evict(evict(terminating=True)), NotNeeded)
    assert world.sent == []


async def test_victim_whose_binding_is_refused_meanwhile_stays() -> None:
    world = World(engine=Counted(unshown={"u-v"}))
    async with world.running() as evictor:
        evictor.submit(evict())
        await until(lambda: len(world.waits.seconds) > 3)
        world.engine.spared.add("u-v")
        world.engine.unshown.clear()
        await evictor.work_queue.wait_finished()
    assert (world.sent, world.ends) == ([], [NotNeeded("the scheduler no longer asks for it")])


async def test_victim_that_was_assumed_is_evicted_once_it_is_shown_on_its_node() -> None:
    world = World(engine=Counted(unshown={"u-v"}))
    world.script.on("patch", MARK, reply(200))
    world.script.on("delete", POD, reply(200))
    async with world.running() as evictor:
        evictor.submit(evict())
        await until(lambda: len(world.waits.seconds) > 3)
        assert world.sent == []
        world.engine.unshown.clear()
        await evictor.work_queue.wait_finished()
    assert (world.sent, world.ends) == (["PATCH", "DELETE"], [Evicted()])


async def test_eviction_without_an_answer_is_sent_again_though_the_watch_shows_its_effect() -> None:
    world = World()

    async def shown(writer: asyncio.StreamWriter) -> None:
        world.engine.spared.add("u-v")
        await slam(writer)

    world.script.on("patch", MARK, reply(200))
    world.script.on("delete", POD, shown, reply(200))
    assert await world.evict() == Evicted()
    assert world.sent == ["PATCH", "DELETE", "DELETE"]


@pytest.mark.parametrize("lost", [hang, slam], ids=["timeout", "cut"])
async def test_delete_without_an_answer_is_sent_again_without_a_second_condition(lost: Answer) -> None:
    world = World()
    world.script.on("patch", MARK, reply(200))
    world.script.on("delete", POD, lost, status(404, "NotFound"))
    assert isinstance(await world.evict(), NotNeeded)
    assert world.sent == ["PATCH", "DELETE", "DELETE"]


async def test_condition_that_always_fails_is_refused_after_growing_waits_and_nothing_is_deleted() -> None:
    world = World()
    world.script.always["patch", MARK] = lambda _: status(500, "InternalError", "etcd is slow")
    assert await world.evict() == EvictRefused("u-v", EvictRefusal.UNAVAILABLE, "etcd is slow")
    assert world.sent == ["PATCH"] * EVICT_TRIES_MAX
    assert world.waits.seconds == [pytest.approx(s) for s in (1.2, 2.4, 4.8, 9.6, 19.2)]


async def test_overloaded_server_pauses_every_task() -> None:
    world = World()
    world.script.on("patch", MARK, reply(429, b"Too many requests.", {"Retry-After": "7"}), reply(200))
    world.script.on("delete", POD, reply(200))
    assert await world.evict() == Evicted()
    assert world.waits.seconds == [pytest.approx(8.0)]


async def test_refused_credentials_are_read_again() -> None:
    world = World()
    world.script.on("patch", MARK, status(401, "Unauthorized"), reply(200))
    world.script.on("delete", POD, reply(200))
    assert await world.evict() == Evicted()
    assert world.sent == ["PATCH", "PATCH", "DELETE"]


async def test_evictions_in_flight_are_limited() -> None:
    world, release = World(), asyncio.Event()
    late = released_by(release)
    async with world.running() as evictor:
        for number in range(EVICTIONS_IN_FLIGHT + 3):
            name = f"v{number}"
            world.script.on("patch", f"/api/v1/namespaces/default/pods/{name}/status", late)
            evictor.submit(evict(name))
        await until(lambda: len(world.sent) == EVICTIONS_IN_FLIGHT)
        assert (evictor.work_queue.waiting, evictor.work_queue.unfinished) == (3, EVICTIONS_IN_FLIGHT + 3)
        release.set()
        async with asyncio.timeout(120):
            await evictor.work_queue.wait_finished()
    assert len(world.ends) == EVICTIONS_IN_FLIGHT + 3


def released_by(release: asyncio.Event) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await status(404, "NotFound")(writer)

    return late


async def test_exception_costs_one_eviction_and_not_the_evictor(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(*_: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(connection_pool.ConnectionPool, "send", send)
    bugs: list[str] = []
    world = World(failed=lambda job, error: bugs.append(f"{job}: {error}"))
    ended = await world.evict()
    assert isinstance(ended, EvictRefused)
    assert ended.why is EvictRefusal.UNAVAILABLE
    assert bugs == ["evictor: a bug"] * EVICT_TRIES_MAX


async def test_exception_in_the_outcome_callback_costs_one_outcome() -> None:
    bugs: list[str] = []
    world = World(failed=lambda job, error: bugs.append(f"{job}: {error}"))
    world.bugs.append(RuntimeError("a bug"))
    async with world.running() as evictor:
        for name in ("v", "w"):
            evictor.submit(evict(name, terminating=True))
        await evictor.work_queue.wait_finished()
    assert bugs == ["outcome of an eviction: a bug"]
    assert len(world.ends) == 1


async def test_eviction_with_an_exception_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def hear(*_: object) -> None:
        raise TypeError("a bug")

    bugs: list[str] = []
    world = World(failed=lambda job, error: bugs.append(f"{job}: {error}"))
    world.script.on("patch", MARK, reply(200))
    monkeypatch.setattr(Eviction, "read_answer", hear)
    assert await world.evict() == EvictRefused("u-v", EvictRefusal.UNAVAILABLE, "an internal error of the scheduler")
    assert bugs == ["evictor: a bug"]


async def test_eviction_in_progress_when_a_run_ends_is_refused_by_the_next() -> None:
    world = World()
    world.script.on("patch", MARK, hang)
    async with world.running() as evictor:
        evictor.submit(evict())
        await until(lambda: world.sent)
    again = asyncio.create_task(evictor.run(world.hear))
    await until(lambda: world.ends)
    assert isinstance(world.ends[0], EvictRefused)
    assert evictor.work_queue.unfinished == 0
    again.cancel()
    await asyncio.wait([again])


async def test_newest_version_of_a_victim_is_known() -> None:
    world = World()
    world.script.on("patch", MARK, reply(200, {"kind": "Pod", "metadata": {"name": "v", "resourceVersion": "41"}}))
    world.script.on("delete", POD, reply(200, {"kind": "Pod", "metadata": {"name": "v", "resourceVersion": "43"}}))
    async with world.running() as evictor:
        evictor.submit(evict())
        await evictor.work_queue.wait_finished()
        assert evictor.newest_version == 43


async def test_eviction_that_is_asked_to_wait_delays_no_other() -> None:
    world = World()
    later = status(429, "TooManyRequests", "not now", headers={"Retry-After": "7"})
    world.script.on("patch", MARK, later)
    world.script.always["patch", MARK] = lambda _: reply(200)
    world.script.always["delete", POD] = lambda _: reply(200)
    world.waits.hold()
    async with world.running() as evictor:
        evictor.submit(evict())
        await until(lambda: world.waits.held)
        evictor.submit(evict())
        await until(lambda: world.ends)
        assert evictor.work_queue.unfinished == 1
        world.waits.release()
        await evictor.work_queue.wait_finished()
    assert world.ends == [Evicted(), Evicted()]
    assert world.waits.seconds == [7.0]


async def test_pool_whose_evictions_get_no_answer_delays_no_other_pool() -> None:
    world = World()
    world.script.always["patch", MARK] = lambda _: hang
    world.script.always["patch", f"{POD[:-1]}w/status"] = lambda _: reply(200)
    world.script.always["delete", f"{POD[:-1]}w"] = lambda _: reply(200)
    async with world.running(answer_seconds=60.0) as evictor:
        for _ in range(3 * EVICTIONS_IN_FLIGHT):
            evictor.submit(evict())
        await until(lambda: len(world.sent) == EVICTIONS_IN_FLIGHT)
        evictor.submit(replace(evict("w"), pool="quiet"))
        await until(lambda: world.ends)
    assert world.ends == [Evicted()]


async def evicted_together(world: World) -> list[tuple[str, str]]:
    """Evict two pods together; return the requests without those of dry runs."""
    async with world.running() as evictor:
        for name in ("v", "w"):
            assert evictor.submit(evict(name, together=2))
        async with asyncio.timeout(120):
            await evictor.work_queue.wait_finished()
    requests = [(request.method, request.path, "dryRun" in request.query) for request in world.script.requests]
    first = next((at for at, request in enumerate(requests) if not request[2]), len(requests))
    assert sum(request[2] for request in requests[:first]) == sum(request[2] for request in requests), (
        "a dry run came too late"
    )
    return [request[:2] for request in requests[first:]]


async def test_refusal_of_one_eviction_costs_no_pod_that_was_to_go_together_with_it() -> None:
    world = World()
    for name in ("v", "w"):
        world.script.on("patch", f"/api/v1/namespaces/default/pods/{name}/status", reply(200))
    world.script.on("delete", "/api/v1/namespaces/default/pods/v", reply(200))
    world.script.on("delete", "/api/v1/namespaces/default/pods/w", status(403, "Forbidden", "it is stuck"))
    assert await evicted_together(world) == []
    assert [(end.uid, end.why) for end in world.ends if isinstance(end, EvictRefused)] == [
        ("u-v", EvictRefusal.CALLED_OFF),
        ("u-w", EvictRefusal.FORBIDDEN),
    ]


async def test_pods_go_together_once_nothing_would_refuse_any_of_them() -> None:
    world = World()
    for name in ("v", "w"):
        path = f"/api/v1/namespaces/default/pods/{name}"
        world.script.on("patch", f"{path}/status", reply(200), reply(200))
        world.script.on("delete", path, reply(200), reply(200))
    assert len(await evicted_together(world)) == 4
    assert world.ends == [Evicted(), Evicted()]


async def test_error_in_one_eviction_leaves_none_waiting_that_goes_together_with_it() -> None:
    world = World()
    world.script.on("patch", "/api/v1/namespaces/default/pods/w/status", reply(200))
    world.script.on("delete", "/api/v1/namespaces/default/pods/w", reply(200))
    world.script.on("patch", MARK, *[status(503)] * EVICT_TRIES_MAX)
    assert await evicted_together(world) == []
    assert {end.why for end in world.ends if isinstance(end, EvictRefused)} == {
        EvictRefusal.CALLED_OFF,
        EvictRefusal.UNAVAILABLE,
    }


async def test_evictions_that_go_together_are_queued_together_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictor_module, "WAITING_MAX", 1)
    world = World()
    world.script.always["patch", MARK] = lambda _: hang
    async with world.running() as evictor:
        assert [evictor.submit(evict(name, together=2)) for name in ("v", "w")] == [True, True]
        late = [replace(evict(name, together=2), decision="d2") for name in ("x", "y")]
        assert [evictor.submit(action) for action in late] == [False, False]
