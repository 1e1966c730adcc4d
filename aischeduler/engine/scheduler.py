"""The engine: events in, actions out.

Laws:
- Synchronous and deterministic: the same calls with the same arguments give the same actions.
- `observe` never decides; `decide` never waits. Time comes with every call and never goes back.
- What `decide` returns is already counted: a shell that cannot carry an action out answers with an event.
"""

from typing import Final, assert_never

from aischeduler.engine.bind_events import bind_refused
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.cycle import Refused, attempt
from aischeduler.engine.node_events import node_gone, node_seen, pool_gone, pool_seen
from aischeduler.engine.pod_events import pod_gone, pod_seen
from aischeduler.engine.profile import Profile
from aischeduler.engine.summary import PoolSummary, summarize
from aischeduler.framework.plugin import Ask
from aischeduler.model.actions import Action, Bind, ObjectRef, ReportWaiting, Settle, Warn
from aischeduler.model.events import (
    BindAccepted,
    BindRefused,
    Event,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PoolGone,
    PoolSeen,
)
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.policies.placement import preference
from aischeduler.state.queue import PoolQueue
from aischeduler.state.records import Place, PodRecord

SETTLE_SECONDS: Final = 30.0
"""An assumed pod that the watch has not shown bound for this long is read; it is never given up by time alone."""
SETTLES_MAX: Final = 16
"""Pods read in one decision."""


class Scheduler:
    """One scheduler for one cluster. `run` makes decision ids unique over restarts."""

    def __init__(self, profile: Profile, run: str) -> None:
        self._cluster = Cluster(profile, run)

    def observe(self, event: Event, now: float) -> None:
        """Take in what happened."""
        cluster = self._cluster
        match event:
            case PodSeen(pod):
                pod_seen(cluster, pod, now)
            case PodGone(uid):
                pod_gone(cluster, uid, now)
            case NodeSeen(node):
                node_seen(cluster, node, now)
            case NodeGone(name):
                node_gone(cluster, name)
            case PoolSeen(pool):
                pool_seen(cluster, pool, now)
            case PoolGone(name):
                pool_gone(cluster, name, now)
            case BindAccepted():
                pass  # It stays assumed until the watch shows it on its node.
            case BindRefused():
                bind_refused(cluster, event, now)
            case _:
                assert_never(event)

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Try at most `limit` pods of this pool's queue; return what is to be done, in order."""
        cluster = self._cluster
        queue = cluster.queues.get(pool)
        if queue is None:
            return []
        actions = cluster.outbox.pop(pool, [])
        if pool == DEFAULT_POOL:
            self._settle(actions, now)
        for _ in range(limit):
            record = queue.pop(now)
            if record is None:
                break
            self._attempt(queue, record, actions, now)
        return actions

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the pools for which `decide` has something to do, sorted."""
        cluster = self._cluster
        due = self._settle_at()
        return tuple(
            name
            for name in sorted(cluster.queues)
            if cluster.outbox.get(name)
            or cluster.queues[name].ready(now)
            or (name == DEFAULT_POOL and due is not None and due <= now)
        )

    def next_wakeup(self) -> float | None:
        """Return the earliest time at which something moves by itself; None when nothing waits for time."""
        times = [queue.next_wakeup() for queue in self._cluster.queues.values()]
        return min((time for time in (*times, self._settle_at()) if time is not None), default=None)

    def pools(self) -> tuple[str, ...]:
        """Return every pool that has a queue, sorted."""
        return tuple(sorted(self._cluster.queues))

    def summary(self) -> tuple[PoolSummary, ...]:
        """Return every pool in numbers, sorted by name."""
        return summarize(self._cluster)

    def net_saves(self) -> int:
        """Return how many pods were placed only because the five-minute net brought them back."""
        return sum(queue.net_saves for queue in self._cluster.queues.values())

    def waiting(self) -> dict[str, dict[str, int]]:
        """Return per pool how many pods wait in each place of its queue."""
        queues = sorted(self._cluster.queues.items())
        return {
            name: {place.name.lower(): count for place, count in queue.counts().items() if count}
            for name, queue in queues
        }

    def why(self, uid: str) -> str:
        """Return the reason that a waiting pod was given last; empty when there is none."""
        record = self._cluster.records.get(uid)
        return record.message if record is not None and record.queue else ""

    def _attempt(self, queue: PoolQueue, record: PodRecord, actions: list[Action], now: float) -> None:
        cluster, pod = self._cluster, record.pod
        record.decision = cluster.next_decision()
        self._warn_of_unknown_pool(record, actions)
        if pod.spec.invalid:
            queue.hold(record, now)
            self._report(record, pod.spec.invalid, actions)
            return
        pool = cluster.pools.pools[queue.pool]
        ask = Ask(pod.spec, preference(pool, pod.spec, cluster.profile.gpu_resources))
        rows = cluster.nodes.rows_of_pool(cluster.pools.id(pool.name))
        outcome = attempt(cluster.runner, ask, rows)
        if isinstance(outcome, Refused):
            queue.park(record, outcome.diagnosis.rejectors, now)
            self._report(record, outcome.diagnosis.message(), actions)
            return
        cluster.adopt(record, outcome.row)
        record.place = Place.ASSUMED
        cluster.unsettled[pod.uid] = now + SETTLE_SECONDS
        queue.net_saves += record.saved
        node = cluster.nodes.names[outcome.row]
        actions.append(Bind(pod, node, pool.name, record.home, record.decision, outcome.feasible))
        cluster.wake_alike(queue, pod.spec, now)

    def _report(self, record: PodRecord, message: str, actions: list[Action]) -> None:
        if message != record.message:
            record.message = message
            actions.append(ReportWaiting(record.pod, record.queue, record.home, message, record.decision))

    def _warn_of_unknown_pool(self, record: PodRecord, actions: list[Action]) -> None:
        pod = record.pod
        if not pod.pool or pod.pool in self._cluster.pools.pools or not self._cluster.warned(pod.uid, pod.pool):
            return
        about = ObjectRef("Pod", pod.name, pod.uid, pod.namespace)
        message = f"There is no pool {pod.pool}; the pod waits in the pool {DEFAULT_POOL}."
        actions.append(Warn(about, "UnknownPool", message))

    def _settle(self, actions: list[Action], now: float) -> None:
        cluster = self._cluster
        for _ in range(SETTLES_MAX):
            uid, due = next(iter(cluster.unsettled.items()), ("", now + 1))
            if due > now:
                return
            cluster.unsettled[uid] = now + SETTLE_SECONDS
            cluster.unsettled.move_to_end(uid)
            record = cluster.records[uid]
            actions.append(Settle(record.pod, cluster.nodes.names[record.row], record.decision))

    def _settle_at(self) -> float | None:
        return next(iter(self._cluster.unsettled.values()), None)
