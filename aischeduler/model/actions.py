"""Everything the core can ask for: the closed union that shells perform.

Laws:
- An action is complete: a shell needs nothing but the action to perform it.
- Every action on a pod names the decision it comes from, so that one line of log tells one decision.
"""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from aischeduler.model.event_reasons import ConditionReason, EventReason
from aischeduler.model.pod import Pod
from aischeduler.model.pool_summary import PoolSummary
from aischeduler.model.selectors import LabelSelector


class Bind(msgspec.Struct, frozen=True):
    """Write the node into the pod by a Binding that carries its uid and our marks.

    `pool` is the pool whose node it is, `home_pool` the pod's own: where they differ, the pod is on loan. The pod
    counts on the node from now on. `waited_seconds` is since it was first seen, over `attempts` tries.
    """

    pod: Pod
    node: str
    pool: str
    home_pool: str
    decision: str
    feasible_nodes: int
    waited_seconds: float = 0.0
    attempts: int = 1

    @property
    def borrowed(self) -> bool:
        """Say whether the node belongs to another pool than the pod's own."""
        return self.pool != self.home_pool


@dataclass(frozen=True, slots=True)
class ReportWaiting:
    """Tell the user why a pod waits: the FailedScheduling event and the PodScheduled condition.

    `pool` is the one in which it was tried, `home_pool` the pod's own.
    """

    pod: Pod
    pool: str
    home_pool: str
    message: str
    decision: str


class EvictionCause(StrEnum):
    """Why a pod is evicted."""

    PREEMPTED = "Preempted"
    """A home pod of higher priority needs the room of another home pod."""
    RECLAIMED = "Reclaimed"
    """A home pod needs room that was lent."""
    LOAN_ENDED = "LoanEnded"
    """The lender's spec allows the loan no more, and its reclaimPolicy is Evict."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod: first its DisruptionTarget condition, then the delete with its uid, then a Preempted event.

    `pool` is the pool whose `node` it is on, `home_pool` the victim's own. `beneficiary` gets the room; None where
    the loan ends by the lender's spec.
    """

    victim: Pod
    node: str
    pool: str
    home_pool: str
    cause: EvictionCause
    beneficiary: Pod | None
    decision: str

    @property
    def message(self) -> str:
        """Return the sentence of the victim's event."""
        if self.beneficiary is None:
            why = "it does not share any more, or its lendingLimit went down"
            return f"Evicted from node {self.node}: the pool {self.pool} lends this room no more; {why}"
        reclaimed = self.cause is EvictionCause.RECLAIMED
        pool = f"pool {self.pool}"
        why = f"{pool} took back lent room" if reclaimed else f"its priority is higher than this pod's in {pool}"
        by = self.beneficiary
        return f"Preempted by {by.namespace}/{by.name} ({by.uid}) on node {self.node}: {why}"


@dataclass(frozen=True, slots=True)
class Nominate:
    """Write `status.nominatedNodeName` of a waiting pod; an empty `node` clears it."""

    pod: Pod
    node: str
    pool: str
    decision: str


@dataclass(frozen=True, slots=True)
class ReadPod:
    """Read this pod: its Binding was accepted or sent long ago and the watch has not shown it.

    Where it is `evicted`, it is its eviction that was asked for long ago and of which nothing was heard. A pod that is
    read and does not terminate is then told as `EvictRefused`.
    """

    pod: Pod
    node: str
    decision: str
    evicted: bool = False


@dataclass(frozen=True, slots=True)
class ReadPool:
    """Read the Pool of this name: pods name it, and its watch has not shown it. `PoolRead` is the answer."""

    name: str


@dataclass(frozen=True, slots=True)
class ListPools:
    """List the Pools: one that its watch has not shown may own a new node. `PoolsListed` is the answer."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """Make sure that nothing unseen speaks against an eviction in a pool. `Refreshed` is the answer.

    What is read is the Pools, the disruption budgets, and the pool's nodes: those that `selector` matches, or all where
    it is None; `nodes` are those that we know. With `namespaces` these count, too. A change of `pod`, of which the
    watch of pods has to tell, shows that this watch is up to date.
    """

    pool: str
    pod: Pod
    selector: LabelSelector | None
    nodes: tuple[str, ...]
    namespaces: bool


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object to speak about; `namespace` is empty for cluster-scoped ones."""

    kind: str
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Warn:
    """Put a Warning event on an object, once."""

    about: ObjectRef
    reason: EventReason
    message: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a Pool's status."""

    type: str
    status: bool
    reason: ConditionReason
    message: str


@dataclass(frozen=True, slots=True)
class ReportPool:
    """Write this status into the Pool; `generation` is the spec that it speaks of."""

    name: str
    uid: str
    generation: int
    conditions: tuple[Condition, ...]
    summary: PoolSummary


@dataclass(frozen=True, slots=True)
class CreatePool:
    """Create a Pool object of this name, unless there is one; in its spec these `switches` are on and nothing else."""

    name: str
    switches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogLoanChange:
    """Tell the log that `count` running pods became loans of `pool`, or came home to it, by an edit of whatever it was.

    `home_pool` is their own pool; where it is `pool`, they came home. `pods` are they, or none where they are too many.
    """

    pool: str
    home_pool: str
    pods: tuple[Pod, ...]
    count: int


@dataclass(frozen=True, slots=True)
class LogPoolEdit:
    """Tell the log which fields of a Pool's spec were edited: each is a few words."""

    name: str
    changes: tuple[str, ...]


class Step(StrEnum):
    """In which step of the scheduler an exception was raised."""

    ATTEMPT = "attempt"
    """A pod was tried."""
    EVENT = "event"
    """Something that happened was taken in."""
    WAKING = "waking"
    """A waiting pod was judged for room that came free."""
    TIME = "time"
    """What was put off until now was done."""
    SETTLE = "settle"
    """Pods were chosen that are to be read."""
    STATUS = "status"
    """The statuses of Pools were made."""
    LOANS = "loans"
    """Loans were ended that a Pool no longer allows."""
    REASONS = "reasons"
    """Parked pods were told anew why they wait."""
    QUEUE = "queue"
    """A pod was taken out of a queue, or moved in it."""
    LENDING = "lending"
    """Room was offered to pods of other pools, or sought there."""
    RECOVERY = "recovery"
    """An exception in another step was recovered from."""


@dataclass(frozen=True, slots=True)
class ReportInternalError:
    """Log an exception of the scheduler itself, with its `traceback`, the last part of a long one.

    `doing` says in words what was done, in the loop of which `pool`; `pod` is the one that it was done for, if any.
    """

    step: Step
    doing: str
    pool: str
    pod: Pod | None
    decision: str
    error: str
    traceback: str


Action = (
    Bind
    | ReportWaiting
    | Evict
    | Nominate
    | ReadPod
    | ReadPool
    | ListPools
    | Refresh
    | Warn
    | ReportPool
    | CreatePool
    | LogLoanChange
    | LogPoolEdit
    | ReportInternalError
)
