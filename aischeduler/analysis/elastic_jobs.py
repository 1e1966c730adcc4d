"""The elastic jobs in the order of a pass over their sizes: what each has received, its size, and why it has that.

Invariants:
- The engine has observed everything and decided. What is read is what a pass reads, of copies of what it remembers: a
  look leaves nothing behind.
- Jobs that take part in a pass come first, the least served first; the others follow by namespace, name and kind.
  Finished jobs are left out.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.analysis.elastic_growth import FINISHES, IS_SUSPENDED, Growth, Growths, left_alone
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.elastic import JobReading, read_job, welcome
from aischeduler.engine.elastic_pods import staying_and_leaving
from aischeduler.model.elastic import LEVELS, WEIGHT_MAX, WEIGHTS, PriorityLevel
from aischeduler.model.event_reasons import EventReason
from aischeduler.policies.elastic import CPU_SCORE
from aischeduler.state.elastic_jobs import ElasticRecord, JobKey
from aischeduler.state.pod_records import PodState

SERVICE_OF_CORE_SECOND: Final = CPU_SCORE * 1000 * 1000 * WEIGHT_MAX // WEIGHTS[PriorityLevel.NORMAL]
"""How much service a second of one core is to a job of the level Normal: thousandths of scores, in milliseconds."""


class JobState(StrEnum):
    """The state of an elastic job, in one word."""

    WAITING = "waiting"
    """Fewer pods than its minimum are on nodes."""
    GROWING = "growing"
    """It has been given a larger size, or instances of its size wait for a node."""
    SHRINKING = "shrinking"
    """It has been given a smaller size, or instances leave."""
    RUNNING = "running"
    FINISHING = "finishing"
    """It is about to end, and keeps its size."""
    SUSPENDED = "suspended"
    NOT_ELASTIC = "notElastic"
    """It asks to be elastic and is not."""


class JobRow(Struct, frozen=True):
    """One job. `place` is 1 for the least served; None where it takes no part in a pass.

    `service_core_seconds` counts seconds of a core, 100 for a GPU and 0.1 for a GiB, as a job of the level Normal
    receives them: 10 times as much for Offline, 100 times for Experiment, a tenth for Production. A job that is new
    begins with the least of the others. `share_percent` is its part of what all jobs have received without weights;
    None where none has received anything.

    `size` is what its object asks for, `next_size` what the scheduler is about to give it, if that differs. `running`
    instances are bound. Of a job whose annotations cannot be read, the bounds are None. Times are in unix seconds:
    `waits_since_seconds` is when the oldest pod for which a minimum waits was made. `ignored` says which sizes that its
    annotations allow have no effect.
    """

    place: int | None
    kind: str
    namespace: str
    name: str
    weight: int
    service_core_seconds: int
    share_percent: float | None
    size: int
    next_size: int | None
    running: int
    minimum: int | None
    maximum: int | None
    allowed: tuple[int, ...]
    window_seconds: float
    state: JobState
    growth: Growth
    waits_since_seconds: int | None = None
    frozen_until_seconds: int | None = None
    weighs_by_priority: bool = False
    ignored: str = ""

    @property
    def level(self) -> str:
        """The name of its level; its weight where the priority of its pods says that."""
        return str(self.weight if self.weighs_by_priority else LEVELS.get(self.weight, self.weight))

    @property
    def key(self) -> JobKey:
        """What identifies the job."""
        return self.kind, self.namespace, self.name


def elastic_jobs(cluster: Cluster, now: float) -> tuple[JobRow, ...]:
    """Return all elastic jobs that have not finished, in their order."""
    known = [record for _, record in sorted(cluster.elastic.by_key.items()) if not record.job.finished]
    records = [replace(record, rests_until=float("inf")) for record in known]  # so that reading gives no size
    readings = {record.name: reading for record in records if (reading := read_job(cluster, record, [])) is not None}
    for reading, share in zip(readings.values(), welcome(readings.values()), strict=True):
        readings[share.name] = replace(reading, share=share)
    whole = sum(map(_unweighted, records))
    growths = Growths(cluster, readings, now)
    ordered = sorted(
        readings.values(), key=lambda read: (not read.share.aged, read.share.key(read.share.size), read.share.name)
    )
    places = {reading.share.name: place for place, reading in enumerate(ordered, 1)}
    rows = [
        _row(cluster, record, readings.get(record.name), growths, whole=whole, place=places.get(record.name))
        for record in records
    ]
    return tuple(sorted(rows, key=lambda row: (row.place is None, row.place or 0, row.namespace, row.name, row.kind)))


def job_row(rows: Sequence[JobRow], kinds: Sequence[str], namespace: str, name: str) -> JobRow | None:
    """Return the job of one of these kinds, the first of them that there is; None where it is not elastic."""
    found = {row.key: row for row in rows}
    return next((found[kind, namespace, name] for kind in kinds if (kind, namespace, name) in found), None)


def _row(
    cluster: Cluster,
    record: ElasticRecord,
    reading: JobReading | None,
    growths: Growths,
    *,
    whole: int,
    place: int | None,
) -> JobRow:
    job, problem = record.job, record.problem
    readable = problem is None or problem.reason is not EventReason.INVALID_ELASTIC
    instances, leave = staying_and_leaving(cluster, record)
    running = sum(instance.state is PodState.BOUND for instance in instances)
    state = _state(record, reading, running, leave)
    waiting = [instance.pod.created_seconds for instance in instances if instance.state is not PodState.BOUND]
    frozen_until = job.resized_at_seconds + job.terms.freezing_window_seconds if job.resized_at_seconds else 0.0
    return JobRow(
        place,
        *record.key,
        weight=job.terms.weight,
        service_core_seconds=_service(record) // SERVICE_OF_CORE_SECOND,
        share_percent=100 * _unweighted(record) / whole if whole else None,
        size=job.size,
        next_size=record.size if record.size != job.size else None,
        running=running,
        minimum=job.terms.min_instances if readable else None,
        maximum=job.terms.max_instances if readable else None,
        allowed=job.terms.allowed,
        window_seconds=job.terms.freezing_window_seconds,
        state=state,
        growth=_growth(record, reading, growths),
        waits_since_seconds=min(waiting, default=None) if state is JobState.WAITING else None,
        frozen_until_seconds=int(frozen_until) if reading is not None and frozen_until > cluster.now else None,
        weighs_by_priority=job.terms.by_priority and record.priority != 0,
        ignored=job.ignored,
    )


def _state(record: ElasticRecord, reading: JobReading | None, running: int, leave: int) -> JobState:
    job = record.job
    if record.problem is not None:
        return JobState.NOT_ELASTIC
    if job.suspended:
        return JobState.SUSPENDED
    if reading is None:
        return JobState.FINISHING
    if reading.share.waits or running < job.terms.min_instances:
        return JobState.WAITING
    if record.size < job.size or running > record.size or leave:
        return JobState.SHRINKING
    return JobState.GROWING if record.size > running else JobState.RUNNING


def _growth(record: ElasticRecord, reading: JobReading | None, growths: Growths) -> Growth:
    if record.problem is not None:
        return left_alone(record.problem)
    if reading is None:
        return IS_SUSPENDED if record.job.suspended else FINISHES
    return growths.of(reading)


def _service(record: ElasticRecord) -> int:
    """Return what a job has received; of one that takes no part in passes, what its object says."""
    return record.received or record.job.service


def _unweighted(record: ElasticRecord) -> int:
    return _service(record) * record.job.terms.weight // WEIGHT_MAX
