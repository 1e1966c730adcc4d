"""The order of reports, and how many late ones are taken at once."""

import pytest

from aischeduler.kube import report_queue
from aischeduler.kube.event_messages import EventMessage, scheduled, warning
from aischeduler.kube.report_queue import LATE_MAX, LATE_STEP_SECONDS, YIELD_SECONDS, EventReportQueue
from aischeduler.model.actions import ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from tests.build import a_pod
from tests.kube.reporter_world import a_bind


class Time:
    """A clock that stands still."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def a_queue(clock: Time, *pods: str) -> EventReportQueue:
    """Return a queue with the Scheduled Event of each of these pods."""
    queue = EventReportQueue(clock, lambda: None)
    for pod in pods:
        queue.put(scheduled(a_bind(a_pod(pod))))
    return queue


async def late(queue: EventReportQueue, under_way: int = 0) -> list[str]:
    """Return the pods of the late Events that may be in flight at once."""
    found: list[str] = []
    while (report := await queue.take_late(under_way + len(found))) is not None:
        assert isinstance(report, EventMessage)
        found.append(report.regarding.name)
    return found


async def test_the_later_a_report_is_the_more_are_taken_at_once() -> None:
    clock = Time()
    queue = a_queue(clock, *(f"p{number:03}" for number in range(400)))
    assert await late(queue) == []
    clock.now += YIELD_SECONDS + 0.9 * LATE_STEP_SECONDS
    assert await late(queue) == []
    clock.now += LATE_STEP_SECONDS
    assert await late(queue) == ["p000"]
    clock.now += LATE_STEP_SECONDS
    assert await late(queue) == ["p001", "p002"]
    assert await late(queue, under_way=2) == []
    assert await late(queue, under_way=1) == ["p003"]
    clock.now += 1_000 * LATE_STEP_SECONDS
    assert len(await late(queue, under_way=30)) == LATE_MAX - 30


async def test_late_reports_in_flight_count_against_the_limit() -> None:
    clock = Time()
    queue = a_queue(clock, "a", "b", "c")
    await queue.wait_for_report()
    await queue.wait_for_report()
    clock.now += YIELD_SECONDS + 100 * LATE_STEP_SECONDS
    assert await late(queue) == ["a"]


async def test_only_late_reports_are_taken() -> None:
    clock = Time()
    queue = a_queue(clock, "a")
    clock.now += YIELD_SECONDS + 100 * LATE_STEP_SECONDS
    queue.put(scheduled(a_bind(a_pod("b"))))
    assert await late(queue) == ["a"]


def a_warning(node: str) -> EventMessage:
    return warning(Warn(ObjectRef("Node", node, f"u-{node}"), EventReason.INVALID_NODE, "status.allocatable.cpu"))


def taken(queue: EventReportQueue, *, binds_wait: bool = False) -> list[str]:
    """Return the names of all reports, in the order in which they are taken."""
    found: list[str] = []
    while (report := queue.take(binds_wait=binds_wait)) is not None:
        assert isinstance(report, EventMessage)
        found.append(report.regarding.name)
    return found


def test_oldest_scheduled_event_is_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_queue, "WAITING_MAX", 3)
    queue = a_queue(Time())
    bound = [scheduled(a_bind(a_pod(name))) for name in ("a", "b", "c")]
    for report in (bound[0], a_warning("v"), bound[1], bound[2]):
        queue.put(report)
    assert [queue.contains(report) for report in bound] == [False, True, True]
    for name in ("w", "x"):
        queue.put(a_warning(name))
    assert [queue.contains(report) for report in bound] == [False, False, False]
    queue.put(a_warning("y"))
    assert taken(queue) == ["w", "x", "y"], "a warning is dropped only when no Scheduled Event waits"


async def test_each_waiting_report_has_a_turn_whatever_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_queue, "WAITING_MAX", 3)
    queue = a_queue(Time(), *(f"p{number}" for number in range(10)))
    for _ in range(3):
        await queue.wait_for_report()
    assert queue._ready.locked(), "the turn of a dropped report would waste a turn of the rate limit"


def test_newer_warning_takes_the_turn_of_a_scheduled_event_that_no_longer_yields() -> None:
    clock = Time()
    queue = a_queue(clock, "a", "b")
    clock.now += YIELD_SECONDS - 1
    queue.put(a_warning("n"))
    assert taken(queue, binds_wait=True) == []
    clock.now += 1
    assert queue.yield_seconds() == 0
    assert taken(queue, binds_wait=True) == ["n", "a", "b"]
