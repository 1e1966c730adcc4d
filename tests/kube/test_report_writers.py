"""The writers of reports: what is written in parallel, what waits for its rate limit, and what goes first."""

import asyncio

import pytest

from aischeduler.kube import report_queue, report_writers, reporter
from aischeduler.kube.concurrency_limit import ConcurrencyLimit
from aischeduler.kube.reporter import Reporter
from aischeduler.model.actions import Evict, EvictionCause, Nominate, ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from tests.build import a_pod
from tests.kube.pool_reports import a_report
from tests.kube.reporter_world import EVENTS, POD, POOL, World, a_bind, waiting, written
from tests.kube.scripted_server import Answer, Request, hang, reply, settled, status, until

BROKEN_NODE = Warn(ObjectRef("Node", "n1", "u-n"), EventReason.INVALID_NODE, "status.allocatable.cpu")
PREEMPTED = Evict(a_pod("victim"), "n1", "cpu", "cpu", EvictionCause.PREEMPTED, a_pod("owner"), "d")


def tell_of(reports: Reporter, pods: int) -> None:
    """Report that this many pods were bound."""
    for number in range(pods):
        reports.report_scheduled(a_bind(a_pod(f"p{number:04}")))


async def test_default_rate_of_events_is_fifty_a_second_and_a_thousand_at_once() -> None:
    world = World().accept_all()
    async with world.running() as reports:
        tell_of(reports, 1_100)
        await written(reports)
    assert len(world.events) == 1_100
    assert sum(world.waits.seconds) == pytest.approx(100 / 50, rel=0.05)


async def test_event_that_waits_for_its_rate_delays_no_status() -> None:
    world = World().accept_all()
    world.script.always["get", POOL] = lambda _: reply(200, {"metadata": {"uid": "u-cpu", "resourceVersion": "7"}})
    async with world.running() as reports:
        reports.set_event_rate(50, 1)
        world.waits.hold()
        tell_of(reports, 100)
        await until(lambda: len(world.events) == 1 and world.waits.held == 1)
        reports.report_waiting(waiting("no room"))
        reports.report_nominated(Nominate(POD, "n1", "cpu", "d"))
        reports.report_pool(a_report())
        await until(lambda: len(world.script.asked("patch")) == 3)
    assert len(world.events) == 1


async def test_statuses_have_a_rate_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "STATUSES_BURST", 2)
    world = World()
    async with world.running() as reports:
        reports.set_event_rate(1, 1)
        for number in range(8):
            reports.report_nominated(Nominate(a_pod(f"p{number}"), "n1", "cpu", "d"))
        await written(reports)
    assert len(world.script.asked("patch")) == 8
    assert sum(world.waits.seconds) == pytest.approx(6 / reporter.STATUSES_PER_SECOND, rel=0.5)


async def test_warnings_and_reasons_are_written_before_scheduled_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writers, "WRITERS", 1)
    world = World().accept_all()
    async with world.running() as reports:
        reports.set_event_rate(50, 1)
        world.waits.hold()
        tell_of(reports, 3)
        await until(lambda: len(world.events) == 1 and world.waits.held == 1)
        reports.report_warning(BROKEN_NODE)
        reports.report_evicted(PREEMPTED)
        reports.report_waiting(waiting("no room"))
        world.waits.release()
        await written(reports)
    said = [event["reason"] for event in world.events]
    assert said == ["Scheduled", "InvalidNode", "Preempted", "FailedScheduling", "Scheduled", "Scheduled"]


async def test_late_events_keep_within_their_rate() -> None:
    world, moments = World(), list[float]()

    def taken(_: Request) -> Answer:
        moments.append(world.waits.now)
        return reply(201)

    world.script.always["post", EVENTS] = taken
    world.binds_done.clear()
    async with world.running() as reports:
        reports.set_event_rate(50, 4)
        tell_of(reports, 2 * report_queue.LATE_MAX)
        begun = world.waits.now = 1_000_000.0
        await written(reports)
    soonest = [begun + max(0, number - 3) / 50 for number in range(len(moments))]
    assert [number for number, at in enumerate(moments) if at < soonest[number] - 0.001] == []


async def test_answers_delayed_by_the_rate_limit_do_not_raise_the_parallelism(monkeypatch: pytest.MonkeyPatch) -> None:
    awaited: list[bool] = []
    monkeypatch.setattr(ConcurrencyLimit, "record_answer", lambda *_, more_waits: awaited.append(more_waits))
    world = World().accept_all()
    world.binds_done.clear()
    async with world.running() as reports:
        reports.set_event_rate(50, 4)
        world.waits.hold()
        tell_of(reports, 2 * report_queue.LATE_MAX)
        world.waits.now += 100 * report_queue.YIELD_SECONDS
        await until(lambda: len(awaited) == 3)
    assert awaited == [False] * 3


async def test_new_rate_applies_to_all_waiting_reports_but_the_next() -> None:
    world = World().accept_all()
    async with world.running() as reports:
        reports.set_event_rate(1, 1)
        world.waits.hold()
        tell_of(reports, 40)
        await until(lambda: len(world.events) == 1 and world.waits.held == 1)
        reports.set_event_rate(1000, 1000)
        world.waits.release()
        await written(reports)
    assert world.waits.seconds[0] == pytest.approx(1.0)
    assert sum(world.waits.seconds) < 1.1


async def test_shutdown_drops_the_events_that_wait_for_their_rate() -> None:
    world = World().accept_all()
    world.binds_done.clear()
    async with world.running() as reports:
        reports.set_event_rate(1, 4)
        world.waits.hold()
        tell_of(reports, 40)
        reports.report_warning(BROKEN_NODE)
        reports.report_nominated(Nominate(POD, "n1", "cpu", "d"))
        assert reports.drop_excess_events() == 37
        world.binds_done.set()
        await written(reports)
        assert reports.counts.dropped == 37
    assert [event["reason"] for event in world.events].count("InvalidNode") == 1
    assert (len(world.events), len(world.script.asked("patch"))) == (4, 1)


async def test_late_events_of_a_long_burst_are_written_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writers, "WRITERS", 1)
    world = World().accept_all()
    world.script.always["post", EVENTS] = lambda _: hang
    world.binds_done.clear()
    async with world.running() as reports:
        tell_of(reports, 2 * report_queue.LATE_MAX)
        world.waits.now += report_queue.YIELD_SECONDS + 2.5 * report_queue.LATE_STEP_SECONDS
        await until(lambda: len(world.events) == 3)
        await settled()
        assert len(world.events) == 3


async def test_late_events_are_not_written_in_parallel_to_an_overloaded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writers, "WRITERS", 1)
    monkeypatch.setattr(reporter, "OVERLOAD_SECONDS", 2 * report_queue.YIELD_SECONDS)
    world = World()
    world.script.on("post", EVENTS, reply(429, b"Too many requests."), reply(201))
    world.script.always["post", EVENTS] = lambda _: hang
    async with world.running() as reports:
        reports.report_scheduled(a_bind(POD))
        await written(reports)
        world.binds_done.clear()
        tell_of(reports, 2 * report_queue.LATE_MAX)
        world.waits.now += report_queue.YIELD_SECONDS + 2.5 * report_queue.LATE_STEP_SECONDS
        await until(lambda: len(world.events) == 3)
        await settled()
        assert len(world.events) == 3  # one twice, and one of many


async def test_time_in_which_the_server_stalls_makes_no_report_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writers, "WRITERS", 1)
    world = World()
    world.script.always["post", EVENTS] = lambda _: hang
    world.binds_done.clear()
    async with world.running() as reports:
        tell_of(reports, 2 * report_queue.LATE_MAX)
        world.waits.now += 100.0 + report_queue.YIELD_SECONDS + 2.5 * report_queue.LATE_STEP_SECONDS
        world.connections.stalled_seconds = 100.0
        await until(lambda: len(world.events) == 3)
        await settled()
        assert len(world.events) == 3


async def test_late_reports_use_no_more_turns_than_there_are_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writers, "WRITERS", 1)
    world = World()
    world.script.always["post", EVENTS] = lambda _: hang
    world.binds_done.clear()
    async with world.running() as reports:
        reports.set_event_rate(1000, 4)
        tell_of(reports, 2 * report_queue.LATE_MAX)
        world.waits.now += 2 * report_queue.YIELD_SECONDS
        await until(lambda: len(world.events) == 4)
        await settled()
        assert len(world.events) == 4  # no report waits for its turn
        assert world.waits.seconds == []


async def test_namespace_whose_events_get_no_answer_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writers, "STUCK_SECONDS", 0.01)
    world = World().accept_all()
    there = EVENTS.replace("/default/", "/there/")
    world.script.always["post", there] = lambda _: hang
    async with world.running() as reports:
        for number in range(200):
            reports.report_scheduled(a_bind(a_pod(f"p{number:04}", namespace="there")))
        reports.report_scheduled(a_bind(POD))
        reports.report_waiting(waiting("no room"))
        await until(lambda: reports.counts.written == 3)
        asked = len(world.script.asked("post", there))
        assert asked <= report_writers.WRITERS + report_writers.STUCK_PER_LANE_MAX
        assert reports.counts.dropped == 0


async def test_event_that_is_asked_to_wait_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writers, "WRITERS", 1)
    monkeypatch.setattr(report_writers, "STUCK_SECONDS", 0.01)
    world = World().accept_all()
    world.script.on("post", EVENTS, status(429, "TooManyRequests", "not now", headers={"Retry-After": "20"}))
    world.waits.hold()
    async with world.running() as reports:
        tell_of(reports, 2)
        await until(lambda: reports.counts.written == 1)
        world.waits.release()
        await written(reports)
    assert world.waits.seconds == [20.0]


async def test_events_of_a_namespace_are_written_once_it_gets_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_writers, "STUCK_SECONDS", 0.01)
    world, answers = World().accept_all(), asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await answers.wait()
        await reply(201)(writer)

    world.script.always["post", EVENTS] = lambda _: late
    async with world.running() as reports:
        tell_of(reports, 100)
        await until(lambda: len(world.waits.seconds) >= 3)  # some are put aside, more than once
        answers.set()
        await until(lambda: reports.counts.written == 100)
    assert reports.counts.dropped == 0
