"""The engine: events in, actions out.

Laws:
- Synchronous and deterministic: the same calls with the same arguments give the same actions.
- `observe` never decides; `decide` never waits. Time comes with every call and never goes back.
- What `decide` returns is already counted: a shell that cannot carry an action out answers with an event.
"""

from typing import Final, assert_never

from aischeduler.engine.bind_events import bind_refused
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.cycle import SETTLE_SECONDS, attempt
from aischeduler.engine.evictions import budget_gone, budget_seen, end_loans, evict_refused, flush
from aischeduler.engine.invariants import Violation
from aischeduler.engine.lending import lend, seek_lenders
from aischeduler.engine.net import flush_queue
from aischeduler.engine.node_events import node_gone, node_seen
from aischeduler.engine.pod_events import pod_gone, pod_seen
from aischeduler.engine.pod_warnings import warn_pod
from aischeduler.engine.pool_events import flush_edits, namespace_gone, namespace_seen, pool_gone, pool_seen
from aischeduler.engine.profile import Profile
from aischeduler.engine.readiness import Readiness, looks_again
from aischeduler.engine.reasons import look_again, reword
from aischeduler.engine.self_check import SelfCheck, digest
from aischeduler.engine.status import StatusReports
from aischeduler.engine.summary import summarize
from aischeduler.engine.tally import Tally
from aischeduler.engine.wakeups import wake_some
from aischeduler.model.actions import Action, Settle
from aischeduler.model.events import (
    BindRefused,
    BudgetGone,
    BudgetSeen,
    Event,
    EvictRefused,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PoolGone,
    PoolSeen,
)
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.summary import PoolSummary
from aischeduler.state.loans import Loan

SETTLES_MAX: Final = 16
"""Pods read in one decision."""


UNSAID_MAX: Final = 100
"""Actions of a pool's outbox that are kept while another scheduler leads."""


class Scheduler:
    """One scheduler for one cluster. `run` makes decision ids unique over restarts."""

    def __init__(self, profile: Profile, run: str) -> None:
        self._cluster = Cluster(profile, run)
        self._status = StatusReports()
        self._readiness = Readiness(self._status)
        self._self_check = SelfCheck()

    @property
    def tally(self) -> Tally:
        """What was done so far."""
        return self._cluster.tally

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
                node_gone(cluster, name, now)
            case PoolSeen(pool):
                pool_seen(cluster, pool, now)
            case PoolGone(name):
                pool_gone(cluster, name, now)
            case BudgetSeen() | BudgetGone() | NamespaceSeen() | NamespaceGone():
                self._observe_rules(event, now)
            case BindRefused():
                bind_refused(cluster, event, now)
            case EvictRefused():
                evict_refused(cluster, event, now)
            case _:
                assert_never(event)

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Try at most `limit` pods of this pool's queue, fewer where they take more; return what is to be done."""
        cluster = self._cluster
        actions: list[Action] = []
        self._let_time_act(now)
        if pool == DEFAULT_POOL:
            self._settle(actions, now)
            self._status.report(cluster, now)
        queue = cluster.queues.get(pool)
        if queue is None:
            return actions
        actions += cluster.outbox.pop(pool, [])
        if limit:
            self._look_after(pool, actions, now)
        cost = 0
        flush_queue(cluster, queue, now)
        while cost < limit and (record := queue.pop()) is not None:
            warn_pod(cluster, record.pod, actions)
            cost += attempt(cluster, queue, record, actions, now)
        if pool in cluster.errands.lending:
            lend(cluster, pool, now)
        elif looks_again(cluster, pool):
            del cluster.errands.relook[pool]
            lend(cluster, pool, now)
        self._readiness.decided(pool)
        return actions

    def stand_by(self, now: float) -> None:
        """Let time act and decide nothing; what there is to say the scheduler that leads says, and little is kept."""
        cluster = self._cluster
        self._let_time_act(now)
        cluster.turned.clear()
        for said in cluster.outbox.values():
            del said[:-UNSAID_MAX]

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the pools for which `decide` has something to do, sorted."""
        return self._readiness.ready(self._cluster, now)

    def next_wakeup(self) -> float | None:
        """Return the earliest time at which something moves by itself; None when nothing waits for time."""
        return self._readiness.next_wakeup(self._cluster)

    def pools(self) -> tuple[str, ...]:
        """Return every pool that has a queue, sorted."""
        return self._cluster.pools.names()

    def summary(self) -> tuple[PoolSummary, ...]:
        """Return every pool in numbers, sorted by name."""
        return summarize(self._cluster)

    def net_saves(self) -> int:
        """Return how many pods were placed only because the five-minute net brought them back."""
        return self.tally.net_saves_ever()

    def loans(self) -> dict[Loan, int]:
        """Return how many pods are on loan, by lender and home, sorted."""
        return self._cluster.loans.pods()

    def conflicts(self) -> dict[str, int]:
        """Return of each pool how many nodes another claims as well, sorted by name."""
        pools = self._cluster.pools
        return {name: len(pools.conflicting_nodes(name)) for name in pools.names()}

    def waiting(self) -> dict[str, dict[str, int]]:
        """Return per pool how many pods wait in each place of its queue."""
        queues = sorted(self._cluster.queues.items())
        return {
            name: {place.name.lower(): count for place, count in queue.counts().items() if count}
            for name, queue in queues
        }

    def self_check(self, now: float) -> tuple[Violation, ...]:
        """Judge the next part of the state when that is due and nothing is to be decided; return what is broken."""
        if not self._self_check.is_due(now, busy=bool(self.ready(now))):
            return ()
        return self._self_check.look(self._cluster, now)

    def digest(self) -> dict[str, str | int]:
        """Return the whole state in a few numbers and a hash, to go with a violation."""
        return digest(self._cluster)

    def why(self, uid: str) -> str:
        """Return the reason that a waiting pod was given last; empty when there is none."""
        record = self._cluster.records.get(uid)
        return record.message if record is not None and record.queue else ""

    def _observe_rules(self, event: BudgetSeen | BudgetGone | NamespaceSeen | NamespaceGone, now: float) -> None:
        cluster = self._cluster
        match event:
            case BudgetSeen(budget):
                budget_seen(cluster, budget, now)
            case BudgetGone(namespace, name):
                budget_gone(cluster, namespace, name, now)
            case NamespaceSeen(name, labels):
                namespace_seen(cluster, name, labels, now)
            case NamespaceGone(name):
                namespace_gone(cluster, name)

    def _look_after(self, pool: str, actions: list[Action], now: float) -> None:
        """Do what events have left for the pool's loop, a bit at a time."""
        cluster = self._cluster
        if pool in cluster.errands.review:
            end_loans(cluster, pool, actions)
        if pool in cluster.errands.waking:
            wake_some(cluster, pool, now)
        if pool in cluster.errands.seeking:
            seek_lenders(cluster, pool, now)
        if pool in cluster.errands.rewording:
            reword(cluster, pool, actions)

    def _let_time_act(self, now: float) -> None:
        """Let happen what was put off until now, before any pod is tried: the net must catch nobody whom this wakes."""
        cluster = self._cluster
        flush_edits(cluster, now)
        look_again(cluster, now)
        flush(cluster, now)

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
