import asyncio

from aischeduler.kube.watch.event_queue import EventQueue
from aischeduler.model.events import gone
from aischeduler.model.pod import Pod


async def is_at_once(waiting: "asyncio.Future[None]") -> bool:
    """Return whether this wait ends without another call."""
    await asyncio.sleep(0)
    ended = waiting.done()
    waiting.cancel()
    return ended


async def test_flags_follow_the_length_of_the_queue() -> None:
    queue = EventQueue(limit=2)
    found = []
    for change in ("put", "put", "put", "take", "take", "take", "put"):
        if change == "put":
            queue.put(gone(Pod, "p"))
        else:
            assert queue.take() == gone(Pod, "p")
        waits = (queue.wait_not_empty(), queue.wait_empty(), queue.wait_for_room())
        found.append((len(queue), *[await is_at_once(asyncio.ensure_future(wait)) for wait in waits]))
    # length, not empty, empty, has room
    assert found == [(n, n > 0, n == 0, n < 2) for n in (1, 2, 3, 2, 1, 0, 1)]
