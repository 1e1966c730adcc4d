"""While only the API server is waited for, let its answers come in together.

Laws:
- A lull is taken only while decided Bindings wait to be sent and nothing else is to be done; so it keeps nobody waiting
  but the answers themselves and what the watches bring, and those for less than two slices of decisions take.

Source: interrupt coalescing. A process that is woken for each answer finds the caches full of what others have used:
what is handled in one go costs a third less, and the API server, where it is on the same machine, is disturbed less.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

LULL_SECONDS: Final = 0.008

SomeWait = Callable[[], Awaitable[None]]
"""Returns once some decided Binding waits to be sent."""


async def lulls(some_wait: SomeWait, busy: Callable[[], bool], pause: Callable[[float], None] = time.sleep) -> None:
    """Take lulls until cancelled; `busy` says whether there is something else to do."""
    while True:
        await some_wait()
        if not busy():
            pause(LULL_SECONDS)  # blocks the event loop: that is what it is for
        await asyncio.sleep(0)
