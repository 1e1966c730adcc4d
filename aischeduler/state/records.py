"""Pod records: each pod that matters is in exactly one place.

Laws:
- A record is keyed by uid; a pod made again under the same name is another pod.
- `row` is set exactly while the pod counts in the node table, with the spec that was counted.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.unsupported_constraints import ConstraintKind

NOWHERE: Final = -1
DOUBLINGS_MAX: Final = 10
"""Doublings of a wait: from any first one that makes sense the longest is reached by then."""

OrderKey = tuple[bool, int, int, int, str]
"""Borrower, priority (negated), first-seen unix seconds, arrival number, uid: whose turn it is, smallest first."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a pod waits after a failed attempt: at first so long, twice as long after each more, up to the longest.

    Source: `podInitialBackoffSeconds` and `podMaxBackoffSeconds` of kube-scheduler, and its defaults.
    """

    first_seconds: float = 1.0
    longest_seconds: float = 10.0

    def seconds(self, attempts: int) -> float:
        """Return how long to wait after one more failure than `attempts`."""
        return min(self.first_seconds * (1 << min(attempts, DOUBLINGS_MAX)), self.longest_seconds)


class PodState(Enum):
    """Where a pod is."""

    __hash__ = object.__hash__  # that of Enum is a function in Python: four calls of it for each pod

    GATED = auto()
    """Its gates hold it; only its own change releases it."""
    ACTIVE = auto()
    """It is tried as soon as its turn comes."""
    BACKOFF = auto()
    """It waits for time to pass."""
    PARKED = auto()
    """It waits for an event that can help."""
    NOMINATED = auto()
    """It has a claim and waits for those whose room it gets."""
    HELD = auto()
    """It waits for a change: the API server, its pool, or its own spec or a constraint in it refuses it."""
    ASSUMED = auto()
    """It was placed and counts on its node; the API server has not shown it there yet."""
    BOUND = auto()
    """It is on its node."""


WAITING: Final = frozenset(
    (PodState.GATED, PodState.ACTIVE, PodState.BACKOFF, PodState.PARKED, PodState.NOMINATED, PodState.HELD)
)
USABLE: Final = frozenset((PodState.ACTIVE, PodState.BACKOFF, PodState.PARKED, PodState.NOMINATED))
"""Where a waiting pod could take room if there were any."""


@dataclass(slots=True, eq=False)
class PodRecord:
    """One pod. `home` is its home pool and `queue` the pool in whose queue it waits, while it waits.

    `since` is when it was first seen, on the engine's clock; `visited` are the pools of the borrowing trip that it is
    on, its home among them.
    """

    pod: Pod
    arrival: int
    state: PodState
    since: float = 0.0
    home: str = ""
    queue: str = ""
    visited: tuple[str, ...] = ()
    attempts: int = 0
    backoff_until: float = 0.0
    failed: bool = False
    """The last attempt ended in an error, not in a refusal: it waits its backoff out."""
    broken: bool = False
    """That error was an exception of the scheduler: until it is tried again, no room is kept for the pod."""
    caught: int | None = None
    """How much news there had been when the net, not an event, brought it back into the queue."""
    message: str = ""
    missing_pool: tuple[str, float] | None = None
    """The Pool that it names and when that was read, if it was read and does not exist."""
    blocker: str = ""
    """The pod on a node, by uid, whose anti-affinity holds this one."""
    constraint: ConstraintKind | None = None
    """Why it was held last: its hard constraint that is not supported, or something else."""
    protected: bool = False
    """It was spared because a disruption budget forbade its eviction."""
    nominated: str = ""
    """The node that its status was last told to name."""
    decision: str = ""
    row: int = NOWHERE
    counted: PodSpec | None = None
    offered: int = NOWHERE
    """The row for whose room it was woken, until it was tried."""
    loan: tuple[str, str] | None = None
    """Lender and home, while it counts as a loan."""

    @property
    def borrower(self) -> bool:
        """Say whether it waits in the queue of another pool than its own."""
        return self.queue not in ("", self.home)

    @property
    def order(self) -> OrderKey:
        """Return the place in the order of a queue: home pods before borrowers."""
        pod = self.pod
        return (self.borrower, -pod.priority, pod.created_seconds, self.arrival, pod.uid)

    @property
    def usable(self) -> bool:
        """Say whether it waits and could take room if there were any."""
        return self.state in USABLE and not self.broken

    def back_off(self, now: float, backoff: Backoff) -> None:
        """Note a failed attempt, and until when it is not tried again."""
        self.backoff_until = now + backoff.seconds(self.attempts)
        self.attempts += 1
