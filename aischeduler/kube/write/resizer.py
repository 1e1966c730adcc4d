"""Write the sizes of elastic jobs: a few tasks take them from one queue, with one outcome each.

Invariants:
- `elastic_writes` defines the requests and the meaning of the answers; this module sends and retries them.
- A size whose outcome is unknown is sent again: had it taken effect, the object would have another version.
- Jobs of a namespace that gets no answers hold tasks, but some tasks stay for the others.
- An internal error costs one resize: it is reported, and the engine gets a refusal.
"""

from collections.abc import Callable
from typing import Final, assert_never

from aischeduler.kube.elastic_kinds import COLLECTIONS, Collections
from aischeduler.kube.http.backoff import RETRY_AFTER_SECONDS_MAX, ExponentialBackoff, Timing
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import ApiError, OnInternalError
from aischeduler.kube.write.elastic_writes import (
    UNANSWERED_SECONDS,
    ResizeAnswer,
    Resized,
    content_type,
    read_answer,
    refused,
    resize_patch,
    resize_path,
)
from aischeduler.kube.write.pod_writes import Throttled, Unauthenticated, Unknown
from aischeduler.kube.write.work_queue import Workers, WorkQueue
from aischeduler.model.actions import Resize
from aischeduler.model.events import ResizeRefused

RESIZES_IN_FLIGHT: Final = 6
"""How many jobs of a namespace have their size written at a time."""
RESERVED: Final = 2
RESIZES_IN_FLIGHT_MAX: Final = RESIZES_IN_FLIGHT + RESERVED
WAITING_MAX: Final = 10_000
"""How many sizes may wait; the engine asks for one of each job at a time."""
TRIES_MAX: Final = 8
"""How often one size is sent before its job is left alone for a while."""
ERROR_TRIES: Final = 2
"""As how many of these tries an error counts."""
INTERNAL: Final = "an internal error of the scheduler"
TOO_MANY: Final = "too many resizes are queued"

Outcome = Resized | ResizeRefused
OnResizeOutcome = Callable[[Resize, Outcome], None]


class Resizer:
    """Writes the sizes of elastic jobs; `work_queue` holds those without an outcome."""

    def __init__(
        self,
        connections: ConnectionPool,
        timing: Timing,
        on_internal_error: OnInternalError,
        collections: Collections = COLLECTIONS,
    ) -> None:
        self.work_queue: WorkQueue[Resize] = WorkQueue(WAITING_MAX, RESIZES_IN_FLIGHT, RESERVED)
        self._connections, self._collections = connections, collections
        self._timing = timing
        self._throttle = timing.throttle
        self._workers: Workers[Resize, Outcome] = Workers(
            "resizer",
            self.work_queue,
            of="a resize",
            lane=_lane,
            work=self._resize,
            failed=_failed,
            on_internal_error=on_internal_error,
        )

    def submit(self, action: Resize) -> bool:
        """Put a size at the end of the queue; return False if too many wait."""
        if self.work_queue.waiting >= WAITING_MAX:
            return False
        self.work_queue.put(action, _lane(action))
        return True

    async def run(self, on_outcome: OnResizeOutcome) -> None:
        """Write sizes until cancelled; those that an earlier run left unfinished are refused."""
        await self._workers.run(RESIZES_IN_FLIGHT_MAX, on_outcome)

    async def _resize(self, action: Resize) -> Outcome:
        """Send a size until it has an outcome, within limits."""
        backoff, why, tries = ExponentialBackoff(self._timing), "the API server asks to wait all the time", TRIES_MAX
        while tries > 0:
            tries -= 1
            await self._throttle.wait(action.namespace)
            answer = await self._send(action)
            match answer:
                case Resized() | ResizeRefused():
                    return answer
                case Throttled(seconds):
                    self._throttle.hold_for(seconds, action.namespace)
                case Unauthenticated():
                    why, tries = "the credentials are not accepted", tries + 1 - ERROR_TRIES
                    await backoff.wait()
                case Unknown(message, _, seconds):
                    why, tries = message, tries + 1 - ERROR_TRIES
                    await self._timing.sleep(max(backoff.next_seconds(), min(seconds, RETRY_AFTER_SECONDS_MAX)))
                case _:
                    assert_never(answer)
        return refused(action, why, UNANSWERED_SECONDS)

    async def _send(self, action: Resize) -> ResizeAnswer:
        path, body = resize_path(action, self._collections).encode(), resize_patch(action)
        try:
            answer = await self._connections.send(b"PATCH", path, body, content_type(action).encode())
        except ApiError as error:
            return Unknown(str(error))
        return read_answer(action, answer.status, answer.retry_after, answer.body)


def _lane(action: Resize) -> str:
    """Return the namespace as the lane of a size."""
    return action.namespace


def _failed(action: Resize) -> Outcome:
    return refused(action, INTERNAL, UNANSWERED_SECONDS)
