"""The status of a BatchProcess: phase, counts of each role, conditions and progress; and the Events of its changes.

Invariants:
- The same plan gives the same status, times of transitions included, so that nothing is written without a change.
- A condition keeps the time at which its status last changed.
- A refused spec changes the condition `Accepted` alone: what runs goes on, and its counts stay.
"""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.model.times import time_text
from aischeduler.operator.batch_process import KIND, BatchProcess, Json, dns_label
from aischeduler.operator.plan import Plan
from aischeduler.operator.progress import Phase, progress_document, read_progress

ACCEPTED: Final = "Accepted"
SCHEDULED: Final = "Scheduled"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
MESSAGE_LENGTH_MAX: Final = 1_024
NOTE_LENGTH_MAX: Final = 1_000
CONTROLLER: Final = "resource.aibee.cn/ai-scheduler-operator"
"""The `reportingController` of the operator's Events."""


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
    known = tuple(made.progress.of_role(role.name) for role in process.roles)  # after the end it may have got others
    progress = progress_document(replace(made.progress, roles=known))
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
        for noted, role, count in zip(progress["roles"], process.roles, made.counts, strict=True)
    ]
    counted = sum(count.running + count.succeeded for count in made.counts)
    return {
        **progress,
        "roles": roles,
        "replicas": process.replicas,
        "minAvailable": process.min_available,
        "ready": f"{counted}/{process.replicas}",
        **_observed(document, [accepted, *_conditions(process, made)], now_seconds),
    }


def refusal_of(document: Json, accepted: Condition, now_seconds: float) -> Json:
    """Return the status of a BatchProcess whose spec is refused: what was known of it, and why it is refused."""
    known: Json = {"phase": str(Phase.PENDING), **(document.get("status") or {})}
    return known | _observed(document, [accepted], now_seconds)


def condition_of(document: Json, kind: str) -> Json:
    """Return a condition of a BatchProcess; empty if it has none of this type."""
    return _known(document).get(kind, {})


def events_of(document: Json, status: Json, now_seconds: float) -> Iterator[Json]:
    """Yield the Events of a new status: for a refusal, for the end, and for new restarts."""
    before, after = read_progress(document), read_progress({"status": status})
    for condition in status["conditions"]:
        known = condition_of(document, condition["type"])
        same = (known.get("status"), known.get("reason")) == (condition["status"], condition["reason"])
        refusal = condition["type"] == ACCEPTED and condition["status"] == "False" and not same
        end = condition["type"] in (COMPLETED, FAILED) and after.finished and not before.finished
        if refusal or end:
            yield _event(document, condition["reason"], condition["message"], now_seconds)
    more = after.restarts - before.restarts
    if more > 0:
        yield _event(document, "Restarted", f"{more} lost pods were made again, {after.restarts} in all", now_seconds)


def _conditions(process: BatchProcess, made: Plan) -> Iterator[Condition]:
    phase = made.progress.phase
    if not made.progress.finished:
        yield _scheduled(process, made)
    if phase == Phase.SUCCEEDED:
        yield Condition(COMPLETED, True, "Succeeded", f"all {process.replicas} pods succeeded")
    if phase == Phase.FAILED and made.failure:
        yield Condition(FAILED, True, "BackoffLimitExceeded", made.failure)


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
    conditions: list[Any] = (document.get("status") or {}).get("conditions") or []
    return {condition["type"]: condition for condition in conditions}


def _observed(document: Json, found: list[Condition], now_seconds: float) -> Json:
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


def _event(document: Json, reason: str, note: str, now_seconds: float) -> Json:
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
        "type": "Normal" if reason in ("Succeeded", "Restarted") else "Warning",
        "regarding": {
            "apiVersion": document["apiVersion"],
            "kind": KIND,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }
