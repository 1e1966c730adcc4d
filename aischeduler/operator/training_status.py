"""The status of a TrainingJob: phase, counts, freezing window, scale records, conditions; and what its changes tell.

Invariants:
- The same plan at the same moment gives the same status, so that nothing is written without a change. The seconds that
  are left of a freezing window change in steps of FROZEN_STEP_SECONDS.
- The status says what happened to the size; it asks for none.
"""

from collections.abc import Iterator
from math import ceil
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.model.elastic import RESIZE_SECONDS_MAX
from aischeduler.model.times import time_text, unix_seconds
from aischeduler.operator.conditions import COMPLETED, FAILED, Condition, observed, restarted, scheduled, told
from aischeduler.operator.owner import Json
from aischeduler.operator.plan import Counts
from aischeduler.operator.progress import read_record, record_document
from aischeduler.operator.training_job import TrainingJob
from aischeduler.operator.training_objects import TRAINER, SeenJob, roles_of
from aischeduler.operator.training_plan import TrainingPhase, TrainingPlan, TrainingRecord

FROZEN_STEP_SECONDS: Final = 15.0


class Frozen(Struct, frozen=True):
    """The freezing window of a job: its end in unix seconds, what is left as a text, and when that text changes.

    While a resize is under way there is no end: the window counts from the end of that.
    """

    until_seconds: float | None
    left: str
    again_seconds: float


def frozen(job: TrainingJob, made: TrainingPlan, seen: SeenJob | None, now_seconds: float) -> Frozen | None:
    """Return the freezing window that runs; None if there is none."""
    if seen is None or made.record.finished or not job.is_elastic or not seen.resized_at_seconds:
        return None
    late = seen.resized_at_seconds + RESIZE_SECONDS_MAX
    if made.record.phase == TrainingPhase.SCALING and now_seconds < late:
        whole = Frozen(None, f"{ceil(job.window_seconds)}s", late - now_seconds)
        return whole if job.window_seconds else None
    ended = made.record.scale_records[-1].ended if made.record.scale_records else ""
    until = max(seen.resized_at_seconds, unix_seconds(ended) if ended else 0.0) + job.window_seconds
    left = until - now_seconds
    if left <= 0:
        return None
    steps = ceil(left / FROZEN_STEP_SECONDS)
    shown = min(steps * FROZEN_STEP_SECONDS, ceil(job.window_seconds))
    return Frozen(until, f"{shown:.0f}s", left - (steps - 1) * FROZEN_STEP_SECONDS)


def training_status(
    document: Json, job: TrainingJob, made: TrainingPlan, *, window: Frozen | None, accepted: Condition, now: float
) -> Json:
    """Return the whole status of a TrainingJob after a plan; a field that is None is removed."""
    record = record_document(made.record)
    before = document.get("status") or {}
    roles: list[Json] = [
        {**noted, **_counted(count)} for noted, count in zip(record["replicaStatuses"], made.counts, strict=True)
    ]
    wanted = made.record.trainers.wanted or job.trainers
    known = before.get("trainers") or {}
    running = (
        made.trainers.running if made.trainers is not None else 0 if made.record.finished else known.get("running", 0)
    )
    trainers = {"running": running, "wanted": wanted, "min": job.min_instances, "max": job.max_instances}
    if made.trainers is not None:
        roles.append({"role": TRAINER, **_counted(made.trainers)})
    else:
        roles += [one for one in before.get("replicaStatuses") or () if one["role"] == TRAINER]
    return {
        **record,
        "level": job.level or job.priority_class,
        "trainers": trainers,
        "trainersReady": f"{running}/{wanted}/{job.min_instances}-{job.max_instances}",
        "replicaStatuses": roles,
        "frozenUntil": None if window is None or window.until_seconds is None else time_text(window.until_seconds),
        "frozen": "" if window is None else window.left,
        **observed(document, [accepted, *_conditions(document, job, made, now)], now),
    }


def training_notes(document: Json, status: Json) -> Iterator[tuple[str, str]]:
    """Yield reason and note of the Events of a new status: for a refusal, the end, new restarts and a new size."""
    before, after = read_record(document, TrainingRecord), read_record({"status": status}, TrainingRecord)
    yield from told(document, status, ends=after.finished and not before.finished)
    yield from restarted(before.restarts, after.restarts)
    last = after.scale_records[-1] if after.scale_records else None
    known = before.scale_records[-1] if before.scale_records else None
    if last is not None and (known is None or replace(last, ended=known.ended) != known):  # its end is no news
        yield "Scaled", f"{last.before} to {last.after} trainers" + (f": {last.why}" if last.why else "")


def _counted(count: Counts) -> dict[str, Any]:
    return {
        "running": count.running,
        "pending": count.pending,
        "succeeded": count.succeeded,
        "failed": count.failed,
    }


def _conditions(document: Json, job: TrainingJob, made: TrainingPlan, now: float) -> Iterator[Condition]:
    phase = made.record.phase
    if not made.record.finished:
        yield scheduled(document, _short(job, made), job.gang_min, made.waits, now)
    if phase == TrainingPhase.SUCCEEDED:
        yield Condition(COMPLETED, True, "Succeeded", "all trainers succeeded")
    if phase == TrainingPhase.FAILED and made.failure:
        yield Condition(FAILED, True, "TrainersFailed", made.failure)


def _short(job: TrainingJob, made: TrainingPlan) -> list[str]:
    """Return which minima lack nodes."""
    trainers = made.trainers.bound if made.trainers is not None else 0
    least = [
        *((role.name, count.bound, role.replicas) for role, count in zip(roles_of(job), made.counts, strict=True)),
        (TRAINER, trainers, job.trainers),
    ]
    return [f"{name} has {bound} of at least {needed}" for name, bound, needed in least if bound < needed]
