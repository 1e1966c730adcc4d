"""Carry out Bindings: long-lived tasks fed by one queue per pool, each Binding with exactly one definite outcome.

Laws:
- A refusal is reported only when the server said it, or when the pod was read and is not bound.
- What nobody knows is read until somebody does; there is no outcome by time alone.
- When the API server is tired, all tasks wait together.
- A bug of ours is told and leads to a look at the pod, as every unclear answer does.

Source: fault behaviour of pods/binding (fencing by uid and by the node name already set).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, assert_never

from aischeduler.config.schema import BIND_IN_FLIGHT_MAX
from aischeduler.kube.backlog import Backlog
from aischeduler.kube.errors import ApiError, Failed, RefusedError, UnreachableError
from aischeduler.kube.pace import Backoff, Pace, Throttle
from aischeduler.kube.requests import (
    BIND_TRIES_MAX,
    BindAccepted,
    BindAnswer,
    Throttled,
    Unauthenticated,
    Unknown,
    binding,
    read_bind_answer,
    settle,
    unavailable,
)
from aischeduler.kube.window import CROWD, Window
from aischeduler.kube.wire import Wire
from aischeduler.model.actions import Bind
from aischeduler.model.events import BindRefused
from aischeduler.model.pod import Pod

BINDS_AHEAD: Final = 4
"""Decided Bindings of a pool that may wait, as a multiple of those in flight; above that it decides nothing more."""
BINDS_AHEAD_MAX: Final = 128

Outcome = BindAccepted | BindRefused
Done = Callable[[Bind, Outcome, float], None]
"""Hears the outcome of a Binding, and after how many seconds since it was submitted."""
ReadPod = Callable[[Pod], Awaitable[Pod | None]]
"""Read a pod as it now is: None where no pod of its name exists; raises ApiError."""


def no_epoch() -> None:
    """Return the term of a leader where there is no election."""


@dataclass(frozen=True, slots=True)
class BindTerms:
    """How many Bindings may be under way at a time, and in which leader's term they are sent."""

    in_flight: int
    epoch: Callable[[], int | None] = no_epoch


class Binder:
    """Binds what is submitted; `backlog` is what has no outcome yet."""

    def __init__(self, wire: Wire, read_pod: ReadPod, pace: Pace, terms: BindTerms, failed: Failed) -> None:
        self.backlog: Backlog[tuple[Bind, float]] = Backlog(_ahead(terms.in_flight))
        self._throttle = Throttle(pace)
        self._wire = wire
        self._read_pod = read_pod
        self._pace = pace
        self._epoch = terms.epoch
        self._window = Window(terms.in_flight, pace.clock)
        self._grown = asyncio.Event()
        self._failed = failed

    def submit(self, action: Bind) -> None:
        """Put a Binding at the end of its pool's queue."""
        self.backlog.put((action, self._pace.clock()), action.pool)
        if self.backlog.waiting >= CROWD and self._window.crowd():
            self._grown.set()

    def bound(self, in_flight: int) -> None:
        """Let so many Bindings be under way at a time from now on, at most `BIND_IN_FLIGHT_MAX`."""
        self.backlog.allow(_ahead(in_flight))
        if self._window.bound(in_flight):
            self._grown.set()

    async def run(self, done: Done) -> None:
        """Bind until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(BIND_IN_FLIGHT_MAX):
                group.create_task(self._bind_all(number, done), name=f"binder {number}")

    async def _bind_all(self, number: int, done: Done) -> None:
        while True:
            while number >= self._window.size:
                await self._grown.wait()
                self._grown.clear()
            action, since = await self.backlog.take()
            outcome = await self._bind(action)
            done(action, outcome, self._pace.clock() - since)
            self.backlog.finish()

    async def _bind(self, action: Bind) -> Outcome:
        """Return the one outcome of a Binding, however long it takes."""
        path, body = binding(action, self._epoch())
        backoff = Backoff(self._pace)
        tries = 0
        while True:
            if self._throttle.closed:
                await self._throttle.pass_through()
            answer = await self._post(action, path, body)
            match answer:
                case BindAccepted() | BindRefused():
                    return answer
                case Throttled(seconds):
                    self._throttle.hold(seconds)
                case Unauthenticated():
                    if not await self._wire.renew():
                        await backoff.wait()
                case Unknown(message):
                    tries += 1
                    outcome = await self._settle(action, message, backoff)
                    if outcome is not None:
                        return outcome
                    if tries >= BIND_TRIES_MAX:
                        return unavailable(action, message)
                case _:
                    assert_never(answer)

    async def _post(self, action: Bind, path: bytes, body: bytes) -> BindAnswer:
        began = self._pace.clock()
        try:
            answer = await self._wire.send(b"POST", path, body, b"application/json")
        except UnreachableError as error:
            return Unknown(str(error))
        except Exception as error:  # noqa: BLE001 - a bug costs one Binding a look at its pod, not all the others
            self._failed("binder", error)
            return Unknown(f"the Binding could not be sent: {error!r}")
        if self._window.answered(self._pace.clock() - began, more_waits=self.backlog.waiting > 0):
            self._grown.set()
        return read_bind_answer(action, answer.status, answer.retry_after, answer.body)

    async def _settle(self, action: Bind, message: str, backoff: Backoff) -> Outcome | None:
        """Read the pod until the server answers; None: it is not bound, and may be tried again."""
        while True:
            await backoff.wait()
            try:
                pod = await self._read_pod(action.pod)
            except RefusedError as error:
                self._throttle.hold(error.retry_after_seconds or 0.0)
            except ApiError:
                continue
            except Exception as error:  # noqa: BLE001 - as above; the pod is read until somebody knows
                self._failed("binder", error)
            else:
                return settle(action, pod, message)


def _ahead(in_flight: int) -> int:
    """Return how many decided Bindings of a pool may wait where so many may be under way."""
    return min(BINDS_AHEAD * in_flight, BINDS_AHEAD_MAX)
