"""Gangs that wait in a full cluster while single pods end and arrive: what waiting costs the others.

The clock of the engine goes on by the CPU that its calls take, as that of the daemon does, so that a pod waits for the
work before it. Every figure that ends in `gc` says what the garbage collector took of the longest call.
"""

import gc
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Final, TypeVar

import numpy as np

from aischeduler.daemon.pool_loops import ATTEMPTS_MAX, SLICE_SECONDS
from aischeduler.model.actions import Action, Bind
from aischeduler.model.events import Event, Gone, Seen, gone
from aischeduler.model.pod import Pod
from tests.bench.cases.pathological import alone
from tests.bench.core import Crowd, World, decide_all, evidence, peak_mib, running, see, world
from tests.bench.spec import Case, Goal, Measured
from tests.build import replace
from tests.checked_scheduler import answers
from tests.gangs import a_gang, member

NODES, GPUS_EACH = 1_000, 8
GANGS, MEMBERS, SHAPES = 200, 16, 20
NODES_LEAST: Final = 150
"""So many nodes have as many pods as end."""
SECONDS: Final = 60
PER_SECOND: Final = 10
TOGETHER: Final = 3
"""How many gangs fit at once, each time that room for gangs becomes free."""
ROOM_EVERY: Final = 10
"""The seconds between two such times."""
BEGIN: Final = 10.0
"""The time of the first event."""
OLDEST: Final = 10_000
"""When the first single pod was made: after all gangs."""
SEED: Final = 42
LATE_SECONDS: Final = 30.0
"""After the last event the run ends in any case."""
LONGEST, WAIT, STARTS = "ms of the longest call", "p99 wait of single pods with gangs / without", "s to start what fits"


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    nodes, gangs = max(NODES_LEAST, NODES // shrink), max(TOGETHER * SECONDS // ROOM_EVERY, GANGS // shrink)
    full = f"in process: {nodes:,} nodes of {GPUS_EACH} GPUs, all in use; {gangs} gangs of {MEMBERS} wait"
    goals = (
        Goal(LONGEST, 10.0, at_least=False),
        Goal(WAIT, 2.0, at_least=False),
        Goal(STARTS, 1.0, at_least=False),
    )
    about = f"{PER_SECOND} pods a second end and arrive"
    return (
        alone("parked-gangs", f"{full}; {about}", partial(parked, nodes, gangs, 1), *goals),
        alone(
            "parked-gangs-lending", f"{full} in 4 pools that lend; {about}", partial(parked, nodes, gangs, 4), *goals
        ),
    )


Found = TypeVar("Found")
Call = Callable[[], Found]
"""A call of the engine."""


@dataclass
class Minute:
    """A minute of events, and what came of it. `due` are the events and their times."""

    there: World
    due: deque[tuple[float, Event]]
    seats: "Seats"
    now: float = BEGIN
    said: list[Action] = field(default_factory=list)
    bound: dict[str, float] = field(default_factory=dict)
    """Pod by uid -> when it was bound."""
    cpu: float = 0.0
    """The CPU seconds of all calls."""
    longest: float = 0.0
    collecting: float = 0.0
    """What the garbage collector took of the longest call."""
    _collected: float = 0.0
    _collects_since: float = 0.0

    def run(self) -> None:
        """Play all events, and let the pools decide until nothing is left to do."""
        end = self.due[-1][0] + LATE_SECONDS
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._on_collect)
        attempts = 1
        while self.now < end:
            self._observe_due()
            ready = self._timed(partial(self.there.scheduler.ready, self.now))
            for pool in ready:
                attempts = self._decide(pool, attempts)
            if not ready and not self.due:
                break
            if not ready:
                self.now = max(self.now, self.due[0][0])
        gc.callbacks.remove(self._on_collect)

    def _observe_due(self) -> None:
        while self.due and self.due[0][0] <= self.now:
            at, event = self.due.popleft()
            self._timed(partial(self.there.scheduler.observe, event, self.now))
            if isinstance(event, Gone) and event.kind == "Pod":
                self.seats.freed(event.key[0], at)

    def _decide(self, pool: str, attempts: int) -> int:
        """Let a pool decide; return how many attempts fill a slice."""
        before = self.now
        actions = self._timed(partial(self.there.scheduler.decide, pool, before, attempts))
        self.said += actions
        for bind in (one for one in actions if isinstance(one, Bind)):
            self.bound[bind.pod.uid] = self.now
            self.seats.taken(bind, self.now)
        self.due.extendleft((self.now, event) for event in reversed(answers(actions)))
        return max(1, attempts // 2) if self.now - before > SLICE_SECONDS else min(ATTEMPTS_MAX, attempts * 2)

    def _timed(self, call: "Call[Found]") -> Found:
        self._collected, before = 0.0, time.process_time()
        found = call()
        took = time.process_time() - before
        self.now += took
        self.cpu += took
        if took > self.longest:
            self.longest, self.collecting = took, self._collected
        return found

    def _on_collect(self, phase: str, _: object) -> None:
        if phase == "start":
            self._collects_since = time.process_time()
        else:
            self._collected += time.process_time() - self._collects_since


class Seats:
    """The GPUs in use by pool, and since when gangs fit that have not started."""

    def __init__(self, stay: Sequence[Pod], pools: int) -> None:
        self.on = {pod.uid: pod.node_name for pod in stay}
        """Pod by uid -> its node."""
        self._pools = pools
        self._free, self._fit = Counter[int](), defaultdict[int, deque[float]](deque)
        self._begun: Counter[str] = Counter()
        self.late = 0.0
        """The longest time between the moment that a gang fits and its start."""
        self.started = 0

    def freed(self, uid: str, at: float) -> None:
        """Note that a pod ended."""
        pool = self._pool_of(self.on.pop(uid))
        self._free[pool] += 1
        while len(self._fit[pool]) < self._free[pool] // MEMBERS:
            self._fit[pool].append(at)

    def taken(self, bind: Bind, now: float) -> None:
        """Note that a pod was bound."""
        pool = self._pool_of(bind.node)
        self.on[bind.pod.uid] = bind.node
        self._free[pool] -= 1
        if bind.pod.gang is None:
            return
        self._begun[bind.pod.gang.key.name] += 1
        if self._begun[bind.pod.gang.key.name] == MEMBERS:
            self.started += 1
            if self._fit[pool]:
                self.late = max(self.late, now - self._fit[pool].popleft())

    def end(self, now: float) -> None:
        """Count the gangs that fit and have not started."""
        for since in self._fit.values():
            self.late = max([self.late, *(now - at for at in since)])

    def _pool_of(self, node: str) -> int:
        return int(node.rpartition("-")[2]) % self._pools


def the_gangs(count: int, pools: int) -> list[Pod]:
    """Return the pods of the gangs, of which each has one of the shapes."""
    shapes = Crowd(SHAPES, gpu=1, shapes=SHAPES, pools=pools).pods("shape")
    return [
        member(replace(shapes[number % len(shapes)], uid=name, name=name, created_seconds=number + 1), f"gang-{number}")
        for number in range(count)
        for name in (f"gang-{number}-{turn}" for turn in range(MEMBERS))
    ]


def events_of(stay: Sequence[Pod], singles: Sequence[Pod], pools: int, *, rooms: bool) -> deque[tuple[float, Event]]:
    """Return the events: a pod ends and a single pod arrives in turn; with `rooms`, sometimes many pods end at once."""
    chance = np.random.default_rng(SEED)
    order = chance.permutation(len(stay)).tolist()
    ends = [[stay[number] for number in order if number % pools == pool] for pool in range(pools)]
    found: list[tuple[float, Event]] = []
    for number, single in enumerate(singles):
        at = BEGIN + number / PER_SECOND
        found.append((at, gone(Pod, ends[number % pools].pop().uid)))
        found.append((at + 0.5 / PER_SECOND, Seen(replace(single, created_seconds=OLDEST + number))))
    for turn in range(SECONDS // ROOM_EVERY if rooms else 0):
        at = BEGIN + (turn + 0.5) * ROOM_EVERY
        found += [(at, gone(Pod, ends[turn % pools].pop().uid)) for _ in range(TOGETHER * MEMBERS)]
    return deque(sorted(found, key=itemgetter(0)))


def the_minute(nodes: int, gangs: int, pools: int) -> tuple[Minute, list[Pod], list[Pod]]:
    """Return a minute that was played, the pods that run in the beginning, and the single pods."""
    there = world(nodes, pools, gpu=GPUS_EACH)
    stay = running(Crowd(nodes * GPUS_EACH, gpu=1, pools=pools).pods("old"), [*there.nodes])
    see(there.scheduler, stay)
    decide_all(there.scheduler)
    pods = the_gangs(gangs, pools)
    for number in range(gangs):
        there.scheduler.observe(Seen(a_gang(f"gang-{number}", MEMBERS)), 0.0)
    see(there.scheduler, pods)
    decide_all(there.scheduler, 1.0)
    singles = Crowd(SECONDS * PER_SECOND, gpu=1, shapes=1, pools=pools).pods("single")
    minute = Minute(there, events_of(stay, singles, pools, rooms=gangs > 0), Seats(stay, pools))
    minute.run()
    return minute, stay, singles


def waits_of(minute: Minute, singles: Sequence[Pod]) -> list[float]:
    """Return how long each single pod waited; one that was not bound waited to the end."""
    arrived = (BEGIN + (number + 0.5) / PER_SECOND for number in range(len(singles)))
    return [minute.bound.get(pod.uid, minute.now) - at for pod, at in zip(singles, arrived, strict=True)]


def parked(nodes: int, gangs: int, pools: int) -> Measured:
    """Play the minute without gangs, and with them."""
    without, _, singles = the_minute(nodes, 0, pools)
    shortest = p99(waits_of(without, singles))
    del without
    minute, stay, singles = the_minute(nodes, gangs, pools)
    minute.seats.end(minute.now)
    waits = waits_of(minute, singles)
    figures = {
        LONGEST: minute.longest * 1e3,
        f"{LONGEST}, gc": minute.collecting * 1e3,
        WAIT: p99(waits) / shortest,
        "ms that single pods wait, p99, with gangs": p99(waits) * 1e3,
        "ms that single pods wait, p99, without": shortest * 1e3,
        "single pods left waiting": float(sum(one.uid not in minute.bound for one in singles)),
        STARTS: minute.seats.late,
        "gangs that started": float(minute.seats.started),
        "CPU s of the minute": minute.cpu,
        "peak MiB": peak_mib(),
    }
    ended = {one.uid for one in stay} - minute.seats.on.keys()
    there = [one for one in stay if one.uid not in ended]
    bound = [one.pod for one in minute.said if isinstance(one, Bind)]
    return Measured(evidence(minute.there.nodes, there, bound, minute.said), figures)


def p99(waits: Sequence[float]) -> float:
    return float(np.percentile(waits, 99))
