"""The status of a BatchProcess: phase, counts of each role, conditions and progress; and what its changes tell.

Invariant: the same plan gives the same status, times of transitions included, so that nothing is written without a
change.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from aischeduler.operator.batch_process import BatchProcess
from aischeduler.operator.conditions import COMPLETED, FAILED, Condition, observed, restarted, scheduled, told
from aischeduler.operator.owner import Json
from aischeduler.operator.plan import Plan
from aischeduler.operator.progress import Phase, Progress, read_record, record_document


def status_of(document: Json, process: BatchProcess, made: Plan, accepted: Condition, now_seconds: float) -> Json:
    """Return the whole status of a BatchProcess after a plan."""
    known = tuple(made.progress.of_role(role.name) for role in process.roles)  # after the end it may have got others
    progress = record_document(replace(made.progress, roles=known))
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
        **observed(document, [accepted, *_conditions(document, process, made, now_seconds)], now_seconds),
    }


def notes_of(document: Json, status: Json) -> Iterator[tuple[str, str]]:
    """Yield reason and note of the Events of a new status: for a refusal, for the end, and for new restarts."""
    before, after = read_record(document, Progress), read_record({"status": status}, Progress)
    yield from told(document, status, ends=after.finished and not before.finished)
    yield from restarted(before.restarts, after.restarts)


def _conditions(document: Json, process: BatchProcess, made: Plan, now_seconds: float) -> Iterator[Condition]:
    phase = made.progress.phase
    if not made.progress.finished:
        yield scheduled(document, _short(process, made), process.min_available, made.waits, now_seconds)
    if phase == Phase.SUCCEEDED:
        yield Condition(COMPLETED, True, "Succeeded", f"all {process.replicas} pods succeeded")
    if phase == Phase.FAILED and made.failure:
        yield Condition(FAILED, True, "BackoffLimitExceeded", made.failure)


def _short(process: BatchProcess, made: Plan) -> list[str]:
    """Return which minima lack nodes."""
    bound = [count.bound for count in made.counts]
    short = [
        f"{role.name} has {count} of at least {role.min_available}"
        for role, count in zip(process.roles, bound, strict=True)
        if count < role.min_available
    ]
    if sum(bound) < process.min_available:
        short.insert(0, f"{sum(bound)} of {process.replicas} pods have nodes, at least {process.min_available} must")
    return short
