"""The health of GPUs by their Xids, and calls of a driver that may never return.

Invariants:
- A GPU that had a critical Xid is unhealthy until this program starts again.
- One call is made at a time. While one hangs, none is made, and everyone who waits is told so in time.

Source: the Xids that Koordinator's agent and NVIDIA's device plugin ignore: they are faults of programs.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Thread
from typing import Final, TypeVar

from aischeduler.device_reporter.hardware import DriverError, DriverHangsError, Xid

IGNORED_XIDS: Final = frozenset((13, 31, 43, 45, 68, 109))
Found = TypeVar("Found")


class Health:
    """The GPUs that are unhealthy since an Xid: uuid -> one word for why."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    def record(self, xid: Xid, known: Iterable[str]) -> list[str]:
        """Note an Xid and return the GPUs that it makes unhealthy; all known ones where it says of none."""
        if xid.number in IGNORED_XIDS:
            return []
        struck = [uuid for uuid in ([xid.uuid] if xid.uuid else known) if uuid not in self.problems]
        self.problems.update(dict.fromkeys(struck, f"Xid{xid.number}"))
        return sorted(struck)


class Calls:
    """Makes calls that may hang in threads, which do not keep the program from ending."""

    def __init__(self) -> None:
        self._free = asyncio.Event()
        self._free.set()

    async def call(self, ask: Callable[[], Found], seconds: float) -> Found:
        """Return what `ask` returns; raises DriverError for its errors, and where none comes within this time."""
        loop, answers = asyncio.get_running_loop(), list[Found | Exception]()

        def run() -> None:
            try:
                answers.append(ask())
            except Exception as error:  # noqa: BLE001 - whatever a library raises is news of the driver
                answers.append(error)
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._free.set)

        try:
            async with asyncio.timeout(seconds):
                await self._free.wait()
                self._free.clear()
                Thread(target=run, daemon=True).start()
                await self._free.wait()
        except TimeoutError:
            raise DriverHangsError(f"the driver does not answer within {seconds:g} s") from None
        (answer,) = answers
        if isinstance(answer, DriverError):
            raise answer
        if isinstance(answer, Exception):
            raise DriverError(f"{type(answer).__name__}: {answer}") from answer
        return answer
