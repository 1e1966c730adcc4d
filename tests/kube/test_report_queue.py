"""What waits to be told: how much of it is taken at once."""

from aischeduler.kube.notes import Note, scheduled
from aischeduler.kube.report_queue import LATE_MAX, LATE_SECONDS, PATIENCE_SECONDS, ReportQueue
from tests.build import a_pod
from tests.kube.reporting import a_bind


class Time:
    """A clock that stands."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def a_queue(clock: Time, *pods: str) -> ReportQueue:
    """A queue in which each of these pods waits to be said to be bound."""
    queue = ReportQueue(clock, lambda: None)
    for pod in pods:
        queue.put(scheduled(a_bind(a_pod(pod))))
    return queue


async def late(queue: ReportQueue, under_way: int = 0) -> list[str]:
    """The pods that are to be told of at once beside those under way."""
    found: list[str] = []
    while (report := await queue.take_late(under_way + len(found))) is not None:
        assert isinstance(report, Note)
        found.append(report.about.name)
    return found


async def test_the_later_a_report_is_the_more_are_taken_at_once() -> None:
    clock = Time()
    queue = a_queue(clock, *(f"p{number:03}" for number in range(400)))
    assert await late(queue) == []
    clock.now += PATIENCE_SECONDS + 0.9 * LATE_SECONDS
    assert await late(queue) == []
    clock.now += LATE_SECONDS
    assert await late(queue) == ["p000"]
    clock.now += LATE_SECONDS
    assert await late(queue) == ["p001", "p002"]
    assert await late(queue, under_way=2) == []
    assert await late(queue, under_way=1) == ["p003"]
    clock.now += 1_000 * LATE_SECONDS
    assert len(await late(queue, under_way=100)) == LATE_MAX - 100


async def test_late_reports_whose_turn_others_have_taken_are_left_to_them() -> None:
    clock = Time()
    queue = a_queue(clock, "a", "b", "c")
    await queue.filled()
    await queue.filled()
    clock.now += PATIENCE_SECONDS + 100 * LATE_SECONDS
    assert await late(queue) == ["a"]


async def test_only_what_is_late_itself_is_taken_along() -> None:
    clock = Time()
    queue = a_queue(clock, "a")
    clock.now += PATIENCE_SECONDS + 100 * LATE_SECONDS
    queue.put(scheduled(a_bind(a_pod("b"))))
    assert await late(queue) == ["a"]
