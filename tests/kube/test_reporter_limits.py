"""The limits of reports: of Events by their rate, of requests in flight, and of what one namespace may hold."""

import asyncio

import pytest

from aischeduler.kube.report import report_queue, reporter
from aischeduler.kube.report.report_queue import LANE_IN_FLIGHT_MAX, LATE_IN_FLIGHT_MAX, YIELD_SECONDS
from aischeduler.kube.report.reporter import Reporter
from aischeduler.model.actions import Evict, EvictionCause, Nominate, ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from tests.build import a_pod, replace
from tests.kube.pool_reports import a_report
from tests.kube.reporter_world import EVENTS, POD, POOL, STATUS, World, a_bind, waiting, written
from tests.kube.scripted_server import Answer, Request, hang, reply, settled, status, until

BROKEN_NODE = Warn(ObjectRef("Node", "n1", "u-n"), EventReason.INVALID_NODE, "status.allocatable.cpu")
PREEMPTED = Evict(a_pod("victim"), "n1", "cpu", "cpu", EvictionCause.PREEMPTED, a_pod("owner"), "d")


def tell_of(reports: Reporter, pods: int, namespace: str = "default") -> None:
    """Report that this many pods of a namespace were bound."""
    for number in range(pods):
        reports.report_scheduled(a_bind(a_pod(f"p{number:04}", namespace=namespace, uid=f"{namespace}-{number}")))


def events_of(namespace: str) -> str:
    return EVENTS.replace("/default/", f"/{namespace}/")


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


async def test_late_events_keep_within_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "BINDS_POLL_SECONDS", 0.001)
    world, moments = World(), list[float]()

    def taken(_: Request) -> Answer:
        moments.append(world.waits.now)
        return reply(201)

    world.script.always["post", EVENTS] = taken
    world.binds_done.clear()
    async with world.running() as reports:
        reports.set_event_rate(50, 4)
        tell_of(reports, 100)
        begun = world.waits.now = 1_000_000.0
        await written(reports)
    soonest = [begun + max(0, number - 3) / 50 for number in range(len(moments))]
    assert [number for number, at in enumerate(moments) if at < soonest[number] - 0.001] == []


async def test_new_rate_applies_to_all_waiting_reports() -> None:
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


async def test_few_late_reports_are_in_flight_beside_the_bindings() -> None:
    world = World()
    namespaces = [f"ns{number}" for number in range(8)]
    for namespace in namespaces:
        world.script.always["post", events_of(namespace)] = lambda _: hang
    world.binds_done.clear()
    async with world.running() as reports:
        for namespace in namespaces:
            tell_of(reports, LANE_IN_FLIGHT_MAX, namespace)
        world.waits.now += YIELD_SECONDS
        await until(lambda: len(world.events) == LATE_IN_FLIGHT_MAX)
        await settled()
        assert len(world.events) == LATE_IN_FLIGHT_MAX


async def test_time_in_which_the_server_stalls_makes_no_report_late() -> None:
    world = World().accept_all()
    world.binds_done.clear()
    async with world.running() as reports:
        reports.report_scheduled(a_bind(POD))
        world.waits.now += 1.0
        reports.report_scheduled(a_bind(a_pod("younger")))
        world.waits.now += 100.0 + YIELD_SECONDS - 1.0
        world.connections.stalled_seconds = 100.0
        await until(lambda: world.events)
        await settled()
    assert [event["regarding"]["name"] for event in world.events] == ["p"]


async def test_events_that_get_no_answer_delay_no_other_namespace_and_no_condition_of_theirs() -> None:
    world = World().accept_all()
    world.script.always["post", events_of("there")] = lambda _: hang
    world.script.always["patch", STATUS.replace("/default/", "/there/")] = lambda _: reply(200)
    async with world.running() as reports:
        tell_of(reports, 200, "there")
        await until(lambda: len(world.events) == LANE_IN_FLIGHT_MAX)
        reports.report_scheduled(a_bind(POD))
        reports.report_waiting(replace(waiting("no room"), pod=a_pod("p", namespace="there", uid="u-there")))
        await until(lambda: reports.counts.written == 2)
        assert len(world.script.asked("post", events_of("there"))) == LANE_IN_FLIGHT_MAX
        assert reports.counts.dropped == 0


async def test_event_that_is_asked_to_wait_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_queue, "REPORTS_IN_FLIGHT_MAX", 1)
    world = World().accept_all()
    world.script.on("post", EVENTS, status(429, "TooManyRequests", "not now", headers={"Retry-After": "20"}))
    world.waits.hold()
    async with world.running() as reports:
        tell_of(reports, 2)
        await until(lambda: reports.counts.written == 1)
        world.waits.release()
        await written(reports)
    assert world.waits.seconds == [20.0]


async def test_overload_that_one_namespace_is_told_of_delays_no_other() -> None:
    world = World().accept_all()
    world.script.always["post", events_of("there")] = lambda _: reply(429, b"Too many requests.", {"Retry-After": "20"})
    world.waits.hold()
    async with world.running() as reports:
        tell_of(reports, 200, "there")
        await until(lambda: world.waits.held)
        reports.report_scheduled(a_bind(POD))
        reports.report_waiting(waiting("no room"))
        await until(lambda: reports.counts.written == 3)
        assert len(world.script.asked("post", events_of("there"))) <= LANE_IN_FLIGHT_MAX


async def test_events_of_a_namespace_are_written_once_it_gets_answers_again() -> None:
    world, answers = World().accept_all(), asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await answers.wait()
        await reply(201)(writer)

    world.script.always["post", EVENTS] = lambda _: late
    async with world.running() as reports:
        tell_of(reports, 100)
        await until(lambda: len(world.events) == LANE_IN_FLIGHT_MAX)
        answers.set()
        await until(lambda: reports.counts.written == 100)
    assert reports.counts.dropped == 0
