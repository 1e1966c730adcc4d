"""The production engine with checks: every decision and every state in a test is checked against all invariants."""

from collections.abc import Iterator
from contextlib import contextmanager

from aischeduler.engine.nominator import lifted_for, without
from aischeduler.engine.profile import Profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.framework.plugin import ResourceIgnoring
from aischeduler.model.actions import Action, Bind, Evict, Refresh
from aischeduler.model.events import BindRefused, Event, EvictRefused, Gone, Refreshed, Seen
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.tenant_queue import TenantSettings
from aischeduler.policies.preemption import fits_after_departures
from aischeduler.policies.unit_preemption import UnitCandidate, choose_unit_victims
from aischeduler.state.pod_records import PodRecord, PodState, Unit
from tests.build import replace
from tests.invariants.decisions import judge
from tests.invariants.reports import check_reports
from tests.invariants.state import check
from tests.invariants.stuck import stuck
from tests.pool_rules_oracle import Oracle


def answers(actions: list[Action]) -> list[Event]:
    """Return the events of a shell that has seen every object: no other Pool exists."""
    return [Refreshed(action.pool) for action in actions if isinstance(action, Refresh)]


class CheckedScheduler(Scheduler):
    """Checks each decision and the state after it; with `closely` also after each event, and that no pod waits in vain.

    With `often` False the state is checked only by `look`.
    """

    def __init__(self, profile: Profile, run: str, *, closely: bool = True, often: bool = True) -> None:
        super().__init__(profile, run)
        self.oracle = Oracle(
            profile.scheduler_name,
            preemption=profile.preemption,
            unit_of=self._cluster.unit_name,
            rare=profile.rare_types,
            groups=profile.machine_groups,
            tenants=profile.tenants,
        )
        self.oracle.devices.hami = profile.hami
        self.closely = closely
        self.often = often
        self._held_back: dict[str, Seen] = {}
        """Pools by name -> an edit that is not in force yet."""
        self._bound: dict[str, str] = {}
        """Pods by uid -> node to which they were sent, while that was not refused."""
        self._evicted: dict[str, Evict] = {}
        """Victims by uid -> their eviction, while it was not refused."""
        self._trips: dict[str, tuple[str, ...]] = {}
        """Pods that wait abroad by uid -> the pools in which they were seen since they last waited at home."""

    def set_tenants(self, settings: TenantSettings) -> None:
        super().set_tenants(settings)
        self.oracle.tenants.settings = settings

    def observe(self, event: Event, now: float) -> None:
        self.oracle.tenants.now = now
        try:
            super().observe(event, now)
        finally:  # what the engine fails to take in counts all the same
            if (
                isinstance(event, Seen)
                and isinstance(event.object, Pool)
                and event.object.name in self._cluster.edits.last
            ):
                self._held_back[event.object.name] = event
            else:
                self.oracle.observe(self._as_counted(event))
            self._note(event)
        if self.closely and self.often:
            self.look()

    def _note(self, event: Event) -> None:
        """Forget what the event ends."""
        match event:
            case BindRefused(uid) | Gone("Pod", (uid,)):
                self._bound.pop(uid, None)
            case Seen(Pod() as pod) if pod.finished:
                self._bound.pop(pod.uid, None)
            case EvictRefused(uid):
                self._evicted.pop(uid, None)
            case Gone("Pool", (name,)):
                self._held_back.pop(name, None)

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        self.oracle.tenants.now = now
        not_in_line = self._not_in_line()
        actions = super().decide(pool, now, limit)
        not_in_line |= self._not_in_line()
        violations = judge(self._cluster, actions)
        assert not violations, violations
        self._release_edits()
        broken = self.oracle.judge(actions, not_in_line)
        assert not broken, broken
        for action in actions:
            match action:
                case Bind(pod, node):
                    assert pod.uid not in self._bound, f"{pod.uid} is bound twice"
                    self._bound[pod.uid] = node
                case Evict():
                    self._note_eviction(action)
        self._follow_trips()
        if self.often:
            self.look()
        return actions

    def _as_counted(self, event: Event) -> Event:
        """Return the event without the requests that the profile ignores, of which the oracle knows nothing."""
        rules = [rule for rule in self._cluster.profile.plugins.filters if isinstance(rule, ResourceIgnoring)]
        pod = event.object if isinstance(event, Seen) else None
        if not isinstance(pod, Pod) or not any(rule.ignores_any for rule in rules):
            return event
        request = pod.spec.request
        counted = {name: one for name, one in request.amounts.items() if not any(rule.ignores(name) for rule in rules)}
        return Seen(replace(pod, spec=replace(pod.spec, request=replace(request, amounts=counted))))

    def _not_in_line(self) -> set[str]:
        """Return the pods that may be overtaken, as "Home pool" in docs/concepts.md says.

        They back off, or they are held, among others while their Pool is read.
        """
        queues = self._cluster.queues.values()
        return {
            record.pod.uid
            for queue in queues
            for record in queue.records()
            if record.state in (PodState.BACKOFF, PodState.HELD)
        }

    def _release_edits(self) -> None:
        """Tell the oracle of the edits of a Pool that are in force now: one of many edits is in force later."""
        for name in [name for name in self._held_back if name not in self._cluster.edits.last]:
            event = self._held_back.pop(name)
            if name in self._cluster.pools.pools:
                self.oracle.observe(event)

    def _follow_trips(self) -> None:
        """Check that no pod comes twice to a lender before it has waited at home again."""
        for queue in self._cluster.queues.values():
            for record in queue.records():
                trip = self._trips.get(record.pod.uid, ())
                if not record.visited:
                    self._trips.pop(record.pod.uid, None)
                elif record.borrower and trip[-1:] != (record.queue,):
                    assert record.queue not in trip, f"{record.pod.uid} comes to {record.queue} again: {trip}"
                    assert set(trip) <= set(record.visited), f"{record.pod.uid} forgets where it was: {trip}"
                    self._trips[record.pod.uid] = (*trip, record.queue)

    def look(self, *, closely: bool = False) -> None:
        """Check every invariant now, and with `closely` that no pod waits in vain."""
        violations = check(self._cluster)
        assert not violations, violations
        if self._status.due_at(self._cluster) is None:
            violations = check_reports(self._cluster)
            assert not violations, violations
        if self.closely or closely:
            lost = stuck(self._cluster)
            assert not lost, lost

    def _of_one_claim(self, other: Evict, evict: Evict) -> bool:
        """Return whether a claim was made over both victims, of which one was to be asked first."""
        claim = self._cluster.claims.of(evict.beneficiary.uid) if evict.beneficiary is not None else None
        return claim is not None and {other.victim.uid, evict.victim.uid} <= {*claim.victims}

    def _note_eviction(self, evict: Evict) -> None:
        uid, asker = evict.victim.uid, evict.beneficiary
        assert uid not in self._evicted, f"{uid} is evicted twice"
        if asker is not None:
            earlier = [
                other.victim.uid
                for other in self._evicted.values()
                if other.beneficiary is not None
                and other.beneficiary.uid == asker.uid
                and other.decision != evict.decision
                and not self._of_one_claim(other, evict)
                and other.node != evict.node
            ]
            for other in earlier:
                assert not self._would_do(other, asker.uid), (
                    f"{uid} is evicted for {asker.uid}, for whom {other} leaves"
                )
        self._evicted[uid] = evict

    def _would_do(self, victim: str, asker: str) -> bool:
        """Say whether the room of an earlier victim, who still leaves, would do for the pod after all."""
        cluster = self._cluster
        record, owner = cluster.records.get(victim), cluster.records.get(asker)
        if record is None or owner is None or record.counted is None or not cluster.leaving(victim):
            return False
        if cluster.pool_of(record.row) != owner.home:
            return False
        with self._latest_victims_stay(owner), without(cluster, lifted_for(cluster, owner, owner.home)):
            if owner.leads is not None:
                return self._unit_needs_no_other(owner, owner.leads)
            return fits_after_departures(owner.pod.spec, cluster.runner, cluster.running, record.row)

    @contextmanager
    def _latest_victims_stay(self, owner: PodRecord) -> Iterator[None]:
        """Let the victims of the last decision for a pod stay."""
        cluster, running = self._cluster, self._cluster.running
        latest = running.slots_of(
            uid for uid, asked in cluster.leaving_pods.asked.items() if asked.decision == owner.decision
        )
        running.table["leaving"][latest] = False
        try:
            yield
        finally:
            running.table["leaving"][latest] = True

    def _unit_needs_no_other(self, owner: PodRecord, unit: Unit) -> bool:
        """Say whether a unit would fit now."""
        cluster, running = self._cluster, self._cluster.running
        request, rows = cluster.unit_request(unit, owner.home), cluster.nodes.rows_of_pool(cluster.pools.id(owner.home))
        found = choose_unit_victims(request, cluster.runner, running, rows, cluster.budgets)
        return isinstance(found, UnitCandidate) and not found.victims
