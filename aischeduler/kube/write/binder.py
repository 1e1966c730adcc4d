"""Send Bindings: long-lived tasks take them from one queue per pool, and each Binding gets exactly one outcome.

Invariants:
- A Binding is refused only when the server refused it, when the pod was read and is not bound, or when it was not sent.
  That the pod is gone, or bound elsewhere, is said by a read alone.
- After an unclear answer the pod is read until the outcome is known; no timeout decides. If the server answered the
  Binding, it is then refused with that answer; without an answer it is sent again. If the reads show no outcome, the
  Binding is in doubt and its task continues with the next one. A Binding in doubt is settled by a `ReadPod` action, or
  when the watch shows its pod.
- A plugin that binds itself has one Binding each time; what its exception leaves open, the read pod tells.
- A Binding is sent only while the engine assumes the pod by this decision, the node exists, and the decision is recent.
- When the API server is overloaded, all tasks wait, together with the evictor and the reporter. Where a pool alone is
  asked to wait, or gets no answers, the tasks that its Bindings hold wait; some stay for other pools.
- An internal error is reported. One before the outcome is treated as an unclear answer; if the callback fails, the next
  `ReadPod` settles the Binding.

Source: the behaviour of pods/binding, which rejects another uid and another node name.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

from aischeduler.config.schema import BIND_IN_FLIGHT_MAX
from aischeduler.kube.http.backoff import ExponentialBackoff, Timing
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import ApiError, OnInternalError, RefusedError, UnreachableError
from aischeduler.kube.write.hami_binds import HamiBinds
from aischeduler.kube.write.pod_writes import (
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
from aischeduler.kube.write.work_queue import WorkQueue
from aischeduler.model.actions import Bind, ReadPod
from aischeduler.model.binding_request import BindingRequest
from aischeduler.model.contract import AskedWork
from aischeduler.model.events import BindRefused
from aischeduler.model.pod import Pod

QUEUED_PER_IN_FLIGHT: Final = 4
"""How many Bindings of a pool may be queued per Binding in flight; a pool with more queued Bindings decides nothing."""
QUEUED_MAX: Final = 128
RESERVED_PER: Final = 16
"""For so many Bindings that one pool may have in flight, one more may be in flight of other pools."""
STALE_SECONDS: Final = 30.0
"""A Binding that was decided longer ago than this is not sent; the engine decides again."""
READ_TRIES_MAX: Final = 3
"""How many reads of the pod may be answered without showing the outcome before the Binding is in doubt."""
RECHECK_SECONDS: Final = 2.0
"""How often the Bindings in doubt are compared with what the watch has shown."""

_OVERLOADED: Final = frozenset((408, 429, 502, 503, 504))
"""The statuses of an overloaded or unavailable server, or of a proxy in front of it."""

Outcome = BindAccepted | BindRefused
OnBindOutcome = Callable[[Bind, Outcome, float], None]
"""Called with a Binding, its outcome, and the seconds since it was submitted."""
PodGetter = Callable[[Pod], Awaitable[Pod | None]]
"""Read a pod; None if no pod of this name exists. Raises ApiError."""


def no_epoch() -> None:
    """Return the epoch where there is no leader election: None."""


class BindHooks(Protocol):
    """What plugins do around a Binding, or in its place; see `framework.plugin.PreBind`, `Bind` and `PostBind`."""

    async def before(self, action: Bind) -> str:
        """Prepare a Binding; return why it must not be sent, empty where it may."""

    def may_bind(self, action: Bind) -> bool:
        """Return whether a plugin may bind the pod itself."""

    async def bind(self, action: Bind, request: BindingRequest) -> Outcome | Unknown | None:
        """Let plugins bind the pod; return None where the binder is to send the Binding."""

    def after(self, action: Bind) -> None:
        """Note that a pod was bound."""


@dataclass(eq=False, slots=True)
class PendingBinding:
    """A submitted Binding and its time; `known` is set once its outcome is known."""

    action: Bind
    submitted_at: float
    known: bool = field(default=False)


class _InDoubt:
    """The server answers, but the answers do not show whether the pod is bound."""


class Binder:
    """Sends submitted Bindings; `work_queue` holds those without an outcome.

    `in_flight` is how many Bindings of a pool may be in flight; `engine` knows what it assumes; `epoch` returns the
    leader's epoch; `hooks` are what plugins do around a Binding, if any does something; `hami` prepares the Bindings of
    pods with GPUs of HAMi, where such nodes get pods.
    """

    def __init__(
        self,
        connections: ConnectionPool,
        read_pod: PodGetter,
        timing: Timing,
        on_internal_error: OnInternalError,
        *,
        in_flight: int,
        engine: AskedWork,
        epoch: Callable[[], int | None] = no_epoch,
        hooks: BindHooks | None = None,
        hami: HamiBinds | None = None,
    ) -> None:
        self.work_queue: WorkQueue[PendingBinding] = WorkQueue(_queued_max(in_flight), in_flight, reserved(in_flight))
        self.answered = asyncio.Event()
        """Set when an answer arrives while Bindings are queued; `daemon.pool_loops.batch_answers` waits for it."""
        self.unanswered = 0
        """How many Bindings were sent and have no answer yet."""
        self._throttle = timing.throttle
        self._connections = connections
        self._read_pod = read_pod
        self._timing = timing
        self._engine, self._epoch, self._hooks, self._hami = engine, epoch, hooks, hami
        self._on_internal_error = on_internal_error
        self._pending: dict[str, PendingBinding] = {}
        """The submitted Bindings whose outcome was not delivered, by the pod's uid, in the order of submission."""
        self._in_doubt: dict[str, PendingBinding] = {}
        """The Bindings in doubt: part of `_pending`, and no task works on them."""
        self._has_doubt = asyncio.Event()

    def submit(self, action: Bind) -> None:
        """Put a Binding at the end of its pool's queue."""
        pending = PendingBinding(action, self._timing.clock())
        if (older := self._in_doubt.get(action.pod.uid)) is not None:
            self._forget(older)  # the engine decided again, so it knows the outcome
        self._pending[action.pod.uid] = pending
        self.work_queue.put(pending, action.pool)

    def set_in_flight_max(self, in_flight: int) -> None:
        """Set how many Bindings of a pool may be in flight, at most `BIND_IN_FLIGHT_MAX`."""
        self.work_queue.set_lane_limit(_queued_max(in_flight))
        self.work_queue.set_slots(in_flight, reserved(in_flight))

    @property
    def throttled(self) -> bool:
        """Say whether the API server has asked the client to wait."""
        return self._throttle.active

    @property
    def in_doubt(self) -> int:
        """How many Bindings are in doubt."""
        return len(self._in_doubt)

    def oldest_seconds(self) -> float:
        """Return the age of the oldest Binding whose outcome was not delivered; 0 if there is none."""
        oldest = next(iter(self._pending.values()), None)
        return self._timing.clock() - oldest.submitted_at if oldest is not None else 0.0

    def is_lost(self, action: ReadPod) -> bool:
        """Say whether the engine assumes the pod while the binder has no Binding for it, as after an internal error."""
        uid = action.pod.uid
        return uid not in self._pending and self._engine.still_assumed(uid, action.decision)

    def is_in_progress(self, uid: str) -> bool:
        """Say whether a Binding of this pod is queued or a task works on it."""
        return uid in self._pending and uid not in self._in_doubt

    async def run(self, on_outcome: OnBindOutcome) -> None:
        """Send Bindings until cancelled; those that an earlier run left unfinished are in doubt."""
        waiting = {id(pending) for pending in self.work_queue.items()}
        for pending in self._pending.values():
            if id(pending) not in waiting:
                self._put_in_doubt(pending)
        self.work_queue.leave_all()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recheck(), name="binder recheck")
            for number in range(bindings_in_flight_max(BIND_IN_FLIGHT_MAX)):
                group.create_task(self._bind_all(on_outcome), name=f"binder {number}")

    def settle(self, action: ReadPod, pod: Pod | None, on_outcome: OnBindOutcome) -> None:
        """Settle the Binding in doubt of a pod that was just read."""
        pending = self._in_doubt.get(action.pod.uid)
        if pending is None or pending.action.decision != action.decision:
            return
        why = "the answer to the Binding did not tell its outcome"
        outcome = settle(pending.action, pod, why) or unavailable(pending.action, why)
        self._conclude(pending, outcome, on_outcome)

    async def _bind_all(self, on_outcome: OnBindOutcome) -> None:
        pool: str | None = None
        while True:
            pending = await self.work_queue.take(pool)
            pool = pending.action.pool
            try:
                outcome = await (self._send if self._hami is None else self._send_for_hami)(pending)
            except Exception as error:  # noqa: BLE001 - an error costs one Binding a read of its pod
                self._on_internal_error("binder", error)
                outcome = None
            if outcome is None:
                self._put_in_doubt(pending)
            else:
                self._conclude(pending, outcome, on_outcome)

    def _conclude(self, pending: PendingBinding, outcome: Outcome, on_outcome: OnBindOutcome) -> None:
        """Deliver the outcome; if the callback fails, the Binding is in doubt."""
        self._finish(pending)
        try:
            on_outcome(pending.action, outcome, self._timing.clock() - pending.submitted_at)
        except Exception as error:  # noqa: BLE001 - an error costs one outcome, not the binder
            self._on_internal_error("outcome of a Binding", error)
            self._put_in_doubt(pending)
        else:
            self._forget(pending)

    def _put_in_doubt(self, pending: PendingBinding) -> None:
        self._in_doubt[pending.action.pod.uid] = pending
        self._has_doubt.set()

    def _finish(self, pending: PendingBinding) -> None:
        if not pending.known:
            pending.known = True
            self.work_queue.finish()

    def _forget(self, pending: PendingBinding) -> None:
        """Remove a Binding whose outcome the engine knows."""
        self._finish(pending)
        uid = pending.action.pod.uid
        if self._pending.get(uid) is pending:
            del self._pending[uid]
        self._in_doubt.pop(uid, None)

    async def _recheck(self) -> None:
        """Remove the Bindings in doubt whose pods the watch has shown bound or deleted."""
        while True:
            await self._has_doubt.wait()
            await self._timing.sleep(RECHECK_SECONDS)
            for pending in tuple(self._in_doubt.values()):
                action = pending.action
                if not self._engine.still_assumed(action.pod.uid, action.decision):
                    self._forget(pending)
            if not self._in_doubt:
                self._has_doubt.clear()

    def _send(self, pending: PendingBinding) -> Awaitable[Outcome | None]:
        return self._bind(pending) if self._hooks is None else self._hooked(pending)

    async def _send_for_hami(self, pending: PendingBinding) -> Outcome | None:
        """Return the outcome of a Binding, around which HAMi's device plugin needs more if its node is one of HAMi."""
        action, hami = pending.action, self._hami
        assert hami is not None, "the caller has seen it"
        if not hami.concerns(action):
            return await self._send(pending)
        if why := self._why_stale(pending):
            return stale(action, why)
        lock = await hami.prepare(action)
        if isinstance(lock, str):
            return unavailable(action, lock)
        outcome = await self._send(pending)
        if isinstance(outcome, BindRefused):
            await hami.undo(action, lock)
        return outcome

    async def _bind(self, pending: PendingBinding) -> Outcome | None:
        """Return the outcome of a Binding, however long it takes; None if it is in doubt."""
        action = pending.action
        path, body = binding(action, self._epoch())
        backoff = ExponentialBackoff(self._timing)
        tries = 0
        while True:
            if self._throttle.active:
                await self._throttle.wait(action.pool)
            if why := self._why_stale(pending):
                return stale(action, why)
            answer = await self._post(action, path, body)
            match answer:
                case BindAccepted() | BindRefused():
                    return answer
                case Throttled(seconds):
                    self._throttle.hold_for(seconds, action.pool)
                case Unauthenticated():
                    await backoff.wait()
                case Unknown(message, answered, seconds):
                    tries += 1
                    if not self._engine.still_assumed(action.pod.uid, action.decision):
                        return stale(action, message)  # the watch tells as much as a read
                    pod = await self._read_until_known(action, backoff, at_once=answered)
                    if isinstance(pod, _InDoubt):
                        return None
                    outcome = settle(action, pod, message)
                    if outcome is not None:
                        return outcome
                    if answered or tries >= BIND_TRIES_MAX or self._is_old(pending):
                        return unavailable(action, message, seconds)
                case _:
                    assert_never(answer)

    async def _hooked(self, pending: PendingBinding) -> Outcome | None:
        """Return the outcome of a Binding that plugins prepare, and tell them of its success."""
        action, hooks = pending.action, self._hooks
        assert hooks is not None, "the caller has seen them"
        if why := self._why_stale(pending):
            return stale(action, why)
        if refused := await hooks.before(action):
            return unavailable(action, refused)
        outcome = await (self._bound_by_plugin(pending, hooks) if hooks.may_bind(action) else self._bind(pending))
        if isinstance(outcome, BindAccepted):
            hooks.after(action)
        return outcome

    async def _bound_by_plugin(self, pending: PendingBinding, hooks: BindHooks) -> Outcome | None:
        """Return the outcome of a Binding that plugins may make; after an exception of one, the pod is read."""
        action = pending.action
        if why := self._why_stale(pending):  # what prepared it took its time
            return stale(action, why)
        path, body = binding(action, self._epoch())
        answer = await hooks.bind(action, BindingRequest(path.decode(), body))
        if answer is None:
            return await self._bind(pending)
        if not isinstance(answer, Unknown):
            return answer
        pod = await self._read_until_known(action, ExponentialBackoff(self._timing), at_once=False)
        if isinstance(pod, _InDoubt):
            return None
        return settle(action, pod, answer.message) or unavailable(action, answer.message)

    def _why_stale(self, pending: PendingBinding) -> str:
        """Return why a Binding must not be sent any more; empty if it may be sent."""
        action, engine = pending.action, self._engine
        if not engine.still_assumed(action.pod.uid, action.decision):
            return "the pod is gone, or the watch shows its node"
        if not engine.has_node(action.node):
            return "the node is gone"
        if self._is_old(pending):
            return f"it was decided more than {STALE_SECONDS:g} s ago"
        return ""

    def _is_old(self, pending: PendingBinding) -> bool:
        return self._timing.clock() - pending.submitted_at > STALE_SECONDS

    async def _post(self, action: Bind, path: bytes, body: bytes) -> BindAnswer:
        self.unanswered += 1
        try:
            answer = await self._connections.send(b"POST", path, body, b"application/json")
        except UnreachableError as error:
            return Unknown(str(error))
        except Exception as error:  # noqa: BLE001 - as above
            self._on_internal_error("binder", error)
            return Unknown(f"the Binding could not be sent: {error!r}")
        finally:
            self.unanswered -= 1
        if self.work_queue.waiting and answer.status < 300:
            self.answered.set()
        return read_bind_answer(action, answer.status, answer.retry_after, answer.body)

    async def _read_until_known(
        self, action: Bind, backoff: ExponentialBackoff, *, at_once: bool
    ) -> Pod | _InDoubt | None:
        """Read the pod until the outcome is known; in doubt after READ_TRIES_MAX answers that do not show it."""
        answered = 0
        while answered < READ_TRIES_MAX:
            if not at_once:
                await backoff.wait()
            at_once = False
            try:
                return await self._read_pod(action.pod)
            except RefusedError as error:
                self._throttle.hold_for(error.retry_after_seconds or 0.0, action.pool)
                answered += error.status not in _OVERLOADED
            except UnreachableError:
                continue
            except ApiError:
                answered += 1
            except Exception as error:  # noqa: BLE001 - as above
                self._on_internal_error("binder", error)
                answered += 1
        return _InDoubt()


def reserved(in_flight: int) -> int:
    """Return how many Bindings of other pools may be in flight beside this many of one pool."""
    return in_flight // RESERVED_PER


def bindings_in_flight_max(in_flight: int) -> int:
    """Return how many Bindings may be in flight in all, if this many of one pool may."""
    return in_flight + reserved(in_flight)


def _queued_max(in_flight: int) -> int:
    """Return how many Bindings of a pool may be queued for this many in flight."""
    return min(QUEUED_PER_IN_FLIGHT * in_flight, QUEUED_MAX)
