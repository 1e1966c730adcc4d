"""One eviction as a sequence of requests, and what the answers to them mean.

Laws:
- Pure: the daemon's evictor and the simulator run the same sequence.
- The victim is marked before it is removed; where the mark cannot be written, nothing is removed. The Eviction API
  marks by itself what it removes, and nothing else: a victim that a budget spares bears no mark.
- Every request carries the victim's uid. A victim that is gone, going or finished already is left alone.

Source: kube-scheduler's preemption; Kubernetes pods/status, DELETE with preconditions, pods/eviction (policy/v1).
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import msgspec

from aischeduler.kube.api_types import UNREADABLE, Metadata, PodStatus, read_status, retry_after_seconds
from aischeduler.kube.pod_writes import (
    JSON,
    RETRY_AFTER_SECONDS,
    STRATEGIC_PATCH,
    Throttled,
    Unauthenticated,
    Unknown,
    pod_path,
)
from aischeduler.model.actions import Evict, ReadPod
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.events import EvictRefusal, EvictRefused
from aischeduler.model.pod import FINISHED, Pod

EVICT_TRIES_MAX: Final = 6
"""Requests of one eviction that may end without a definite answer before it is given up."""
DISRUPTION_TARGET: Final = "DisruptionTarget"
BUDGET_CAUSE: Final = "DisruptionBudget"
"""The cause by which a 429 of a budget differs from a tired server's."""
MORE_BUDGETS: Final = "has more than one PodDisruptionBudget"
"""What the Eviction API says of a pod that it never evicts."""
_ANOTHER_UID: Final = ("metadata.uid: Invalid value", "UID in precondition", "the UID in the precondition")
"""What the API server says where the name belongs to another pod by now: to a patch, an eviction and a delete."""


def lost(action: ReadPod, pod: Pod | None) -> EvictRefused | None:
    """Say what a pod that was read tells about an eviction of which nothing was heard; None: it goes, or is gone."""
    if not action.evicted or pod is None or pod.uid != action.pod.uid or pod.terminating or pod.finished:
        return None
    return EvictRefused(pod.uid, EvictRefusal.LOST, f"nothing was heard of the eviction by {action.decision}")


@dataclass(frozen=True, slots=True)
class Write:
    """One request."""

    method: str
    path: str
    body: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Evicted:
    """The API server took the removal; the watch will show the victim going."""


@dataclass(frozen=True, slots=True)
class Left:
    """The victim was gone, going or finished already; `why` says which."""

    why: str


Ended = Evicted | Left | EvictRefused


@dataclass(frozen=True, slots=True)
class Marked:
    """The victim bears its mark: the removal is next."""


Answer = Ended | Marked | Throttled | Unauthenticated | Unknown
"""After a Throttled, an Unauthenticated or an Unknown the same request goes out again."""


class _Step(Enum):
    MARK = auto()
    REMOVE = auto()


class Eviction:
    """The way of one eviction: send `request`, let `hear` have the answer, until an answer is `Ended`.

    `honour_budgets` removes by the Eviction API, which refuses what a budget forbids; else by a plain delete.
    `controller` is the scheduler's name, for the mark.
    """

    def __init__(self, action: Evict, controller: str, *, honour_budgets: bool) -> None:
        self._action = action
        self._controller = controller
        self._honour_budgets = honour_budgets
        self._step = _Step.REMOVE if honour_budgets else _Step.MARK
        self._open_answers = 0

    def request(self, time_text: str) -> Write:
        """Return the request that is due; `time_text` is now in RFC 3339."""
        if self._step is _Step.MARK:
            return _mark(self._action, self._controller, time_text)
        return _by_eviction(self._action) if self._honour_budgets else _by_delete(self._action)

    def hear(self, status: int, retry_after: str | None, body: bytes) -> Answer:
        """Say what an HTTP answer to the request means."""
        if 200 <= status < 300:
            return self._took(body)
        return self._counted(self._judge(status, retry_after, body))

    def unanswered(self, why: str) -> Answer:
        """Say what follows when no answer came: both requests do no harm when they are sent again."""
        return self._counted(Unknown(why))

    def _took(self, body: bytes) -> Answer:
        if self._step is _Step.REMOVE:
            return Evicted()
        self._step = _Step.REMOVE
        why = _why_left(body)
        return Left(why) if why else Marked()

    def _judge(self, status: int, retry_after: str | None, body: bytes) -> Answer:
        said = read_status(body)
        message = said.message or f"the API server answered {status}"
        seconds = retry_after_seconds(retry_after)
        match status:
            case 401:
                return Unauthenticated()
            case 404:
                return Left(message)
            case 409 | 422 if any(words in message for words in _ANOTHER_UID):
                return Left(message)
            case 429 if BUDGET_CAUSE in said.causes:
                return self._refused(EvictRefusal.BUDGET, message)
            case 500 if MORE_BUDGETS in message:  # as long as there are so many; trying again helps nobody
                return self._refused(EvictRefusal.BUDGET, message)
            case 408 | 429:
                return Throttled(seconds or RETRY_AFTER_SECONDS)
            case 403:
                return self._refused(EvictRefusal.FORBIDDEN, message)
            case 400 | 405 | 413 | 415 | 422:
                return self._refused(EvictRefusal.UNAVAILABLE, message)
            case 500 | 502 | 503 | 504 if seconds is not None:
                return Throttled(seconds)
            case _:
                return Unknown(message)

    def _counted(self, answer: Answer) -> Answer:
        """Give up after too many answers that settle nothing."""
        if isinstance(answer, Throttled | Unauthenticated | Unknown):
            self._open_answers += 1
            if self._open_answers >= EVICT_TRIES_MAX:
                return self._refused(EvictRefusal.UNAVAILABLE, _why(answer))
        return answer

    def _refused(self, why: EvictRefusal, message: str) -> EvictRefused:
        return EvictRefused(self._action.victim.uid, why, message)


def _why(answer: Throttled | Unauthenticated | Unknown) -> str:
    match answer:
        case Throttled(seconds):
            return f"the API server asked to wait {seconds:g} s, {EVICT_TRIES_MAX} times over"
        case Unauthenticated():
            return "the API server does not know us"
        case Unknown(message):
            return message


def _mark(action: Evict, controller: str, time_text: str) -> Write:
    """Return the patch that says in the victim's status what is coming; other conditions stay."""
    victim, by = action.victim, action.beneficiary
    sake = (
        f"to accommodate {by.namespace}/{by.name}" if by is not None else f"as {action.pool} no longer lends this room"
    )
    condition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": ConditionReason.PREEMPTION_BY_SCHEDULER,
        "message": f"{controller}: preempting {sake}",
        "lastTransitionTime": time_text,
    }
    body = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
    return Write("PATCH", f"{pod_path(victim)}/status", msgspec.json.encode(body), STRATEGIC_PATCH)


def _by_delete(action: Evict) -> Write:
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": action.victim.uid}}
    return Write("DELETE", pod_path(action.victim), msgspec.json.encode(options), JSON)


def _by_eviction(action: Evict) -> Write:
    victim = action.victim
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim.name, "namespace": victim.namespace},
        "deleteOptions": {"preconditions": {"uid": victim.uid}},
    }
    return Write("POST", f"{pod_path(victim)}/eviction", msgspec.json.encode(body), JSON)


class _Victim(msgspec.Struct):
    """What the answer to a mark says of the victim."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    status: PodStatus | None = None


def _why_left(body: bytes) -> str:
    """Return why the marked pod gives its room back by itself, or nothing where it does not, or says nothing."""
    try:
        victim = msgspec.json.decode(body, type=_Victim)
    except UNREADABLE:
        return ""
    if victim.metadata.deletion_timestamp is not None:
        return "the victim is terminating"
    return "the victim has finished" if victim.status is not None and victim.status.phase in FINISHED else ""
