"""Pod records: the state of each pod that the engine tracks, and the units that several of them form.

Invariants:
- A record is keyed by uid; a pod created again under the same name is another pod.
- `row` is set exactly while the pod counts in the node table; `counted` is the spec that counts there.
- A pod without a `unit` is a unit of one. A unit that waits as one does so in the place of its lead; its other waiting
  pods are GROUPED in their home queue.
"""

from enum import Enum, auto
from typing import Final

from msgspec import Struct, field

from aischeduler.model.allocation import NO_ALLOCATION, Allocation
from aischeduler.model.gang import UNKNOWN_GANG_SECONDS, Gang, Lack
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.model.workload import NO_TENANCY, ServiceType, Tenancy
from aischeduler.state.ledger import LOAN, Account, Loan


class AssignedPod(Struct, frozen=True, gc=False):
    """A pod that counts on a row with its requests (those of `spec`) and with what it has for itself there.

    `spec` is the spec that counts, which may be older than that of `pod`. With `claims` the pod is not there yet: it
    owns a claim.
    """

    pod: Pod
    spec: PodSpec
    row: int
    allocation: Allocation
    claims: bool = False


NOWHERE: Final = -1
REACH_MAX: Final = 2**31 - 1
"""The priority below which inference may evict training: any."""


class PodState(Enum):
    """The state of a pod in the scheduler."""

    __hash__ = object.__hash__  # Enum's hash is Python code, and runs four times per pod

    NEW = auto()
    """It was seen just now."""
    GATED = auto()
    """Its scheduling gates hold it, or its unit is not complete; only a change of these releases it."""
    GROUPED = auto()
    """It waits in the place of the lead of its unit."""
    ACTIVE = auto()
    """It is ready to be tried."""
    BACKOFF = auto()
    """It waits until its backoff ends."""
    PARKED = auto()
    """It waits for an event that can help it."""
    NOMINATED = auto()
    """It has a claim and waits until its victims are gone."""
    HELD = auto()
    """It waits for a change: the API server, its pool, its own spec or a constraint refuses it."""
    ASSUMED = auto()
    """It counts on its node; the watch has not shown it there yet."""
    BOUND = auto()
    """The watch shows it on its node."""
    GONE = auto()
    """It was deleted, or it finished; its record is dropped."""


WAITING: Final = frozenset(PodState) - {PodState.NEW, PodState.ASSUMED, PodState.BOUND, PodState.GONE}
USABLE: Final = frozenset((PodState.ACTIVE, PodState.BACKOFF, PodState.PARKED, PodState.NOMINATED))
"""The states of waiting pods that can take room."""


class Unit(Struct, eq=False):
    """Several pods that are decided at once; `members` are all of them by uid, waiting and on nodes.

    While it waits as one, it waits in the place of `lead`. `pods` are its waiting pods in the order in which they are
    placed: the first `required` of them all or none, the others as room allows.
    `created_seconds` is the time in unix seconds by which it waits in line, `arrival` the lowest number of its pods.
    """

    name: str
    number: int
    priority: int
    """The highest priority of its pods when it was formed last: all of them have it when room is made, or taken."""
    created_seconds: int = 0
    arrival: int = 0
    members: dict[str, "PodRecord"] = field(default_factory=dict)
    lead: "PodRecord | None" = None
    pods: tuple["PodRecord", ...] = ()
    required: int = 0
    message: str = ""
    """Why its waiting pods are not tried yet; empty where they are."""
    lacks: tuple[Lack, ...] = ()
    """The pods that it waits for."""
    gang: Gang | None = None
    """The gang that its pods form, as it was when it was formed last."""
    formed: bool = False
    """Whether it was formed before; until then none of its pods may be evicted."""
    started: bool = False
    """Whether it was whole before, and some of its pods are still on nodes."""
    ended: dict[str, Pod] = field(default_factory=dict)
    """The pods that ended on nodes before it had started: a pod may end before the watch shows the others there."""
    unsure: bool = True
    """Whether it may be whole now although it was not when that was checked last."""
    assumed: int = 0
    """How many of its pods have a Binding that is not shown yet."""
    lacking: dict[str, int] = field(default_factory=dict)
    """How many pods must still come before it can be complete: of a role, or in all where that is empty."""
    rests_until: float = 0.0
    """Until then it is not formed again, unless it can be complete: forming it reads all its pods."""
    given_up: float | None = None
    """Since when it is given up while pools of its pods are refreshed for that; None where it is not."""
    overdue: frozenset[str] | None = None
    """The waiting pods with which it was not started within its timeout; None where it is in time."""

    @property
    def late(self) -> str:
        """A sentence that says that the unit is overdue, with a space after it; empty where it is in time."""
        if self.overdue is None:
            return ""
        return f"The gang {self.name} did not start within {self.timeout_seconds} s. "

    @property
    def timeout_seconds(self) -> int:
        """How long the unit may wait for its start, 0 for ever; where its gang is not known, nothing says it."""
        return self.gang.timeout_seconds if self.gang is not None else UNKNOWN_GANG_SECONDS

    @property
    def spans(self) -> bool:
        """Whether it may start in its home pool and in several lenders at once."""
        return self.gang is not None and self.gang.span

    @property
    def binds(self) -> bool:
        """Whether a Binding of one of its pods is not shown yet."""
        return self.assumed > 0

    @property
    def together(self) -> tuple["PodRecord", ...]:
        """The waiting pods that are placed all or none."""
        return self.pods[: self.required]


class PodRecord(Struct, eq=False):
    """One pod. `home` is its home pool, `queue` the pool in whose queue it waits, empty where it does not wait.

    `since` is when it was first seen, on the engine's clock; `visited` are the pools in whose queues it has been while
    it borrows, its home pool first.
    """

    pod: Pod
    arrival: int
    state: PodState
    """Only `state.transitions` changes it."""
    since: float = 0.0
    home: str = ""
    queue: str = ""
    visited: tuple[str, ...] = ()
    attempts: int = 0
    backoff_until: float = 0.0
    failed: bool = False
    """Its last attempt ended with an error, not a refusal: it waits until its backoff ends."""
    broken: bool = False
    """An exception, or the API server rejected its Binding: until its next attempt, no room is kept for the pod."""
    short: bool = False
    """Its last attempt parked it, and quotas close nodes to it that it may fit."""
    caught: int | None = None
    """The count of `Announcements` when the five-minute flush brought it back; None where an event did."""
    message: str = ""
    constraint: ConstraintKind | None = None
    """The kind of the constraint that held it last, if one did."""
    protected: bool = False
    """A disruption budget forbade its last eviction."""
    refusals: int = 0
    """How often its eviction was refused."""
    needs: int = 1
    """How many disruptions the budget that forbade it must allow before it is asked again."""
    nominated: str = ""
    """The nominatedNodeName that was written last."""
    decision: str = ""
    row: int = NOWHERE
    counted: PodSpec | None = None
    allocation: Allocation = NO_ALLOCATION
    """What it has for itself on its row."""
    offered: int = NOWHERE
    """The row for whose room it was woken, until its next attempt."""
    accounts: tuple[Account, ...] = ()
    """The accounts of the ledger under which it is booked."""
    unit: Unit | None = None
    """The unit to which it belongs, if that has a name."""
    tenancy: Tenancy = NO_TENANCY
    """Its tenant queue, and what it is for."""
    waits_with: PodSpec | None = None
    """The spec with which it counts as waiting in its tenant queue; None where it does not."""
    queue_priority: int = 0
    """The priority of its tenant queue when it began to wait, which decides before its own."""
    rank: int | None = None
    """Its place by the plugin that sorts the queues; None where its priority says it."""

    @property
    def borrower(self) -> bool:
        """Whether it waits in the queue of another pool than its home pool."""
        return self.queue not in ("", self.home)

    @property
    def loan(self) -> Loan | None:
        """The lender and the home pool, while it is on loan."""
        return next(((account[1], account[2]) for account in self.accounts if account[0] == LOAN), None)

    @property
    def leads(self) -> Unit | None:
        """The unit that waits in its place; None where it waits for itself."""
        unit = self.unit
        return unit if unit is not None and unit.lead is self else None

    @property
    def priority(self) -> int:
        """The priority with which it waits: that of the unit that it leads, or its own."""
        unit = self.unit
        return unit.priority if unit is not None and unit.lead is self else self.pod.priority

    @property
    def reach(self) -> int:
        """The priority that bounds by amounts whom it may evict."""
        return REACH_MAX if self.tenancy.service is ServiceType.INFERENCE else self.priority

    @property
    def waits_as(self) -> "PodRecord":
        """The pod in whose place it waits: the lead of its unit, or itself."""
        unit = self.unit
        return self if unit is None or unit.lead is None or self.state is not PodState.GROUPED else unit.lead

    @property
    def together(self) -> tuple["PodRecord", ...]:
        """The pods that are placed with it all or none, in the order in which they are placed; it alone by itself."""
        unit = self.leads
        return (self,) if unit is None else unit.together

    @property
    def with_surplus(self) -> tuple["PodRecord", ...]:
        """All pods that one attempt may place: those beyond the required of its unit too; it alone by itself."""
        unit = self.unit
        return (self,) if unit is None or unit.lead is not self else unit.pods

    @property
    def assigned(self) -> AssignedPod:
        """The pod on its row; it must have one."""
        assert self.counted is not None, "every pod on a row counts there"
        return AssignedPod(self.pod, self.counted, self.row, self.allocation)

    @property
    def usable(self) -> bool:
        """Whether it waits and can take room."""
        return self.state in USABLE and not self.broken

    def back_off(self, now: float, seconds: float) -> None:
        """Count a failed attempt, after which it waits for so long."""
        self.backoff_until = now + seconds
        self.attempts += 1
