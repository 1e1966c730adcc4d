"""Answer batching: while the daemon has nothing to do but wait for answers to Bindings, it handles several at once.

Invariants:
- The event loop pauses only after an answer, and only while more Bindings wait to be sent, others are unanswered, the
  API server has not asked the client to wait, and no event and no pool waits. Without answers there are no pauses.
- A pause delays only answers, watch events and what plugins await around Bindings, by less than the duration of two
  slices of decisions.

Source: interrupt coalescing. A process that wakes up for each answer finds the CPU caches filled by other processes.
Answers that are handled together cost a third less CPU time, and leave more of it to an API server on the same machine.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

PAUSE_SECONDS: Final = 0.008


class Answers(Protocol):
    """The state of the answers to Bindings; see `kube.binder.Binder`."""

    answered: asyncio.Event
    unanswered: int

    @property
    def throttled(self) -> bool:
        """Return whether the API server has asked the client to wait."""


async def batch_answers(
    answers: Answers, busy: Callable[[], bool], pause: Callable[[float], None] = time.sleep
) -> None:
    """Pause after answers until cancelled; `busy` returns whether there is something else to do."""
    while True:
        await answers.answered.wait()
        answers.answered.clear()
        if answers.unanswered and not answers.throttled and not busy():
            pause(PAUSE_SECONDS)  # blocks the event loop on purpose
        await asyncio.sleep(0)
