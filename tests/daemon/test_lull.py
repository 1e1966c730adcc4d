import asyncio
from contextlib import suppress

from aischeduler.daemon.lull import LULL_SECONDS, lulls
from aischeduler.kube.backlog import Backlog


class Scene:
    """Bindings that wait, something else to do or not, and the lulls that were taken."""

    def __init__(self) -> None:
        self.backlog: Backlog[str] = Backlog(10)
        self.busy = False
        self.lulls: list[float] = []

    async def turns(self, count: int) -> None:
        """Let the event loop turn so often."""
        task = asyncio.create_task(lulls(self.backlog.some_waiting, lambda: self.busy, self.lulls.append))
        for _ in range(count):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_lulls_are_taken_while_bindings_wait_and_nothing_else_is_to_be_done() -> None:
    scene = Scene()
    scene.backlog.put("a binding")
    await scene.turns(5)
    assert scene.lulls == [LULL_SECONDS] * 5


async def test_nobody_who_has_something_to_do_waits_for_a_lull() -> None:
    scene = Scene()
    scene.backlog.put("a binding")
    scene.busy = True
    await scene.turns(5)
    assert scene.lulls == []


async def test_there_is_no_lull_when_all_bindings_are_under_way() -> None:
    scene = Scene()
    scene.backlog.put("a binding")
    await scene.backlog.take()
    await scene.turns(5)
    assert scene.lulls == []
