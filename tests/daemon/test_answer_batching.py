import asyncio
from contextlib import suppress

from aischeduler.daemon.pool_loops import PAUSE_SECONDS, batch_answers


class Scene:
    """The state that the batching reads, and the pauses that it made."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()
        self.unanswered = 1
        self.throttled = False
        self.busy = False
        self.pauses: list[float] = []

    async def answers(self, count: int) -> None:
        """Deliver this many answers, one per turn of the event loop, then run a few turns without answers."""
        task = asyncio.create_task(batch_answers(self, lambda: self.busy, self.pauses.append))
        for _ in range(count):
            self.answered.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_one_pause_follows_each_turn_with_answers() -> None:
    scene = Scene()
    await scene.answers(3)
    assert scene.pauses == [PAUSE_SECONDS] * 3


async def test_without_answers_there_is_no_pause_however_many_are_outstanding() -> None:
    scene = Scene()
    scene.unanswered = 128
    await scene.answers(0)
    assert scene.pauses == []


async def test_last_answer_is_followed_by_no_pause() -> None:
    scene = Scene()
    scene.unanswered = 0
    await scene.answers(3)
    assert scene.pauses == []


async def test_there_is_no_pause_while_there_is_work() -> None:
    scene = Scene()
    scene.busy = True
    await scene.answers(3)
    assert scene.pauses == []


async def test_there_is_no_pause_while_the_server_throttles() -> None:
    scene = Scene()
    scene.throttled = True
    await scene.answers(3)
    assert scene.pauses == []
