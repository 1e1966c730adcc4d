"""The requests of one eviction, in order, and the meaning of each answer.

Invariants:
- Pure functions: the daemon's evictor and the simulator run the same sequence.
- A delete follows the DisruptionTarget condition: if the condition cannot be written, nothing is deleted. The Eviction
  API writes the condition itself, and only for pods that it evicts.
- Every request carries the victim's uid. A victim that is gone, terminating or finished is not evicted.
- Where the Job or the JobSet of a victim goes whole, it is suspended, once for all its victims. That ends their pods:
  each still gets its condition, and none is deleted or refused. Where it cannot be suspended, each is evicted as any
  other. Where budgets are obeyed, dry runs come before the suspension, which budgets do not stop.
- Surplus of an elastic job goes by a smaller size of that, in the same way. Where the size is not written, none goes.
- Nothing is sent while the engine assumes the victim: where its Binding is refused, the pod waits, and stays. Nor is
  anything sent for what the engine no longer asks for.
- Evictions that go together are rehearsed: dry runs of their requests come first, and nothing is sent before the dry
  runs of all were accepted. So what refuses one of them costs the others nothing. A webhook without dry runs is asked
  by the eviction itself.

Source: kube-scheduler's preemption; Kubernetes pods/status, DELETE with preconditions, pods/eviction (policy/v1), and
`dryRun`.
"""

from enum import IntEnum, auto
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from aischeduler.kube.decode.api_types import PodStatus
from aischeduler.kube.decode.meta_types import UNREADABLE, Metadata, read_status, retry_after_seconds
from aischeduler.kube.write import elastic_writes
from aischeduler.kube.write.job_writes import JobWrite
from aischeduler.kube.write.pod_writes import (
    JSON,
    RETRY_AFTER_SECONDS,
    STRATEGIC_PATCH,
    Throttled,
    Unauthenticated,
    Unknown,
    is_another_uid,
    pod_path,
    read_unhandled,
)
from aischeduler.model.actions import Evict, EvictionCause, ReadPod, Resize
from aischeduler.model.contract import AskedWork
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.events import EvictRefusal, EvictRefused, ResizeRefused
from aischeduler.model.pod import FINISHED, Pod

EVICT_TRIES_MAX: Final = 6
"""How many requests of one eviction may end without a definite answer before it is given up."""
DISRUPTION_TARGET: Final = "DisruptionTarget"
LATER_SECONDS_MAX: Final = 10.0
"""If an answer asks to wait longer with this victim, its eviction is refused: other room may be found meanwhile."""
BUDGET_CAUSE: Final = "DisruptionBudget"
"""The cause that tells a 429 of a PodDisruptionBudget from a 429 of an overloaded server."""
NO_DRY_RUN: Final = ("does not support dry run", "no server-side dry run")
"""What a webhook, or a server, says to a dry run that it cannot judge."""
_DRY_RUN: Final = "?dryRun=All"
T = TypeVar("T")
SEVERAL_BUDGETS: Final = "has more than one PodDisruptionBudget"
"""What the Eviction API answers for a pod that it never evicts."""
BY_A_WEBHOOK: Final = "admission webhook "
"""How a refusal by a webhook begins; its status, 404 too, says nothing about the pod."""


def lost_eviction(action: ReadPod, pod: Pod | None) -> EvictRefused | None:
    """Return the refusal of an eviction whose victim was read and still runs; None if the victim is leaving or gone."""
    if not action.evicted or pod is None or pod.uid != action.pod.uid or pod.terminating or pod.finished:
        return None
    return EvictRefused(
        pod.uid,
        EvictRefusal.LOST,
        f"no answer to the eviction arrived, and the pod still runs; decision {action.decision}",
    )


class EvictionRequest(Struct, frozen=True):
    """A request of an eviction."""

    method: str
    path: str
    body: bytes
    content_type: str


class Evicted(Struct, frozen=True):
    """The API server accepted the eviction; the watch will show the victim terminating.

    `not_suspended` says why the Job of the victim, which was not to start again, could not be suspended.
    """

    not_suspended: str = ""


class NotNeeded(Struct, frozen=True):
    """The victim was already gone, terminating or finished; `why` says which."""

    why: str


EvictionOutcome = Evicted | NotNeeded | EvictRefused


class NextRequest(Struct, frozen=True):
    """The request was accepted, and the next one of the eviction follows."""


class Rehearsed(Struct, frozen=True):
    """All dry runs of the eviction were accepted."""


EvictionAnswer = EvictionOutcome | NextRequest | Rehearsed | Throttled | Unauthenticated | Unknown
"""After Throttled, Unauthenticated or Unknown, the same request is sent again."""


class NotShown(Struct, frozen=True):
    """Nothing is sent yet: the watch does not show the victim on its node, or its Job is being suspended."""


class _Step(IntEnum):
    """The requests in order; the first two are dry runs of the others."""

    TRY_MARK = auto()
    TRY_REMOVE = auto()
    WRITE_JOB = auto()
    MARK = auto()
    REMOVE = auto()


class Eviction:
    """One eviction: send `request`, pass the answer to `read_answer`, until that returns an `EvictionOutcome`.

    Nothing is sent while `withheld` returns a reason. After `Rehearsed`, `go_on` follows once the evictions that go
    together with it are rehearsed too.

    `honour_budgets` uses the Eviction API, which refuses what a PodDisruptionBudget forbids; else the pod is deleted.
    `controller` is the scheduler's name, for the condition. `job_write` is that to the victim's Job, None where the pod
    goes alone.
    """

    def __init__(
        self, action: Evict, controller: str, *, honour_budgets: bool, job_write: JobWrite | None = None
    ) -> None:
        self._action = action
        self._controller = controller
        self._honour_budgets = honour_budgets
        self._job_write = job_write
        self._tries = 0
        self._is_sent = False
        """Whether the request that removes the pod was sent: perhaps it leaves."""
        self._ends_by_job = False
        """Whether the pod leaves because its Job is suspended, or has a smaller size."""
        self._not_suspended = ""
        if action.together > 1 or (honour_budgets and job_write is not None):
            self._begin(_Step.TRY_MARK)
        else:
            self.go_on()

    @property
    def rehearses(self) -> bool:
        """Whether nothing but dry runs was sent yet, and the eviction goes together with others."""
        return self._step <= _Step.TRY_REMOVE

    def withheld(self, engine: AskedWork) -> NotNeeded | NotShown | EvictRefused | None:
        """Return why the next request is not sent, or not yet; None where it is to be sent."""
        uid = self._action.victim.uid
        if self._step is _Step.WRITE_JOB and (held := self._held_by_job()) is not None:
            return held
        if self._is_sent or self._ends_by_job:
            return None
        if not engine.still_evicts(uid, self._action.decision):
            return NotNeeded("the scheduler no longer asks for it")
        return NotShown() if engine.is_assumed(uid) else None

    def go_on(self) -> None:
        """Send the requests that were rehearsed."""
        self._begin(_Step.MARK if self._job_write is None else _Step.WRITE_JOB)

    def release(self) -> None:
        """Let another eviction send what this one, which has ended, has not."""
        if self._job_write is not None and self._job_write.sender is self:
            self._job_write.sender = None

    def news(self) -> JobWrite | None:
        """Return the write to the Job once it has ended, once for all evictions that wait for it."""
        return self._job_write if self._job_write is not None and self._job_write.take_news() else None

    def _begin(self, step: _Step) -> None:
        """Go on with this step; the Eviction API writes the condition itself."""
        self._step, self._tries, self._is_sent = step, 0, False
        if self._honour_budgets and step in (_Step.TRY_MARK, _Step.MARK):
            self._step = _Step(step + 1)

    def _held_by_job(self) -> NotShown | EvictRefused | None:
        """Go on if the write to the Job has ended; return why nothing is sent, None where something is."""
        write = self._job_write
        assert write is not None
        if write.failed:
            return EvictRefused(self._action.victim.uid, _why_failed(write), write.failed)
        if write.accepted:
            self._step, self._tries, self._ends_by_job = _Step.MARK, 0, True
        elif write.refused:
            self._not_suspended = (
                write.refused if self._action.suspends is not None and self._action.suspends.aborts else ""
            )
            self._begin(_Step.MARK)
        return NotShown() if not write.has_ended and write.sender not in (None, self) else None

    def request(self, time_text: str) -> EvictionRequest:
        """Return the next request; `time_text` is the current time in RFC 3339."""
        query = _DRY_RUN if self.rehearses else ""
        self._is_sent = self._step in (_Step.WRITE_JOB, _Step.REMOVE)
        if self._step is _Step.WRITE_JOB and self._job_write is not None:
            self._job_write.sender = self
            return EvictionRequest("PATCH", *self._job_write.request())
        if self._step in (_Step.TRY_MARK, _Step.MARK):
            return _set_condition(self._action, self._controller, time_text, query)
        return _by_eviction(self._action, query) if self._honour_budgets else _by_delete(self._action, query)

    def read_answer(self, status: int, retry_after: str | None, body: bytes) -> EvictionAnswer:
        """Return the meaning of an HTTP answer to the request."""
        answer = self._read(status, retry_after, body)
        return Evicted() if self._ends_by_job and isinstance(answer, NotNeeded | EvictRefused) else answer

    def _read(self, status: int, retry_after: str | None, body: bytes) -> EvictionAnswer:
        if 200 <= status < 300:
            return self._accepted(body)
        change = self._job_write.change if self._job_write is not None else None
        if self._step is _Step.WRITE_JOB and isinstance(change, Resize):
            return self._read_resize(elastic_writes.read_answer(change, status, retry_after, body))
        if self._step is _Step.WRITE_JOB and (why := _why_not_suspended(status, body)):
            return self._end_job_write(why)
        if status == 400 and self.rehearses and any(words in read_status(body).message for words in NO_DRY_RUN):
            return self._accepted(b"")
        return self._count_try(self._classify(status, retry_after, body))

    def no_answer(self, why: str) -> EvictionAnswer:
        """Return the meaning of a missing answer; all requests are safe to repeat."""
        answer = self._count_try(Unknown(why))
        return Evicted() if self._ends_by_job and isinstance(answer, EvictRefused) else answer

    def _read_resize(self, answer: elastic_writes.ResizeAnswer) -> EvictionAnswer:
        """Note that no size was written; nothing goes then. Other answers count as those to any request."""
        match answer:
            case ResizeRefused(message=message, changed=changed):
                assert self._job_write is not None
                self._job_write.failed, self._job_write.changed = message, changed
                return EvictRefused(self._action.victim.uid, _why_failed(self._job_write), message)
            case elastic_writes.Resized():
                return self._end_job_write()
            case _:
                return self._count_try(answer)

    def _end_job_write(self, refused: str = "") -> NextRequest:
        """Note that the Job is suspended, or cannot be, or has its size; `withheld` goes on."""
        assert self._job_write is not None
        self._job_write.accepted, self._job_write.refused = not refused, refused
        return NextRequest()

    def _accepted(self, body: bytes) -> EvictionAnswer:
        if self._step is _Step.WRITE_JOB:
            return self._end_job_write()
        if self._step is _Step.REMOVE or self._ends_by_job:
            return Evicted(self._not_suspended)
        if self._step is _Step.TRY_REMOVE:
            return Rehearsed()
        self._step = _Step(self._step + 1)
        why = _why_left(body)
        return NotNeeded(why) if why else NextRequest()

    def _classify(self, status: int, retry_after: str | None, body: bytes) -> EvictionAnswer:
        document = read_status(body)
        message = document.message or f"the API server answered {status}"
        seconds = retry_after_seconds(retry_after)
        if (unhandled := read_unhandled(status, retry_after, document)) is not None:
            return unhandled
        match status:
            case 400 | 403 | 404 | 409 | 422 if message.startswith(BY_A_WEBHOOK):
                return self._refused(EvictRefusal.FORBIDDEN, message)
            case 404 if document.reason == "NotFound" or message.endswith(" not found"):
                return NotNeeded(message)
            case 409 | 422 if is_another_uid(message):
                return NotNeeded(message)
            case 429 if BUDGET_CAUSE in document.causes:
                return self._refused(EvictRefusal.BUDGET, message)
            case 500 if SEVERAL_BUDGETS in message:  # retrying is useless while the pod has several budgets
                return self._refused(EvictRefusal.BUDGET, message)
            case _ if seconds is not None and seconds > LATER_SECONDS_MAX:
                return self._refused(EvictRefusal.UNAVAILABLE, message)
            case 429:
                return Unknown(message, answered=True, retry_after_seconds=seconds or RETRY_AFTER_SECONDS)
            case 403:
                return self._refused(EvictRefusal.FORBIDDEN, message)
            case 400 | 405 | 413 | 415 | 422:
                return self._refused(EvictRefusal.UNAVAILABLE, message)
            case _:
                return Unknown(message, answered=True, retry_after_seconds=seconds or 0.0)

    def _count_try(self, answer: EvictionAnswer) -> EvictionAnswer:
        """Give up after too many answers without an outcome."""
        if isinstance(answer, Throttled | Unauthenticated | Unknown):
            self._tries += 1
            if self._tries >= EVICT_TRIES_MAX:
                return self._refused(EvictRefusal.UNAVAILABLE, _why(answer))
        return answer

    def _refused(self, why: EvictRefusal, message: str) -> EvictRefused:
        if self._step is _Step.WRITE_JOB and self._job_write is not None:
            self._job_write.failed = message
        return EvictRefused(self._action.victim.uid, why, message)


def _why_failed(write: JobWrite) -> EvictRefusal:
    """Return what a write to the Job that failed means for its pods: what changed is decided again at once."""
    return EvictRefusal.CALLED_OFF if write.changed else EvictRefusal.UNAVAILABLE


def _why_not_suspended(status: int, body: bytes) -> str:
    """Return why the API server never suspends this Job; empty if the answer says nothing of the kind."""
    message = read_status(body).message or f"the API server answered {status}"
    return message if status in (400, 403, 404, 405, 413, 415, 422) or is_another_uid(message) else ""


class Rehearsals(Generic[T]):
    """The evictions that go together and whose dry runs are answered, until those of the others are."""

    def __init__(self) -> None:
        self._answered: dict[tuple[str, str], list[tuple[Evict, T, Rehearsed | EvictionOutcome]]] = {}
        """By decision, and the uid of the pod for which they go."""

    def begin(self, action: Evict) -> None:
        """Note that an eviction is to be rehearsed."""
        self._answered.setdefault(_together(action), [])

    def has_begun(self, action: Evict) -> bool:
        """Return whether one of the evictions that go together with this one is to be rehearsed."""
        return _together(action) in self._answered

    def answered(
        self, action: Evict, item: T, answer: Rehearsed | EvictionOutcome
    ) -> list[tuple[T, Rehearsed | EvictionOutcome]]:
        """Note the last answer to the dry runs of an eviction; `item` stands for it.

        Return nothing before the last of those that go together is answered, then each with what becomes of it:
        `Rehearsed` where it goes on. Where one is refused, the others are called off and come first.
        """
        found = self._answered.setdefault(_together(action), [])
        found.append((action, item, answer))
        if len(found) < action.together:
            return []
        del self._answered[_together(action)]
        refusal = next((said for _, _, said in found if isinstance(said, EvictRefused)), None)
        if refusal is not None:
            why = f"the eviction of another pod of the decision would be refused: {refusal.message}"
            found = [
                (
                    evict,
                    of,
                    EvictRefused(evict.victim.uid, EvictRefusal.CALLED_OFF, why) if said == Rehearsed() else said,
                )
                for evict, of, said in sorted(found, key=lambda entry: entry[2] != Rehearsed())
            ]
        return [(of, said) for _, of, said in found]


def _together(action: Evict) -> tuple[str, str]:
    return action.decision, action.beneficiary.uid if action.beneficiary is not None else ""


def _why(answer: Throttled | Unauthenticated | Unknown) -> str:
    match answer:
        case Throttled(seconds):
            return f"the API server asked to wait {seconds:g} s, {EVICT_TRIES_MAX} times"
        case Unauthenticated():
            return "the API server answers 401 Unauthorized"
        case Unknown(message):
            return message


def _set_condition(action: Evict, controller: str, time_text: str, query: str) -> EvictionRequest:
    """Return the patch that sets DisruptionTarget on the victim; other conditions stay."""
    victim, by = action.victim, action.beneficiary
    if by is not None:
        purpose = f"to accommodate {by.namespace}/{by.name}"
    elif action.cause is EvictionCause.GANG_NOT_WHOLE:
        purpose = "because too few pods of its gang are on nodes"
    elif action.cause in (EvictionCause.QUEUE_SHRUNK, EvictionCause.QUEUE_DRAINED):
        purpose = "because its tenant queue has too little quota, or drains"
    else:
        purpose = f"because pool {action.pool} no longer lends this room"
    condition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": ConditionReason.PREEMPTION_BY_SCHEDULER,
        "message": f"{controller}: preempting {purpose}",
        "lastTransitionTime": time_text,
    }
    body = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
    return EvictionRequest("PATCH", pod_path(victim, "status") + query, msgspec.json.encode(body), STRATEGIC_PATCH)


def _by_delete(action: Evict, query: str) -> EvictionRequest:
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    options["preconditions"] = {"uid": action.victim.uid}
    if query:
        options["dryRun"] = ["All"]  # beside a body the API server does not read the query of a delete
    return EvictionRequest("DELETE", pod_path(action.victim) + query, msgspec.json.encode(options), JSON)


def _by_eviction(action: Evict, query: str) -> EvictionRequest:
    victim = action.victim
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim.name, "namespace": victim.namespace},
        "deleteOptions": {"preconditions": {"uid": victim.uid}},
    }
    return EvictionRequest("POST", pod_path(victim, "eviction") + query, msgspec.json.encode(body), JSON)


class _Victim(msgspec.Struct):
    """The pod in the answer to the DisruptionTarget patch."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    status: PodStatus | None = None


def _why_left(body: bytes) -> str:
    """Return why the patched pod leaves by itself; empty if it does not, or if the answer does not say."""
    try:
        victim = msgspec.json.decode(body, type=_Victim)
    except UNREADABLE:
        return ""
    if victim.metadata.deletion_timestamp is not None:
        return "the victim is terminating"
    return "the victim has finished" if victim.status is not None and victim.status.phase in FINISHED else ""
