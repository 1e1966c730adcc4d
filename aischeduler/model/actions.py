"""Actions: everything that the engine asks a shell to do, as a closed union.

Invariants:
- An action is complete: a shell needs nothing else to perform it.
- Every action on a pod names its decision, so that one line of the log shows one decision.
"""

from enum import StrEnum

import msgspec
from msgspec import Struct

from aischeduler.model.allocation import NO_ALLOCATION, Allocation
from aischeduler.model.event_reasons import ConditionReason, EventReason
from aischeduler.model.gang import Gang, GangStatus
from aischeduler.model.pod import Pod
from aischeduler.model.pool_summary import PoolSummary
from aischeduler.model.selectors import LabelSelector
from aischeduler.model.tenant_queue import QueueState, QueueSummary
from aischeduler.model.volumes import VolumeWrite
from aischeduler.model.workload import JobRef


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Bind the pod to the node by a Binding with the pod's uid and the scheduler's annotations.

    `pool` is the pool of the node, `home_pool` the pod's own pool: where they differ, the pod is on loan. The pod
    counts on the node from now on, with its `allocation`. `waited_seconds` is the time since the pod was first seen,
    over `attempts`.
    """

    pod: Pod
    node: str
    pool: str
    home_pool: str
    decision: str
    feasible_nodes: int
    waited_seconds: float = 0.0
    attempts: int = 1
    allocation: Allocation = NO_ALLOCATION

    @property
    def borrowed(self) -> bool:
        """Return whether the node belongs to another pool than the pod's own."""
        return self.pool != self.home_pool


class BindVolumes(msgspec.Struct, frozen=True, gc=False):
    """Write what binds the unbound claims of a placed pod to volumes, or has volumes created for its node.

    `VolumesWritten` or `VolumesRefused` is the answer. With `withdraw`, the node is taken out of the claims again for
    which it is still selected, and there is no answer.
    """

    pod: Pod
    node: str
    decision: str
    writes: tuple[VolumeWrite, ...]
    withdraw: bool = False


class ReportWaiting(Struct, frozen=True):
    """Write why a pod waits into a FailedScheduling event and the PodScheduled condition.

    `pool` is the pool in which the pod was tried, `home_pool` the pod's own pool. `reason` is that of the event.
    """

    pod: Pod
    pool: str
    home_pool: str
    message: str
    decision: str
    reason: EventReason = EventReason.FAILED_SCHEDULING


class ResizeReason(StrEnum):
    """Why the size of an elastic job is written."""

    ADOPTED = "Adopted"
    """The job became elastic, or its terms changed: its size is brought between its minimum and its maximum."""
    GROWN = "Grown"
    """There is room for more instances."""
    SHRUNK = "Shrunk"
    """Another job has received less, or waits for its minimum."""
    RECLAIMED = "Reclaimed"
    """Pods that come before its surplus need the room."""
    TAKEN_BACK = "TakenBack"
    """Instances of its last growth found no node."""
    WRITTEN_BY_ANOTHER = "WrittenByAnother"
    """Another program has changed the size: it stays so, and begins the window."""
    NOTED = "Noted"
    """The size stays; the service that the job has received is written down."""


class Resize(Struct, frozen=True):
    """Write this size into the object of an elastic job, unless that has changed since `version`.

    `before` is the size that it has. `part` names the ReplicatedJob of a JobSet, and `part_index` is its place in the
    spec. With `completions_follow` the completions are the size; None leaves them, and what is noted of them, as they
    are. `service` is what the job had received at `now_seconds`, in unix seconds. A size that is no resize (adopted,
    taken back, noted) leaves the time of the last one. `message` says why, for people. `ResizeRefused` is the answer
    where it cannot be written.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    before: int
    instances: int
    reason: ResizeReason
    message: str
    decision: str
    service: int
    now_seconds: float
    part: str = ""
    completions_follow: bool | None = None
    part_index: int = 0

    @property
    def starts_window(self) -> bool:
        """Whether the freezing window of the job begins anew."""
        return self.reason not in (ResizeReason.ADOPTED, ResizeReason.TAKEN_BACK, ResizeReason.NOTED)


class EvictionCause(StrEnum):
    """Why a pod is evicted."""

    PREEMPTED = "Preempted"
    """A home pod of higher priority needs the room of another home pod."""
    RECLAIMED = "Reclaimed"
    """A home pod needs lent room."""
    SURPLUS_TAKEN = "SurplusTaken"
    """It is more than the minimum of its elastic job, and a pod that comes before needs its room."""
    QUEUE_RECLAIMED = "QueueReclaimed"
    """Inference of another tenant queue takes the room of training."""
    QUEUE_SHRUNK = "QueueShrunk"
    """Its tenant queue uses more than its lowered quota, and its shrinkAfter is over."""
    QUEUE_DRAINED = "QueueDrained"
    """Its tenant queue drains, and its drainAfter is over."""
    LOAN_ENDED = "LoanEnded"
    """The lender's spec no longer allows the loan, and its reclaimPolicy is Evict."""
    GANG_NOT_WHOLE = "GangNotWhole"
    """Too few pods of its gang are on nodes, and the others did not start in time."""


class Evict(Struct, frozen=True):
    """Evict a pod: write its DisruptionTarget condition, delete it by uid, then write a Preempted event.

    `pool` is the pool of `node`, `home_pool` the victim's own pool. `beneficiary` is the pod that gets the room; None
    where the loan ends by the lender's spec, or where its gang is not whole. So many evictions of the decision go
    `together` for the beneficiary: where something would refuse one of them, none is sent.
    Where all pods of a Job or a JobSet go, `suspends` is that: it is suspended, so that its controller ends the pods,
    makes no others, and counts none as failed. Where it cannot be suspended, the pod is evicted as any other.
    Where surplus of an elastic job goes, `resizes` is its smaller size, by which its controller ends the pods; where
    that cannot be written, nothing goes.
    `queue` is the victim's tenant queue.
    """

    victim: Pod
    node: str
    pool: str
    home_pool: str
    cause: EvictionCause
    beneficiary: Pod | None
    decision: str
    together: int = 1
    suspends: JobRef | None = None
    queue: str = ""
    resizes: Resize | None = None

    @property
    def message(self) -> str:
        """Return the message of the victim's event."""
        if self.cause is EvictionCause.GANG_NOT_WHOLE:
            return f"Evicted from node {self.node}: too few pods of its gang are on nodes, and the others did not start"
        if self.cause in (EvictionCause.QUEUE_SHRUNK, EvictionCause.QUEUE_DRAINED):
            drains = self.cause is EvictionCause.QUEUE_DRAINED
            why = "is draining" if drains else "uses more than its lowered quota"
            return f"Evicted from node {self.node}: its tenant queue, or one above it, {why}"
        if self.beneficiary is None:
            why = "it stopped sharing, or its lendingLimit was lowered"
            return f"Evicted from node {self.node}: the pool {self.pool} no longer lends this room: {why}"
        reclaimed = self.cause is EvictionCause.RECLAIMED
        pool = f"pool {self.pool}"
        why = f"{pool} reclaimed lent room" if reclaimed else f"its priority is higher than this pod's in {pool}"
        if self.cause is EvictionCause.SURPLUS_TAKEN:
            why = f"its elastic job has more than its minimum in {pool}"
        if self.cause is EvictionCause.QUEUE_RECLAIMED:
            why = f"inference takes back what training uses in {pool}"
        by = self.beneficiary
        return f"Preempted by {by.namespace}/{by.name} ({by.uid}) on node {self.node}: {why}"


class Nominate(Struct, frozen=True):
    """Write `status.nominatedNodeName` of a waiting pod; an empty `node` clears it."""

    pod: Pod
    node: str
    pool: str
    decision: str


class ReadPod(Struct, frozen=True):
    """Read this pod: its Binding was sent long ago, and the watch has not shown the pod on its node.

    With `evicted` its eviction was requested long ago, and the watch has not shown its effect. If the pod is not
    terminating, the answer is `EvictRefused`.
    """

    pod: Pod
    node: str
    decision: str
    evicted: bool = False


class Refresh(Struct, frozen=True):
    """Read what the watches may not have shown yet. `Refreshed` is the answer; a failure is told and tried again.

    For a pool that is everything that an eviction there depends on: the Pools, the disruption budgets, and the pool's
    nodes: the nodes that `selector` matches, or all nodes where it is None. `nodes` are the nodes that the engine
    knows. With `namespaces` the namespaces are read too, with `tenants` the tenant queues and the workloads. Without a
    pool it is the Pools alone: pods name one that was not shown, or one may own a new node.
    """

    pool: str = ""
    selector: LabelSelector | None = None
    nodes: tuple[str, ...] = ()
    namespaces: bool = False
    tenants: bool = False


class ObjectRef(Struct, frozen=True):
    """The object of an event; `namespace` is empty for a cluster-scoped object."""

    kind: str
    name: str
    uid: str
    namespace: str = ""


class Warn(Struct, frozen=True):
    """Write a Warning event about an object, once.

    `scheduler_name` is that of a pod, which reports its event; it is empty for other objects.
    """

    about: ObjectRef
    reason: EventReason
    message: str
    scheduler_name: str = ""


def pod_warning(pod: Pod, reason: EventReason, message: str) -> Warn:
    """Return the warning about a pod."""
    return Warn(ObjectRef("Pod", pod.name, pod.uid, pod.namespace), reason, message, pod.scheduler_name)


class Condition(Struct, frozen=True):
    """One condition of the status of a Pool or a Queue."""

    type: str
    status: bool
    reason: ConditionReason
    message: str


class ReportPool(Struct, frozen=True):
    """Write this status into the Pool; `generation` is that of the spec that the status describes."""

    name: str
    uid: str
    generation: int
    conditions: tuple[Condition, ...]
    summary: PoolSummary


class ReportQueue(Struct, frozen=True):
    """Write this status into our own Queue; `generation` is that of the spec that the status describes."""

    name: str
    uid: str
    generation: int
    conditions: tuple[Condition, ...]
    summary: QueueSummary
    state: QueueState
    parent: str
    priority: int


class ResumeJob(Struct, frozen=True):
    """Resume a Job or a JobSet that this scheduler has suspended: its pods are gone."""

    job: JobRef


class ReportGang(Struct, frozen=True):
    """Write this status into the object of a gang, as its kind names phases and conditions; pods have no such object.

    A status that became FAILED, or SCHEDULED, is an event about the object too.
    """

    gang: Gang
    status: GangStatus


class CreatePool(Struct, frozen=True):
    """Create a Pool of this name unless it exists; its spec sets these `switches` to true and nothing else."""

    name: str
    switches: tuple[str, ...] = ()


class LogLoanChange(Struct, frozen=True):
    """Log that an edit made `count` running pods loans of `pool`, or home pods of `pool`.

    `home_pool` is their own pool; where it equals `pool`, they became home pods. `pods` is empty where `count` is high.
    """

    pool: str
    home_pool: str
    pods: tuple[Pod, ...]
    count: int


class LogPoolEdit(Struct, frozen=True):
    """Log which fields of a Pool's spec were edited; each change is a few words."""

    name: str
    changes: tuple[str, ...]


class Step(StrEnum):
    """The step of the scheduler in which an exception was raised."""

    ATTEMPT = "attempt"
    """An attempt to schedule a pod."""
    EVENT = "event"
    """Handling an event."""
    WAKING = "waking"
    """Checking whether a waiting pod can use free room."""
    TIME = "time"
    """Running work that was due."""
    SETTLE = "settle"
    """Choosing pods to read."""
    STATUS = "status"
    """Computing the status of Pools."""
    LOANS = "loans"
    """Ending loans that a Pool no longer allows."""
    SIZES = "sizes"
    """Deciding the sizes of elastic jobs."""
    REASONS = "reasons"
    """Updating the reasons of parked pods."""
    QUEUE = "queue"
    """Popping a pod from a queue, or moving it there."""
    LENDING = "lending"
    """Offering room to pods of other pools, or searching for lenders."""
    RECOVERY = "recovery"
    """Recovering from an exception in another step."""


class ReportInternalError(Struct, frozen=True):
    """Log an exception of the scheduler itself with its `traceback`, of a long one the last part.

    `doing` describes the step in words, `pool` is the pool in whose loop it ran, `pod` the pod that it ran for, if any.
    `plugin` is the plugin that raised, if one did.
    """

    step: Step
    doing: str
    pool: str
    pod: Pod | None
    decision: str
    error: str
    traceback: str
    plugin: str = ""


Action = (
    Bind
    | BindVolumes
    | ReportWaiting
    | Evict
    | Nominate
    | ReadPod
    | Refresh
    | Warn
    | ReportPool
    | ReportQueue
    | ResumeJob
    | Resize
    | ReportGang
    | CreatePool
    | LogLoanChange
    | LogPoolEdit
    | ReportInternalError
)
