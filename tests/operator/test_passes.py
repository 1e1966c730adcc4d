"""When passes run: one at a time for a key, again after a change in between, with delays after failures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aischeduler.operator.passes import AT_ONCE, Passes

WITHIN_SECONDS = 15.0


class Recorder:
    """A function for `Passes` that stays in a pass until it is let go."""

    def __init__(self) -> None:
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.may_end = asyncio.Semaphore(0)
        self.running: dict[str, int] = {}
        self.most_at_once = 0
        self.again: list[float | Exception | None] = []
        """What the next passes return or raise; None after these."""

    async def look(self, key: str) -> float | None:
        self.running[key] = self.running.get(key, 0) + 1
        assert self.running[key] == 1, "two passes over one BatchProcess"
        self.most_at_once = max(self.most_at_once, sum(self.running.values()))
        self.began.put_nowait(key)
        await self.may_end.acquire()
        self.running[key] -= 1
        answer = self.again.pop(0) if self.again else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def next(self) -> str:
        return await asyncio.wait_for(self.began.get(), WITHIN_SECONDS)


@asynccontextmanager
async def running(recorder: Recorder) -> AsyncIterator[Passes]:
    passes = Passes(recorder.look)
    task = asyncio.create_task(passes.run())
    yield passes
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_change_during_a_pass_causes_one_more() -> None:
    recorder = Recorder()
    async with running(recorder) as passes:
        passes.mark("a")
        assert await recorder.next() == "a"
        for _ in range(5):
            passes.mark("a")
        recorder.may_end.release()
        assert await recorder.next() == "a"
        recorder.may_end.release()
        passes.mark("b")
        assert await recorder.next() == "b"
        assert recorder.began.empty()


async def test_long_pass_delays_no_other_and_few_run_at_once() -> None:
    recorder = Recorder()
    async with running(recorder) as passes:
        keys = [f"k{n}" for n in range(AT_ONCE + 2)]
        for key in keys:
            passes.mark(key)
        first = [await recorder.next() for _ in range(AT_ONCE)]
        assert recorder.most_at_once == AT_ONCE
        for _ in keys:
            recorder.may_end.release()
        rest = [await recorder.next() for _ in range(2)]
        assert sorted(first + rest) == keys
        assert recorder.most_at_once == AT_ONCE


async def test_failed_pass_is_repeated_and_one_that_asks_for_another_gets_it() -> None:
    recorder = Recorder()
    recorder.again = [ValueError("no answer"), 0.0, None]
    async with running(recorder) as passes:
        passes.mark("a")
        for _ in range(3):
            assert await recorder.next() == "a"
            recorder.may_end.release()
        passes.mark("b")
        assert await recorder.next() == "b"
