import asyncio

from aischeduler.kube.backlog import Backlog


async def taken(backlog: Backlog[str], count: int) -> list[str]:
    return [await backlog.take() for _ in range(count)]


async def test_lanes_take_turns_and_keep_their_own_order() -> None:
    backlog: Backlog[str] = Backlog(ahead=9)
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        backlog.put(item, item[0])
    assert await taken(backlog, 6) == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_lane_that_comes_late_waits_for_one_piece_of_each_other() -> None:
    backlog: Backlog[str] = Backlog(ahead=9)
    for number in range(5):
        backlog.put(f"a{number}", "a")
        backlog.put(f"b{number}", "b")
    assert await taken(backlog, 2) == ["a0", "b0"]
    backlog.put("c0", "c")
    assert await taken(backlog, 3) == ["a1", "b1", "c0"]


async def test_crowded_lane_takes_no_room_from_another() -> None:
    backlog: Backlog[str] = Backlog(ahead=1)
    backlog.put("a1", "a")
    await backlog.room("a")
    backlog.put("a2", "a")
    backlog.put("b1", "b")
    await backlog.room("b")
    blocked = asyncio.create_task(backlog.room("a"))
    await asyncio.sleep(0)
    assert not blocked.done()
    assert await backlog.take() == "a1"
    await blocked


async def test_what_waits_and_what_has_no_outcome_are_counted_over_all_lanes() -> None:
    backlog: Backlog[str] = Backlog(ahead=1)
    backlog.put("a", "a")
    backlog.put("b", "b")
    assert (backlog.waiting, backlog.unfinished) == (2, 2)
    await taken(backlog, 2)
    await backlog.none_waiting()
    backlog.finish()
    assert (backlog.waiting, backlog.unfinished) == (0, 1)
    backlog.finish()
    await backlog.none_unfinished()


async def test_lane_that_waits_has_room_once_more_is_allowed() -> None:
    backlog: Backlog[str] = Backlog(ahead=1)
    backlog.put("a1", "a")
    backlog.put("a2", "a")
    blocked = asyncio.create_task(backlog.room("a"))
    await asyncio.sleep(0)
    assert not blocked.done()
    backlog.allow(2)
    await blocked


async def test_lane_with_more_than_is_allowed_from_now_on_waits_until_few_are_left() -> None:
    backlog: Backlog[str] = Backlog(ahead=9)
    for item in ("a1", "a2", "a3"):
        backlog.put(item, "a")
    backlog.allow(1)
    blocked = asyncio.create_task(backlog.room("a"))
    await backlog.take()
    await asyncio.sleep(0)
    assert not blocked.done()
    await backlog.take()
    await blocked
