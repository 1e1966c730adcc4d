"""When the daemon says that it should be restarted, and when it should be left alone."""

import asyncio

import pytest

from aischeduler.engine.tally import Result, Tally
from aischeduler.model.actions import Action, Bind
from aischeduler.observability.health import FAILURES_MAX, HEALTHY_SECONDS, STUCK_SECONDS, Vitals, pool_loop
from aischeduler.observability.labels import PoolLabels
from aischeduler.observability.meter import Meter
from aischeduler.observability.onlooker import Onlooker
from tests.observability.world import Clock, bind


class StillDecider:
    """Has always the same pools to decide for, and always the same to say."""

    def __init__(self, *due: str) -> None:
        self.tally = Tally()
        self.due = due
        self.says: list[Action] = []
        self.fails = False

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        if self.fails:
            raise RuntimeError("a bug")
        self.tally.attempts[pool, Result.BOUND] += limit
        return self.says

    def ready(self, now: float) -> tuple[str, ...]:
        return self.due

    def next_wakeup(self) -> float | None:
        return 7.0

    def pools(self) -> tuple[str, ...]:
        return self.due


def watched(engine: StillDecider) -> tuple[Onlooker, Vitals, Meter, Clock]:
    clock = Clock()
    vitals, meter = Vitals(clock), Meter(PoolLabels())
    return Onlooker(engine, clock, meter, vitals), vitals, meter, clock


def test_loop_that_decides_lives_however_long_there_is_work() -> None:
    engine, vitals, _, clock = watched(StillDecider("a", "b"))
    for _ in range(10):
        engine.ready(clock.now)
        for pool in ("a", "b"):
            engine.decide(pool, clock.now, 1)
        clock.now += STUCK_SECONDS - 1
        assert vitals.complaint() == ""


def test_loop_that_never_takes_up_its_work_is_stuck_while_the_others_go_on() -> None:
    engine, vitals, _, clock = watched(StillDecider("a", "secret-name"))
    for _ in range(2):
        engine.ready(clock.now)
        engine.decide("a", clock.now, 1)
        clock.now += STUCK_SECONDS / 2 + 1
    engine.ready(clock.now)
    said = vitals.complaint()
    assert said == "a pool's loop is stuck: something to decide has waited for 62 seconds"


def test_pool_without_work_is_never_stuck() -> None:
    decider = StillDecider("a")
    engine, vitals, _, clock = watched(decider)
    engine.ready(clock.now)
    decider.due = ()
    engine.ready(clock.now)
    clock.now += 10 * STUCK_SECONDS
    assert vitals.complaint() == ""


async def test_loop_that_waits_for_bindings_is_not_stuck_and_its_time_counts_from_the_end_of_the_wait() -> None:
    engine, vitals, _, clock = watched(StillDecider("a"))
    engine.ready(clock.now)
    room = asyncio.Event()

    async def wait_for_room() -> None:
        await room.wait()

    waiting = asyncio.create_task(vitals.hold(wait_for_room))
    await asyncio.sleep(0)
    clock.now += 10 * STUCK_SECONDS
    assert vitals.complaint() == ""
    room.set()
    await waiting
    assert vitals.complaint() == ""
    clock.now += STUCK_SECONDS + 1
    assert "stuck" in vitals.complaint()


async def test_wait_that_is_over_at_once_hides_no_other_stuck_loop() -> None:
    engine, vitals, _, clock = watched(StillDecider("a", "b"))
    engine.ready(clock.now)

    async def room() -> None:
        return

    for _ in range(3):
        clock.now += STUCK_SECONDS / 2
        await vitals.hold(room)
        engine.decide("a", clock.now, 1)
    assert "stuck" in vitals.complaint()


def test_loop_that_keeps_failing_is_told_by_number_and_not_by_name() -> None:
    _, vitals, _, _ = watched(StillDecider())
    for _ in range(FAILURES_MAX - 1):
        vitals.failed("reflector of Pod")
    assert vitals.complaint() == ""
    vitals.failed("reflector of Pod")
    assert vitals.complaint() == f"a loop keeps failing: {FAILURES_MAX} times in a row"


def test_failures_of_different_loops_do_not_add_up() -> None:
    _, vitals, _, _ = watched(StillDecider())
    for number in range(FAILURES_MAX):
        vitals.failed(f"loop {number}")
    assert vitals.complaint() == ""


def test_failures_are_forgiven_after_a_healthy_while() -> None:
    _, vitals, _, clock = watched(StillDecider())
    for _ in range(FAILURES_MAX):
        vitals.failed("intake")
    clock.now += HEALTHY_SECONDS + 1
    assert vitals.complaint() == ""
    vitals.failed("intake")
    assert vitals.complaint() == ""


def test_decision_ends_the_row_of_failures_of_its_pool_and_a_failed_one_does_not() -> None:
    decider = StillDecider("a")
    engine, vitals, _, _ = watched(decider)
    for _ in range(FAILURES_MAX):
        vitals.failed(pool_loop("a"))
    decider.fails = True
    with pytest.raises(RuntimeError):
        engine.decide("a", 0.0, 1)
    assert "keeps failing" in vitals.complaint()
    decider.fails = False
    engine.decide("a", 0.0, 1)
    assert vitals.complaint() == ""


def test_engine_is_called_as_it_would_be_without_an_onlooker() -> None:
    decider = StillDecider("a")
    decider.says = [bind("u1", "a")]
    engine, _, meter, _ = watched(decider)
    said = engine.decide("a", 0.0, 3)
    assert said is decider.says
    assert isinstance(said[0], Bind)
    assert (engine.ready(0.0), engine.pools(), engine.next_wakeup()) == (("a",), ("a",), 7.0)
    (lines,) = [list(s.lines("x", {})) for s in meter.attempt_seconds.values()]
    assert ("x_count", {}, 3) in lines


def test_call_without_an_attempt_counts_no_duration() -> None:
    engine, _, meter, _ = watched(StillDecider("a"))
    engine.decide("a", 0.0, 0)
    assert meter.attempt_seconds == {}
