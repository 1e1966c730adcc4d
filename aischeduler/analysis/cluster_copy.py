"""A copy of a cluster in memory that carries out at once what its engine asks for, to see what would happen.

Invariants:
- The engine is that of the daemon; the copy only answers it, as an API server and kubelets without delay would.
- All that the engine can decide at one time is decided before answers come; all answers come before evictions show.
- An evicted pod leaves some seconds later and does not come back: what its controller does is not known here.
- Sizes of elastic jobs are carried out, with their pods, so long as `RESIZING_SECONDS` allows: jobs exchange room for
  ever. A size by which pods go in place of an eviction is carried out at any time.
- The same snapshot and the same calls give the same result.
"""

import dataclasses
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from aischeduler.analysis.cluster_snapshot import RUN, ClusterSnapshot
from aischeduler.analysis.job_controllers import JobControllers
from aischeduler.engine.profile import Profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import (
    Action,
    Bind,
    BindVolumes,
    CreatePool,
    Evict,
    LogLoanChange,
    Nominate,
    ReadPod,
    Refresh,
    ReportInternalError,
    ReportQueue,
    Resize,
    Warn,
)
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import (
    Event,
    EvictRefusal,
    EvictRefused,
    Gone,
    Refreshed,
    Seen,
    VolumesWritten,
    gone,
)
from aischeduler.model.node import Node
from aischeduler.model.pod import RUNNING, Pod
from aischeduler.model.pool import Pool
from aischeduler.model.tenant_queue import QueueSource, QueueState, TenantQueue
from aischeduler.model.volumes import ClaimRef, Volume, VolumeClaim, VolumeClaimKey
from aischeduler.model.workload import Workload

ATTEMPTS_PER_DECISION: Final = 64
LEAVING_SECONDS: Final = 2.0
"""How long a pod takes to leave its node: a real one takes up to its grace period."""
QUIET_SECONDS: Final = 60.0
"""How long nothing may happen before the copy is at rest: longer than the backoff of a pod, shorter than the net."""
RESIZING_SECONDS: Final = 30.0
"""For so long after a change elastic jobs get other sizes: a few passes over all of them."""
OVER_QUOTA: Final = "OverQuota"
ROUNDS_MAX: Final = 100_000
"""The most rounds until the copy is at rest; more rounds count as endless."""


class ClusterCopy:
    """The objects of a snapshot, an engine, and its clock `now`; `happened` has what took effect, in order.

    Where the profile obeys budgets, an eviction that a budget forbids is refused, as by the Eviction API.
    """

    def __init__(self, profile: Profile, snapshot: ClusterSnapshot) -> None:
        self.now = float(snapshot.taken_seconds)
        self.scheduler = Scheduler(profile, RUN)
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.pools: dict[str, Pool] = {}
        self.queues: dict[tuple[str, str], TenantQueue] = {}
        """The tenant queues by source and name."""
        self.jobs = JobControllers()
        self.happened: list[Bind | Evict | Resize | Warn | LogLoanChange | ReportInternalError] = []
        self._obeys_budgets = profile.obeys_budgets
        self._default_pool = profile.default_pool
        self._claims: dict[VolumeClaimKey, VolumeClaim] = {}
        self._volumes: dict[str, Volume] = {}
        self._budgets: dict[tuple[str, str], DisruptionBudget] = {}
        self._allowed: dict[tuple[str, str], int] = {}
        """How many more disruptions each budget allows."""
        self._answers: list[Event] = []
        self._evicted: list[str] = []
        self._leaving: dict[str, float] = {}
        """Terminating pods by uid -> when they are gone, the earliest first."""
        self._resizes_until = float("-inf")
        for event in snapshot.events:
            self.tell(event)

    def tell(self, event: Event) -> None:
        """Change the cluster, and let the engine observe it."""
        match event:
            case Seen(Pod() as pod):
                self.pods[pod.uid] = pod
                if pod.terminating:
                    self._leaving.setdefault(pod.uid, self.now + LEAVING_SECONDS)
            case Gone("Pod", (uid,)):
                self.pods.pop(uid, None)
                self._leaving.pop(uid, None)
            case Seen(Node() as node):
                self.nodes[node.name] = node
            case Gone("Node", (name,)):
                self.nodes.pop(name, None)
            case Seen(Pool() as pool):
                self.pools[pool.name] = pool
            case Seen(TenantQueue() as queue):
                self.queues[queue.source, queue.name] = queue
            case Seen(VolumeClaim() as claim):
                self._claims[claim.key] = claim
            case Seen(Volume() as volume):
                self._volumes[volume.name] = volume
            case Seen(Workload() as workload):
                self.jobs.see(workload)
            case Seen(DisruptionBudget() as budget):
                key = (budget.namespace, budget.name)
                self._budgets[key], self._allowed[key] = budget, budget.disruptions_allowed
        self.scheduler.observe(event, self.now)

    def count_lost(self, pods: Iterable[Pod]) -> None:
        """Let the budgets allow less where running pods are gone, as the disruption controller of Kubernetes does."""
        lost = [pod for pod in pods if pod.phase == RUNNING]
        for key, budget in sorted(self._budgets.items()):
            covered = sum(budget.covers(pod) for pod in lost)
            if covered:
                self.tell(Seen(replace(budget, disruptions_allowed=max(self._allowed[key] - covered, 0))))

    def settle(self, rounds_max: int = ROUNDS_MAX) -> bool:
        """Let time pass until nothing happens any more; return False where that has no end."""
        happened, quiet_since = len(self.happened), self.now
        self._resizes_until = self.now + RESIZING_SECONDS
        for _ in range(rounds_max):
            if self._decide() or self._answer() or self._terminate():
                continue
            if len(self.happened) > happened:
                happened, quiet_since = len(self.happened), self.now
            at = self._next_time()
            if at is None or at > quiet_since + QUIET_SECONDS:
                return True
            self.now = max(self.now, at)
            self._leave()
        return False

    def _next_time(self) -> float | None:
        """Return when something happens next; None where nothing does."""
        times = (self.scheduler.next_wakeup(), next(iter(self._leaving.values()), None))
        return min((time for time in times if time is not None), default=None)

    def _decide(self) -> bool:
        """Let every pool that is ready decide; return whether one was."""
        pools = self.scheduler.ready(self.now)
        for pool in pools:
            for action in self.scheduler.decide(pool, self.now, ATTEMPTS_PER_DECISION):
                self._take(action)
        return bool(pools)

    def _answer(self) -> bool:
        answers, self._answers = self._answers, []
        for event in answers:
            self.tell(event)
        return bool(answers)

    def _terminate(self) -> bool:
        """Let the pods that are evicted terminate: an eviction takes more requests than an answer."""
        evicted, self._evicted = self._evicted, []
        for uid in [uid for uid in evicted if uid in self.pods]:
            self.tell(Seen(replace(self.pods[uid], terminating=True)))
        return bool(evicted)

    def _leave(self) -> None:
        for uid in [uid for uid, due in self._leaving.items() if due <= self.now]:
            self.tell(gone(Pod, uid))

    def _take(self, action: Action) -> None:
        """Carry out an action; the engine learns of it later."""
        match action:
            case Bind(pod, node):
                self.happened.append(action)
                self._change(pod, node_name=node, nominated_node="", started_seconds=int(self.now))
            case BindVolumes():
                self._bind_volumes(action)
            case Evict():
                self._evict(action)
            case Resize() if self.now > self._resizes_until and action.instances != action.before:
                self._answers.append(self.jobs.refuse(action))
            case Resize():
                self._resize(action)
            case Nominate(pod, node):
                self._change(pod, nominated_node=node)
            case ReadPod(pod):
                now = self.pods.get(pod.uid)
                self._answers.append(gone(Pod, pod.uid) if now is None else Seen(now))
            case Refresh(pool):
                self._answers += [] if pool else [Seen(pool) for _, pool in sorted(self.pools.items())]
                self._answers.append(Refreshed(pool))
            case ReportQueue():
                self._report_queue(action)
            case CreatePool(name) if name not in self.pools:
                created = replace(self._default_pool, name=name, uid=f"new-{name}", generation=1)
                self._answers.append(Seen(created))
            case Warn() | LogLoanChange() | ReportInternalError():
                self.happened.append(action)
            case _:
                pass  # a report, which changes nothing

    def _report_queue(self, report: ReportQueue) -> None:
        """Note since when the status of a queue says that it is over its quota, or drains."""
        queue, now = self.queues.get((QueueSource.OWN, report.name)), int(self.now)
        if queue is None:
            return
        over = any(found.type == OVER_QUOTA and found.status for found in report.conditions)
        drains = report.state is QueueState.DRAINING
        changed = replace(
            queue,
            over_quota_since_seconds=(queue.over_quota_since_seconds or now) if over else 0,
            draining_since_seconds=(queue.draining_since_seconds or now) if drains else 0,
        )
        if changed != queue:
            self._answers.append(Seen(changed))

    def _bind_volumes(self, action: BindVolumes) -> None:
        """Bind each claim, as the volume controller and a provisioner without delay would."""
        for choice in (write.choice for write in action.writes if not action.withdraw):
            claim = self._claims[choice.claim]
            name = choice.volume or f"new volume of {claim.namespace}/{claim.name}"
            volume = self._volumes.get(name) or Volume(name, storage_class=claim.storage_class)
            taken = dataclasses.replace(volume, claim=ClaimRef(*claim.key, claim.uid), available=False)
            bound = dataclasses.replace(claim, volume=name, bound=True, selected_node=choice.node)
            self._answers += [Seen(taken), Seen(bound)]
        versions = ("",) * len(action.writes)
        self._answers.append(VolumesWritten(action.pod.uid, action.decision, versions))

    def _change(self, pod: Pod, **fields: str | int | bool) -> None:
        """Write fields of a pod as it is now, unless it is gone."""
        now = self.pods.get(pod.uid)
        if now is not None:
            self.pods[pod.uid] = changed = replace(now, **fields)
            self._answers.append(Seen(changed))

    def _evict(self, action: Evict) -> None:
        victim = action.victim
        if action.resizes is None and self._obeys_budgets and (forbidden := self._forbidden(victim)):
            self._answers.append(EvictRefused(victim.uid, EvictRefusal.BUDGET, forbidden))
            return
        self.happened.append(action)
        if action.resizes is not None:
            self._resize(action.resizes)
        else:
            self._evicted.append(victim.uid)

    def _resize(self, action: Resize) -> None:
        """Write the size of an elastic job, whose controller makes pods for it, or ends pods."""
        answer = self.jobs.resize(action)
        if isinstance(answer, Workload):
            self.jobs.see(answer)
            made, ended = self.jobs.sync(self.scheduler.cluster, action)
            self._answers += [Seen(answer), *map(Seen, made)]
            self._answers += [gone(Pod, pod.uid) for pod in ended if not self.pods[pod.uid].node_name]
            self._evicted += [pod.uid for pod in ended if self.pods[pod.uid].node_name]
            if action.instances != action.before:
                self.happened.append(action)
        elif action not in self.happened:  # several evictions may have one size
            self._answers.append(answer)

    def _forbidden(self, victim: Pod) -> str:
        """Return why the Eviction API refuses to evict a pod, else count the eviction.

        Source: the eviction subresource of kube-apiserver refuses a pod of several budgets.
        """
        covering = [key for key in sorted(self._budgets) if self._budgets[key].covers(victim)]
        if len(covering) > 1:
            return "more than one PodDisruptionBudget covers the pod"
        for key in covering:
            if self._allowed[key] <= 0:
                return f"the PodDisruptionBudget {key[1]} allows no disruption"
            self._allowed[key] -= 1
        return ""
