"""The sizes of elastic jobs: who grows, who shrinks, so that over time each job gets its share.

Invariants:
- A pass ends: each of its steps grows a job that then has one size less to go, or puts one aside; each exchange of two
  jobs lowers the larger of their keys, and their number is limited.
- Sizes stay between minimum and maximum, and are allowed ones. No job grows and shrinks in one pass.
- A job that is frozen is resized only where a waiting minimum of a higher level shrinks it. A job of the level
  Production is not shrunk for another job.
- A job whose minimum waits shrinks others by no more than it needs, and not at all where that does not help.
- Jobs are ranked again after each step, by their keys and then their names; minima that wait for long come first.
- Nothing here changes state: `Room` says what fits, and counts what the pass has given away.

Source: the design of the scheduler of PaddlePaddle's TrainingJobs, after CFS. There a higher priority makes a job wait
longer; here its service counts less, as in CFS.
"""

from collections.abc import Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, Protocol

from msgspec import Struct
from sortedcontainers import SortedList

from aischeduler.model.elastic import WEIGHT_MAX, ElasticTerms

HORIZON_SECONDS_MIN: Final = 900.0
"""So far ahead a key looks at least: what a job is behind is made up over this time.

In one short window it would throw sizes from one end to the other, and each resize costs a restart.
"""
EXCHANGES_MAX: Final = 256
"""The most steps that one pass takes from one job for another one."""
LOOKS_MAX: Final = 32
"""To so many kinds of jobs a step of a more served one is offered, the least served of each kind alone."""
OFFERS_MAX: Final = 1024
"""The most such offers in one pass."""
MINIMUM_COSTS: Final = 4
"""As how many questions about room it counts whether a minimum fits."""
JOBS_AT_ONCE: Final = 256
"""Of so many jobs it is looked between two steps whether they can shrink for a minimum."""
TRIED_AFTER_EACH: Final = 8
"""So many steps are taken one by one for a waiting minimum; after these, several between two tries."""

GPU_SCORE: Final = 1000
"""The score of a hundredth of a GPU."""
CPU_SCORE: Final = 1
"""The score of a thousandth of a core."""
GIB_SCORE: Final = 100


def score(cpu_milli: int, memory_bytes: int, gpu_hundredths: int) -> int:
    """Return how much a pod with these requests counts, in thousandths: 100 a GPU, 1 a core, 0.1 a GiB."""
    return GPU_SCORE * gpu_hundredths + CPU_SCORE * cpu_milli + GIB_SCORE * memory_bytes // 2**30


def service(of_score: int, seconds: float, weight: int) -> int:
    """Return the service that pods of this score receive in this time, in milliseconds of the weight WEIGHT_MAX."""
    return of_score * round(seconds * 1000) * WEIGHT_MAX // weight


class JobShare(Struct, frozen=True):
    """What a pass reads of one job.

    `size` is what its object asks for, `service` what it has received. Each instance counts `score`, its other pods
    `fixed_score` together. With `waits`, fewer pods than its minimum are on nodes; with `aged` so for long. A `frozen`
    job had a resize within its window. One that does not `grow` has pending instances, or may not be resized.
    """

    name: str
    terms: ElasticTerms
    size: int
    service: int
    score: int
    fixed_score: int = 0
    waits: bool = False
    aged: bool = False
    frozen: bool = False
    grows: bool = True
    kind: Hashable = None
    """Where one of a kind finds no room for an instance, no other does; None for a job unlike all others."""

    def key(self, size: int) -> int:
        """Return the service that the job will have received at the end of its window with this size."""
        horizon = max(self.terms.freezing_window_seconds, HORIZON_SECONDS_MIN)
        return self.service + service(self.fixed_score + size * self.score, horizon, self.terms.weight)


class Room(Protocol):
    """The cluster during a pass, with what the pass has given and taken so far."""

    def start(self, job: str) -> bool:
        """Count the pods of the minimum of a waiting job if they fit now; return whether they do."""

    def keep(self, job: str, *, from_starts: bool) -> None:
        """Let no other job grow from now on where the minimum of this one could run, nor start if `from_starts`."""

    def helps(self, job: str, other: str) -> bool:
        """Return whether the minimum of a waiting job could run where instances of another one are."""

    def grow(self, job: str, size: int) -> bool:
        """Count the instances up to this size if they fit now; return whether they do."""

    def shrink(self, job: str, size: int) -> None:
        """Count the instances above this size no more: those that its controller ends."""

    def restore(self, job: str, size: int) -> bool:
        """Count instances that `shrink` took again, where they were, if they still fit; return whether they do."""

    def mark(self) -> int:
        """Return a mark of what is counted now."""

    def return_to(self, mark: int) -> None:
        """Undo everything since this mark."""


class Sizing:
    """One pass over all jobs. `sizes` are the sizes that it gives, of the jobs that change."""

    def __init__(self, jobs: Iterable[JobShare]) -> None:
        self._jobs = {job.name: job for job in jobs}
        self._sizes = {name: job.size for name, job in self._jobs.items()}
        self.helped: dict[str, str] = {}
        """A job that shrinks -> the job that gets the room."""
        self._started: set[str] = set()
        """The jobs whose minimum starts in room that others give: they grow later, in room that is given now."""

    @property
    def sizes(self) -> dict[str, int]:
        """The new sizes of the jobs that get one, sorted by name."""
        jobs = ((self._jobs[name], size) for name, size in sorted(self._sizes.items()))
        return {job.name: size for job, size in jobs if size != job.size and not job.waits}

    def run(self, room: Room) -> Iterator[int]:
        """Make the pass; each step of the iterator says as how many questions about room the next one counts."""
        starving, grown = list[JobShare](), False
        waiting = (job for job in self._jobs.values() if job.waits)
        for job in sorted(waiting, key=lambda job: (not job.aged, *self._turn(job))):
            if not room.start(job.name):
                starving.append(job)
            yield MINIMUM_COSTS
        yield from self._keep_room(starving, room)
        queue = [self._turn(job) for job in self._jobs.values() if not job.waits]
        heapify(queue)
        while queue:
            job = self._jobs[heappop(queue)[-1]]
            if (above := self._above(job)) is not None:
                if room.grow(job.name, above):
                    self._sizes[job.name], grown = above, True
                    heappush(queue, self._turn(job))
                yield 1
        for job in starving:
            yield from self._shrink_for(job, room)
        if not grown:
            yield from self._even_out(room)

    def _keep_room(self, starving: list[JobShare], room: Room) -> Iterator[int]:
        """Keep room for the minima that wait for long, and for those that would fit if no other job had surplus.

        Else growth would take the room piece by piece that is freed for them. Those of one kind are looked at together,
        without the surplus that stands where they could run.
        """
        alike, kept = dict[Hashable, list[JobShare]](), set[str]()
        for job in starving:
            alike.setdefault(job.kind if job.kind is not None else job.name, []).append(job)
        for jobs in alike.values():
            mark = room.mark()
            for number, other in enumerate(self._jobs.values()):
                surplus = self._below(other, level=WEIGHT_MAX + 1) is not None
                if surplus and room.helps(jobs[0].name, other.name):
                    room.shrink(other.name, other.terms.min_instances)
                    yield 1
                elif not number % JOBS_AT_ONCE:
                    yield 1
            without = room.mark()
            for job in jobs:
                if job.aged or room.start(job.name):
                    kept.add(job.name)
                room.return_to(without)
                yield MINIMUM_COSTS
            room.return_to(mark)
        for job in starving:
            if job.name in kept:
                room.keep(job.name, from_starts=job.aged)
                yield 1

    def _turn(self, job: JobShare) -> tuple[int, str]:
        return job.key(self._sizes[job.name]), job.name

    def _above(self, job: JobShare) -> int | None:
        """Return the next size of a job that may grow; one that the pass has shrunk does not."""
        size = self._sizes[job.name]
        if job.name in self._started:
            above = job.terms.next_above(size)
            return above if above is None or above <= job.size or not job.frozen else None
        if job.frozen or not job.grows or job.waits or size < job.size:
            return None
        return job.terms.next_above(size)

    def _below(self, job: JobShare, *, level: int = 0) -> int | None:
        """Return the next smaller size of a job that may be shrunk for another; `level` is that of a waiting one.

        A job that the pass has grown is not shrunk.
        """
        size = self._sizes[job.name]
        stays = job.waits or job.terms.is_production or size > job.size
        return None if stays or (job.frozen and level <= job.terms.weight) else job.terms.next_below(size)

    def _shrink_for(self, job: JobShare, room: Room) -> Iterator[int]:
        """Shrink the most served jobs until the minimum of a less served one fits; undo all where it never does."""
        level, own = job.terms.weight, job.key(job.terms.min_instances)
        mark, before = room.mark(), dict(self._sizes)
        steps: list[tuple[JobShare, int]] = []
        queue: list[tuple[int, str]] = []
        for number, other in enumerate(self._jobs.values()):
            may = self._below(other, level=level) is not None and self._turn(other)[0] > own
            if may and room.helps(job.name, other.name):
                heappush(queue, _most_served(self._turn(other)))
            if not number % JOBS_AT_ONCE:
                yield 1
        next_try = 1
        while queue:
            key, name = heappop(queue)
            other = self._jobs[name]
            below = self._below(other, level=level)
            if -key > own and below is not None:
                steps.append((other, self._sizes[name]))
                self._sizes[name] = below
                room.shrink(name, below)
                heappush(queue, _most_served(self._turn(other)))
            if len(steps) < next_try and queue:
                if not len(steps) % TRIED_AFTER_EACH:
                    yield MINIMUM_COSTS
                continue
            next_try = len(steps) + max(1, len(steps) // 4 if len(steps) >= TRIED_AFTER_EACH else 1)
            yield MINIMUM_COSTS
            if steps and room.start(job.name):
                yield from self._give_back(steps, room)
                self.helped |= {other.name: job.name for other, _ in steps if self._sizes[other.name] < other.size}
                self._started.add(job.name)
                self._sizes[job.name] = job.terms.min_instances
                return
        self._sizes = before
        room.return_to(mark)

    def _give_back(self, steps: list[tuple[JobShare, int]], room: Room) -> Iterator[int]:
        """Undo the steps that were not needed, those of the least served jobs first."""
        kept = set[str]()
        for other, size in reversed(steps):
            if other.name in kept:
                continue
            yield 1
            if room.restore(other.name, size):
                self._sizes[other.name] = size
            else:
                kept.add(other.name)

    def _even_out(self, room: Room) -> Iterator[int]:
        """Give steps of the most served jobs to the least served ones, as long as that lowers the larger key."""
        givers, takers = SortedList[tuple[int, str]](), _Takers()
        for number, job in enumerate(self._jobs.values()):
            givers.update([self._turn(job)] if self._below(job) is not None else ())
            takers.add(job, self._turn(job), self._step_of(job))
            if number % JOBS_AT_ONCE == JOBS_AT_ONCE - 1:
                yield MINIMUM_COSTS
        exchanges = offers = 0
        while givers and exchanges < EXCHANGES_MAX and offers < OFFERS_MAX:
            giver = self._jobs[givers.pop()[1]]
            offered = self._offered(giver, takers)
            if not offered:
                return  # those that have received less have nobody to give to either
            below, mark = self._below(giver), room.mark()
            assert below is not None, "a giver has a smaller size"
            room.shrink(giver.name, below)
            taken: tuple[JobShare, int] | None = None
            for job, above in offered:
                offers += 1
                yield 1
                if room.grow(job.name, above):
                    taken = job, above
                    break
            if taken is None:
                room.return_to(mark)
                continue
            exchanges, (taker, above) = exchanges + 1, taken
            for job in (giver, taker):
                givers.discard(self._turn(job))
                takers.remove(job, self._turn(job), self._step_of(job))
            self._sizes[giver.name], self._sizes[taker.name] = below, above
            self.helped[giver.name] = taker.name
            for job in (giver, taker):
                givers.update([self._turn(job)] if self._below(job) is not None else ())
                takers.add(job, self._turn(job), self._step_of(job))

    def _step_of(self, job: JobShare) -> int:
        """Return by how many instances a job grows next; 0 where it does not."""
        above = self._above(job)
        return 0 if above is None else above - self._sizes[job.name]

    def _offered(self, giver: JobShare, takers: "_Takers") -> list[tuple[JobShare, int]]:
        """Return the jobs to which a step of this one is offered, with their sizes then, the least served first.

        With a step they have received less than it has without one: else two jobs would swap it in turns.
        """
        below, found = self._below(giver), list[tuple[JobShare, int]]()
        most = giver.key(below) if below is not None else 0
        for key, name in islice(takers.first, LOOKS_MAX):
            job = self._jobs[name]
            above = self._sizes[name] + self._step_of(job)
            if key < most and job is not giver and job.key(above) <= most:
                found.append((job, above))
        return found


class _Takers:
    """The jobs that may grow, by their kind and the number of instances of their next step; `first` has the heads.

    Where the least served of a kind finds no room, no other of it does.
    """

    def __init__(self) -> None:
        self.first: SortedList[tuple[int, str]] = SortedList()
        self._kinds: dict[Hashable, SortedList[tuple[int, str]]] = {}

    def add(self, job: JobShare, turn: tuple[int, str], step: int) -> None:
        """Add a job that grows by so many instances; one that does not grow is none."""
        if step:
            self._change(job, step, [turn], [])

    def remove(self, job: JobShare, turn: tuple[int, str], step: int) -> None:
        """Remove a job that was added."""
        if step:
            self._change(job, step, [], [turn])

    def _change(self, job: JobShare, step: int, more: list[tuple[int, str]], less: list[tuple[int, str]]) -> None:
        kind = (job.kind if job.kind is not None else job.name), step
        jobs = self._kinds.setdefault(kind, SortedList())
        head = jobs[0] if jobs else None
        jobs.update(more)
        for turn in less:
            jobs.remove(turn)
        if head is not None:
            self.first.remove(head)
        if jobs:
            self.first.add(jobs[0])


def _most_served(turn: tuple[int, str]) -> tuple[int, str]:
    return -turn[0], turn[1]
