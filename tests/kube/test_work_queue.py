import asyncio

from aischeduler.kube.write.work_queue import WorkQueue


async def taken(work_queue: WorkQueue[str], count: int) -> list[str]:
    return [await work_queue.take() for _ in range(count)]


async def test_lanes_take_turns_and_keep_their_own_order() -> None:
    work_queue: WorkQueue[str] = WorkQueue(ahead=9)
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        work_queue.put(item, item[0])
    assert await taken(work_queue, 6) == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_late_lane_waits_for_one_item_of_each_other_lane() -> None:
    work_queue: WorkQueue[str] = WorkQueue(ahead=9)
    for number in range(5):
        work_queue.put(f"a{number}", "a")
        work_queue.put(f"b{number}", "b")
    assert await taken(work_queue, 2) == ["a0", "b0"]
    work_queue.put("c0", "c")
    assert await taken(work_queue, 3) == ["a1", "b1", "c0"]


async def test_full_lane_takes_no_room_from_another() -> None:
    work_queue: WorkQueue[str] = WorkQueue(ahead=1)
    work_queue.put("a1", "a")
    await work_queue.wait_for_room("a")
    work_queue.put("a2", "a")
    work_queue.put("b1", "b")
    await work_queue.wait_for_room("b")
    blocked = asyncio.create_task(work_queue.wait_for_room("a"))
    await asyncio.sleep(0)
    assert not blocked.done()
    assert await work_queue.take() == "a1"
    await blocked


async def test_waiting_and_unfinished_items_are_counted_over_all_lanes() -> None:
    work_queue: WorkQueue[str] = WorkQueue(ahead=1)
    work_queue.put("a", "a")
    work_queue.put("b", "b")
    assert (work_queue.waiting, work_queue.unfinished) == (2, 2)
    await taken(work_queue, 2)
    await work_queue.wait_empty()
    work_queue.finish()
    assert (work_queue.waiting, work_queue.unfinished) == (0, 1)
    work_queue.finish()
    await work_queue.wait_finished()


async def test_full_lane_has_room_once_its_limit_is_raised() -> None:
    work_queue: WorkQueue[str] = WorkQueue(ahead=1)
    work_queue.put("a1", "a")
    work_queue.put("a2", "a")
    blocked = asyncio.create_task(work_queue.wait_for_room("a"))
    await asyncio.sleep(0)
    assert not blocked.done()
    work_queue.set_lane_limit(2)
    await blocked


async def test_lane_over_a_lowered_limit_has_room_once_few_items_are_left() -> None:
    work_queue: WorkQueue[str] = WorkQueue(ahead=9)
    for item in ("a1", "a2", "a3"):
        work_queue.put(item, "a")
    work_queue.set_lane_limit(1)
    blocked = asyncio.create_task(work_queue.wait_for_room("a"))
    await work_queue.take()
    await asyncio.sleep(0)
    assert not blocked.done()
    await work_queue.take()
    await blocked


async def test_lane_gets_its_slots_and_leaves_the_reserve() -> None:
    work_queue: WorkQueue[str] = WorkQueue(ahead=99, slots=8, reserve=2)
    for number in range(20):
        work_queue.put(f"a{number}", "a")
    assert len(await taken(work_queue, 8)) == 8
    blocked = asyncio.create_task(work_queue.take())
    await asyncio.sleep(0)
    assert not blocked.done()
    work_queue.put("b", "b")
    assert await blocked == "b"


async def test_lanes_that_hold_many_slots_leave_one_for_each_that_holds_none() -> None:
    work_queue: WorkQueue[str] = WorkQueue(ahead=99, slots=8, reserve=2)
    for lane in "ab":
        for _ in range(20):
            work_queue.put(lane, lane)
    assert await taken(work_queue, 8) == ["a", "b"] * 4
    for lane in "cde":
        work_queue.put(lane, lane)
    assert await taken(work_queue, 2) == ["c", "d"]
    blocked = asyncio.create_task(work_queue.take())
    await asyncio.sleep(0)
    assert not blocked.done()
    assert await work_queue.take(left="c") == "e"
    blocked.cancel()


async def test_slot_is_free_once_its_task_takes_the_next_item() -> None:
    work_queue: WorkQueue[str] = WorkQueue(ahead=99, slots=1)
    work_queue.put("a", "a")
    work_queue.put("b", "b")
    assert await work_queue.take() == "a"
    assert await work_queue.take(left="a") == "b"
    work_queue.set_slots(2, 0)
    work_queue.put("c")
    assert await work_queue.take() == "c"


async def test_cancelled_task_leaves_its_item_to_the_next_task() -> None:
    work_queue: WorkQueue[str] = WorkQueue(ahead=9)
    first, second = (asyncio.create_task(work_queue.take()) for _ in range(2))
    await asyncio.sleep(0)
    work_queue.put("a")
    first.cancel()
    assert await second == "a"


async def test_every_waiting_task_is_woken_for_an_item() -> None:
    work_queue: WorkQueue[int] = WorkQueue(ahead=9, slots=3)
    tasks = [asyncio.create_task(work_queue.take()) for _ in range(5)]
    await asyncio.sleep(0)
    for number in range(5):
        work_queue.put(number)
    await asyncio.wait(tasks, timeout=0.02)
    assert sorted(task.result() for task in tasks if task.done()) == [0, 1, 2]
    work_queue.set_slots(5, 0)
    assert sorted([await task for task in tasks]) == [0, 1, 2, 3, 4]
