"""The status of a BatchProcess: phase, counts of each role, conditions, and the record.

Invariants:
- The same plan gives the same status, times of transitions included, so that nothing is written without a change.
- A condition keeps the time at which its status last changed.
- A refused spec changes the condition `Accepted` alone: what runs goes on, and its counts stay.
"""

from typing import Any, Final

from msgspec import Struct

from aischeduler.model.times import time_text
from aischeduler.operator.batch_process import BatchProcess, Json
from aischeduler.operator.plan import Plan
from aischeduler.operator.record import Phase, record_document

ACCEPTED: Final = "Accepted"
SCHEDULED: Final = "Scheduled"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
MESSAGE_LENGTH_MAX: Final = 1_024


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


def status_of(document: Json, process: BatchProcess, made: Plan, accepted: Condition, now_seconds: float) -> Json:
    """Return the whole status of a BatchProcess after a plan."""
    record = record_document(made.record)
    counted = sum(count.running + count.succeeded for count in made.counts)
    roles = [
        {
            **noted,
            "replicas": role.replicas,
            "minAvailable": role.min_available,
            "pending": count.pending,
            "running": count.running,
            "succeeded": count.succeeded,
            "failed": count.failed,
        }
        for noted, role, count in zip(_in_order(record["roles"], process), process.roles, made.counts, strict=True)
    ]
    status = {
        **record,
        "roles": roles,
        "replicas": process.replicas,
        "minAvailable": process.min_available,
        "ready": f"{counted}/{process.replicas}",
        "observedGeneration": document["metadata"].get("generation", 0),
    }
    return status | {"conditions": _merged(document, [accepted, *_conditions(process, made)], now_seconds)}


def refusal_of(document: Json, accepted: Condition, now_seconds: float) -> Json:
    """Return the status of a BatchProcess whose spec is refused: what was known of it, and why it is refused."""
    known: Json = dict(document.get("status") or {})
    known.setdefault("phase", str(Phase.PENDING))
    known["observedGeneration"] = document["metadata"].get("generation", 0)
    return known | {"conditions": _merged(document, [accepted], now_seconds)}


def condition_of(document: Json, kind: str) -> Json:
    """Return a condition of a BatchProcess; empty if it has none of this type."""
    return _known(document).get(kind, {})


def _in_order(noted: list[Json], process: BatchProcess) -> list[Json]:
    """Return the record of each role; a finished BatchProcess may have got others since."""
    by_name = {role["name"]: role for role in noted}
    nothing: Json = {"attempts": [], "completedIndexes": []}
    return [by_name.get(role.name, {"name": role.name, **nothing}) for role in process.roles]


def _conditions(process: BatchProcess, made: Plan) -> list[Condition]:
    phase = made.record.phase
    found = []
    if not made.record.finished:
        found.append(_scheduled(process, made))
    if phase == Phase.SUCCEEDED:
        found.append(Condition(COMPLETED, True, "Succeeded", f"all {process.replicas} pods succeeded"))
    if phase == Phase.FAILED and made.failure:
        found.append(Condition(FAILED, True, "BackoffLimitExceeded", made.failure))
    return found


def _scheduled(process: BatchProcess, made: Plan) -> Condition:
    bound = [count.bound for count in made.counts]
    short = [
        f"{role.name} has {count} of at least {role.min_available}"
        for role, count in zip(process.roles, bound, strict=True)
        if count < role.min_available
    ]
    if sum(bound) < process.min_available:
        short.insert(0, f"{sum(bound)} of {process.replicas} pods have nodes, at least {process.min_available} must")
    if not short:
        return Condition(SCHEDULED, True, "MinimumPlaced", f"at least {process.min_available} pods have nodes")
    why = f": {made.waits}" if made.waits else ""
    return Condition(SCHEDULED, False, "WaitsForRoom", "; ".join(short) + why)


def _known(document: Json) -> dict[str, Json]:
    status = document.get("status") or {}
    return {one["type"]: one for one in status.get("conditions") or () if isinstance(one, dict) and "type" in one}


def _merged(document: Json, found: list[Condition], now_seconds: float) -> list[Any]:
    """Return the conditions that were known, with these over them, in the order of their types."""
    known = _known(document)
    generation = document["metadata"].get("generation", 0)
    for one in found:
        status = "True" if one.is_true else "False"
        before = known.get(one.type, {})
        same = before.get("status") == status
        known[one.type] = {
            "type": one.type,
            "status": status,
            "reason": one.reason,
            "message": one.message[:MESSAGE_LENGTH_MAX],
            "observedGeneration": generation,
            "lastTransitionTime": before["lastTransitionTime"] if same else time_text(now_seconds),
        }
    return [known[kind] for kind in sorted(known)]
