import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from aischeduler.daemon.pool_loops import PoolLoops
from aischeduler.daemon.process import Daemon
from aischeduler.kube.access.server import Server
from aischeduler.kube.http.backoff import Timing
from aischeduler.model.actions import Action, ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from tests.daemon.cluster import ALONE, brief
from tests.kube.scripted_server import Half, settled, until


@dataclass
class FakeEngine:
    """Pools, each with a number of decisions that are left."""

    left: dict[str, int] = field(default_factory=dict)
    wakeup: float | None = None
    broken: set[str] = field(default_factory=set)
    limits: list[int] = field(default_factory=list)
    blind: int = 0
    """How many of the next searches for work fail."""
    turns: list[str] = field(default_factory=list)
    """The pool of each slice."""

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        if pool in self.broken:
            raise ValueError("a bug")
        self.limits.append(limit)
        self.turns.append(pool)
        taken = min(limit, self.left[pool])
        self.left[pool] -= taken
        return [Warn(ObjectRef("Pool", pool, ""), EventReason.UNREADABLE, "")] * taken

    def ready(self, now: float) -> tuple[str, ...]:
        if self.blind:
            self.blind -= 1
            raise ValueError("a bug in ready")
        due = self.wakeup is not None and now >= self.wakeup
        return tuple(sorted(name for name, left in self.left.items() if left or due))

    def next_wakeup(self) -> float | None:
        return self.wakeup

    def loops(self) -> tuple[str, ...]:
        return tuple(sorted(self.left))


@dataclass
class Loops:
    engine: FakeEngine
    performed: list[Action] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    gated: tuple[str, ...] = ()
    """The pools that wait for room; empty: all pools."""

    async def room(self, pool: str) -> None:
        if not self.gated or pool in self.gated:
            await self.gate.wait()

    broken_actions: int = 0
    """How many of the next slices raise an exception when their actions are performed."""
    failures: list[str] = field(default_factory=list)

    def perform(self, actions: Sequence[Action]) -> None:
        if self.broken_actions:
            self.broken_actions -= 1
            raise ValueError("a bug in the shell")
        self.performed.extend(actions)

    def heard(self, job: str, error: Exception) -> None:
        self.failures.append(f"{job}: {error}")

    def decided(self, pool: str) -> int:
        return len([action for action in self.performed if isinstance(action, Warn) and action.about.name == pool])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[PoolLoops]:
        self.gate.set()
        loops = PoolLoops(self.engine, self.perform, self.room, time.monotonic, self.heard)
        daemon = Daemon(Server("h", 1, time.monotonic), ALONE, asyncio.Event(), Timing(time.monotonic, brief, Half()))
        tasks: list[asyncio.Task[None]] = []

        def spawn(name: str, job: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
            tasks.append(asyncio.create_task(daemon._restarting(name, job)))
            return tasks[-1]

        loops.begin(spawn)
        yield loops
        loops.end()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_every_pool_is_decided_until_nothing_is_left() -> None:
    world = Loops(FakeEngine({"a": 700, "b": 3}))
    async with world.running():
        await until(lambda: (world.decided("a"), world.decided("b")) == (700, 3))
    assert world.engine.limits[0] == 1
    assert max(world.engine.limits) > 64


@pytest.mark.expects_errors("job=pool bad left_out=0 ValueError('a bug')")
async def test_failing_pool_starts_again_while_the_others_go_on(lines: Callable[[], list[dict[str, Any]]]) -> None:
    world = Loops(FakeEngine({"bad": 2, "good": 5}, broken={"bad"}))
    async with world.running():
        await until(lambda: world.decided("good") == 5)
        assert world.decided("bad") == 0
        world.engine.broken.clear()
        await until(lambda: world.decided("bad") == 2)
    (failure, *_) = [line for line in lines() if line["event"] == "job failed"]
    assert failure["job"] == "pool bad"
    assert "a bug" in failure["exception"]


async def test_search_for_work_is_repeated_after_one_that_failed() -> None:
    world = Loops(FakeEngine({"a": 0}, blind=0))
    async with world.running() as loops:
        await until(lambda: not loops.busy)
        world.engine.blind = 1
        world.engine.left["a"] = 5
        loops.wake_soon()
        await until(lambda: world.decided("a") == 5)
    assert world.failures == ["search for work: a bug in ready"]


async def test_timer_is_set_again_after_a_search_that_failed() -> None:
    world = Loops(FakeEngine({"a": 0}, wakeup=time.monotonic() + 0.05))
    async with world.running() as loops:
        await until(lambda: not loops.busy)
        world.engine.blind = 1
        world.engine.turns.clear()
        await until(lambda: "a" in world.engine.turns)
    assert world.failures == ["search for work: a bug in ready"]


@pytest.mark.expects_errors("job failed again_in_seconds")
async def test_loop_goes_on_after_actions_that_could_not_be_performed() -> None:
    world = Loops(FakeEngine({"a": 3}), broken_actions=1)
    async with world.running():
        await until(lambda: world.decided("a") == 2)


async def test_pools_come_and_go() -> None:
    world = Loops(FakeEngine({"a": 1}))
    async with world.running() as loops:
        await until(lambda: world.decided("a") == 1)
        world.engine.left = {"b": 1}
        loops.wake_soon()
        await until(lambda: world.decided("b") == 1)
        assert list(loops._tasks) == ["b"]


async def test_pool_decides_nothing_while_too_many_of_its_bindings_are_in_flight() -> None:
    world = Loops(FakeEngine({"a": 0}))
    async with world.running() as loops:
        world.gate.clear()
        world.engine.left["a"] = 5
        loops.wake_soon()
        await settled()
        assert world.performed == []
        world.gate.set()
        await until(lambda: world.decided("a") == 5)


async def test_pool_without_room_for_bindings_delays_no_other_pool() -> None:
    world = Loops(FakeEngine({"crowded": 0, "single": 0}), gated=("crowded",))
    async with world.running() as loops:
        world.gate.clear()
        world.engine.left |= {"crowded": 5, "single": 1}
        loops.wake_soon()
        await until(lambda: world.decided("single") == 1)
        assert world.decided("crowded") == 0
        world.gate.set()
        await until(lambda: world.decided("crowded") == 5)


async def test_loops_are_not_busy_while_their_pools_have_no_room() -> None:
    world = Loops(FakeEngine({"a": 0, "b": 0}))
    async with world.running() as loops:
        await until(lambda: not loops.busy)
        world.gate.clear()
        world.engine.left |= {"a": 5}
        loops.wake_soon()
        assert loops.busy
        await until(lambda: not loops.busy)
        assert world.decided("a") == 0
        world.gated = ("a",)
        world.engine.left |= {"b": 5000}
        loops.wake_soon()
        while not world.decided("b"):
            await asyncio.sleep(0)
        assert loops.busy
        await until(lambda: not loops.busy)
        assert world.decided("b") == 5000


async def test_other_tasks_run_between_slices_of_many_busy_pools() -> None:
    world = Loops(FakeEngine(dict.fromkeys("abcdefgh", 5000)))
    between: list[int] = []
    async with world.running():
        while any(world.engine.left.values()):
            before = len(world.engine.limits)
            await asyncio.sleep(0)
            between.append(len(world.engine.limits) - before)
    assert sum(between) > len(world.engine.left)
    assert max(between) == 1


async def test_crowd_of_another_pool_delays_a_single_pod_by_two_slices_at_most() -> None:
    engine = FakeEngine({"crowd": 50_000, "single": 0})
    async with Loops(engine).running() as loops:
        for _ in range(10):
            before = len(engine.turns)
            engine.left["single"] = 1
            loops.wake_soon()
            while engine.left["single"]:
                await asyncio.sleep(0)
            assert engine.turns[before:].index("single") <= 2
        assert engine.left["crowd"] > 0


async def test_time_alone_wakes_a_pool() -> None:
    world = Loops(FakeEngine({"a": 0}))
    async with world.running() as loops:
        world.engine.wakeup = time.monotonic() + 0.03
        loops.wake_soon()
        await until(lambda: world.engine.limits)
        world.engine.wakeup = None
