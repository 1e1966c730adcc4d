"""Carry out Bindings: long-lived tasks fed by one queue per pool, each Binding with exactly one definite outcome.

Laws:
- A refusal is reported only when the server said it, when the pod was read and is not bound, or when nothing was sent.
- What nobody knows is read until somebody does; there is no outcome by time alone. A server that answers and does not
  tell keeps no task for long: such a Binding is in doubt until the pod is read by a `ReadPod`, or its watch has told.
- A Binding is sent only while the engine still counts on it: its pod is assumed by this decision, its node is there,
  and it was decided not long ago.
- When the API server is tired, all tasks wait, together with those of the evictor and of the reports.
- A bug of ours is told. One that comes up before an outcome leads to a look at the pod, as every unclear answer does;
  an outcome that nobody could be told of is settled by the next `ReadPod`.

Source: fault behaviour of pods/binding (fencing by uid and by the node name already set).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

from aischeduler.config.schema import BIND_IN_FLIGHT_MAX
from aischeduler.kube.backoff import ExponentialBackoff, Timing
from aischeduler.kube.concurrency_limit import CROWD, ConcurrencyLimit
from aischeduler.kube.connection_pool import ConnectionPool
from aischeduler.kube.errors import ApiError, Failed, RefusedError, UnreachableError
from aischeduler.kube.pod_writes import (
    BIND_TRIES_MAX,
    BindAccepted,
    BindAnswer,
    Throttled,
    Unauthenticated,
    Unknown,
    binding,
    read_bind_answer,
    settle,
    stale,
    unavailable,
)
from aischeduler.kube.work_queue import WorkQueue
from aischeduler.model.actions import Bind, ReadPod
from aischeduler.model.events import BindRefused
from aischeduler.model.pod import Pod

BINDS_AHEAD: Final = 4
"""Decided Bindings of a pool that may wait, as a multiple of those in flight; above that it decides nothing more."""
BINDS_AHEAD_MAX: Final = 128
STALE_SECONDS: Final = 30.0
"""A Binding that was decided so long ago is decided anew instead of sent: a queue that moves is far quicker."""
READS_MAX: Final = 3
"""Reads of a pod that the server answers without telling, before the Binding is in doubt and its task goes on."""
REVIEW_SECONDS: Final = 2.0
"""How often the Bindings in doubt are compared with what the watch has told."""

_TIRED: Final = frozenset((408, 429, 502, 503, 504))
"""What a server, or a proxy before it, answers that is away or has enough to do."""

Outcome = BindAccepted | BindRefused
Done = Callable[[Bind, Outcome, float], None]
"""Hears the outcome of a Binding, and after how many seconds since it was submitted."""
PodGetter = Callable[[Pod], Awaitable[Pod | None]]
"""Read a pod as it now is: None where no pod of its name exists; raises ApiError."""


def no_epoch() -> None:
    """Return the term of a leader where there is no election."""


class Assumptions(Protocol):
    """What the engine still counts on; see `engine.scheduler.Scheduler`."""

    def still_assumed(self, uid: str, decision: str) -> bool:
        """Say whether the pod counts on its node by this decision, and nothing has shown it there yet."""

    def has_node(self, name: str) -> bool:
        """Say whether a node of this name is there."""


@dataclass(frozen=True, slots=True)
class BindTerms:
    """How many Bindings may be under way at a time, what the engine counts on, and in which leader's term we are."""

    in_flight: int
    engine: Assumptions
    epoch: Callable[[], int | None] = no_epoch


@dataclass(eq=False, slots=True)
class PendingBinding:
    """A Binding that was submitted, and when. `known` from when its outcome is known."""

    action: Bind
    since: float
    known: bool = field(default=False)


class _InDoubt:
    """The server answers, and does not tell whether the pod is bound."""


class Binder:
    """Binds what is submitted; `work_queue` is what has no outcome yet."""

    def __init__(
        self, connections: ConnectionPool, read_pod: PodGetter, timing: Timing, terms: BindTerms, failed: Failed
    ) -> None:
        self.work_queue: WorkQueue[PendingBinding] = WorkQueue(_ahead(terms.in_flight))
        self.answered = asyncio.Event()
        """Set when an answer came while more Bindings wait to be sent, for who waits for answers to clear."""
        self.unanswered = 0
        """Bindings that were sent and have no answer yet."""
        self._throttle = timing.throttle
        self._connections = connections
        self._read_pod = read_pod
        self._timing = timing
        self._terms = terms
        self._concurrency = ConcurrencyLimit(terms.in_flight, timing.clock)
        self._grown = asyncio.Event()
        self._failed = failed
        self._held: dict[str, PendingBinding] = {}
        """What was submitted and whose outcome has not been told, by the pod's uid, in that order."""
        self._doubtful: dict[str, PendingBinding] = {}
        """Of them those that no task has in hand and none will take."""
        self._doubt = asyncio.Event()

    def submit(self, action: Bind) -> None:
        """Put a Binding at the end of its pool's queue."""
        submitted = PendingBinding(action, self._timing.clock())
        if (older := self._doubtful.get(action.pod.uid)) is not None:
            self._forget(older)  # the engine has decided anew, so it knows
        self._held[action.pod.uid] = submitted
        self.work_queue.put(submitted, action.pool)
        if self.work_queue.waiting >= CROWD and self._concurrency.crowd():
            self._grown.set()

    def bound(self, in_flight: int) -> None:
        """Let so many Bindings be under way at a time from now on, at most `BIND_IN_FLIGHT_MAX`."""
        self.work_queue.allow(_ahead(in_flight))
        if self._concurrency.bound(in_flight):
            self._grown.set()

    @property
    def throttled(self) -> bool:
        """Say whether the API server has asked us to wait."""
        return self._throttle.closed

    @property
    def in_doubt(self) -> int:
        """How many Bindings wait for a look at their pods."""
        return len(self._doubtful)

    def oldest_seconds(self) -> float:
        """Return how long ago the oldest Binding was submitted whose outcome has not been told; 0 where none is."""
        oldest = next(iter(self._held.values()), None)
        return self._timing.clock() - oldest.since if oldest is not None else 0.0

    def has_lost(self, looked: ReadPod) -> bool:
        """Say whether no Binding of an assumption is held here: its outcome was told, or a bug has lost it."""
        uid = looked.pod.uid
        return uid not in self._held and self._terms.engine.still_assumed(uid, looked.decision)

    def has_in_hand(self, uid: str) -> bool:
        """Say whether a Binding of this pod waits for a task or has one: that task will know."""
        return uid in self._held and uid not in self._doubtful

    async def run(self, done: Done) -> None:
        """Bind until cancelled; what an earlier run had in hand is in doubt."""
        waiting = {id(submitted) for submitted in self.work_queue.items()}
        for submitted in self._held.values():
            if id(submitted) not in waiting:
                self._put_in_doubt(submitted)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._review(), name="binder review")
            for number in range(BIND_IN_FLIGHT_MAX):
                group.create_task(self._bind_all(number, done), name=f"binder {number}")

    def settled(self, looked: ReadPod, pod: Pod | None, done: Done) -> None:
        """Hear how the pod of a Binding that may be in doubt was read to be."""
        submitted = self._doubtful.get(looked.pod.uid)
        if submitted is None or submitted.action.decision != looked.decision:
            return
        why = "the answer to the Binding was unclear"
        outcome = settle(submitted.action, pod, why) or unavailable(submitted.action, why)
        self._conclude(submitted, outcome, done)

    async def _bind_all(self, number: int, done: Done) -> None:
        while True:
            while number >= self._concurrency.size:
                await self._grown.wait()
                self._grown.clear()
            submitted = await self.work_queue.take()
            try:
                outcome = await self._bind(submitted)
            except Exception as error:  # noqa: BLE001 - a bug costs one Binding a look at its pod, not all the others
                self._failed("binder", error)
                outcome = None
            if outcome is None:
                self._put_in_doubt(submitted)
            else:
                self._conclude(submitted, outcome, done)

    def _conclude(self, submitted: PendingBinding, outcome: Outcome, done: Done) -> None:
        """Tell the outcome; one that nobody could be told of is left to the next look at the pod."""
        self._finish(submitted)
        try:
            done(submitted.action, outcome, self._timing.clock() - submitted.since)
        except Exception as error:  # noqa: BLE001 - a bug costs one outcome, not the binder
            self._failed("outcome of a binding", error)
            self._put_in_doubt(submitted)
        else:
            self._forget(submitted)

    def _put_in_doubt(self, submitted: PendingBinding) -> None:
        self._doubtful[submitted.action.pod.uid] = submitted
        self._doubt.set()

    def _finish(self, submitted: PendingBinding) -> None:
        if not submitted.known:
            submitted.known = True
            self.work_queue.finish()

    def _forget(self, submitted: PendingBinding) -> None:
        """Let go of a Binding whose outcome is known to the engine."""
        self._finish(submitted)
        uid = submitted.action.pod.uid
        if self._held.get(uid) is submitted:
            del self._held[uid]
        self._doubtful.pop(uid, None)

    async def _review(self) -> None:
        """Let go of Bindings in doubt whose pods the watch has shown bound or gone."""
        while True:
            await self._doubt.wait()
            await self._timing.sleep(REVIEW_SECONDS)
            for submitted in tuple(self._doubtful.values()):
                action = submitted.action
                if not self._terms.engine.still_assumed(action.pod.uid, action.decision):
                    self._forget(submitted)
            if not self._doubtful:
                self._doubt.clear()

    async def _bind(self, submitted: PendingBinding) -> Outcome | None:
        """Return the one outcome of a Binding, however long it takes; None where it is in doubt."""
        action = submitted.action
        path, body = binding(action, self._terms.epoch())
        backoff = ExponentialBackoff(self._timing)
        tries = 0
        while True:
            if self._throttle.closed:
                await self._throttle.pass_through()
            if why := self._obsolete(submitted):
                return stale(action, why)
            answer = await self._post(action, path, body)
            match answer:
                case BindAccepted() | BindRefused():
                    return answer
                case Throttled(seconds):
                    self._throttle.hold(seconds)
                case Unauthenticated():
                    await backoff.wait()
                case Unknown(message):
                    tries += 1
                    pod = await self._look(action, backoff)
                    if isinstance(pod, _InDoubt):
                        return None
                    outcome = settle(action, pod, message)
                    if outcome is not None:
                        return outcome
                    if tries >= BIND_TRIES_MAX:
                        return unavailable(action, message)
                case _:
                    assert_never(answer)

    def _obsolete(self, submitted: PendingBinding) -> str:
        """Return why a Binding of which nothing is in effect is not to be sent; empty when it is."""
        action, engine = submitted.action, self._terms.engine
        if not engine.still_assumed(action.pod.uid, action.decision):
            return "the pod is gone, or is where the watch shows it"
        if not engine.has_node(action.node):
            return "the node is gone"
        if self._timing.clock() - submitted.since > STALE_SECONDS:
            return f"it was decided more than {STALE_SECONDS:g} s ago"
        return ""

    async def _post(self, action: Bind, path: bytes, body: bytes) -> BindAnswer:
        began = self._timing.clock()
        self.unanswered += 1
        try:
            answer = await self._connections.send(b"POST", path, body, b"application/json")
        except UnreachableError as error:
            return Unknown(str(error))
        except Exception as error:  # noqa: BLE001 - as above
            self._failed("binder", error)
            return Unknown(f"the Binding could not be sent: {error!r}")
        finally:
            self.unanswered -= 1
        more_waits = self.work_queue.waiting > 0
        if more_waits and answer.status < 300:
            self.answered.set()
        if self._concurrency.answered(self._timing.clock() - began, more_waits=more_waits):
            self._grown.set()
        return read_bind_answer(action, answer.status, answer.retry_after, answer.body)

    async def _look(self, action: Bind, backoff: ExponentialBackoff) -> Pod | _InDoubt | None:
        """Read the pod until the server tells; in doubt where it answers again and again and does not."""
        answered = 0
        while answered < READS_MAX:
            await backoff.wait()
            try:
                return await self._read_pod(action.pod)
            except RefusedError as error:
                self._throttle.hold(error.retry_after_seconds or 0.0)
                answered += error.status not in _TIRED
            except UnreachableError:
                continue
            except ApiError:
                answered += 1
            except Exception as error:  # noqa: BLE001 - as above
                self._failed("binder", error)
                answered += 1
        return _InDoubt()


def _ahead(in_flight: int) -> int:
    """Return how many decided Bindings of a pool may wait where so many may be under way."""
    return min(BINDS_AHEAD * in_flight, BINDS_AHEAD_MAX)
