import asyncio

import pytest

from aischeduler.kube.inbox import Inbox
from aischeduler.kube.pace import Backoff, Pace, Rate, Throttle
from aischeduler.model.events import PodGone
from tests.kube.scripted import Waits, until


def test_backoff_doubles_with_jitter_up_to_its_longest() -> None:
    backoff = Backoff(Waits().pace())
    assert [backoff.next_seconds() for _ in range(8)] == [
        pytest.approx(seconds) for seconds in (1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 45.0, 45.0)
    ]


def test_backoff_starts_anew_after_two_healthy_minutes() -> None:
    waits = Waits()
    backoff = Backoff(waits.pace())
    backoff.next_seconds()
    backoff.next_seconds()
    waits.now += 121.0
    assert backoff.next_seconds() == pytest.approx(1.2)


async def test_throttle_closes_for_the_longest_that_was_asked() -> None:
    waits = Waits()
    throttle = Throttle(waits.pace())
    throttle.hold(5.0)
    throttle.hold(2.0)
    assert throttle.closed
    await throttle.pass_through()
    assert waits.seconds == [pytest.approx(6.0)]


def test_throttle_obeys_no_absurd_wait() -> None:
    waits = Waits()
    throttle = Throttle(waits.pace())
    throttle.hold(1e9)
    waits.now += 61.0
    assert not throttle.closed


async def test_rate_lets_a_burst_through_and_then_one_at_a_time() -> None:
    waits = Waits()
    rate = Rate(waits.pace(), per_second=10.0, burst=3)
    for _ in range(5):
        await rate.pass_through()
    assert sum(waits.seconds) == pytest.approx(0.2)


async def test_inbox_keeps_order_and_makes_readers_wait_when_full() -> None:
    inbox = Inbox(limit=2)
    await inbox.emptied()
    inbox.put(PodGone("a"))
    await inbox.room()
    inbox.put(PodGone("b"))
    await inbox.filled()
    blocked = asyncio.create_task(inbox.room())
    await asyncio.sleep(0)
    assert not blocked.done()
    assert inbox.take() == PodGone("a")
    await blocked
    assert len(inbox) == 1
    assert inbox.take() == PodGone("b")
    assert inbox.take() is None
    await inbox.emptied()


async def test_rate_takes_other_limits_and_turns_that_were_taken_stay_taken() -> None:
    waits = Waits()
    rate = Rate(waits.pace(), per_second=1000.0, burst=2)
    for _ in range(2):
        await rate.pass_through()
    rate.change(per_second=2.0, burst=1)
    for _ in range(3):
        await rate.pass_through()
    assert sum(waits.seconds) == pytest.approx(1.5)


async def test_rate_knows_how_many_turns_are_left() -> None:
    waits = Waits()
    rate = Rate(waits.pace(), per_second=4.0, burst=3)
    lefts = []
    for _ in range(4):
        lefts.append(rate.left)
        await rate.pass_through()
    assert lefts == [3, 2, 1, 0]
    assert rate.left == 0
    waits.now += 0.5
    assert rate.left == 2


async def test_those_who_went_to_wait_for_a_slow_rate_do_not_wait_for_it_when_it_is_fast() -> None:
    waits = Waits()
    rate = Rate(waits.pace(), per_second=1.0, burst=1)
    waits.hold()
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(rate.pass_through())
        await asyncio.sleep(0)
        assert rate.used_up
        assert waits.held == 1, "the others stand in line"
        rate.change(per_second=1000.0, burst=100)
        waits.release()
    assert waits.seconds[0] == pytest.approx(1.0)
    assert sum(waits.seconds) < 1.1


async def test_those_who_waited_at_a_throttle_go_on_at_different_times() -> None:
    waits, chances = Waits(), iter(number / 10 for number in range(10))

    class Chances:
        def random(self) -> float:
            return next(chances)

    pace = Pace(lambda: 1000.0 + 5.0 * bool(waits.held == 0 and waits.seconds), waits.sleep, Chances())
    throttle = pace.throttle
    throttle.hold(5.0)
    waits.hold()
    waiting = [asyncio.create_task(throttle.pass_through()) for _ in range(10)]
    await until(lambda: waits.held == 10)
    waits.release()
    await asyncio.gather(*waiting)
    assert waits.seconds == [pytest.approx(5.0 + number / 5) for number in range(10)]


def test_parts_of_one_client_share_a_throttle() -> None:
    pace, other = Waits().pace(), Waits().pace()
    pace.throttle.hold(5.0)
    assert pace.throttle.closed
    assert not other.throttle.closed
