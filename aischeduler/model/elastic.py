"""Elastic jobs: workloads whose number of instances the scheduler chooses, between a minimum and a maximum.

Invariants:
- The object of a job says all that decisions need: its terms, its size, and what the scheduler wrote last. A scheduler
  that starts anew goes on from there.
- A job with a problem is not elastic: it keeps its size, and `problem` names the field or the other writer.

Source: TrainingJob of PaddlePaddle (min-instance, max-instance), levels and freezing window of its scheduler's design;
elastic Indexed Jobs of batch/v1 (KEP-3715).
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.model.event_reasons import EventReason

MIN_INSTANCES_KEY: Final = "resource.aibee.cn/min-instances"
"""The annotation of a workload with its least number of instances; with it, the workload asks to be elastic."""
MAX_INSTANCES_KEY: Final = "resource.aibee.cn/max-instances"
ALLOWED_INSTANCES_KEY: Final = "resource.aibee.cn/allowed-instances"
"""The annotation with the sizes that it may have, as "1,2,4,8"; without it, all from the minimum to the maximum."""
FREEZING_WINDOW_KEY: Final = "resource.aibee.cn/freezing-window"
"""The annotation with the least time between two resizes, as "5m"."""
PRIORITY_LEVEL_KEY: Final = "resource.aibee.cn/priority-level"
"""The annotation with one of `PriorityLevel`."""
PRIORITY_LEVELS_KEY: Final = "resource.aibee.cn/priority-levels"
"""The annotation of a namespace with the levels that its elastic jobs may have, as "Experiment,Offline"."""
ELASTIC_JOB_KEY: Final = "resource.aibee.cn/elastic-job"
"""The annotation of a JobSet that names the ReplicatedJob whose instances these are."""

SIZE_KEY: Final = "resource.aibee.cn/size"
"""The annotation with the size that the scheduler wrote last: another size is that of another writer."""
RESIZED_AT_KEY: Final = "resource.aibee.cn/resized-at"
"""The annotation with the time of the last resize, in RFC 3339."""
RESIZE_REASON_KEY: Final = "resource.aibee.cn/resize-reason"
"""The annotation with the reason of the last resize, for people."""
WRITTEN_BY_ANOTHER: Final = "Another program wrote its size"
"""The reason of a size that is not the scheduler's."""
SERVICE_KEY: Final = "resource.aibee.cn/service"
"""The annotation with the service that the job has received, and when: "VALUE TIME"."""
COMPLETIONS_KEY: Final = "resource.aibee.cn/completions"
"""The annotation of an Indexed Job that says whether its completions are its size: "follow" or "fixed"."""

INSTANCES_MAX: Final = 5_000
"""The largest maximum of a job."""
RESIZE_SECONDS_MAX: Final = 300.0
"""After this time a resize counts as ended: instances may never come, or may leave for long."""
FREEZING_WINDOW_SECONDS: Final = 300.0
"""The freezing window of a job that says none."""
WEIGHT_MAX: Final = 10_000


class PriorityLevel(StrEnum):
    """How much a job counts; see `WEIGHTS`. A level sets no priority of pods."""

    EXPERIMENT = "Experiment"
    OFFLINE = "Offline"
    NORMAL = "Normal"
    PRODUCTION = "Production"
    """It is not shrunk for other jobs."""


WEIGHTS: Final = {
    PriorityLevel.EXPERIMENT: 10,
    PriorityLevel.OFFLINE: 100,
    PriorityLevel.NORMAL: 1000,
    PriorityLevel.PRODUCTION: WEIGHT_MAX,
}
LEVELS: Final = {weight: level for level, weight in WEIGHTS.items()}
"""The levels by their weights."""


class ElasticTerms(Struct, frozen=True):
    """What the user says of an elastic job.

    `allowed` are sizes between the minimum and the maximum, ascending, the minimum always among them; empty means all
    of them. `weight` is that of its level, from 1 to WEIGHT_MAX. Where it names none (`by_priority`) it is that of
    Normal, unless its pods have a priority.
    """

    min_instances: int
    max_instances: int
    allowed: tuple[int, ...] = ()
    freezing_window_seconds: float = FREEZING_WINDOW_SECONDS
    weight: int = WEIGHTS[PriorityLevel.NORMAL]
    by_priority: bool = False

    def weighed(self, priority: int) -> "ElasticTerms":
        """Return the terms of a job whose pods have this priority, the value of their PriorityClass.

        The level Production is a user's word alone: no value makes a job one that is not shrunk.
        """
        if not self.by_priority or not priority:
            return self
        return replace(self, weight=max(1, min(priority, WEIGHT_MAX - 1)))

    @property
    def is_production(self) -> bool:
        """Whether it is not shrunk for other jobs."""
        return self.weight >= WEIGHT_MAX

    def next_above(self, size: int) -> int | None:
        """Return the smallest size that it may have above this one; None where there is none."""
        if not self.allowed:
            return max(size + 1, self.min_instances) if size < self.max_instances else None
        return next((allowed for allowed in self.allowed if allowed > size), None)

    def next_below(self, size: int) -> int | None:
        """Return the largest size that it may have below this one; None where there is none."""
        if not self.allowed:
            return min(size - 1, self.max_instances) if size > self.min_instances else None
        return next((allowed for allowed in reversed(self.allowed) if allowed < size), None)

    def at_most(self, size: int) -> int:
        """Return the largest size that it may have up to this one; the minimum where all are larger."""
        if not self.allowed:
            return max(self.min_instances, min(size, self.max_instances))
        return next((allowed for allowed in reversed(self.allowed) if allowed <= size), self.min_instances)


class Problem(Struct, frozen=True):
    """Why a workload that asks to be elastic is not: the reason of its event, and a sentence."""

    reason: EventReason
    message: str


class ElasticJob(Struct, frozen=True):
    """An elastic job as its object says it now.

    `size` is the number of instances that it asks its controller for, `version` its resourceVersion. `ordered` ones
    lose their highest indexes first: an Indexed Job whose completions follow its size, a StatefulSet. With
    `completions_follow` a change of the size changes the completions too. Of the instances `succeeded` have succeeded,
    and at most `left` are still to come; None where their number has no end. `part` names the ReplicatedJob of a
    JobSet, and `part_index` is its place in the spec. `written_size` is the size that the scheduler wrote last, 0 where
    it has written none; `resized_at_seconds` when, in unix seconds, and `service` what the job had received at
    `service_at_seconds` (see `policies.elastic`). `by_another` says that another program chose the size. `ignored`
    are parts of its terms that mean nothing, for an event.
    """

    terms: ElasticTerms
    size: int
    version: str
    ordered: bool = False
    completions_follow: bool = False
    succeeded: int = 0
    left: int | None = None
    part: str = ""
    finished: bool = False
    suspended: bool = False
    written_size: int = 0
    resized_at_seconds: float = 0.0
    service: int = 0
    service_at_seconds: float = 0.0
    by_another: bool = False
    ignored: str = ""
    problem: Problem | None = None
    part_index: int = 0

    @property
    def is_finishing(self) -> bool:
        """Whether the job is about to end, so that its size stays and no other is made.

        A shrink may finish a Job: where its size is its completions, or where it has none, once an instance succeeded.
        """
        if self.finished:
            return True
        return self.succeeded > 0 if self.left is None or self.completions_follow else self.left <= self.size
