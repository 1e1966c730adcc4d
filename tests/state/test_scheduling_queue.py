"""Queue rows Q1-Q8 of kube-scheduler's cases."""

import pytest

from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import PodRecord, PodState
from aischeduler.state.scheduling_queue import NET_SECONDS, Backoff, PoolQueue, QueueChanges
from tests.build import a_pod


class Arrivals:
    def __init__(self) -> None:
        self.number = 0

    def __call__(
        self, name: str, *, priority: int = 0, created: int = 0, cpu: str = "1", gates: tuple[str, ...] = ()
    ) -> PodRecord:
        self.number += 1
        pod = a_pod(name, priority=priority, created=created, cpu=cpu)
        return PodRecord(pod, self.number, PodState.ACTIVE, home="q")


def popped(queue: PoolQueue, now: float) -> list[str]:
    names = []
    queue.flush(now)
    while (record := queue.pop()) is not None:
        names.append(record.pod.name)
    return names


def test_order_is_priority_then_age_then_arrival() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    for record in (
        new("young", created=2),
        new("second", created=1),
        new("third", created=1),
        new("important", priority=1, created=9),
    ):
        queue.add(record, 0)
    assert popped(queue, 0) == ["important", "second", "third", "young"]


def test_home_pods_come_before_borrowers_of_any_priority() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    urgent, common = new("borrower", priority=1000), new("home", priority=-5, created=9)
    urgent.home = "elsewhere"
    queue.add(urgent, 0)
    queue.add(common, 0)
    assert popped(queue, 0) == ["home", "borrower"]


def test_nominated_pods_that_fit_into_a_room_come_in_queue_order() -> None:
    nodes = NodeTable()
    queue, new = PoolQueue("q", nodes, QueueChanges(), Backoff()), Arrivals()
    records = [
        new("later", created=2),
        new("large", cpu="3"),
        new("first", created=1),
        new("small", cpu="500m", created=3),
    ]
    for record in records:
        queue.nominate(record, 0)
    room = nodes.request(records[0].pod.spec)
    assert [record.pod.name for record in queue.nominated_within(room)] == ["first", "later", "small"]
    queue.wake_at_once(records[2], 1)
    assert [record.pod.name for record in queue.nominated_within(room)] == ["later", "small"]


def test_a_nominated_pod_is_in_no_chain_and_wakes_by_uid_without_a_backoff() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    nominated, parked = new("nominated", priority=9), new("parked")
    nominated.backoff_until = 50
    queue.nominate(nominated, 0)
    queue.park(parked, 0)
    queue.wake_next(parked, 20)
    assert popped(queue, 20) == ["parked"]
    queue.wake_at_once(nominated, 21)
    assert popped(queue, 21) == ["nominated"]


def test_classes_that_fit_into_a_room_come_in_queue_order() -> None:
    nodes = NodeTable()
    queue, new = PoolQueue("q", nodes, QueueChanges(), Backoff()), Arrivals()
    for record in (new("small", cpu="1"), new("middle", cpu="2", priority=1), new("large", cpu="8", priority=2)):
        queue.park(record, 0)
    table = nodes.room(nodes.row("n"))
    table[:] = 2**40
    table[nodes.columns["cpu"]] = 2000
    assert [alike.head.pod.name for alike in queue.parked_within(table)] == ["middle", "small"]
    table[nodes.columns["pods"]] = 0
    assert list(queue.parked_within(table)) == []


def test_the_first_parked_pods_of_all_classes_come_in_queue_order() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    for record in (
        new("last", created=9, cpu="1"),
        new("third", created=3, cpu="1"),
        new("second", created=2, cpu="2"),
        new("first", created=1, cpu="3"),
    ):
        queue.park(record, 0)
    assert [record.pod.name for record in queue.parked_first(3)] == ["first", "second", "third"]
    assert [record.pod.name for record in queue.parked_first(9)] == ["first", "second", "third", "last"]


def test_backoff_doubles_from_one_second_to_ten() -> None:
    record = Arrivals()("p")
    waits = []
    for _ in range(6):
        record.back_off(100, Backoff().seconds(record.attempts))
        waits.append(record.backoff_until - 100)
    assert waits == [1, 2, 4, 8, 10, 10]


def test_backoff_goes_from_the_configured_initial_to_the_configured_longest() -> None:
    record = Arrivals()("p")
    waits = []
    for _ in range(5):
        record.back_off(100, Backoff(3, 20).seconds(record.attempts))
        waits.append(record.backoff_until - 100)
    assert waits == [3, 6, 12, 20, 20]


def test_a_refused_pod_waits_for_an_event_until_the_five_minute_flush() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    queue.park(new("p"), 0)
    assert popped(queue, NET_SECONDS - 1) == []
    assert queue.next_wakeup() == NET_SECONDS
    assert [record.pod.name for record in queue.flush(NET_SECONDS)] == ["p"]
    assert popped(queue, NET_SECONDS) == ["p"]


def test_a_held_pod_is_flushed_but_counts_as_no_lost_event() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    queue.hold(new("p"), 0)
    assert queue.flush(NET_SECONDS) == []
    assert popped(queue, NET_SECONDS) == ["p"]


def test_flush_does_not_count_a_pod_whose_class_is_about_to_be_tried() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    for name in ("first", "second"):
        queue.park(new(name), 0)
    assert [record.pod.name for record in queue.flush(NET_SECONDS)] == ["first"]
    assert popped(queue, NET_SECONDS) == ["first", "second"]


def test_flush_does_not_count_a_pod_whose_class_is_about_to_borrow() -> None:
    shared, nodes, new = QueueChanges(), NodeTable(), Arrivals()
    home, lender = PoolQueue("q", nodes, shared, Backoff()), PoolQueue("lender", nodes, shared, Backoff())
    home.park(new("waits"), 0)
    home.park(new("other", cpu="2"), 0)
    lender.add(new("travels"), 0)
    assert [record.pod.name for record in home.flush(NET_SECONDS)] == ["other"]


def test_one_of_a_class_is_woken_at_a_time() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    for name in ("a", "b", "c"):
        queue.park(new(name), 0)
    queue.wake_next(new("like them"), 20)
    assert popped(queue, 20) == ["a"]


def test_the_most_urgent_of_a_class_is_woken_first() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    queue.park(new("low", priority=1), 0)
    queue.park(new("high", priority=2), 0)
    queue.wake_next(new("like them"), 20)
    assert popped(queue, 20) == ["high"]


def test_classes_are_woken_independently() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    queue.park(new("small", cpu="1"), 0)
    queue.park(new("large", cpu="8"), 0)
    queue.wake_next(new("x", cpu="1"), 20)
    assert popped(queue, 20) == ["small"]
    assert [alike.spec for alike in queue.parked()] == [new("x", cpu="8").pod.spec]


def test_a_pod_woken_within_its_backoff_waits_behind_active_pods() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    queue.park(new("refused", priority=9), 0)
    queue.wake_next(new("like it"), 0.5)
    assert queue.counts()[PodState.BACKOFF] == 1
    queue.add(new("fresh", cpu="2"), 0.5)
    assert popped(queue, 0.5) == ["fresh", "refused"]


def test_a_pod_that_failed_waits_until_its_backoff_ends() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    queue.retry(new("failed"), 0)
    assert popped(queue, 0.9) == []
    assert queue.next_wakeup() == 1
    assert popped(queue, 1) == ["failed"]


def test_a_gated_pod_is_never_tried_and_never_flushed() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    queue.gate(new("gated"))
    assert popped(queue, 10 * NET_SECONDS) == []
    assert queue.next_wakeup() is None
    assert queue.counts()[PodState.GATED] == 1


def test_a_removed_pod_is_in_no_list() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    active, gated, parked, held, failed = new("a"), new("g"), new("p"), new("h"), new("f")
    queue.add(active, 0)
    queue.gate(gated)
    queue.park(parked, 0)
    queue.hold(held, 0)
    queue.retry(failed, 0)
    for record in (active, gated, parked, held, failed):
        assert record.queue == "q"
        queue.remove(record)
        assert record.queue == ""
    assert len(queue) == 0
    assert queue.next_wakeup() is None
    assert popped(queue, NET_SECONDS) == []


def test_exception_while_a_parked_pod_changes_its_class_leaves_it_parked_and_counted() -> None:
    queue, new = PoolQueue("q", NodeTable(), QueueChanges(), Backoff()), Arrivals()
    record = new("p")
    queue.park(record, 0)

    def change() -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        queue.reclass(record, change)
    assert queue.counts()[PodState.PARKED] == 1
    assert queue.pending() == ((record.pod.spec, 1),)
    assert [alike.head for alike in queue.parked()] == [record]
