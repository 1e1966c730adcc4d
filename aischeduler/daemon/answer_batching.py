"""Answer batching: while only answers to Bindings are waited for, let some come in together.

Laws:
- A pause follows an answer, and only while more Bindings wait to be sent, others are unanswered, the API server has not
  asked us to wait, and nothing else is to be done. So where no answers come there are no pauses, and one keeps nobody
  waiting but the answers themselves and what the watches bring, for less than two slices of decisions take.

Source: interrupt coalescing. A process that is woken for each answer finds the caches full of what others have used:
what is handled in one go costs a third less, and the API server, where it is on the same machine, is disturbed less.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

PAUSE_SECONDS: Final = 0.008


class Answers(Protocol):
    """What is known of the answers to Bindings; see `kube.binder.Binder`."""

    answered: asyncio.Event
    unanswered: int

    @property
    def throttled(self) -> bool:
        """Say whether the API server has asked us to wait."""


async def batch_answers(
    answers: Answers, busy: Callable[[], bool], pause: Callable[[float], None] = time.sleep
) -> None:
    """Pause after answers until cancelled; `busy` says whether there is something else to do."""
    while True:
        await answers.answered.wait()
        answers.answered.clear()
        if answers.unanswered and not answers.throttled and not busy():
            pause(PAUSE_SECONDS)  # blocks the event loop: that is what it is for
        await asyncio.sleep(0)
