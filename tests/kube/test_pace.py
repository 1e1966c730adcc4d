import asyncio

import pytest

from aischeduler.kube.inbox import Inbox
from aischeduler.kube.pace import Backoff, Rate, Throttle
from aischeduler.model.events import PodGone
from tests.kube.scripted import Waits


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
    assert waits.seconds == [pytest.approx(5.0)]


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
