"""What to do for a TrainingJob now: which pods to delete and to make, whether to make its Job, and where it stands.

Invariants:
- A plan depends on the spec, the record, the Job and the pods that exist alone, so that the next run of the operator
  continues one that ends anywhere.
- The Job of the trainers decides the end. Master and pservers that are lost before it are made again, without a limit.
- A size is only read. A record of scaling says what the annotations of the Job say, whoever wrote the size.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from aischeduler.model.times import time_text, unix_seconds
from aischeduler.operator.objects import SeenPod
from aischeduler.operator.plan import Counts, Wanted, counts_of, due, last_first
from aischeduler.operator.progress import FINISHED, Phase, Progress, RoleProgress, grown
from aischeduler.operator.training_job import CleanPodPolicy, TrainingJob
from aischeduler.operator.training_objects import SeenJob, roles_of

SCALE_RECORDS_MAX: Final = 20
"""How many scale records a status keeps."""
WHY_LENGTH_MAX: Final = 1_024
ANOTHER_WRITER: Final = "the size was written by another writer than the scheduler"


class TrainingPhase(StrEnum):
    """Where a TrainingJob stands, in the words of PaddlePaddle."""

    CREATING = "creating"
    """Less runs than starts together."""
    RUNNING = "running"
    SCALING = "scaling"
    """Its size has changed, and an instance does not run yet or is not yet gone."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"


ENDS: Final = (TrainingPhase.SUCCEEDED, TrainingPhase.FAILED)

_Count = Annotated[int, Meta(ge=0)]


class RoleRecord(Struct, frozen=True):
    """`attempts` has for each index how many pods of its name were seen."""

    role: str
    attempts: tuple[_Count, ...] = ()


class SizeRecord(Struct, frozen=True):
    """The size that the Job of the trainers was last seen with."""

    wanted: _Count = 0


class ScaleRecord(Struct, frozen=True, omit_defaults=True):
    """One change of the size, and when its last trainer ran or was gone; `ended` is empty before that."""

    time: str
    before: int = field(name="from")
    after: int = field(name="to")
    why: str = ""
    ended: str = ""


class TrainingRecord(Struct, frozen=True, rename="camel"):
    """What must not be forgotten of one TrainingJob, with the names of the fields in its status."""

    phase: TrainingPhase = TrainingPhase.CREATING
    observed_generation: int = 0
    restarts: _Count = 0
    trainers: SizeRecord = SizeRecord()
    replica_statuses: tuple[RoleRecord, ...] = ()
    scale_records: tuple[ScaleRecord, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether nothing more is to be made."""
        return self.phase in ENDS


class TrainingPlan(Struct, frozen=True):
    """What to do, and what is true now.

    `counts` are those of the roles of the operator and, last, of the trainers; None for these where no Job says them.
    `again_seconds` is when a lost pod is due, or None. `failure` says why the job has failed, and `waits` why its first
    pod without a node has none.
    """

    record: TrainingRecord
    counts: tuple[Counts, ...]
    trainers: Counts | None
    deletes: tuple[SeenPod, ...] = ()
    creates: tuple[Wanted, ...] = ()
    makes_job: bool = False
    again_seconds: float | None = None
    failure: str = ""
    waits: str = ""


class Seen(Struct, frozen=True):
    """What exists of a TrainingJob: its Job, the pods of the operator, and those of the Job."""

    job: SeenJob | None
    pods: Sequence[SeenPod]
    trainers: Sequence[SeenPod]


def plan_training(job: TrainingJob, record: TrainingRecord, seen: Seen, now_seconds: float) -> TrainingPlan:
    """Return what to do with the TrainingJob, of which exactly these objects exist."""
    record = _scaled(record, seen.job, now_seconds)
    phase, failure = _verdict(record, seen.job)
    roles = roles_of(job)
    progress = grown(_progress(record), roles, seen.pods)
    if phase in ENDS:
        progress = replace(progress, phase=Phase.SUCCEEDED)
    by_place = {pod.place: pod for pod in seen.pods}
    counts = tuple(counts_of(role, progress, by_place) for role in roles)
    trainers = _trainers(seen, ended=phase in ENDS)
    record = replace(
        record,
        phase=phase,
        restarts=progress.restarts,
        replica_statuses=tuple(RoleRecord(one.name, one.attempts) for one in progress.roles),
    )
    if phase in ENDS:
        return TrainingPlan(record, counts, trainers, deletes=_ended(job, phase, seen), failure=failure)
    places = {(role.name, index): role for role in roles for index in range(role.replicas)}
    ours = [pod for place, pod in by_place.items() if place in places]
    surplus = (pod for place, pod in by_place.items() if place not in places and not pod.terminating)
    lost, again_seconds = due((pod for pod in ours if pod.phase in FINISHED and not pod.terminating), now_seconds)
    everyone = sorted([*ours, *seen.trainers], key=lambda pod: pod.name)
    return TrainingPlan(
        _in_phase(record, _phase(job, record, counts, seen), now_seconds),
        counts,
        trainers,
        deletes=(*last_first(surplus), *lost),
        creates=tuple(
            Wanted(role, place[1], progress.attempts(place) + 1)
            for place, role in places.items()
            if place not in by_place
        ),
        makes_job=seen.job is None,
        again_seconds=again_seconds,
        waits=next((pod.why for pod in everyone if not pod.bound and pod.why), ""),
    )


def _verdict(record: TrainingRecord, job: SeenJob | None) -> tuple[TrainingPhase, str]:
    """Return the phase, which is another one if the Job has just ended, and why it has failed."""
    if record.finished or job is None:
        return record.phase, ""
    if job.complete:
        return TrainingPhase.SUCCEEDED, ""
    return (TrainingPhase.FAILED, job.failure) if job.failure else (record.phase, "")


def _progress(record: TrainingRecord) -> Progress:
    roles = tuple(RoleProgress(one.role, one.attempts) for one in record.replica_statuses)
    return Progress(restarts=record.restarts, roles=roles)


def _trainers(seen: Seen, *, ended: bool) -> Counts | None:
    """Return the pods of the Job by their state."""
    if seen.job is None:
        return None
    there = [pod for pod in seen.trainers if not pod.terminating and pod.phase not in FINISHED]
    running = sum(pod.phase == Phase.RUNNING for pod in there)
    done = seen.job.succeeded
    return Counts(
        pending=0 if ended else max(seen.job.size - running - done, 0),
        running=0 if ended else running,
        succeeded=done,
        failed=seen.job.failed,
        bound=sum(pod.bound for pod in there) + done,
    )


def _scaled(record: TrainingRecord, job: SeenJob | None, now_seconds: float) -> TrainingRecord:
    """Return the record with the present size of the Job, and with one more scale record if that has changed."""
    if record.finished or (job is not None and job.size == record.trainers.wanted):
        return record
    if job is None:
        return replace(record, trainers=SizeRecord())  # it begins at its minimum
    resized = replace(record, trainers=SizeRecord(job.size))
    if not record.trainers.wanted:
        return resized
    told = job.written_size in (0, job.size) and bool(job.why)
    last = record.scale_records[-1].time if record.scale_records else ""
    at = int(job.resized_at_seconds)  # records have whole seconds
    fresh = told and at > (unix_seconds(last) if last else 0)  # taking a growth back leaves the time of the growth
    when = at if fresh else now_seconds
    why = job.why if told else ANOTHER_WRITER
    found = ScaleRecord(time_text(when), record.trainers.wanted, job.size, why[:WHY_LENGTH_MAX])
    records = (*record.scale_records, found)[-SCALE_RECORDS_MAX:]
    return replace(resized, phase=TrainingPhase.SCALING, scale_records=records)


def _in_phase(record: TrainingRecord, phase: TrainingPhase, now_seconds: float) -> TrainingRecord:
    """Return the record in this phase; the end of a scaling is noted."""
    records = record.scale_records
    if record.phase == TrainingPhase.SCALING != phase and records:
        records = (*records[:-1], replace(records[-1], ended=time_text(now_seconds)))
    return replace(record, phase=phase, scale_records=records)


def _phase(job: TrainingJob, record: TrainingRecord, counts: Sequence[Counts], seen: Seen) -> TrainingPhase:
    """Return where a job that has not ended stands."""
    trainers = _trainers(seen, ended=False)
    if seen.job is None or trainers is None:
        return TrainingPhase.CREATING
    there = trainers.running + trainers.succeeded
    unsettled = there != seen.job.size or any(pod.terminating for pod in seen.trainers)
    if record.phase == TrainingPhase.SCALING and unsettled:
        return TrainingPhase.SCALING
    others = all(count.running == role.replicas for role, count in zip(roles_of(job), counts, strict=True))
    return TrainingPhase.RUNNING if others and there >= job.trainers else TrainingPhase.CREATING


def _ended(job: TrainingJob, phase: TrainingPhase, seen: Seen) -> tuple[SeenPod, ...]:
    """Return the pods that go with the end: what still runs, and finished ones as the policy says."""
    if phase == TrainingPhase.SUCCEEDED:
        cleans = job.clean in (CleanPodPolicy.ALWAYS, CleanPodPolicy.ON_COMPLETION)
    else:
        cleans = job.clean in (CleanPodPolicy.ALWAYS, CleanPodPolicy.ON_FAILURE)
    finished: Iterable[SeenPod] = (pod for pod in (*seen.pods, *seen.trainers) if pod.phase in FINISHED and cleans)
    running = (pod for pod in seen.pods if pod.phase not in FINISHED)
    return last_first(pod for pod in (*running, *finished) if not pod.terminating)
