"""All that the engine believes: nodes, pools, pod records, queues, claims, loans, and what is waiting to be said.

Laws:
- Every pool has exactly one queue; a waiting pod is in exactly one.
- A pod counts in the node table, and among the running pods, exactly while its record has a row.
- A loan is counted exactly while a pod of ours counts on a row of a pool that is not its home.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache

from aischeduler.engine.errands import Errands
from aischeduler.engine.news import News
from aischeduler.engine.profile import Profile
from aischeduler.engine.search_cache import Searches
from aischeduler.engine.tally import Tally
from aischeduler.engine.unrest import Versions
from aischeduler.engine.unseen import Freshness, UnknownPools
from aischeduler.framework.plugin import PlacementRequest
from aischeduler.framework.runner import Runner
from aischeduler.model.actions import Action, ReportPool
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import Pool
from aischeduler.model.selectors import Labels
from aischeduler.policies.borrowing import BorrowingContext
from aischeduler.policies.placement import placement_strategy
from aischeduler.state.anti_affinity import AntiAffinity
from aischeduler.state.budgets import BudgetTable
from aischeduler.state.claims import Claims
from aischeduler.state.loans import Loan, Loans
from aischeduler.state.nodes import NodeTable
from aischeduler.state.pool_rows import NO_POOL
from aischeduler.state.pools import PoolTable
from aischeduler.state.queue import PoolQueue, Stir
from aischeduler.state.records import NOWHERE, PodRecord, PodState
from aischeduler.state.running import RunningFacts, RunningPods
from aischeduler.state.storage import Storage
from aischeduler.state.timers import Timers

WARNINGS_MAX: Final = 10_000
"""Objects of which we remember what they were warned of; the oldest may be warned again."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An eviction that was asked for: by which decision, and for whom (uid, or empty where a loan ended).

    `number` is that of the decision, and `read_at` when to read the victim if nothing was heard by then.
    """

    beneficiary: str
    decision: str
    number: int
    read_at: float


class Cluster:
    """The state of one engine. `run` makes decision ids unique over restarts.

    `now` is the time of the call that runs, and `decisions` how many were begun.
    """

    def __init__(self, profile: Profile, run: str) -> None:
        self.now, self.decisions = 0.0, 0
        self.profile = profile
        self.nodes, self.stir = NodeTable(), Stir()
        self.pools = PoolTable(self.nodes, profile.default_pool)
        self.runner = Runner(profile.plugins, self.nodes)
        self.records: dict[str, PodRecord] = {}
        self.naming: dict[str, dict[str, PodRecord]] = {}
        """Pool name that pods ask for -> their records by uid."""
        self.queues: dict[str, PoolQueue] = {}
        self.add_queue(DEFAULT_POOL)
        self.running = RunningPods()
        self.claims = Claims(self.nodes)
        self.loans = Loans()
        self.ended_loans: set[Loan] = set()
        """Loans that ended and whose limits nobody has been told of."""
        self.budgets = BudgetTable(lambda uid: self.records[uid].pod)
        self.namespaces: dict[str, Labels] = {}
        self.storage, self.anti_affinity = Storage(), AntiAffinity()
        self.borrowing = BorrowingContext(
            self.pools, self.queues, self.claims, self.loans, self.runner, profile.preemption
        )
        self.tally = Tally()
        self.unsettled: OrderedDict[str, float] = OrderedDict()
        """Assumed pods by uid -> when to read them if nothing was heard by then; in order of time."""
        self.victims: OrderedDict[str, Asked] = OrderedDict()
        """Pods that we asked to evict and that are not yet seen to terminate; in the order of `read_at`."""
        self.departures = Timers()
        """Terminating pods on nodes, and until when they are believed to leave."""
        self.overstayed: set[str] = set()
        """Terminating pods on nodes that did not leave in that time."""
        self.spared = Timers()
        """Pods that could not be evicted, and until when they are no victims again."""
        self.edits: dict[str, Pool] = {}
        """Pools as they were seen last, where there were too many edits to take each."""
        self.windows = Timers()
        """Pools that were edited, and when edits are counted anew."""
        self.edit_counts: dict[str, int] = {}
        self.turned: dict[str, Loan | None] = {}
        """Running pods that became loans or came home by an edit, by uid -> what they were when that was told last."""
        self.reported: dict[str, ReportPool] = {}
        """Pool -> the status that it was told last."""
        self.errands = Errands()
        self.unknown_pools, self.freshness = UnknownPools(), Freshness()
        self.news = News()
        self.offers: dict[int, dict[str, PodSpec]] = {}
        """Row -> pods that were woken for its room and not tried yet, with what they ask for."""
        self.outbox: dict[str, list[Action]] = {}
        """Pool -> actions that the next decision of its loop carries out."""
        self.searches = Searches()
        self._warned: LRUCache[str, str] = LRUCache(WARNINGS_MAX)
        self._run, self._arrivals = run, 0

    def add_queue(self, pool: str) -> None:
        """Give a new pool its queue."""
        self.queues[pool] = PoolQueue(pool, self.nodes, self.stir, self.profile.backoff)

    def next_decision(self) -> str:
        """Return the id of a new decision."""
        self.decisions += 1
        return f"{self._run}-{self.decisions}"

    def next_arrival(self) -> int:
        """Return the arrival number of a new pod."""
        self._arrivals += 1
        return self._arrivals

    def say(self, pool: str, action: Action) -> None:
        """Leave an action for the loop of this pool, or of the default pool when there is no such pool."""
        self.outbox.setdefault(pool if pool in self.queues else DEFAULT_POOL, []).append(action)

    def warned(self, about: str, message: str) -> bool:
        """Say whether this warning is news for the object, and remember it."""
        news = self._warned.get(about) != message
        self._warned[about] = message
        return news

    def ask(self, spec: PodSpec, pool: str) -> PlacementRequest:
        """Return what a pod of this class asks of this pool."""
        return PlacementRequest(spec, placement_strategy(self.pools.pools[pool], spec, self.profile.gpu_resources))

    def gate_of(self, pod: Pod) -> str:
        """Return why the pod may not be tried yet; empty when it may."""
        return next((reason for gate in self.profile.plugins.gates if (reason := gate.holds(pod))), "")

    def forget_pool(self, name: str) -> None:
        """Keep nothing for a pool that is gone; what was to be told in its loop is told by the default pool's."""
        self.errands.cancel(name)
        self.stir.versions.pop(name, None)
        self.news.forget(name)
        self.freshness.forget(name)
        self.tally.forget(name)
        self.reported.pop(name, None)
        self.outbox.setdefault(DEFAULT_POOL, []).extend(self.outbox.pop(name, []))

    def ours(self, pod: Pod) -> bool:
        """Say whether we schedule this pod."""
        return pod.scheduler_name == self.profile.scheduler_name

    def pool_of(self, row: int) -> str:
        """Return the pool of a row; empty where the row is in none."""
        number = int(self.nodes.pool[row])
        return "" if number == NO_POOL else self.pools.name(number)

    def review_loans(self, row: int) -> None:
        """Note that the loans of the pool that this row is in have changed."""
        pool = self.pool_of(row)
        if pool:
            self.errands.review.add(pool)

    def versions(self) -> Versions:
        """Return the versions of all that the reasons of waiting pods speak of."""
        return (
            self.nodes.version,
            self.running.version,
            self.pools.version,
            self.loans.version,
            self.stir.version,
        )

    def enroll(self, record: PodRecord) -> None:
        """Take a new record in."""
        pod = record.pod
        self.records[pod.uid] = record
        if pod.pool:
            self.naming.setdefault(pod.pool, {})[pod.uid] = record
        if pod.volume_claims and self.ours(pod):
            self.storage.use(record)

    def strike(self, record: PodRecord) -> None:
        """Forget a record for good."""
        pod = record.pod
        del self.records[pod.uid]
        self._unname(pod)
        if pod.volume_claims:
            self.storage.drop(record)
        if record.blocker:
            self.anti_affinity.block(record, "")

    def rename(self, record: PodRecord, pod: Pod) -> None:
        """Take the pod as it now is into its record."""
        if record.pod.pool != pod.pool:
            self._unname(record.pod)
            if pod.pool:
                self.naming.setdefault(pod.pool, {})[pod.uid] = record
        record.pod = pod

    def count(self, record: PodRecord, node: str) -> None:
        """Count a pod on the node of this name; a node that was never seen gets a stub."""
        row = self.nodes.row(node)
        self.nodes.add(record.pod.spec, row)
        self.adopt(record, row)

    def adopt(self, record: PodRecord, row: int) -> None:
        """Note that the node table already counts the pod on this row."""
        record.row, record.counted = row, record.pod.spec
        record.home = self.pools.home(record.pod.pool)
        self.running.add(record.pod.uid, record.pod.spec, row, self._facts(record))
        if record.counted.anti_affinity:
            self.anti_affinity.add(record.pod, record.counted)
        self.book(record)

    def uncount(self, record: PodRecord) -> int:
        """Count a pod on its node no more; return the row that has room now."""
        row, spec = record.row, record.counted
        assert spec is not None
        self._unbook(record)
        self.running.remove(record.pod.uid)
        if spec.anti_affinity:
            self.anti_affinity.remove(record.pod, spec)
        record.row, record.counted = NOWHERE, None
        self.nodes.remove(spec, row)
        return row

    def book(self, record: PodRecord) -> None:
        """Count the pod's loan as its home and the pool of its row now are."""
        loan = self._loan(record, self.pool_of(record.row))
        if loan != record.loan:
            self._unbook(record)
            record.loan = loan
            if loan is not None and record.counted is not None:
                self.loans.count(loan, record.counted, 1)

    def book_rows(self, rows: list[int]) -> None:
        """Count the loans on rows that are in other pools now, those that are alike together."""
        changes: Counter[tuple[Loan, bytes]] = Counter()
        specs: dict[bytes, PodSpec] = {}
        for row in rows:
            pool = self.pool_of(row)
            for record in self.on_row(row):
                loan, spec = self._loan(record, pool), record.counted
                if loan == record.loan or spec is None:
                    continue
                specs[spec.key] = spec
                if record.loan is not None:
                    changes[record.loan, spec.key] -= 1
                    self.ended_loans.add(record.loan)
                if loan is not None:
                    changes[loan, spec.key] += 1
                self.turned.setdefault(record.pod.uid, record.loan)
                record.loan = loan
        for (loan, key), pods in changes.items():
            self.loans.count(loan, specs[key], pods)

    def refresh(self, record: PodRecord) -> None:
        """Take over what changed about a pod on a row: its home, whether it leaves."""
        record.home = self.pools.home(record.pod.pool)
        self.running.change(record.pod.uid, self._facts(record))
        before = record.loan
        self.book(record)
        if record.loan != before:
            self.turned.setdefault(record.pod.uid, before)

    def recount_loans(self) -> None:
        """Count all loans anew, each as what its pod now is."""
        self.loans.clear()
        for record in self.records.values():
            record.loan = None
            if record.counted is not None:
                self.book(record)

    def forget_eviction(self, uid: str) -> bool:
        """Believe no more of a pod that it leaves because we asked it to; say whether we did."""
        return self.victims.pop(uid, None) is not None

    def leaving(self, uid: str) -> bool:
        """Say whether a pod on a row is believed to leave it soon: it terminates, or we asked it to go."""
        return uid in self.victims or uid in self.departures

    def may_go(self, record: PodRecord) -> bool:
        """Say whether a pod on a row may be asked to leave now, as far as it alone decides that."""
        uid = record.pod.uid
        return self._evictable(record.pod) and not self.leaving(uid) and not self._stays(uid)

    def on_row(self, row: int) -> tuple[PodRecord, ...]:
        """Return the pods that count on a row, by uid."""
        return tuple(self.records[uid] for uid in self.running.on_row(row))

    def queue_of(self, record: PodRecord) -> PoolQueue:
        """Return the queue in which the pod waits."""
        return self.queues[record.queue]

    def leave_queue(self, record: PodRecord, now: float) -> None:
        """Take a waiting pod out; one that was about to be tried hands its chance to the next alike."""
        queue = self.queue_of(record)
        tried = record.state in (PodState.ACTIVE, PodState.BACKOFF)
        queue.remove(record)
        if tried:
            self.wake_alike(record, now)

    def offer(self, record: PodRecord, row: int) -> None:
        """Note that a pod was woken for the room of a row."""
        record.offered = row
        self.offers.setdefault(row, {})[record.pod.uid] = record.pod.spec

    def withdraw(self, record: PodRecord) -> None:
        """Take back what a pod was woken for: it is about to be tried, or to leave."""
        if record.offered == NOWHERE:
            return
        offered = self.offers.get(record.offered, {})
        if offered.pop(record.pod.uid, None) is not None and not offered:
            del self.offers[record.offered]

    def wake_alike(self, record: PodRecord, now: float) -> None:
        """Wake the next parked pod of this class in its home queue: what helped one may help another.

        Not after a pod that was woken for a row: as many were woken with it as the row has room for.
        """
        queue = self.queues.get(record.home)
        if queue is not None and record.offered == NOWHERE:
            queue.wake_next(record.pod, now)

    def _facts(self, record: PodRecord) -> RunningFacts:
        pod = record.pod
        return RunningFacts(
            priority=pod.priority,
            borrower=record.home != self.pool_of(record.row),
            evictable=self._evictable(pod) and not self._stays(pod.uid),
            leaving=self.leaving(pod.uid),
            started_seconds=pod.started_seconds,
            home=self.pools.id(record.home),
            ours=self.ours(pod),
        )

    def _evictable(self, pod: Pod) -> bool:
        return self.ours(pod) and not pod.guarded and not pod.critical

    def _stays(self, uid: str) -> bool:
        """Say whether asking the pod to leave came to nothing before, and would now."""
        return uid in self.overstayed or uid in self.spared

    def _unbook(self, record: PodRecord) -> None:
        if record.loan is not None and record.counted is not None:
            self.loans.count(record.loan, record.counted, -1)
            self.ended_loans.add(record.loan)
        record.loan = None

    def _loan(self, record: PodRecord, pool: str) -> Loan | None:
        """Return what a pod on a row of this pool is: a loan, or None at home, or where we do not schedule it."""
        return (pool, record.home) if pool and pool != record.home and self.ours(record.pod) else None

    def _unname(self, pod: Pod) -> None:
        named = self.naming.get(pod.pool)
        if named is not None:
            named.pop(pod.uid, None)
            if not named:
                del self.naming[pod.pool]
