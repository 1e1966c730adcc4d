"""Which report is written next, and which are held, replaced or dropped."""

from collections import Counter
from collections.abc import Iterable

import pytest

from aischeduler.kube.report import report_queue
from aischeduler.kube.report.event_messages import scheduled, warning
from aischeduler.kube.report.report_queue import (
    EVENTS,
    LANE_IN_FLIGHT_MAX,
    POOL_STATUS_YIELD_SECONDS,
    REPORTS_IN_FLIGHT_MAX,
    YIELD_SECONDS,
    Hold,
    Pending,
    PendingReports,
    Report,
    WaitingCondition,
    condition_key,
    place,
)
from aischeduler.model.actions import Nominate, ObjectRef, Warn
from aischeduler.model.event_reasons import EventReason
from tests.build import a_pod
from tests.kube.pool_reports import a_report
from tests.kube.reporter_world import a_bind


class World:
    """A queue, its clock, and the number of its dropped reports."""

    def __init__(self) -> None:
        self.now = 100.0
        self.dropped = 0
        self.queue = PendingReports(lambda: self.now, self.drop)

    def drop(self) -> None:
        self.dropped += 1

    def put(self, *reports: Report) -> "World":
        for report in reports:
            self.queue.put(report)
        return self

    def begin(self, *, late: bool = False, events: bool = True) -> Pending | None:
        """Begin the next write."""
        entry = self.queue.next(late=late, events=events)
        if entry is not None:
            self.queue.take(entry)
        return entry

    def write_all(self, *, late: bool = False, events: bool = True) -> list[Report | None]:
        """Write all that may be written; return it in its order."""
        found = []
        while (entry := self.begin(late=late, events=events)) is not None:
            found.append(entry.report)
            self.queue.finish(entry, entry.report, None)
        return found

    def fail(self, hold: Hold) -> Report | None:
        """Send the next report, whose next try has to wait."""
        entry = self.begin()
        assert entry is not None
        self.queue.finish(entry, entry.report, hold)
        return entry.report


def bound(*names: str, namespace: str = "default") -> list[Report]:
    return [scheduled(a_bind(a_pod(name, namespace=namespace))) for name in names]


def a_warning(node: str) -> Report:
    return warning(Warn(ObjectRef("Node", node, f"u-{node}"), EventReason.INVALID_NODE, "status.allocatable.cpu"))


def waits(name: str, message: str = "no room", namespace: str = "default") -> Report:
    return WaitingCondition(a_pod(name, uid=f"u-{name}", namespace=namespace), message)


def lanes(reports: Iterable[Report | None]) -> list[str]:
    return [place(report)[1] for report in reports if report is not None]


def test_pools_go_first_then_other_statuses_then_warnings_then_scheduled_events() -> None:
    reports = [*bound("a"), a_warning("n"), waits("b"), a_report("cpu")]
    assert World().put(*reports).write_all() == reports[::-1]


def test_events_without_a_token_delay_no_status() -> None:
    world = World().put(*bound("a"), waits("b"))
    assert world.write_all(events=False) == [waits("b")]
    assert world.write_all() == bound("a")


def test_namespaces_take_turns_and_each_is_in_order() -> None:
    crowded, quiet = bound("a", "b", "c", namespace="crowded"), bound("d", "e", namespace="quiet")
    written = World().put(*crowded, *quiet).write_all()
    assert written == [crowded[0], quiet[0], crowded[1], quiet[1], crowded[2]]


def test_each_lane_and_all_together_have_their_limit_in_flight() -> None:
    world = World()
    for namespace in range(20):
        world.put(*bound(*(f"p{namespace}-{number}" for number in range(20)), namespace=f"ns{namespace}"))
    begun = []
    while (entry := world.begin()) is not None:
        begun.append(entry)
    assert len(begun) == world.queue.in_flight == REPORTS_IN_FLIGHT_MAX
    world = World().put(*bound(*(f"p{number}" for number in range(20))), *bound("q", namespace="quiet"))
    begun = []
    while (entry := world.begin()) is not None:
        begun.append(entry)
    assert Counter(entry.lane for entry in begun) == {"events/default": LANE_IN_FLIGHT_MAX, "events/quiet": 1}
    world.queue.finish(begun[0], begun[0].report, None)
    assert world.begin() is not None, "an answer makes room"


def test_only_reports_that_no_longer_yield_are_late_and_those_of_pools_are_so_earlier() -> None:
    world = World().put(waits("a"), a_report("cpu"), *bound("b"))
    world.now += POOL_STATUS_YIELD_SECONDS
    world.put(waits("c"), a_report("gpu"))
    assert world.write_all(late=True) == [a_report("cpu")]
    world.now += YIELD_SECONDS - POOL_STATUS_YIELD_SECONDS
    assert world.write_all(late=True) == [a_report("gpu"), waits("a"), *bound("b")]
    assert world.write_all() == [waits("c")]


def test_late_report_goes_past_a_namespace_whose_reports_are_young() -> None:
    world = World().put(*bound("a", "b", namespace="old"))
    world.now += YIELD_SECONDS
    world.put(*bound("c", namespace="young"))
    assert world.write_all(late=True) == bound("a", "b", namespace="old")


def test_newest_report_of_a_key_has_the_place_of_the_oldest() -> None:
    world = World().put(waits("a"), waits("b"), waits("a", "another reason"))
    assert world.write_all() == [waits("a", "another reason"), waits("b")]


def test_newer_report_is_written_after_the_one_that_is_under_way() -> None:
    world = World().put(waits("a", "first"))
    entry = world.begin()
    assert entry is not None
    first = entry.report
    world.put(waits("a", "second"), waits("a", "third"))
    assert world.begin() is None
    world.queue.finish(entry, first, None)
    assert world.write_all() == [waits("a", "third")]
    assert world.queue.unfinished == 0


def test_newer_report_waits_with_the_held_one_of_its_key() -> None:
    world = World().put(waits("a"))
    world.fail(Hold(30.0))
    world.put(waits("a", "newer"), waits("b"))
    assert world.write_all() == [waits("b")]
    assert world.queue.seconds_until_due() == 30.0
    world.now += 30.0
    assert world.write_all() == [waits("a", "newer")]


def test_scheduler_that_ends_waits_for_no_idle_report() -> None:
    world = World().put(waits("a"), waits("b"))
    world.fail(Hold(30.0, idle=True))
    assert world.queue.unfinished == 1
    world.fail(Hold(1.0))
    assert world.queue.unfinished == 1
    world.queue.withdraw(condition_key(a_pod("b", uid="u-b")))
    assert world.queue.unfinished == 0
    world.now += 30.0
    assert world.write_all() == [waits("a")]


@pytest.mark.parametrize("state", ["ready", "held", "written"])
def test_withdrawn_report_is_not_written_any_more(state: str) -> None:
    world = World().put(waits("a"))
    key = condition_key(a_pod("a", uid="u-a"))
    entry = world.begin() if state != "ready" else None
    if entry is not None and state == "held":
        world.queue.finish(entry, entry.report, Hold(5.0))
    sent = waits("a")
    world.queue.withdraw(key)
    assert world.queue.get(key) is None
    if entry is not None and state == "written":
        world.queue.finish(entry, sent, Hold(5.0))
    world.now += 5.0
    assert (world.write_all(), world.queue.unfinished, world.dropped) == ([], 0, 0)


def test_report_that_is_put_again_after_its_withdrawal_is_written_after_the_answer() -> None:
    world = World().put(waits("a"))
    entry = world.begin()
    assert entry is not None
    sent = entry.report
    world.queue.withdraw(entry.key)
    world.put(waits("a", "again"))
    assert world.begin() is None
    world.queue.finish(entry, sent, None)
    assert world.write_all() == [waits("a", "again")]


def test_reports_whose_writers_are_gone_are_written_by_the_next() -> None:
    world = World().put(waits("a"), waits("b"), *bound("c"))
    for _ in range(3):
        world.begin()
    world.queue.withdraw(condition_key(a_pod("b", uid="u-b")))
    world.queue.put_back()
    assert world.queue.in_flight == 0
    assert world.write_all() == [waits("a"), *bound("c")]
    assert world.queue.unfinished == 0


def test_oldest_scheduled_event_is_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_queue, "WAITING_MAX", 3)
    events = bound("a", "b", "c")
    world = World().put(events[0], a_warning("v"), *events[1:])
    assert world.dropped == 1
    world.put(a_warning("w"), a_warning("x"), a_warning("y"))
    assert world.write_all() == [a_warning("w"), a_warning("x"), a_warning("y")], "warnings are dropped last"
    assert world.dropped == 4


def test_statuses_and_events_have_limits_of_their_own_and_pools_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_queue, "WAITING_MAX", 2)
    pools = [a_report(name) for name in ("a", "b", "c")]
    world = World().put(*pools, waits("a"), waits("b"), *bound("c", "d"))
    assert world.dropped == 0
    world.put(Nominate(a_pod("e"), "n1", "cpu", "d"))
    assert world.dropped == 1
    assert len(world.write_all()) == 7


def test_held_reports_count_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_queue, "WAITING_MAX", 2)
    world = World().put(waits("a"))
    world.fail(Hold(30.0, idle=True))
    world.put(waits("b"), waits("c"))
    world.now += 30.0
    assert world.write_all() == [waits("b"), waits("c")]
    assert world.dropped == 1


def test_events_beyond_a_number_are_dropped_oldest_scheduled_first() -> None:
    world = World().put(*bound("a", "b", "c"), a_warning("n"), waits("w"))
    assert world.queue.truncate(EVENTS, 2) == 2
    assert world.write_all() == [waits("w"), a_warning("n"), *bound("c")]
    assert world.queue.truncate(EVENTS, 2) == 0


def test_withdrawn_reports_that_were_held_take_no_memory() -> None:
    world = World()
    for _ in range(1000):
        world.put(waits("a"))
        world.fail(Hold(30.0, idle=True))
        world.queue.withdraw(condition_key(a_pod("a", uid="u-a")))
    assert len(world.queue._held) <= REPORTS_IN_FLIGHT_MAX + 2


def test_events_of_nodes_wait_with_those_of_the_namespace_in_which_they_are_written() -> None:
    assert lanes([a_warning("n"), *bound("a"), waits("b"), a_report("cpu")]) == [
        "events/default",
        "events/default",
        "default",
        "",
    ]
