"""The conditions in the status of an owner of pods, and the Events of its changes.

Invariants:
- A condition keeps the time at which its status last changed.
- A refused spec changes the condition `Accepted` alone: what runs goes on, and its counts stay.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from aischeduler.model.times import time_text, unix_seconds
from aischeduler.operator.owner import Json, dns_label

ACCEPTED: Final = "Accepted"
SCHEDULED: Final = "Scheduled"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
MESSAGE_LENGTH_MAX: Final = 1_024
NOTE_LENGTH_MAX: Final = 1_000
CONTROLLER: Final = "resource.aibee.cn/ai-scheduler-operator"
"""The `reportingController` of the operator's Events."""
WAITS: Final = "WaitsForRoom"
"""The reason of `Scheduled`, and of an Event, where the minimum waits and the scheduler has said why."""
STARTING: Final = "Starting"
"""The reason before: pods that start together come one by one, and the scheduler says so of the first ones."""
WAITS_SECONDS: Final = 10.0
"""After this time a minimum without nodes waits."""
INVALID: Final = "Invalid"
NORMAL_REASONS: Final = frozenset(("Succeeded", "Restarted", "Scaled"))


class Condition(Struct, frozen=True):
    """A condition without its times."""

    type: str
    is_true: bool
    reason: str
    message: str


IS_ACCEPTED: Final = Condition(ACCEPTED, True, "Accepted", "the spec is in force")


def refused(reason: str, message: str) -> Condition:
    """Return the condition of a spec that is not in force."""
    return Condition(ACCEPTED, False, reason, message)


def standing(document: Json, *, makes: bool) -> Condition:
    """Return whether the spec is in force: a refusal of objects stands until they are made."""
    known = condition_of(document, ACCEPTED)
    if makes and known.get("status") == "False" and known.get("reason") != INVALID:
        return refused(known["reason"], known["message"])
    return IS_ACCEPTED


def scheduled(document: Json, short: Sequence[str], least: int, waits: str, now_seconds: float) -> Condition:
    """Return whether the minimum has nodes; `short` says what lacks them, `waits` why in the scheduler's words."""
    if not short:
        return Condition(SCHEDULED, True, "MinimumPlaced", f"at least {least} pods have nodes")
    reason = WAITS if waits and _starts_until(document, now_seconds) <= now_seconds else STARTING
    return Condition(SCHEDULED, False, reason, "; ".join(short) + (f": {waits}" if waits else ""))


def _starts_until(document: Json, now_seconds: float) -> float:
    """Return when a minimum that has no nodes begins to wait, in unix seconds."""
    known = condition_of(document, SCHEDULED)
    return WAITS_SECONDS + (
        unix_seconds(known["lastTransitionTime"]) if known.get("status") == "False" else now_seconds
    )


def starts_seconds(status: Json, waits: str, now_seconds: float) -> float | None:
    """Return in how many seconds a minimum of which the scheduler has said why it has no nodes begins to wait.

    None where it waits already, has nodes, or the scheduler has said nothing.
    """
    document = {"status": status}
    if not waits or condition_of(document, SCHEDULED).get("reason") != STARTING:
        return None
    left = _starts_until(document, now_seconds) - now_seconds
    return left if left > 0 else None


def refusal_of(document: Json, accepted: Condition, phase: str, now_seconds: float) -> Json:
    """Return the status of an owner whose spec is refused: what was known, else this phase, and why it is refused."""
    known: Json = {"phase": phase, **(document.get("status") or {})}
    return known | observed(document, [accepted], now_seconds)


def condition_of(document: Json, kind: str) -> Json:
    """Return a condition of an owner; empty if it has none of this type."""
    return _known(document).get(kind, {})


def observed(document: Json, found: Iterable[Condition], now_seconds: float) -> Json:
    """Return the generation and the conditions: those that were known, with these over them, in the order of types."""
    known = _known(document)
    generation = document["metadata"].get("generation", 0)
    for condition in found:
        status = "True" if condition.is_true else "False"
        before = known.get(condition.type, {})
        known[condition.type] = {
            "type": condition.type,
            "status": status,
            "reason": condition.reason,
            "message": condition.message[:MESSAGE_LENGTH_MAX],
            "observedGeneration": generation,
            "lastTransitionTime": before["lastTransitionTime"]
            if before.get("status") == status
            else time_text(now_seconds),
        }
    return {"observedGeneration": generation, "conditions": [known[kind] for kind in sorted(known)]}


def told(document: Json, status: Json, *, ends: bool) -> Iterable[tuple[str, str]]:
    """Yield reason and note of the Events of a new status: for a refusal, for a minimum that waits, and for the end.

    A refusal of the spec is told again where it is about another field.
    """
    for condition in status["conditions"]:
        known = condition_of(document, condition["type"])
        same = (known.get("status"), known.get("reason")) == (condition["status"], condition["reason"])
        if condition["reason"] == INVALID:
            same = same and known.get("message") == condition["message"]
        refusal = condition["type"] == ACCEPTED and condition["status"] == "False"
        waits = condition["type"] == SCHEDULED and condition["reason"] == WAITS
        if ((refusal or waits) and not same) or (ends and condition["type"] in (COMPLETED, FAILED)):
            yield condition["reason"], condition["message"]


def restarted(before: int, after: int) -> Iterable[tuple[str, str]]:
    """Yield reason and note of the Event of new restarts."""
    if after > before:
        lost = "1 lost pod was" if after - before == 1 else f"{after - before} lost pods were"
        yield "Restarted", f"{lost} made again, {after} in all"


def event(document: Json, reason: str, note: str, now_seconds: float) -> Json:
    """Return an Event about an owner."""
    metadata = document["metadata"]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": dns_label(f"{metadata['name'][:40]}.{reason.lower()}.{int(now_seconds * 1e6):x}"),
            "namespace": metadata["namespace"],
        },
        "eventTime": time_text(now_seconds, "microseconds"),
        "reportingController": CONTROLLER,
        "reportingInstance": "ai-scheduler-operator",
        "action": reason,
        "reason": reason,
        "note": note[:NOTE_LENGTH_MAX],
        "type": "Normal" if reason in NORMAL_REASONS else "Warning",
        "regarding": {
            "apiVersion": document["apiVersion"],
            "kind": document["kind"],
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }


def _known(document: Json) -> dict[str, Json]:
    conditions: list[Any] = (document.get("status") or {}).get("conditions") or []
    return {condition["type"]: condition for condition in conditions}
