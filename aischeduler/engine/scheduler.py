"""The engine: events in, actions out.

Invariants:
- Synchronous and deterministic: the same calls with the same arguments return the same actions.
- `observe` decides nothing; `decide` never waits. The time is an argument of every call and never goes back.
- The state already contains what `decide` returns: a shell that cannot perform an action answers with an event.
- An exception of the scheduler costs one attempt of one pod, or one step: an action reports it, and all other actions
  are returned. `observe` raises it after the state is repaired; the next event of the object is handled as usual.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from aischeduler.engine.agenda import Checks
from aischeduler.engine.apply import NoProposalError
from aischeduler.engine.bindings import bind_refused, read_assumed
from aischeduler.engine.changed_rows import lets_pass
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.count_hints import note_counts
from aischeduler.engine.counters import Counters
from aischeduler.engine.cycle import SEARCH_COST, attempt, warn_pod
from aischeduler.engine.device_events import devices_listed
from aischeduler.engine.due_pools import Readiness
from aischeduler.engine.elastic import resize_refused
from aischeduler.engine.elastic_passes import ElasticPasses
from aischeduler.engine.evictions import evict_refused, flush, read_unheard
from aischeduler.engine.freshness import refresh_failed, refreshed
from aischeduler.engine.gang_lifecycle import roll_back_some
from aischeduler.engine.internal_errors import Doing
from aischeduler.engine.lending import accounts_shrunk, lend
from aischeduler.engine.message_updates import advance, look_again
from aischeduler.engine.node_events import node_seen
from aischeduler.engine.object_events import object_changed
from aischeduler.engine.permits import ask_again
from aischeduler.engine.pod_counting import shields_end
from aischeduler.engine.pool_events import end_windows, pool_seen
from aischeduler.engine.pool_status import StatusReports, summarize
from aischeduler.engine.profile import Profile
from aischeduler.engine.queue_orders import QueueOrders
from aischeduler.engine.queue_status import QueueReports
from aischeduler.engine.queueing_hints import flush_queue
from aischeduler.engine.recovery import (
    Before,
    attempt_failed,
    before_attempt,
    event_failed,
    proposal_failed,
    set_aside,
    step_failed,
)
from aischeduler.engine.self_check import SelfCheck, Violation, digest
from aischeduler.engine.tasks import ROWS, TASKS, Part, Task
from aischeduler.engine.tenant_queues import queues_served, resume_jobs, settings_changed
from aischeduler.engine.units import form_some
from aischeduler.engine.unknown_pools import (
    begin_reads,
    due_nodes,
    pools_listed,
    pools_unlisted,
    stop_reads,
    view_refreshed,
)
from aischeduler.engine.volume_binding import volumes_answered
from aischeduler.model.actions import Action, ReportInternalError, Step
from aischeduler.model.events import (
    BindRefused,
    DevicesListed,
    Event,
    EvictRefused,
    Gone,
    QueuesServed,
    ReadAnswer,
    Refreshed,
    RefreshFailed,
    ResizeRefused,
    Seen,
    TenantsConfigured,
    VolumesRefused,
    VolumesWritten,
)
from aischeduler.model.names import CLUSTER, DEFAULT_POOL
from aischeduler.model.node import Node
from aischeduler.model.pool_summary import PoolSummary
from aischeduler.model.tenant_queue import TenantSettings
from aischeduler.model.unsupported_constraints import ConstraintKind
from aischeduler.state.ledger import Loan
from aischeduler.state.pod_records import PodRecord, PodState
from aischeduler.state.scheduling_queue import PoolQueue

FORMING: Final = (Step.WAKING, "forming units")
ROLLING_BACK: Final = (Step.WAKING, "giving up units that are not whole")
ORDERING: Final = (Step.LOANS, "evicting pods for the orders of tenant queues")
SIZING: Final = (Step.SIZES, "deciding the sizes of elastic jobs")
SETTLING: Final = (Step.SETTLE, "choosing pods to read")
PERMITTING: Final = (Step.SETTLE, "asking rules about delayed Bindings")
TELLING: Final = (Step.STATUS, "computing the statuses of Pools")
READING_QUEUE: Final = (Step.QUEUE, "reading when a queue has something to decide")
MOVING: Final = (Step.QUEUE, "moving pods whose backoff ended")
TAKING: Final = (Step.QUEUE, "popping pods from the queue")
READING: Final = (Step.SETTLE, "choosing Pools to read")
COUNTING: Final = (Step.WAKING, "checking pods whose constraints count other pods")
LENDING: Final = (Step.LENDING, "offering room to other pools")

UNSAID_MAX: Final = 100
"""The most actions of a pool's outbox that are kept while another scheduler leads."""
UNIT_PODS_MAX: Final = 32
"""After a unit with which so many pods of units were tried, a decision ends."""


class Scheduler:
    """One scheduler for one cluster. `run` makes decision ids unique over restarts."""

    def __init__(self, profile: Profile, run: str) -> None:
        self._cluster = Cluster(profile, run)
        self._status = StatusReports()
        self._queue_reports = QueueReports()
        self._queue_orders = QueueOrders()
        self._elastic = ElasticPasses()
        self._readiness = Readiness(self._status, self._queue_reports, self._queue_orders, self._elastic)
        self._self_check = SelfCheck()

    @property
    def counters(self) -> Counters:
        """The counters of what the engine has done."""
        return self._cluster.counters

    @property
    def cluster(self) -> Cluster:
        """The state, for answers about an engine of one's own."""
        return self._cluster

    def observe(self, event: Event, now: float) -> None:
        """Handle an event."""
        cluster = self._cluster
        advance(cluster, now)
        try:
            self._take(event, now)
            if cluster.ledger.shrunk:
                accounts_shrunk(cluster)
            if cluster.deferred.failed:
                set_aside(cluster)
            note_counts(cluster)
        except Exception as error:
            for report in self._event_failed(event, error)[1:]:
                cluster.say(DEFAULT_POOL, report)
            raise

    def _take(self, event: Event, now: float) -> None:
        cluster = self._cluster
        match event:
            case Seen() | Gone():
                object_changed(cluster, event, now)
            case VolumesWritten() | VolumesRefused():
                volumes_answered(cluster, event)
            case BindRefused():
                bind_refused(cluster, event, now)
            case EvictRefused():
                evict_refused(cluster, event, now)
            case ResizeRefused():
                resize_refused(cluster, event)
            case DevicesListed(listed):
                devices_listed(cluster, listed=listed)
            case QueuesServed(served):
                queues_served(cluster, served=served)
            case TenantsConfigured(settings):
                settings_changed(cluster, settings)
            case _:
                self._observe_reads(event, now)

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Try pods of this pool's queue up to the cost `limit`, or do the work of no pool; return the actions."""
        cluster = self._cluster
        advance(cluster, now)
        actions: list[Action] = []
        self._let_time_act(actions, now)
        if pool == CLUSTER:
            self._step(FORMING, pool, actions, partial(form_some, cluster))
            self._step(ROLLING_BACK, pool, actions, partial(roll_back_some, cluster, actions))
            self._step(ORDERING, pool, actions, partial(self._queue_orders.carry_out, cluster, now, actions))
            self._step(SIZING, pool, actions, partial(self._elastic.carry_out, cluster, now, actions))
            self._step(SETTLING, pool, actions, partial(read_unheard, cluster, actions))
            self._step(SETTLING, pool, actions, partial(read_assumed, cluster, actions))
            self._step(PERMITTING, pool, actions, partial(ask_again, cluster, actions))
            self._step(TELLING, pool, actions, partial(self._status.report, cluster, now))
            self._step(TELLING, pool, actions, partial(self._queue_reports.report, cluster, now))
            self._begin_reads(pool, actions)
        elif pool in cluster.queues:
            self._work(pool, actions, limit)
        self._step(LENDING, pool, actions, partial(accounts_shrunk, cluster))
        self._step(COUNTING, pool, actions, partial(note_counts, cluster))
        return actions

    def _work(self, pool: str, actions: list[Action], limit: int) -> None:
        """Do the deferred work of a pool and try pods of its queue up to the cost `limit`."""
        cluster, now = self._cluster, self._cluster.now
        actions += cluster.said.outbox.pop(pool, [])
        self._step(READING_QUEUE, pool, actions, partial(self._readiness.raise_failure, pool))
        checks = Checks()
        if limit:
            self._do_tasks(pool, checks, actions)
        self._step(MOVING, pool, actions, partial(flush_queue, cluster, cluster.queues[pool], now))
        self._step(TAKING, pool, actions, partial(self._try_some, pool, actions, limit, checks))
        self._begin_reads(pool, actions)
        checks.allow_one()
        self._step(LENDING, pool, actions, partial(lend, cluster, pool, checks))
        cluster.deferred.slice_ends(pool)
        self._readiness.decided(pool)

    def stand_by(self, now: float) -> list[ReportInternalError]:
        """Do what is due without deciding, while another scheduler leads; return this scheduler's exceptions alone."""
        cluster = self._cluster
        advance(cluster, now)
        actions: list[Action] = []
        self._step(READING, DEFAULT_POOL, actions, partial(stop_reads, cluster))
        self._let_time_act(actions, now)
        cluster.edits.turned.clear()
        for said in cluster.said.outbox.values():
            actions += [action for action in said if isinstance(action, ReportInternalError)]
            said[:] = [action for action in said if not isinstance(action, ReportInternalError)][-UNSAID_MAX:]
        return [action for action in actions if isinstance(action, ReportInternalError)]

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the pools, or CLUSTER, for which `decide` has something to do, sorted."""
        return self._readiness.ready(self._cluster, now)

    def next_wakeup(self) -> float | None:
        """Return the earliest time at which a pool becomes ready by time alone; None where none does."""
        return self._readiness.next_wakeup(self._cluster)

    def loops(self) -> tuple[str, ...]:
        """Return every name that `ready` may return: CLUSTER and all pools, sorted."""
        return (CLUSTER, *self._cluster.pools.names())

    def pools(self) -> tuple[str, ...]:
        """Return the names of all pools, sorted."""
        return self._cluster.pools.names()

    def summary(self) -> tuple[PoolSummary, ...]:
        """Return the summary of every pool, sorted by name."""
        return summarize(self._cluster)

    def net_saves(self) -> int:
        """Return how many pods were placed only because the five-minute flush brought them back."""
        return self.counters.net_saves_ever()

    def loans(self) -> dict[Loan, int]:
        """Return the number of pods on loan by lender and home pool, sorted."""
        return self._cluster.ledger.loans()

    def conflicts(self) -> dict[str, int]:
        """Return per pool the number of its nodes that another Pool selects too, sorted by name."""
        pools = self._cluster.pools
        return {name: len(pools.conflicting_nodes(name)) for name in pools.names()}

    def waiting(self) -> dict[str, dict[str, int]]:
        """Return per pool the number of pods in its queue by state."""
        queues = sorted(self._cluster.queues.items())
        return {
            name: {state.name.lower(): count for state, count in queue.counts().items() if count}
            for name, queue in queues
        }

    def held(self) -> dict[tuple[str, ConstraintKind], int]:
        """Return the number of pods that an unsupported constraint holds, by home pool and kind."""
        held = [(name, queue.held()) for name, queue in sorted(self._cluster.queues.items())]
        return {(name, kind): count for name, kinds in held for kind, count in sorted(kinds.items())}

    def set_tenants(self, settings: TenantSettings) -> None:
        """Let the configuration of tenant queues be as it is now."""
        if settings != self._cluster.tenants.settings:
            self.observe(TenantsConfigured(settings), self._cluster.now)

    def self_check(self, now: float) -> tuple[Violation, ...]:
        """Check the next part of the state where that is due and no pool is ready; return the violations."""
        due = self._self_check.is_due(now, busy=bool(self.ready(now)))
        return self._self_check.look(self._cluster, now) if due else ()

    def digest(self) -> dict[str, str | int]:
        """Return the state as a few numbers and a hash, for the report of a violation."""
        return digest(self._cluster)

    def still_assumed(self, uid: str, decision: str) -> bool:
        """Return whether the pod of this uid is still assumed by this decision."""
        return self.is_assumed(uid) and self._cluster.records[uid].decision == decision

    def is_assumed(self, uid: str) -> bool:
        """Return whether the pod of this uid is assumed: no event has shown it on its node yet."""
        record = self._cluster.records.get(uid)
        return record is not None and record.state is PodState.ASSUMED

    def still_evicts(self, uid: str, decision: str) -> bool:
        """Return whether the eviction of this pod by this decision is still asked for."""
        asked = self._cluster.leaving_pods.asked.get(uid)
        return asked is not None and asked.decision == decision

    def has_node(self, name: str) -> bool:
        """Return whether a node of this name exists."""
        return self._cluster.nodes.has(name)

    def assumed(self) -> int:
        """Return the number of assumed pods."""
        return len(self._cluster.reservations.unsettled)

    def why(self, uid: str) -> str:
        """Return the last reason of a waiting pod; empty where there is none."""
        found = self._cluster.records.get(uid)
        return found.message if found is not None and found.queue else ""

    def _observe_reads(self, event: ReadAnswer, now: float) -> None:
        cluster = self._cluster
        match event:
            case Refreshed(""):
                pools_listed(cluster, now)
            case RefreshFailed("", message):
                pools_unlisted(cluster, message)
            case Refreshed(pool):
                view_refreshed(cluster, now)
                refreshed(cluster, pool, now)
            case RefreshFailed(pool, message):
                refresh_failed(cluster, pool, message, now)

    def _step(self, what: tuple[Step, str], pool: str, actions: list[Action], step: Callable[[], None]) -> bool:
        """Run one step of a decision, with recovery from an exception; return whether it succeeded."""
        cluster = self._cluster
        decisions = cluster.decisions
        try:
            step()
            if cluster.deferred.failed:
                set_aside(cluster)
        except Exception as error:  # noqa: BLE001 - a bug costs one step, not the slice
            actions += step_failed(cluster, Doing(*what, pool), decisions, actions, error)
            return False
        return True

    def _event_failed(self, event: Event, error: Exception) -> list[Action]:
        """Rebuild the state after an event whose handling failed; return the actions."""
        return event_failed(self._cluster, event, error, lambda again: self._take(again, self._cluster.now))

    def _try_some(self, pool: str, actions: list[Action], limit: int, checks: Checks) -> None:
        """Try pods of the queue up to the cost `limit`, one in any case; `checks` of the slice were spent already.

        Room that a pod leaves is offered before the next is tried.
        """
        cluster, unit_pods, cost = self._cluster, 0, min(checks.spent, limit - 1)
        rows = cluster.deferred.look_at(pool).rows
        while cost < limit and (not rows or self._may_try(pool)):
            queue = cluster.queues[pool]  # another one after an exception
            record = queue.pop()
            if record is None:
                return
            unit_pods += len(record.together) if record.unit is not None else 0
            cost += self._try(queue, record, actions)
            rows = cluster.deferred.look_at(pool).rows
            if rows and checks.left > 0:
                before = checks.spent
                self._do(ROWS, pool, checks, actions)
                cost += checks.spent - before
                rows = cluster.deferred.look_at(pool).rows
            if unit_pods >= UNIT_PODS_MAX or (checks.left <= 0 and rows):
                return

    def _may_try(self, pool: str) -> bool:
        """Return whether pods are tried although the pool has changed rows."""
        return self._cluster.queues[pool].lively and lets_pass(self._cluster, pool)

    def _try(self, queue: PoolQueue, record: PodRecord, actions: list[Action]) -> int:
        """Try one pod; its actions are dropped if its attempt raises. Return the cost."""
        cluster, now = self._cluster, self._cluster.now
        before = before_attempt(cluster, record)
        own: list[Action] = []
        try:
            warn_pod(cluster, record, own)
            cost = attempt(cluster, queue, record, own, now)
            if cluster.deferred.failed:
                set_aside(cluster)
        except Exception as error:  # noqa: BLE001 - a bug costs one attempt, not the slice
            actions += self._attempt_failed(queue, record, before, own, error)
            return SEARCH_COST
        actions += own
        return cost

    def _attempt_failed(
        self, queue: PoolQueue, record: PodRecord, before: Before, own: list[Action], error: Exception
    ) -> list[Action]:
        """Undo a failed attempt; return the actions."""
        doing, cause = Doing(Step.ATTEMPT, "trying a pod", queue.pool, record), error.__cause__
        if isinstance(error, NoProposalError) and isinstance(cause, Exception):
            error = cause
            if not self._cluster.nodes.torn:
                return proposal_failed(self._cluster, doing, before, error)
        return attempt_failed(self._cluster, doing, before, own, error)

    def _begin_reads(self, pool: str, actions: list[Action]) -> None:
        """Request the reads of Pools that can begin now."""
        self._step(READING, pool, actions, lambda: actions.extend(begin_reads(self._cluster)))

    def _do_tasks(self, pool: str, checks: Checks, actions: list[Action]) -> None:
        """Do a part of each task of the pool's agenda."""
        for task in TASKS:
            if task.waits(self._cluster.deferred.look_at(pool)) and not self._do(task, pool, checks, actions):
                return  # the state was built anew, with empty agendas

    def _do(self, task: Task, pool: str, checks: Checks, actions: list[Action]) -> bool:
        """Do a part of a task; return whether it succeeded."""
        checks.allow_one()
        return self._step(task.step, pool, actions, lambda: task.do(Part(self._cluster, pool, checks, actions)))

    def _let_time_act(self, actions: list[Action], now: float) -> None:
        """Do what is due, before the queue is flushed: the five-minute flush must not count pods that this wakes."""
        cluster = self._cluster
        time = partial(self._step, (Step.TIME, "doing deferred work"), DEFAULT_POOL, actions)
        time(partial(end_windows, cluster, now))
        for name in [name for name in cluster.edits.last if name not in cluster.edits.windows]:
            pool = cluster.edits.last.pop(name)
            try:
                pool_seen(cluster, pool, now)
            except Exception as error:  # noqa: BLE001 - a bug costs one edit, not the slice
                actions += self._event_failed(Seen(pool), error)
        due: list[Node] = []
        time(lambda: due.extend(due_nodes(cluster, now)))
        for node in due:
            try:
                cluster.unknown_pools.late.pop(node.name, None)
                node_seen(cluster, node, now)
            except Exception as error:  # noqa: BLE001 - a bug costs one node's wake-ups, not the slice
                actions += self._event_failed(Seen(node), error)
        if cluster.tenants.shields or cluster.tenants.resumes:
            time(partial(shields_end, cluster, now))
            time(partial(resume_jobs, cluster, now))
        time(partial(look_again, cluster, now))
        time(partial(flush, cluster, now))
