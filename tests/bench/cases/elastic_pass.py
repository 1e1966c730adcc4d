"""The passes over the sizes of elastic jobs, in process: what they cost without change, while all grow, and in need.

Jobs of 20 pools grow from their minimum to what fits; then passes find nothing to do; then as many more jobs as a fifth
wait for their minimum, so that others shrink for them. Objects and pods follow each size in no time.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from msgspec import Struct

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Bind, Evict, Resize
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.names import CLUSTER
from aischeduler.model.pod import RUNNING, Pod
from aischeduler.model.pool import WHOLE_LOAD
from tests.bench.apart import apart
from tests.bench.core import SLICE
from tests.bench.spec import OURS, Case, Evidence, Goal, Measure, Measured, VoidRunError
from tests.build import a_node, a_pool, replace
from tests.checked_scheduler import answers
from tests.elastic import AJob

JOBS, NODES, POOLS = 1_000, 1_000, 20
CPUS: Final = "16"
LEAST, MOST, WINDOW_SECONDS = 2, 60, 30.0
STEP_SECONDS: Final = 0.5
IDLE_SECONDS: Final = 60.0
SMALLER: Final = 4
"""By so much smaller is the other cluster, to which the cost of a pass is compared."""

IDLE, IDLE_WORST = "ms of CPU of a pass without change", "worst ms of CPU of a call, without change"
GROWING, GROWING_WORST = "ms of CPU of a pass in which all grow", "worst ms of CPU of a call, while all grow"
NEED, NEED_WORST = "ms of CPU of a pass in which minima wait", "worst ms of CPU of a call, while minima wait"
RATIO = f"pass without change / that of a cluster {SMALLER} times smaller"
IDLE_MS, WORST_MS = 50.0, 10.0


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    jobs, nodes = JOBS // shrink, NODES // shrink

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda _: apart(partial(passing, jobs, nodes))

    about = f"in process: {jobs:,} elastic jobs, {nodes:,} nodes, {POOLS} pools; {jobs // 5:,} more jobs come later"
    goals = (
        Goal(IDLE, IDLE_MS, at_least=False),
        Goal(IDLE_WORST, WORST_MS, at_least=False),
        Goal(RATIO, SMALLER * 1.5, at_least=False),
    )
    return (Case("elastic-pass", about, (OURS,), open=opened, goals=goals),)


class Cost(Struct):
    """The CPU seconds of some passes: of all their calls together, of the longest call, and the number of passes."""

    all: float = 0.0
    longest: float = 0.0
    passes: int = 0

    @property
    def each_ms(self) -> float:
        return self.all * 1e3 / max(self.passes, 1)


class Cluster:
    """The engine and its jobs; `cost` is what the passes cost since it was set."""

    def __init__(self, nodes: int, *, max_load_thousandths: int = WHOLE_LOAD) -> None:
        self.scheduler, self.now = Scheduler(default_profile(), "run"), 0.0
        self.jobs: dict[str, AJob] = {}
        self.cost = Cost()
        self._of_pod: dict[str, tuple[AJob, int]] = {}
        for number in range(POOLS):
            pool = a_pool(pool_of(number), labels={"pool": pool_of(number)})
            self.tell(Seen(replace(pool, max_load_thousandths=max_load_thousandths)))
        for number in range(nodes):
            labels = {"pool": pool_of(number)}
            self.tell(Seen(a_node(f"n{number}", cpu=CPUS, labels=labels)))

    def tell(self, *events: Event) -> None:
        for event in events:
            self.scheduler.observe(event, self.now)

    def add(self, first: int, count: int, *, least: int = LEAST, elastic: bool = True) -> None:
        """Add so many jobs, of the pools in turn; those that are not `elastic` keep their size."""
        for number in range(first, first + count):
            job = AJob(f"j{number}", least, MOST, window=WINDOW_SECONDS, pool=pool_of(number))
            self.jobs[job.name] = job
            self.tell(Seen(job.gang))
            if elastic:
                self.tell(Seen(job.workload))
            self._sync(job)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            while pools := self.scheduler.ready(self.now):
                for pool in pools:
                    self.decide(pool)
            self.now += STEP_SECONDS

    def decide(self, pool: str) -> int:
        """Return the number of pods that this call of the engine binds."""
        before = time.process_time()
        actions = self.scheduler.decide(pool, self.now, SLICE)
        spent = time.process_time() - before
        if pool == CLUSTER:
            self.cost.all += spent
            self.cost.longest = max(self.cost.longest, spent)
        self.tell(*answers(actions))
        for action in actions:
            self._carry_out(action)
        return sum(isinstance(action, Bind) for action in actions)

    def _carry_out(self, action: Action) -> None:
        match action:
            case Bind(pod, node):
                running = replace(pod, node_name=node, phase=RUNNING, started_seconds=int(self.now))
                if pod.uid in self._of_pod:
                    job, index = self._of_pod[pod.uid]
                    job.pods[index] = running
                self.tell(Seen(running))
            case Resize():
                job = self.jobs[action.name]
                job.size = job.written = action.instances
                job.version, job.service, job.service_at = job.version + 1, action.service, action.now_seconds
                job.resized_at = action.now_seconds if action.starts_window else job.resized_at
                self.tell(Seen(job.workload))
                self._sync(job)
            case Evict():
                raise VoidRunError("a pod is evicted")

    def _sync(self, job: AJob) -> None:
        for index in [index for index in job.pods if index >= job.size]:
            self.tell(gone(Pod, job.pods.pop(index).uid))
        for index in range(len(job.pods), job.size):
            job.pods[index] = job.new_pod(index, self.now)
            self._of_pod[job.pods[index].uid] = job, index
            self.tell(Seen(job.pods[index]))


def pool_of(number: int) -> str:
    return f"p{number % POOLS}"


def costs(jobs: int, nodes: int) -> dict[str, Cost]:
    """Return what the passes cost: while all grow, without change, and while minima wait."""
    cluster, found = Cluster(nodes), dict[str, Cost]()
    cluster.add(0, jobs)
    for phase, seconds in ((GROWING, 1.0), ("", 2.0), (IDLE, IDLE_SECONDS), (NEED, 1.0)):
        if phase == NEED:
            cluster.add(jobs, jobs // 5)
        gc.collect()
        gc.freeze()
        cluster.cost, before = Cost(), cluster.now
        cluster.run(seconds)
        cluster.cost.passes = max(int((cluster.now - before) / 5.0), 2)
        found[phase] = cluster.cost
    if any(len(job.pods) < LEAST for job in cluster.jobs.values()):
        raise VoidRunError("a job has less than its minimum")
    return found


def passing(jobs: int, nodes: int) -> Measured:
    """Time the passes of a cluster, and of one that is smaller."""
    small, found = costs(jobs // SMALLER, nodes // SMALLER), costs(jobs, nodes)
    named = ((IDLE, IDLE_WORST), (GROWING, GROWING_WORST), (NEED, NEED_WORST))
    figures = {each: found[each].each_ms for each, _ in named}
    figures |= {worst: found[each].longest * 1e3 for each, worst in named}
    return Measured(Evidence(), {**figures, RATIO: found[IDLE].each_ms / small[IDLE].each_ms})
