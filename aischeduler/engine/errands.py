"""What events leave for the loops of pools to do, so that an event itself stays cheap."""

from collections import OrderedDict
from dataclasses import dataclass, field

from aischeduler.engine.unrest import Unrest
from aischeduler.state.records import Backoff, OrderKey, PodRecord
from aischeduler.state.timers import Timers


@dataclass(frozen=True, slots=True)
class Rewording:
    """How far a pool is with telling its parked pods anew: the turn after which to go on, and for how many classes.

    `counts` says whether other numbers of nodes or pods are news as well.
    """

    left: int
    counts: bool
    after: OrderKey | None = None


@dataclass(slots=True)
class Doubts:
    """Pools whose pods may have missed a wake-up, because an exception of ours ended what would have woken them."""

    due: Timers = field(default_factory=Timers)
    """When to look at them anew."""
    noted: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Pool -> how often in a row there was a doubt, and when last."""

    def note(self, pool: str, now: float, backoff: Backoff) -> None:
        """Let a pool be looked at after a while, longer each time that this comes soon after the last."""
        if pool in self.due:
            return
        count, last = self.noted.get(pool, (0, now))
        count = count if now - last <= 2 * backoff.longest_seconds else 0
        self.due.set(pool, now + backoff.seconds(count))
        self.noted[pool] = (count + 1, now)

    def cancel(self, pool: str) -> None:
        """Forget a pool that is gone."""
        self.due.drop(pool)
        self.noted.pop(pool, None)


@dataclass(slots=True)
class Errands:
    """What events leave for the loops of pools to do, a bit with each decision; keys and members are pools."""

    review: set[str] = field(default_factory=set)
    """Its loans have changed, or the rules for them: those that are allowed no more are to be ended."""
    waking: dict[str, OrderedDict[str, PodRecord]] = field(default_factory=dict)
    """It gained rows, or its rules changed: these pods, by uid, are to be tried."""
    rechecking: dict[str, OrderedDict[str, PodRecord]] = field(default_factory=dict)
    """What holds these pods, by uid, or may hold them, has changed: they are to be tried."""
    rewording: dict[str, Rewording] = field(default_factory=dict)
    """Its parked pods are to be told anew why they wait."""
    regrouped: set[str] = field(default_factory=set)
    """Nodes have come to it or left it, and its parked pods were not told of it."""
    unrest: Unrest = field(default_factory=Unrest)
    """When the parked pods of all pools are to be told anew why they wait, where that is news."""
    relook: dict[str, int] = field(default_factory=dict)
    """Somebody was refused its room because its own pods wait for that -> version of its queue then."""
    lending: dict[str, OrderKey] = field(default_factory=dict)
    """Its room is being offered to other pools -> the turn after which to go on."""
    seeking: dict[str, OrderKey | None] = field(default_factory=dict)
    """It may borrow more than before: its pods seek lenders -> the turn after which to go on; None at the start."""
    seek_again: set[str] = field(default_factory=set)
    """Of these, the pools that may borrow still more since that began."""
    sought: set[str] = field(default_factory=set)
    """Its pods were sent abroad for what it may borrow: they seek lenders again once none of them is abroad."""
    doubts: Doubts = field(default_factory=Doubts)
    to_mend: bool = False
    """In the step that runs some pod could not be judged for an exception: it is mended when it ends."""

    def cancel(self, pool: str) -> None:
        """Leave nothing to do for a pool that is gone."""
        self.review.discard(pool)
        self.waking.pop(pool, None)
        self.rechecking.pop(pool, None)
        self.rewording.pop(pool, None)
        self.regrouped.discard(pool)
        self.relook.pop(pool, None)
        self.lending.pop(pool, None)
        self.seeking.pop(pool, None)
        self.seek_again.discard(pool)
        self.sought.discard(pool)
        self.doubts.cancel(pool)

    def concern(self, pools: tuple[str, ...]) -> bool:
        """Say whether pods of one of these pools, or who would borrow from it, are still to be tried."""
        return any(
            pool in errand
            for errand in (self.waking, self.relook, self.lending, self.seeking, self.sought, self.doubts.due)
            for pool in pools
        )

    def pools(self) -> set[str]:
        """Return the pools for whose next decision there is something to do, whatever waits in their queues."""
        return {*self.review, *self.waking, *self.rechecking, *self.rewording, *self.lending, *self.seeking}
