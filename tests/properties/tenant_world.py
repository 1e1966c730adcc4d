"""A world with tenant queues and workloads, whose controllers make evicted pods anew where a test wants it.

The status of a queue is that of the last report, as the API server would have it: its times decide when pods go that
are above a lowered quota, or whose queue drains.
"""

from collections import Counter
from collections.abc import Mapping

from aischeduler.engine.profile import Profile
from aischeduler.model.actions import Action, Evict, EvictionCause, ReportQueue
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.tenant_queue import QueueSource, TenantQueue, TenantSettings
from aischeduler.model.workload import Workload
from aischeduler.state.ledger import QUEUE
from tests.build import replace
from tests.checked_scheduler import CheckedScheduler
from tests.properties.test_gangs import GangWorld
from tests.properties.victims import Victims, decisions


class TenantScheduler(CheckedScheduler):
    """Checks too that no smaller set of victims would do; `victims_checked` counts the decisions that were checked."""

    victims_checked = 0

    def _not_in_line(self) -> set[str]:
        abroad = (one.pod.uid for queue in self._cluster.queues.values() for one in queue.records() if one.borrower)
        return super()._not_in_line() | {*abroad}

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        leaving = frozenset(uid for uid in self._cluster.records if self._cluster.leaving(uid))
        actions = super().decide(pool, now, limit)
        for evicts in decisions(actions):
            victims = Victims(self.oracle, leaving, evicts)
            TenantScheduler.victims_checked += victims.is_checked()
            spared = list(victims.spared())
            assert not spared, spared
        return actions


class TenantWorld(GangWorld):
    """A world with tenant queues and workloads; nodes have cards by their names."""

    def __init__(self, *, often: bool = False) -> None:
        self.queues: dict[tuple[QueueSource, str], TenantQueue] = {}
        self.workloads: dict[tuple[str, str, str], Workload] = {}
        self.settings = TenantSettings()
        self.recreates = False
        """Whether controllers make a pod anew that the scheduler evicted."""
        self.evicted: list[tuple[str, str]] = []
        """Who evicted whom since pods are made anew: the names of pods as they were first, or of gangs."""
        self.taken_back: set[tuple[str, str]] = set()
        """Those of them that only took lent room back."""
        self._first_names: dict[str, str] = {}
        """Pods that were made anew by uid -> the name of the first."""
        self._asked: set[str] = set()
        super().__init__(often=often)

    def profile(self) -> Profile:
        return replace(super().profile(), tenants=self.settings)

    def _start(self) -> CheckedScheduler:
        self.runs += 1
        return TenantScheduler(self.profile(), f"run{self.runs}", often=self._often)

    def configure(self, settings: TenantSettings) -> None:
        """Change the configuration of the running scheduler."""
        self.settings = settings
        self._changed = True
        self.scheduler.set_tenants(settings)

    def declare(self, queue: TenantQueue) -> None:
        """Create or change a queue; the times of its status stay."""
        known = self.queues.get((queue.source, queue.name))
        if known is not None:
            times = (known.over_quota_since_seconds, known.draining_since_seconds)
            queue = replace(queue, over_quota_since_seconds=times[0], draining_since_seconds=times[1])
        self._show(queue)

    def _show(self, queue: TenantQueue) -> None:
        self.queues[queue.source, queue.name] = queue
        self._happens(Seen(queue))

    def end_queue(self, source: QueueSource, name: str) -> None:
        """Delete a queue."""
        if self.queues.pop((source, name), None) is not None:
            self._happens(gone(TenantQueue, str(source), name))

    def employ(self, workload: Workload) -> None:
        """Create or change a workload."""
        self.workloads[workload.key] = workload
        self._happens(Seen(workload))

    def end_workload(self, key: tuple[str, str, str]) -> None:
        """Delete a workload."""
        if self.workloads.pop(key, None) is not None:
            self._happens(gone(Workload, *key))

    def put(self, thing: Pod | Node | Pool | DisruptionBudget) -> None:
        if isinstance(thing, Pod) and thing.node_name and not thing.placed_seconds:
            thing = replace(thing, placed_seconds=1 + int(self.now))
        super().put(thing)

    def end_pod(self, uid: str, *, finished: bool = False) -> None:
        pod = self.pods[uid]
        super().end_pod(uid, finished=finished)
        if self.recreates and uid in self._asked:
            name = self.next_pod_name()
            self._first_names[f"uid-{name}"] = self._first_names.get(uid, pod.name)
            fields = {"node_name": "", "nominated_node": "", "terminating": False, "phase": "Pending"}
            times = {"created_seconds": int(self.now), "started_seconds": 0, "placed_seconds": 0, "grace_seconds": 0}
            self.put(replace(pod, uid=f"uid-{name}", name=name, **fields, **times))

    def _take(self, action: Action) -> None:
        super()._take(action)
        match action:
            case Evict(victim, beneficiary=asker, cause=cause):
                self._asked.add(victim.uid)
                if self.recreates and asker is not None:
                    self.evicted.append(pair := (self._first(asker), self._first(victim)))
                    self.taken_back |= {pair} if cause is EvictionCause.RECLAIMED else set()
            case ReportQueue():
                self._write_status(action)
            case _:
                pass

    def _first(self, pod: Pod) -> str:
        return pod.gang.key.name if pod.gang is not None else self._first_names.get(pod.uid, pod.name)

    def _write_status(self, report: ReportQueue) -> None:
        queue = self.queues.get((QueueSource.OWN, report.name))
        if queue is None:
            return
        said = {one.type: one for one in report.conditions}
        over, drains = said["OverQuota"].status, said["Ready"].reason == "Draining"
        now = 1 + int(self.now)
        shown = replace(
            queue,
            over_quota_since_seconds=(queue.over_quota_since_seconds or now) if over else 0,
            draining_since_seconds=(queue.draining_since_seconds or now) if drains else 0,
        )
        if shown != queue:
            self._show(shown)

    def _everything(self) -> list[Event]:
        queues = (Seen(queue) for _, queue in sorted(self.queues.items()))
        return [*queues, *(Seen(workload) for _, workload in sorted(self.workloads.items())), *super()._everything()]

    def _would_fit(self, pods: list[Pod]) -> bool:
        """Return whether a gang waits that fits on the nodes that its quotas leave open to all its required pods."""
        gang, oracle, every = self.gang_of(pods[0]), self.scheduler.oracle, self.nodes
        if gang is None or len({(oracle.tenants.queue_of(pod), pod.spec.key) for pod in pods}) > 1:
            return False
        amounts = {name: gang.min_member * n for name, n in pods[0].spec.request.amounts.items()}
        spec = pods[0].spec
        if spec.devices is not None and spec.devices.gpu is not None:
            gpus = replace(spec.devices.gpu, count=gang.min_member * spec.devices.gpu.count)
            spec = replace(spec, devices=replace(spec.devices, gpu=gpus))
        whole = replace(pods[0], spec=replace(spec, request=replace(spec.request, amounts=amounts)))
        try:
            self.nodes = {
                name: replace(node, unschedulable=node.unschedulable or refused)
                for name, node in every.items()
                for refused in [oracle.may_refuse(whole, node)]
            }
            return super()._would_fit(pods)
        finally:
            self.nodes = every

    # At rest.

    def miscounted(self) -> dict[str, tuple[Mapping[str, int], Mapping[str, int]]]:
        """Return the queues whose sums are not those of the pods in them and below them, with both."""
        oracle, ledger = self.scheduler.oracle, self.scheduler.cluster.ledger
        sums = oracle.tenants.sums(oracle._placed())
        kept = {name: sum(map(Counter, ledger.under(QUEUE, name).values()), Counter[str]()) for _, name in self.queues}
        return {name: (kept[name], sums.get(name, {})) for name in kept if kept[name] != sums.get(name, Counter())}

    def one_second(self) -> None:
        """Let one second pass, and what then follows at once."""
        self.settle()
        self.now += 1.0
        self.settle()
