"""Passes over the sizes of elastic jobs: when one is due, its slices, and what it sends.

Invariants:
- A pass comes every `PASS_SECONDS`, and soon after an event. It is done in slices; what it decides is sent at its end,
  one resize for each job, and only for jobs that are still as it read them.
- Jobs are shrunk for others only by a pass that began right after a refresh of their pools: nothing that costs work
  follows from a view that may be old.

Source: the scheduler of PaddlePaddle's TrainingJobs (every five seconds, and by events).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct, field

from aischeduler.engine.cluster import Cluster
from aischeduler.engine.elastic import (
    PASS_SECONDS,
    JobReading,
    note_service,
    note_wait,
    read_job,
    take_back,
    turned,
    welcome,
)
from aischeduler.engine.elastic_room import LiveRoom
from aischeduler.engine.freshness import FRESH_SECONDS, answers_due, await_for_order, was_refreshed
from aischeduler.engine.resizing import resize_to
from aischeduler.model.actions import Action, ResizeReason
from aischeduler.model.pool import PlacementStrategy
from aischeduler.policies.elastic import Sizing
from aischeduler.policies.placement import placement_strategy
from aischeduler.state.elastic_jobs import ElasticRecord, JobKey
from aischeduler.state.node_table import InstanceSize

EVENT_SECONDS: Final = 0.5
"""The least time between two passes, however many events come."""
STEPS_AT_ONCE: Final = 16
"""The most questions that a slice asks about room."""
PODS_AT_ONCE: Final = 1024
"""After so many pods of the jobs that it reads, a slice leaves the others to the next one."""
JOB_COSTS: Final = 16
"""As how many pods it counts to read a job."""
SIZES_MAX: Final = 4
"""The most sizes of instances for which other pods of a pool leave room."""
SKIPPED_SECONDS: Final = 60.0
"""How long passes leave out a job whose reading raised."""


class _Pass(Struct):
    """A pass that is under way; `start` is that of the state that it reads."""

    start: int
    began: float
    left: list[ElasticRecord]
    read: dict[str, JobReading] = field(default_factory=dict)
    sizing: Sizing | None = None
    room: LiveRoom | None = None
    steps: Iterator[int] | None = None


class ElasticPasses:
    """When the sizes of elastic jobs are decided, and the pass that is under way."""

    def __init__(self) -> None:
        self._pass: _Pass | None = None
        self._next, self._rests_until = float("-inf"), float("-inf")
        self._refreshing: dict[str, None] = {}
        """The pools whose refresh a shrinking waits for, since `_asked_at`."""
        self._asked_at = float("-inf")
        self._reads: ElasticRecord | None = None
        """The job that is being read: after an exception the next passes leave it out."""

    def due_at(self, cluster: Cluster) -> float | None:
        """Return when to call `carry_out`; None where there are no elastic jobs, and pods leave no places for any."""
        if not cluster.elastic.by_key and not cluster.nodes.instances:
            return None
        if self._pass is not None:
            return cluster.now
        due = self._rests_until if cluster.elastic.touched else max(self._next, self._rests_until)
        if not self._refreshing:
            return due
        if all(was_refreshed(cluster, pool, self._asked_at) for pool in self._refreshing):
            return cluster.now  # a refresh does not count for long
        return max(due, answers_due(cluster, self._refreshing))

    def carry_out(self, cluster: Cluster, now: float, actions: list[Action]) -> None:
        """Do the next slice of a pass, where one is due."""
        due = self.due_at(cluster)
        if due is None or due > now:
            return
        passing, self._pass = self._pass, None  # an exception ends the pass
        if self._reads is not None:
            self._reads.skipped_until, self._reads = now + SKIPPED_SECONDS, None
        if passing is None or passing.start != cluster.start:
            passing = self._begin(cluster, now)
        if self._go_on(cluster, passing, now, actions):
            self._conclude(cluster, passing, now, actions)
        else:
            self._pass = passing

    def _begin(self, cluster: Cluster, now: float) -> _Pass:
        jobs = cluster.elastic
        jobs.touched, self._next, self._rests_until = False, now + PASS_SECONDS, now + EVENT_SECONDS
        self._refreshing = {}
        return _Pass(cluster.start, now, [record for _, record in sorted(jobs.by_key.items(), reverse=True)])

    def _go_on(self, cluster: Cluster, passing: _Pass, now: float, actions: list[Action]) -> bool:
        """Do a slice; return whether the pass is at its end."""
        pods = 0
        while passing.left and pods < PODS_AT_ONCE:
            record = passing.left.pop()
            if cluster.elastic.by_key.get(record.key) is not record or now < record.skipped_until:
                continue
            self._reads = record
            reading = read_job(cluster, record, actions)
            pods += JOB_COSTS
            if reading is not None and not take_back(cluster, reading, actions):
                note_service(cluster, reading, actions)
                note_wait(cluster, reading)
                passing.read[record.name] = reading
                pods += len(reading.pods.instances)
            self._reads = None
        if passing.left:
            return False
        if passing.sizing is None:
            _expect_instances(cluster, passing.read.values())
            passing.sizing = Sizing(welcome(passing.read.values()))
            passing.room = LiveRoom(cluster, {name: read.pods for name, read in passing.read.items()})
            passing.steps = passing.sizing.run(passing.room)
        assert passing.room is not None, "it is made with the sizing"
        assert passing.steps is not None, "it is made with the sizing"
        with passing.room:
            questions = 0
            for cost in passing.steps:
                questions += cost
                if questions >= STEPS_AT_ONCE:
                    return False
            return True

    def _conclude(self, cluster: Cluster, passing: _Pass, now: float, actions: list[Action]) -> None:
        """Send the sizes that the pass gives."""
        assert passing.sizing is not None, "the pass is at its end"
        assert passing.room is not None, "the pass is at its end"
        _keep(cluster, {passing.read[name].record.key: nodes for name, nodes in passing.room.kept_nodes().items()})
        sizes, helped = passing.sizing.sizes, passing.sizing.helped
        shrunk = [passing.read[name] for name, size in sizes.items() if size < passing.read[name].share.size]
        pods = (pod for reading in shrunk for pod in reading.pods.instances)
        homes = dict.fromkeys(pod.home for pod in pods if cluster.records.get(pod.pod.uid) is pod)
        stale = [pool for pool in homes if not was_refreshed(cluster, pool, passing.began - FRESH_SECONDS)]
        self._refreshing, self._asked_at = dict.fromkeys(stale), now
        for pool in stale:
            actions += await_for_order(cluster, pool, now)
        for name, size in () if stale else sizes.items():
            reading = passing.read[name]
            record, before = reading.record, reading.share.size
            current = cluster.elastic.by_key.get(record.key) is record and record.job.version == reading.version
            if not current or record.size != before or record.sent is not None:
                continue
            reason = ResizeReason.GROWN if size > before else ResizeReason.SHRUNK
            text = f"There is room for {size - before} more instance(s)"
            if size < before:
                text = f"Its room goes to {helped.get(name, 'another job')}, which has received less"
            actions.append(resize_to(cluster, record, size, reason, text))
        if stale:
            cluster.elastic.touched = True


def _expect_instances(cluster: Cluster, readings: Iterable[JobReading]) -> None:
    """Let other pods leave room for the instances of these jobs, if they pack: for the commonest sizes of each pool.

    Devices that are known singly are not looked at.
    """
    first = [reading.pods.instances[0] for reading in readings if reading.pods.instances]
    specs = {record.pod.spec.key: record.pod.spec for record in first}
    jobs = dict[int, Counter[InstanceSize]]()
    for (home, key), count in Counter((record.home, record.pod.spec.key) for record in first).items():
        placement = placement_strategy(cluster.pools.pools[home], specs[key], cluster.profile.gpu_resources)
        if placement is PlacementStrategy.PACK and specs[key].devices is None:
            size = tuple(sorted(specs[key].request.taken.items()))
            jobs.setdefault(cluster.pools.id(home), Counter())[size] += count
    cluster.nodes.expect({pool: _commonest(sizes) for pool, sizes in sorted(jobs.items())})


def _commonest(jobs: Counter[InstanceSize]) -> tuple[InstanceSize, ...]:
    return tuple(size for size, _ in sorted(jobs.items(), key=lambda item: (-item[1], item[0]))[:SIZES_MAX])


def _keep(cluster: Cluster, kept: dict[JobKey, frozenset[str]]) -> None:
    """Let no other elastic job start on the nodes that are kept for one; those that wait may start elsewhere again."""
    jobs = cluster.elastic
    before, jobs.kept = jobs.kept, kept
    if list(before.items()) != list(kept.items()):
        for key, record in sorted(jobs.by_key.items()):
            if record.waits_since is not None:
                turned(cluster, key)
