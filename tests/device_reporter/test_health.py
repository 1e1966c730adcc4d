"""Which Xids make a GPU unhealthy, and calls that hang."""

import asyncio
from threading import Event

import pytest

from aischeduler.device_reporter.hardware import DriverError, DriverHangsError, Xid
from aischeduler.device_reporter.health import Calls, Health


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 109])
def test_xids_of_programs_change_nothing(number: int) -> None:
    health = Health()
    assert health.record(Xid(number, "a"), ["a", "b"]) == []
    assert health.problems == {}


def test_gpu_stays_as_its_first_xid_made_it() -> None:
    health = Health()
    assert health.record(Xid(79, "a"), ["a", "b"]) == ["a"]
    assert health.record(Xid(48, "a"), ["a", "b"]) == []
    assert health.problems == {"a": "Xid79"}


def test_xid_of_no_known_gpu_is_one_of_all() -> None:
    health = Health()
    assert health.record(Xid(74), ["a", "b"]) == ["a", "b"]
    assert health.problems == {"a": "Xid74", "b": "Xid74"}


async def test_call_that_hangs_is_told_in_time_and_none_is_made_beside_it() -> None:
    calls, release, made = Calls(), Event(), list[str]()

    def hang() -> str:
        made.append("hang")
        release.wait()
        return "late"

    def answer() -> str:
        made.append("answer")
        return "now"

    for ask in (hang, answer):
        with pytest.raises(DriverHangsError, match=r"does not answer within 0\.05 s"):
            await calls.call(ask, 0.05)
    assert made == ["hang"]
    release.set()
    assert await calls.call(answer, 60.0) == "now"


async def test_whatever_a_library_raises_is_an_error_of_the_driver() -> None:
    def fail() -> None:
        raise AttributeError("no such symbol")

    with pytest.raises(DriverError, match="AttributeError: no such symbol"):
        await Calls().call(fail, 60.0)


async def test_call_that_is_cancelled_keeps_its_place_until_it_ends() -> None:
    calls, release = Calls(), Event()
    first = asyncio.create_task(calls.call(release.wait, 60.0))
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(DriverHangsError):
        await calls.call(lambda: None, 0.05)
    release.set()
    assert await calls.call(lambda: 1, 60.0) == 1
