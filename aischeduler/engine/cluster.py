"""The state of the engine: nodes, pools, pod records, queues, claims, loans, and actions to return.

Invariants:
- Every pool has exactly one queue; a waiting pod is in exactly one.
- A pod counts in the node table, and among the running pods, exactly while its record has a row.
- A loan is counted exactly while a pod of this scheduler counts on a row of a pool that is not its home pool.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from aischeduler.engine.cluster_parts import Edits, LeavingPods, Said
from aischeduler.engine.counters import Counters
from aischeduler.engine.deferred_work import DeferredWork, Freshness, Promise, UnknownPools
from aischeduler.engine.elastic_pods import job_of
from aischeduler.engine.pod_classes import PodClasses
from aischeduler.engine.pod_counting import count_again, follow_accounts, interest_of, planned, pods_on_rows
from aischeduler.engine.profile import Profile
from aischeduler.engine.reservations import Reservations
from aischeduler.engine.search_cache import Searches
from aischeduler.framework.plugin import PlacementRequest
from aischeduler.framework.runner import make_runner
from aischeduler.model.actions import Action
from aischeduler.model.card_shares import asks_for_cards
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.model.workload import ServiceType, Tenancy
from aischeduler.policies.borrowing import BorrowingContext
from aischeduler.policies.eviction_order import Loss, Preemptor, TenantPreemptor
from aischeduler.policies.placement import placement_strategy
from aischeduler.policies.unit_capacity import UnitCapacity
from aischeduler.policies.unit_placement import UnitRequest, labels_of_placed, total_of
from aischeduler.state.cards import Cards
from aischeduler.state.claims import Claims
from aischeduler.state.counted_pods import NO_INTEREST
from aischeduler.state.disruption_budgets import BudgetTable
from aischeduler.state.elastic_jobs import ElasticJobs
from aischeduler.state.held_by_account import HeldByAccount
from aischeduler.state.label_index import Mask
from aischeduler.state.ledger import NO_CARD, QUEUE, UNNAMED_CARD, Account, Ledger
from aischeduler.state.node_table import NO_POOL, NodeTable
from aischeduler.state.pod_records import NOWHERE, PodRecord, PodState, Unit
from aischeduler.state.pod_sets import PodSets
from aischeduler.state.pool_table import PoolTable
from aischeduler.state.running_pods import RunningPods
from aischeduler.state.scheduling_queue import PoolQueue
from aischeduler.state.tenants import Tenants
from aischeduler.state.transitions import Transition, change_state
from aischeduler.state.units import Units

WARNINGS_MAX: Final = 10_000
"""The most objects whose last warning is kept; a dropped object may get a warning again."""


class Cluster:
    """The state of one engine. `run` makes decision ids unique over restarts.

    `now` is the time of the current call in unix seconds, and `decisions` the number of decisions so far. With each
    `start` of the state, its versions begin again.
    """

    def __init__(self, profile: Profile, run: str) -> None:
        self.now, self.decisions, self.start, self._run, self._arrivals = 0.0, 0, 0, run, 0
        self.profile, self.classes, self.counters = profile, PodClasses(profile), Counters()
        self.quotas_of_plugins = any(plugins.quotas for plugins in (profile.plugins, *profile.others.values()))
        self.tenants = Tenants(profile.tenants)
        self.devices_listed = True
        """Whether all Device objects are known; a shell that lists them says when."""
        self.leaving_pods, self.edits, self.said = LeavingPods(), Edits(), Said()
        self.reservations, self.unknown_pools, self.freshness = Reservations(profile), UnknownPools(), Freshness()
        self.clear()

    def clear(self) -> None:
        """Begin again without objects, queues and deferred work; what was asked, kept and said of objects stays."""
        self.start += 1
        profile, self.deferred = self.profile, DeferredWork()
        served, self.tenants = self.tenants.queues.served, Tenants(self.tenants.settings)
        self.tenants.queues.serve(served=served)
        self.tenants_changed()
        self.nodes = NodeTable(Cards(profile.gpu_type_labels, profile.rare_types, profile.gpu_resources))
        self.nodes.devices.hami = profile.hami
        self.nodes.pod_counts.pods_on_rows = partial(pods_on_rows, self)
        self.pools = PoolTable(self.nodes, profile.default_pool)
        self.runner = make_runner(profile.plugins, profile.others, self.nodes)
        for allocator in (
            allocator for plugins in (profile.plugins, *profile.others.values()) for allocator in plugins.allocators
        ):
            if allocator.part not in self.nodes.parts:
                self.nodes.parts[allocator.part] = allocator.make_part(self.nodes)
        self.records: dict[str, PodRecord] = {}
        self.naming: dict[str, dict[str, PodRecord]] = {}
        """Pool name -> the records of the pods that name it, by uid."""
        self.queues: dict[str, PoolQueue] = {}
        self.add_queue(DEFAULT_POOL)
        self.running, self.ledger = RunningPods(), Ledger()
        self.claims, self.held = Claims(self.nodes, self.ledger, partial(planned, self)), HeldByAccount()
        self.units, self.pod_sets, self.elastic = Units(), PodSets(), ElasticJobs()
        self.budgets = BudgetTable(lambda uid: self.records[uid].pod, obeyed=profile.obeys_budgets)
        parts = self.pools, self.queues, self.claims, self.ledger, self.runner
        capacity = UnitCapacity(self.runner, self.running, self.claims)
        self.borrowing = BorrowingContext(*parts, profile.preemption, self.unit_request, capacity)
        self.searches = Searches()

    def tenants_changed(self) -> None:
        """Note whether pods may be in queues, and count in an account of a quota, after queues came or went."""
        self.tenants.note_use()
        self.has_quotas = self.quotas_of_plugins or self.tenants.queues.in_force

    @property
    def capacity(self) -> UnitCapacity:
        """What rows may hold of units, by amounts."""
        return self.borrowing.capacity

    def add_queue(self, pool: str) -> None:
        """Add the queue of a new pool."""
        self.queues[pool] = PoolQueue(pool, self.nodes, self.deferred.queue_changes, self.profile.backoff)

    def next_decision(self) -> str:
        """Return the id of a new decision."""
        self.decisions += 1
        return f"{self._run}-{self.decisions}"

    def next_arrival(self) -> int:
        """Return the arrival number of a new pod."""
        self._arrivals += 1
        return self._arrivals

    def say(self, pool: str, action: Action) -> None:
        """Put an action into the outbox of this pool, or of the default pool where this pool does not exist."""
        self.said.outbox.setdefault(pool if pool in self.queues else DEFAULT_POOL, []).append(action)

    def warned(self, about: str, message: str) -> bool:
        """Return whether this warning is new for the object, and keep it."""
        return self.said.is_new(about, message)

    def ask(self, spec: PodSpec, pool: str, home: str, shut: Mask | None = None) -> PlacementRequest:
        """Return the placement request for a pod of this class in this pool; `home` is its home pool.

        The rows of `shut` are closed to it too.
        """
        strategy = placement_strategy(self.pools.pools[pool], spec, self.profile.gpu_resources)
        cards = self.nodes.cards
        closed = cards.closed_to_home(self.nodes, self.pools.id(home)) if cards.rare else None
        if shut is not None:
            closed = shut if closed is None else closed | shut
        return PlacementRequest(spec, strategy, closed)

    def unit_request(
        self, unit: Unit, pool: str, others: tuple[PodRecord, ...] = (), shut: Sequence[Mask | None] = ()
    ) -> UnitRequest:
        """Return the placement request of a unit in this pool: its required pods, then these others as room allows.

        The rows of `shut` are closed to the pod of the same number, and to all that are like it, of whatever queue.
        """
        pods = tuple(record.pod for record in (*unit.together, *others))
        home = unit.together[0].home
        closed: dict[bytes, Mask] = {}
        for pod, mask in zip(pods, shut, strict=False):
            if mask is not None:
                before = closed.get(pod.spec.key)
                closed[pod.spec.key] = mask if before is None else before | mask
        specs = {pod.spec.key: pod.spec for pod in pods}
        ask_of = {key: self.ask(spec, pool, home, closed.get(key)) for key, spec in specs.items()}
        asks = tuple(ask_of[pod.spec.key] for pod in pods)
        topology = unit.gang.topology if unit.gang is not None else ()
        beside = labels_of_placed(unit, self.nodes) if topology else ()
        return UnitRequest(pods, asks, unit.required, self._unit_preemptor(unit), topology, beside)

    def preemptor_of(self, record: PodRecord) -> Preemptor:
        """Return what decides who goes for a pod, or for the unit that it leads."""
        if record.leads is not None:
            return self._unit_preemptor(record.leads)
        tenant = self._tenant_preemptor(record) if self.tenants.queues.in_force else None
        return Preemptor(record.pod.priority, tenant=tenant, elastic=job_of(self, record) is not None)

    def _unit_preemptor(self, unit: Unit) -> Preemptor:
        lead, loss = unit.together[0], Loss(self.profile.gpu_resources, int(self.now))
        tenant = self._tenant_preemptor(lead) if self.tenants.queues.in_force else None
        return Preemptor(unit.priority, loss, tenant, elastic=job_of(self, lead) is not None)

    def _tenant_preemptor(self, record: PodRecord) -> TenantPreemptor:
        tenants, tenancy = self.tenants, record.tenancy
        if not tenancy.queue:
            return TenantPreemptor(0, 0, None)
        queue = tenants.queue_of(record)
        priority = queue.priority if queue is not None else 0
        service = tenancy.service if tenancy.known else ServiceType.TRAINING  # it may be: it evicts nobody until then
        unit = record.unit.number if record.unit is not None and record.unit.started else 0
        return TenantPreemptor(tenants.number(tenancy.queue), priority, service, unit)

    def request_of(
        self, record: PodRecord, pool: str, shut: Sequence[Mask | None] = ()
    ) -> PlacementRequest | UnitRequest:
        """Return the placement request of a pod, or of the unit that it leads, in this pool; `shut` as above."""
        if record.leads is not None:
            return self.unit_request(record.leads, pool, (), shut)
        return self.ask(record.pod.spec, pool, record.home, shut[0] if shut else None)

    def total(self, record: PodRecord) -> PodSpec:
        """Return a spec with the requests of a pod, or of the required pods of the unit that it leads."""
        sizes = self.nodes.cards.gpu_memories(self.nodes)
        if record.leads is None:
            return total_of((record.pod.spec,), sizes)
        return self.unit_request(record.leads, record.home).total(sizes)

    def gate_of(self, pod: Pod) -> str:
        """Return why a gate holds the pod; empty where none does."""
        return next((reason for gate in self.profile.plugins_of(pod).gates if (reason := gate.holds(pod))), "")

    def forget_pool(self, name: str) -> None:
        """Drop everything of a pool that is gone; the default pool's decision returns the actions of its outbox."""
        self.deferred.agendas.pop(name, None)
        self.deferred.queue_changes.versions.pop(name, None)
        self.freshness.forget(name)
        self.counters.forget(name)
        self.said.outbox.setdefault(DEFAULT_POOL, []).extend(self.said.forget(name))

    def ours(self, pod: Pod) -> bool:
        """Return whether this scheduler schedules the pod."""
        return pod.scheduler_name in self.classes.names

    def pool_of(self, row: int) -> str:
        """Return the pool of a row; empty where the row is in none."""
        number = int(self.nodes.pool[row])
        return "" if number == NO_POOL else self.pools.name(number)

    def unit_name(self, pod: Pod) -> str:
        """Return the name of the pod's unit; empty where it has none."""
        policy = self.profile.plugins_of(pod).units
        return policy.unit_of(pod) if policy is not None and self.ours(pod) else ""

    def row_changed(self, row: int, *, offers: bool = True, loans: bool = False) -> None:
        """Have the row's pool check the claims there; `offers` has its room offered too, `loans` its loans checked."""
        pool = self.pool_of(row)
        if pool:
            self.deferred.on_row(pool, row, offers=offers, loans=loans)

    def review_loans(self, row: int) -> None:
        """Note that the loans on the row changed: the next decision of its pool checks them."""
        pool = self.pool_of(row)
        if pool:
            self.deferred.review((pool,))

    def enroll(self, record: PodRecord) -> None:
        """Add a new record."""
        pod = record.pod
        unit, interest, ours = self.unit_name(pod), interest_of(self, pod), self.ours(pod)  # first: a plugin may raise
        self.records[pod.uid] = record
        self.units.join(record, unit)
        if ours and (self.tenants.in_use or (self.tenants.queues.in_force and pod.terms is not None)):
            self.tenants.join(record)  # others do once they may be in a queue
        elif ours and pod.owner and (pod.gang is not None or self.elastic.by_key):
            self.tenants.note_workloads(record)
        if pod.pool:
            self.naming.setdefault(pod.pool, {})[pod.uid] = record
        if ours and pod.volume_claims:
            self.nodes.storage.use(record)
        if ours or interest:
            self.nodes.pod_counts.use(pod.spec, interest)
        if pod.spec.devices is not None and self.nodes.devices.active:
            self._note_request(pod.spec)

    def _note_request(self, spec: PodSpec) -> None:
        """Let what a new pod asks of GPUs be expected again; what is kept of scores may not hold any more."""
        devices = self.nodes.devices
        version = devices.recent.version
        devices.recent.note(devices.shape_of(spec))
        fragmentation = PlacementStrategy.FRAGMENTATION
        if devices.recent.version != version and any(p.placement is fragmentation for p in self.pools.pools.values()):
            self.nodes.touch_rows()

    def strike(self, record: PodRecord) -> None:
        """Remove a record."""
        pod = record.pod
        interest = interest_of(self, pod)  # first: a plugin may raise
        del self.records[pod.uid]
        self.held.drop(pod.uid)
        change_state(record, Transition.GONE)
        self.units.leave(record)
        if self.ours(pod):
            self.tenants.leave(record)
        if self.ours(pod) or interest:
            self.nodes.pod_counts.disuse(pod.spec, interest)
        self._unname(pod)
        self.unknown_pools.missing.pop(pod.uid, None)
        if pod.volume_claims:
            self.nodes.storage.drop(record)

    def rename(self, record: PodRecord, pod: Pod) -> None:
        """Update the pod of a record."""
        changed = record.pod.spec.key != pod.spec.key
        new, old = (interest_of(self, pod), interest_of(self, record.pod)) if changed else (NO_INTEREST, NO_INTEREST)
        unit = self.unit_name(pod)
        if record.pod.pool != pod.pool:
            self._unname(record.pod)
            if pod.pool:
                self.naming.setdefault(pod.pool, {})[pod.uid] = record
        before = record.pod
        tenancy = self._retenant(record, pod)
        if unit != (record.unit.name if record.unit is not None else ""):
            self.units.leave(record)
            self.units.join(record, unit)
        if record.unit is not None:
            self.units.renamed(record, before)
        if changed and (new or old or self.ours(pod)):
            self.nodes.pod_counts.use(pod.spec, new)
            self.nodes.pod_counts.disuse(before.spec, old)
        if before.labels != pod.labels or before.terminating != pod.terminating:
            count_again(self, before, record)
        if self.has_quotas and (tenancy != record.tenancy or self._plain(before) != self._plain(pod)):
            follow_accounts(self, record)

    def forget_eviction(self, uid: str) -> bool:
        """Drop the requested eviction of a pod; return whether there was one."""
        if uid in self.leaving_pods.asked:
            self.units.touch(self.records[uid])
        return self.leaving_pods.asked.pop(uid, None) is not None

    def leaving(self, uid: str) -> bool:
        """Return whether a pod on a row counts as leaving: terminating, or its eviction is requested or planned."""
        return self.leaving_pods.has(uid) or uid in self.claims.planned

    def on_row(self, row: int) -> tuple[PodRecord, ...]:
        """Return the records of the pods on a row, in the order of their uids."""
        return tuple(self.records[uid] for uid in self.running.on_row(row))

    def queue_of(self, record: PodRecord) -> PoolQueue:
        """Return the queue in which the pod waits."""
        return self.queues[record.queue]

    def leave_queue(self, record: PodRecord, now: float) -> None:
        """Remove a waiting pod from its queue; if it was about to be tried, wake the next pod of its class."""
        queue = self.queue_of(record)
        tried = record.state in (PodState.ACTIVE, PodState.BACKOFF)
        queue.remove(record)
        if tried:
            self.wake_alike(record, now)

    def offer(self, record: PodRecord, row: int) -> None:
        """Note that a pod was woken for the room of a row."""
        record.offered = row
        self.deferred.offers.setdefault(row, {})[record.pod.uid] = record.pod.spec
        if record.leads is not None:
            self.deferred.promised[record.pod.uid] = Promise(self.pool_of(row), len(record.together))

    def withdraw(self, record: PodRecord) -> None:
        """Remove the offer to a pod that is about to be tried, or to leave.

        Rows that were offered beside a unit are offered again: what was promised to it may have been kept from others.
        """
        if record.offered == NOWHERE:
            return
        promise = self.deferred.promised.pop(record.pod.uid, None)
        for row in promise.rows if promise is not None else ():
            self.row_changed(row)
        offered = self.deferred.offers.get(record.offered, {})
        if offered.pop(record.pod.uid, None) is not None and not offered:
            del self.deferred.offers[record.offered]

    def wake_alike(self, record: PodRecord, now: float) -> None:
        """Wake the next parked pod of this class in its home queue: what helped this pod may help that one.

        A pod that was woken for a row wakes none: as many pods as the row has room for were woken with it.
        """
        queue = self.queues.get(record.home)
        if queue is not None and record.offered == NOWHERE:
            queue.wake_next(record, now)

    def accounts_of(self, record: PodRecord, row: int) -> tuple[Account, ...]:
        """Return the accounts in which a pod counts by its quotas, on this row or as the owner of a claim there."""
        if not self.has_quotas:
            return ()
        plain, queue = self._plain(record.pod), self.tenants.queue_of(record)
        if queue is None:
            return plain
        of_queues = self.tenants.queues.accounts(queue.name, self._card_of(record, row))
        return (*plain, *of_queues) if plain else of_queues

    def holders(self, record: PodRecord) -> tuple[Account, ...]:
        """Return what may hold a pod, or the unit that it leads: accounts of plugins, and all accounts of a queue."""
        found: dict[Account, None] = {}
        for member in record.together:
            found |= dict.fromkeys(account[:2] for account in self._plain(member.pod))
            found |= dict.fromkeys((QUEUE, queue.name) for queue in self.tenants.chain(member))
        return tuple(found)

    def turn_is_lost(self, record: PodRecord) -> None:
        """Have the next pod tried that quotas held, after one was woken and left its turn without being tried."""
        if self.held:
            self.ledger.shrunk.update(account for account in self.holders(record) if account[0] == QUEUE)

    def _plain(self, pod: Pod) -> tuple[Account, ...]:
        """Return the accounts of a pod by the quotas of plugins."""
        if not self.quotas_of_plugins:
            return ()
        return tuple(account for quota in self.profile.plugins_of(pod).quotas for account in quota.accounts_of(pod))

    def _card_of(self, record: PodRecord, row: int) -> str:
        """Return the card on which a pod counts on a row; that of a node that is gone is the last one known."""
        if not asks_for_cards(record.pod.spec, self.profile.gpu_resources):
            return NO_CARD
        if self.nodes.nodes[row] is None:
            known = next((account[2] for account in record.accounts if account[0] == QUEUE), UNNAMED_CARD)
            return known if record.row == row else UNNAMED_CARD
        return self.nodes.cards.card_on(self.nodes, row) or UNNAMED_CARD

    def _retenant(self, record: PodRecord, pod: Pod) -> Tenancy:
        """Let a record have this pod, and be in its queue; return its tenancy before."""
        tenancy, before = record.tenancy, record.pod
        same = before.terms == pod.terms and before.owner == pod.owner and before.gang == pod.gang
        if same or not self.ours(pod):
            record.pod = pod
            if record.waits_with is not None and record.waits_with is not pod.spec:
                self.tenants.waits(record)
            return tenancy
        self.tenants.leave(record)
        record.pod = pod
        self.tenants.join(record)
        return tenancy

    def _unname(self, pod: Pod) -> None:
        named = self.naming.get(pod.pool)
        if named is not None:
            named.pop(pod.uid, None)
            if not named:
                del self.naming[pod.pool]
