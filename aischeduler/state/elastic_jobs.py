"""The elastic jobs that are known, with what is remembered of them beside what their objects say.

Invariants:
- A job is here exactly while its object asks to be elastic, whether it may be or not.
- What is remembered decides only when a job is resized again: all else is read from its object and its pods.
- A resize begins when the object shows it: one that is refused starts no window.
"""

from msgspec import Struct, field
from msgspec.structs import replace

from aischeduler.model.elastic import (
    LEVELS,
    PRIORITY_LEVEL_KEY,
    PRIORITY_LEVELS_KEY,
    ElasticJob,
    ElasticTerms,
    PriorityLevel,
    Problem,
)
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.workload import Workload

JobKey = tuple[str, str, str]
"""Kind, namespace and name."""


class SentSize(Struct, frozen=True):
    """A size that was asked for and is not shown yet: the object had this `version` then."""

    instances: int
    version: str
    at: float


class ElasticRecord(Struct, eq=False):
    """One elastic job. Times are on the engine's clock, in unix seconds.

    `received` is the service until `received_at`, of which `noted` at `noted_at` is written into its object.
    """

    workload: Workload
    job: ElasticJob
    received: int = 0
    received_at: float = 0.0
    noted: int = 0
    noted_at: float = 0.0
    sent: SentSize | None = None
    resizing: bool = False
    """Whether its last resize may be under way: instances start, or leave."""
    resized_at: float = float("-inf")
    """When its last resize ended, as far as it has."""
    rests_until: float = float("-inf")
    """Until then it is not resized: its object could not be written."""
    short_since: float | None = None
    """Since when instances of its last step wait, where some do."""
    given_up: dict[str, None] = field(default_factory=dict)
    """Surplus (uids) that was evicted and that its controller makes again, until its size is lowered for it."""
    taken_back_at: float = float("-inf")
    """When growth of it was taken back last, because it found no room."""
    waits_since: float | None = None
    """Since when fewer pods than its minimum are on nodes; None where enough are."""
    foreign_at: float = float("-inf")
    """When another writer changed its size last."""
    foreign_size: int | None = None
    """The size that another writer made, until the scheduler's own note of it is shown."""
    refused: Problem | None = None
    """Why it is not elastic although its object says all: its namespace does not allow its level."""
    left_alone: Problem | None = None
    """Why it is no longer resized although its terms allow it; until they change."""
    priority: int = 0
    """That of its instances, by which it weighs where it names no level."""
    is_new: bool = True
    """Whether it has not been compared with the other jobs yet: it comes, or comes back."""
    is_read: bool = False
    """Whether a pass has read it before."""
    skipped_until: float = float("-inf")
    """Until then passes leave it out: reading it raised."""

    @property
    def key(self) -> JobKey:
        """What identifies the job."""
        return self.workload.key

    @property
    def name(self) -> str:
        """The job as it is named in texts, and in sorts."""
        kind, namespace, name = self.workload.key
        return f"{namespace}/{name} ({kind})"

    @property
    def size(self) -> int:
        """The number of instances that its object asks for, or soon will."""
        return self.sent.instances if self.sent is not None else self.job.size

    def weigh(self, priority: int) -> None:
        """Let it weigh by this priority of its instances, if it names no level."""
        if priority != self.priority and self.workload.elastic is not None:
            self.priority = priority
            self.job = _weighed(self.workload.elastic, priority)

    @property
    def problem(self) -> Problem | None:
        """Why it is not resized; None where it may be."""
        return self.job.problem or self.refused or self.left_alone


class ElasticJobs(Struct):
    """All elastic jobs by key."""

    by_key: dict[JobKey, ElasticRecord] = field(default_factory=dict)
    kept: dict[JobKey, frozenset[str]] = field(default_factory=dict)
    """Jobs whose minimum has waited for long, in their order -> the nodes on which it could run.

    No other elastic job starts there, but those before it.
    """
    levels: dict[str, tuple[PriorityLevel, ...]] = field(default_factory=dict)
    """Namespace -> the levels that it allows, where it restricts them."""
    nodes_changed_at: float = float("-inf")
    """When a node came last, or changed in what it offers or to whom."""
    touched: bool = False
    """Whether something happened that a pass may answer."""

    def see(self, workload: Workload, now: float) -> ElasticRecord | None:
        """Store what the object of a job says now; return its record, None where it is not elastic (any more)."""
        job, record = workload.elastic, self.by_key.get(workload.key)
        if job is None:
            self.forget(workload.key)
            return None
        if record is None or record.workload.uid != workload.uid:
            record = self.by_key[workload.key] = _new(workload, job, now)
        job = _weighed(job, record.priority)
        if record.job.terms != job.terms:
            record.left_alone = None
        if record.sent is not None and record.sent.version != job.version:
            record.sent = None
        if record.job.resized_at_seconds != job.resized_at_seconds:
            record.resizing, record.short_since = True, None
        if job.service_at_seconds and record.job.service_at_seconds != job.service_at_seconds:
            record.noted, record.noted_at = job.service, min(job.service_at_seconds, now)
        record.workload, record.job = workload, job
        record.refused = self.refusal(workload.namespace, job.terms)
        self.touched = True
        return record

    def refusal(self, namespace: str, terms: ElasticTerms) -> Problem | None:
        """Return why a namespace does not allow the level of a job; None where it does."""
        allowed = self.levels.get(namespace)
        level = PriorityLevel.NORMAL if terms.by_priority else LEVELS.get(terms.weight)
        if allowed is None or level is None or level in allowed:
            return None
        named = f"none is named, which counts as {level}" if terms.by_priority else f"{level} is named"
        text = f"metadata.annotations[{PRIORITY_LEVEL_KEY}]: {named}, and the namespace {namespace} allows "
        return Problem(EventReason.INVALID_ELASTIC, f"{text}{', '.join(allowed) or 'none'} by {PRIORITY_LEVELS_KEY}")

    def forget(self, key: JobKey) -> None:
        """Remove a job that is gone, or not elastic any more."""
        if self.by_key.pop(key, None) is not None:
            self.touched = True

    def go_on_from(self, before: "ElasticJobs") -> None:
        """Take over what is remembered of the jobs that are still here."""
        for key, record in self.by_key.items():
            known = before.by_key.get(key)
            if known is not None and known.workload.uid == record.workload.uid:
                workload, job = record.workload, _weighed(record.job, known.priority)
                self.by_key[key] = known
                known.workload, known.job = workload, job
        self.touched = bool(self.by_key)
        self.kept, self.nodes_changed_at = before.kept, before.nodes_changed_at


def _weighed(job: ElasticJob, priority: int) -> ElasticJob:
    terms = job.terms.weighed(priority)
    return job if terms is job.terms else replace(job, terms=terms)


def _new(workload: Workload, job: ElasticJob, now: float) -> ElasticRecord:
    """Return the record of a job that is seen first: its object says what it received under another scheduler."""
    record = ElasticRecord(workload, job, received_at=now, noted_at=now, resizing=bool(job.resized_at_seconds))
    if job.service_at_seconds:
        record.received = record.noted = job.service
        record.received_at = record.noted_at = min(job.service_at_seconds, now)
        record.is_new = False
    if job.by_another:
        record.foreign_at = job.resized_at_seconds
    return record
