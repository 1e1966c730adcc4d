"""When the daemon is not live, and when it stays live."""

import asyncio
from typing import cast

import pytest
import structlog

from aischeduler.engine.counters import Counters, Result
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Bind
from aischeduler.observability.health import FAILURES_MAX, HEALTHY_SECONDS, STUCK_SECONDS, LoopHealth, pool_loop
from aischeduler.observability.metrics import MetricsRecorder, PoolLabels
from aischeduler.observability.status_log import PoolStatusLog, QueueStatusLog
from aischeduler.observability.telemetry import InstrumentedScheduler
from tests.observability.world import Clock, bind


class StillDecider:
    """An engine with constant ready pools and constant actions."""

    def __init__(self, *due: str) -> None:
        self.counters = Counters()
        self.due = due
        self.says: list[Action] = []
        self.fails = False

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        if self.fails:
            raise RuntimeError("a bug")
        self.counters.attempts[pool, Result.BOUND] += limit
        return self.says

    def ready(self, now: float) -> tuple[str, ...]:
        return self.due

    def next_wakeup(self) -> float | None:
        return 7.0

    def pools(self) -> tuple[str, ...]:
        return self.due

    def loops(self) -> tuple[str, ...]:
        return ("", *self.due)


def instrumented(engine: StillDecider) -> tuple[InstrumentedScheduler, LoopHealth, MetricsRecorder, Clock]:
    clock = Clock()
    health, recorder = LoopHealth(clock), MetricsRecorder(PoolLabels())
    scheduler = InstrumentedScheduler(
        cast("Scheduler", engine),
        clock,
        metrics=recorder,
        health=health,
        pool_status_log=PoolStatusLog(structlog.get_logger(), engine.pools, clock),
        queue_status_log=QueueStatusLog(structlog.get_logger(), tuple, clock),
    )
    return scheduler, health, recorder, clock


def attempts(recorder: MetricsRecorder) -> float | None:
    """Return how many attempts of the pool `a` have a duration."""
    name = "ai_scheduler_scheduling_attempt_duration_seconds_count"
    return recorder.registry.get_sample_value(name, {"pool": "a"})


def test_loop_that_decides_is_healthy_however_long_there_is_work() -> None:
    engine, health, _, clock = instrumented(StillDecider("a", "b"))
    for _ in range(10):
        engine.ready(clock.now)
        for pool in ("a", "b"):
            engine.decide(pool, clock.now, 1)
        clock.now += STUCK_SECONDS - 1
        assert health.problem() == ""


def test_loop_that_never_decides_is_stuck_while_the_others_decide() -> None:
    engine, health, _, clock = instrumented(StillDecider("a", "secret-name"))
    for _ in range(2):
        engine.ready(clock.now)
        engine.decide("a", clock.now, 1)
        clock.now += STUCK_SECONDS / 2 + 1
    engine.ready(clock.now)
    said = health.problem()
    assert said == "a pool's loop is stuck: something to decide has waited for 62 seconds"


def test_pool_without_work_is_never_stuck() -> None:
    decider = StillDecider("a")
    engine, health, _, clock = instrumented(decider)
    engine.ready(clock.now)
    decider.due = ()
    engine.ready(clock.now)
    clock.now += 10 * STUCK_SECONDS
    assert health.problem() == ""


async def test_loop_that_waits_for_bindings_is_not_stuck_and_its_time_counts_from_the_end_of_the_wait() -> None:
    engine, health, _, clock = instrumented(StillDecider("a"))
    engine.ready(clock.now)
    room = asyncio.Event()

    async def wait_for_room() -> None:
        await room.wait()

    waiting = asyncio.create_task(health.wait_for_room(wait_for_room))
    await asyncio.sleep(0)
    clock.now += 10 * STUCK_SECONDS
    assert health.problem() == ""
    room.set()
    await waiting
    assert health.problem() == ""
    clock.now += STUCK_SECONDS + 1
    assert "stuck" in health.problem()


async def test_short_wait_for_room_hides_no_other_stuck_loop() -> None:
    engine, health, _, clock = instrumented(StillDecider("a", "b"))
    engine.ready(clock.now)

    async def room() -> None:
        return

    for _ in range(3):
        clock.now += STUCK_SECONDS / 2
        await health.wait_for_room(room)
        engine.decide("a", clock.now, 1)
    assert "stuck" in health.problem()


def test_loop_that_keeps_failing_is_reported_without_its_name() -> None:
    _, health, _, _ = instrumented(StillDecider())
    for _ in range(FAILURES_MAX - 1):
        health.failed("reflector of Pod")
    assert health.problem() == ""
    health.failed("reflector of Pod")
    assert health.problem() == f"a loop keeps failing: {FAILURES_MAX} times in a row"


def test_failures_of_different_loops_do_not_add_up() -> None:
    _, health, _, _ = instrumented(StillDecider())
    for number in range(FAILURES_MAX):
        health.failed(f"loop {number}")
    assert health.problem() == ""


def test_failures_no_longer_count_after_a_time_without_any() -> None:
    _, health, _, clock = instrumented(StillDecider())
    for _ in range(FAILURES_MAX):
        health.failed("watch events")
    clock.now += HEALTHY_SECONDS + 1
    assert health.problem() == ""
    health.failed("watch events")
    assert health.problem() == ""


def test_successful_decision_ends_the_row_of_failures_of_its_pool() -> None:
    decider = StillDecider("a")
    engine, health, _, _ = instrumented(decider)
    for _ in range(FAILURES_MAX):
        health.failed(pool_loop("a"))
    decider.fails = True
    with pytest.raises(RuntimeError):
        engine.decide("a", 0.0, 1)
    assert "keeps failing" in health.problem()
    decider.fails = False
    engine.decide("a", 0.0, 1)
    assert health.problem() == ""


def test_engine_is_called_as_it_would_be_without_instruments() -> None:
    decider = StillDecider("a")
    decider.says = [bind("u1", "a")]
    engine, _, recorder, _ = instrumented(decider)
    said = engine.decide("a", 0.0, 3)
    assert said is decider.says
    assert isinstance(said[0], Bind)
    assert (engine.ready(0.0), engine.loops(), engine.next_wakeup()) == (("a",), ("", "a"), 7.0)
    assert attempts(recorder) == 3


def test_call_without_an_attempt_counts_no_duration() -> None:
    engine, _, recorder, _ = instrumented(StillDecider("a"))
    engine.decide("a", 0.0, 0)
    assert attempts(recorder) is None
