import asyncio

import pytest

from aischeduler.kube.http.backoff import ExponentialBackoff, Throttle, Timing, TokenBucket, unix_clock
from aischeduler.kube.watch.event_queue import EventQueue
from aischeduler.model.events import gone
from aischeduler.model.pod import Pod
from tests.kube.scripted_server import Waits, until


def test_backoff_doubles_with_jitter_up_to_its_longest() -> None:
    backoff = ExponentialBackoff(Waits().timing())
    assert [backoff.next_seconds() for _ in range(8)] == [
        pytest.approx(seconds) for seconds in (1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 45.0, 45.0)
    ]


def test_backoff_starts_again_after_two_minutes_without_failures() -> None:
    waits = Waits()
    backoff = ExponentialBackoff(waits.timing())
    backoff.next_seconds()
    backoff.next_seconds()
    waits.now += 121.0
    assert backoff.next_seconds() == pytest.approx(1.2)


async def test_throttle_pauses_for_the_longest_requested_time() -> None:
    waits = Waits()
    throttle = Throttle(waits.timing())
    throttle.hold_for(5.0)
    throttle.hold_for(2.0)
    assert throttle.active
    await throttle.wait()
    assert waits.seconds == [pytest.approx(6.0)]


def test_throttle_limits_the_requested_time() -> None:
    waits = Waits()
    throttle = Throttle(waits.timing())
    throttle.hold_for(1e9)
    waits.now += 61.0
    assert not throttle.active


def taken(bucket: TokenBucket, waits: Waits, count: int) -> float:
    """Take tokens as soon as they are available; return the seconds that this took."""
    begun = waits.now
    for _ in range(count):
        waits.now += bucket.seconds_until_token
        bucket.take()
    return waits.now - begun


def test_bucket_allows_a_burst_and_then_one_at_a_time() -> None:
    waits = Waits()
    assert taken(TokenBucket(waits.timing().clock, per_second=10.0, burst=3), waits, 5) == pytest.approx(0.2)


@pytest.mark.parametrize("begun", [0.0, 1000.0, 1_767_323_045.25])
def test_bucket_of_one_token_has_it_whatever_the_time_is(begun: float) -> None:
    waits = Waits()
    waits.now = begun
    bucket = TokenBucket(waits.timing().clock, per_second=3.0, burst=1)
    assert bucket.seconds_until_token == 0.0
    assert bucket.available == 1


async def test_event_queue_keeps_order_and_blocks_watches_when_full() -> None:
    event_queue = EventQueue(limit=2)
    await event_queue.wait_empty()
    event_queue.put(gone(Pod, "a"))
    await event_queue.wait_for_room()
    event_queue.put(gone(Pod, "b"))
    await event_queue.wait_not_empty()
    blocked = asyncio.create_task(event_queue.wait_for_room())
    await asyncio.sleep(0)
    assert not blocked.done()
    assert event_queue.take() == gone(Pod, "a")
    await blocked
    assert len(event_queue) == 1
    assert event_queue.take() == gone(Pod, "b")
    assert event_queue.take() is None
    await event_queue.wait_empty()


def test_bucket_can_change_and_tokens_already_taken_stay_taken() -> None:
    waits = Waits()
    bucket = TokenBucket(waits.timing().clock, per_second=1000.0, burst=2)
    taken(bucket, waits, 2)
    bucket.set_limits(per_second=2.0, burst=1)
    assert taken(bucket, waits, 3) == pytest.approx(1.5)


def test_bucket_counts_the_tokens_left() -> None:
    waits = Waits()
    bucket = TokenBucket(waits.timing().clock, per_second=4.0, burst=3)
    lefts = []
    for _ in range(4):
        lefts.append(bucket.available)
        taken(bucket, waits, 1)
    assert lefts == [3, 2, 1, 0]
    assert bucket.available == 0
    waits.now += 0.5
    assert bucket.available == 2


async def test_tasks_that_waited_for_a_throttle_continue_at_different_times() -> None:
    waits, chances = Waits(), iter(number / 10 for number in range(10))

    class Chances:
        def random(self) -> float:
            return next(chances)

    timing = Timing(lambda: 1000.0 + 5.0 * bool(waits.held == 0 and waits.seconds), waits.sleep, Chances())
    throttle = timing.throttle
    throttle.hold_for(5.0)
    waits.hold()
    waiting = [asyncio.create_task(throttle.wait()) for _ in range(10)]
    await until(lambda: waits.held == 10)
    waits.release()
    await asyncio.gather(*waiting)
    assert waits.seconds == [pytest.approx(5.0 + number / 5) for number in range(10)]


def test_parts_of_one_client_share_a_throttle() -> None:
    timing, other = Waits().timing(), Waits().timing()
    timing.throttle.hold_for(5.0)
    assert timing.throttle.active
    assert not other.throttle.active


def test_the_clock_of_a_daemon_is_in_unix_seconds_and_does_not_follow_a_wall_clock_that_is_set_back() -> None:
    walls, ticks = iter((1_700_000_000.0, 1_600_000_000.0)), iter((50.0, 50.0, 57.5))
    clock = unix_clock(lambda: next(ticks), lambda: next(walls))
    assert [clock(), clock()] == [1_700_000_000.0, 1_700_000_007.5]


async def test_pause_of_one_lane_is_not_that_of_another() -> None:
    waits = Waits()
    throttle = Throttle(waits.timing())
    throttle.hold_for(5.0, "a")
    assert throttle.active
    await throttle.wait("b")
    await throttle.wait()
    assert waits.seconds == []
    await throttle.wait("a")
    assert not throttle.active


async def test_pauses_of_many_lanes_are_that_of_all() -> None:
    waits = Waits()
    throttle = Throttle(waits.timing())
    for lane in "abc":
        throttle.hold_for(5.0, lane)
    await throttle.wait("d")
    assert len(waits.seconds) == 1


async def test_pauses_of_lanes_that_are_over_do_not_count() -> None:
    waits = Waits()
    throttle = Throttle(waits.timing())
    for lane in "abcdef":
        throttle.hold_for(5.0, lane)
        waits.now += 5.0
    throttle.hold_for(5.0, "a")
    await throttle.wait("d")
    assert waits.seconds == []
