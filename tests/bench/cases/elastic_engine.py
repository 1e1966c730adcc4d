"""The engine with elastic jobs, in process: controllers make and end their pods, which run as soon as they are bound.

Invariant: a resize takes effect only on the object that it was decided on, as with the API server.
"""

from heapq import heappop, heappush
from typing import Final

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Bind, Evict, Resize
from aischeduler.model.elastic import WEIGHTS, ElasticJob, ElasticTerms, PriorityLevel
from aischeduler.model.events import Event, EvictRefusal, EvictRefused, ResizeRefused, Seen, gone
from aischeduler.model.gang import Gang, GangClaim, GangKey, GangSource
from aischeduler.model.names import CPU
from aischeduler.model.pod import RUNNING, Pod
from aischeduler.model.pool import PlacementStrategy
from aischeduler.model.workload import Workload
from tests.bench.cases.elastic_script import (
    CORES,
    CPU_MILLI,
    LEAST,
    MASTER,
    MEMORY_MB,
    MEMORY_MIB,
    MOST,
    PSERVER,
    PSERVERS,
    SERVICE,
    SYSTEM_MILLI,
    TRAINER,
    Resized,
)
from tests.bench.core import SLICE, tell
from tests.bench.spec import VoidRunError
from tests.build import a_node, a_pod, a_pool, replace
from tests.checked_scheduler import answers

NORMAL: Final = WEIGHTS[PriorityLevel.NORMAL]
POOL: Final = "training"
LABELS: Final = {"pool": POOL}
WRITE_SECONDS: Final = 0.02
"""How long it takes to write a size; what is decided meanwhile is decided without it."""
CHANGED: Final = "the object has been modified"
ROUNDS_MAX: Final = 10_000
"""Rounds of work within one instant; more count as endless work."""


class TrainingJob:
    """One job as its objects say it: the Job of its trainers, and the pods of all roles by role and index."""

    def __init__(self, name: str, window: float) -> None:
        self.name = name
        self.terms = ElasticTerms(LEAST, MOST, (), window, NORMAL)
        self.size, self.version, self.written = LEAST, 1, 0
        self.resized_at = 0.0
        self.service, self.service_at = 0, 0.0
        roles = ((MASTER, 1), (PSERVER, PSERVERS), (TRAINER, LEAST))
        key = GangKey(GangSource.LABELS, "default", name)
        self.gang = Gang(key, 1 + PSERVERS + LEAST, roles=tuple(sorted(roles)))
        self.pods: dict[tuple[str, int], Pod] = {}

    @property
    def workload(self) -> Workload:
        """The Job of the trainers as it is now."""
        job = ElasticJob(
            self.terms,
            self.size,
            str(self.version),
            ordered=True,
            completions_follow=True,
            written_size=self.written,
            resized_at_seconds=self.resized_at,
            service=self.service,
            service_at_seconds=self.service_at,
        )
        return Workload("Job", "default", f"{self.name}-trainer", f"uid-{self.name}", elastic=job)

    def missing(self) -> list[tuple[str, int]]:
        """Return the pods that its controllers are about to make, by role and index."""
        wanted = [(MASTER, 1), (PSERVER, PSERVERS), (TRAINER, self.size)]
        return [(role, index) for role, count in wanted for index in range(count) if (role, index) not in self.pods]

    def write(self, action: Resize) -> None:
        """Take a size."""
        self.size, self.written, self.version = action.instances, action.instances, self.version + 1
        self.service, self.service_at = action.service, action.now_seconds
        if action.starts_window:
            self.resized_at = action.now_seconds


class Engine:
    """The engine on the cluster of the experiment; see `System`."""

    def __init__(self, window: float) -> None:
        self.scheduler = Scheduler(default_profile(), "bench")
        self.now = 0.0
        self.resized: list[Resized] = []
        self.started: dict[str, float] = {}
        self.refused: set[tuple[str, str]] = set()
        """The sizes (decision, job) that were refused, because the object had changed."""
        self.actions: list[tuple[float, Action]] = []
        """All that it did and when, for a look at one run."""
        self._later: list[tuple[float, int, Resize | Evict]] = []
        """The sizes that are under way, by the time at which they arrive."""
        self._writes = 0
        self._window = window
        self._jobs: dict[str, TrainingJob] = {}
        self._service: dict[str, Pod] = {}
        self._wanted = 0
        self._numbers = dict.fromkeys(CPU_MILLI, 0)
        self._owners: dict[str, tuple[str, str, int]] = {}
        """Pod by uid -> its job, role and index; of the service the job is empty."""
        self._used: dict[str, int] = {}
        """Node -> thousandths of a core that its pods request."""
        self._kinds = {
            role: a_pod(cpu=f"{cpu}m", memory=f"{MEMORY_MIB[role]}Mi", pool=POOL) for role, cpu in CPU_MILLI.items()
        }
        self._room = {f"node-{number:03d}": 1_000 * cores for number, cores in enumerate(CORES)}
        self._cluster()

    def _cluster(self) -> None:
        tell(self.scheduler, [Seen(a_pool(POOL, labels=LABELS, placement=PlacementStrategy.PACK))])
        system = a_pod(cpu=f"{SYSTEM_MILLI}m", memory="0", scheduler_name="kube-system", phase=RUNNING)
        for number, cores in enumerate(CORES):
            name = f"node-{number:03d}"
            node = a_node(name, cpu=str(cores), memory=f"{MEMORY_MB}M", labels=LABELS)
            pod = replace(system, uid=f"system-{name}", name=f"system-{name}", node_name=name)
            tell(self.scheduler, [Seen(node), Seen(pod)])
            self._used[name] = SYSTEM_MILLI

    def submit(self, job: str) -> None:
        """Let a job come."""
        made = self._jobs[job] = TrainingJob(job, self._window)
        self._tell(Seen(made.workload))
        self._sync(made)

    def serve(self, count: int) -> None:
        """Let the service have so many pods: pods without a node go first, then the newest."""
        self._wanted = count
        newest = sorted(self._service.values(), key=lambda pod: (not pod.node_name, pod.created_seconds, pod.name))
        for pod in newest[count:] if len(newest) > count else ():
            self._end(pod)
        self._sync_service()

    def advance(self, until: float) -> None:
        """Do all that is due until then, and at that time."""
        for _ in range(ROUNDS_MAX):
            self._finish_instant()
            wakeup = self.scheduler.next_wakeup()
            due = min(until if wakeup is None else wakeup, self._later[0][0] if self._later else until)
            if due >= until:
                break
            self.now = max(self.now, due)
        else:
            raise VoidRunError(f"the work before second {until} does not end")
        self.now = max(self.now, until)
        self._finish_instant()

    def trainers(self) -> dict[str, int]:
        """Return how many trainers of each job are on nodes."""
        return {
            name: sum(role == TRAINER and bool(pod.node_name) for (role, _), pod in job.pods.items())
            for name, job in self._jobs.items()
        }

    def serving(self) -> int:
        """Return how many pods of the service are on nodes."""
        return sum(bool(pod.node_name) for pod in self._service.values())

    def free_milli(self) -> list[int]:
        """Return what each node has left, in thousandths of a core."""
        return [self._room[node] - used for node, used in self._used.items()]

    def _tell(self, event: Event) -> None:
        self.scheduler.observe(event, self.now)

    def _finish_instant(self) -> None:
        for _ in range(ROUNDS_MAX):
            while self._later and self._later[0][0] <= self.now:
                self._write(heappop(self._later)[-1])
            ready = self.scheduler.ready(self.now)
            if not ready:
                return
            for pool in ready:
                actions = self.scheduler.decide(pool, self.now, SLICE)
                tell(self.scheduler, answers(actions), self.now)
                for action in actions:
                    self._carry_out(action)
        raise VoidRunError(f"the work of second {self.now} does not end")

    def _carry_out(self, action: Action) -> None:
        match action:
            case Bind(pod, node):
                self._bind(pod.uid, node)
            case Resize() | Evict(resizes=Resize()):
                self._writes += 1
                heappush(self._later, (self.now + WRITE_SECONDS, self._writes, action))
            case Evict(victim):
                self._evict(victim.uid)
            case _:
                return
        self.actions.append((self.now, action))

    def _write(self, action: Resize | Evict) -> None:
        """Write a size that was sent; a victim stays where that is refused."""
        resize = action if isinstance(action, Resize) else action.resizes
        assert resize is not None, "evictions without a size are carried out at once"
        if not self._resize(resize) and isinstance(action, Evict) and action.victim.uid in self._owners:
            self._tell(EvictRefused(action.victim.uid, EvictRefusal.CALLED_OFF, CHANGED))

    def _bind(self, uid: str, node: str) -> None:
        if uid not in self._owners:
            return  # its controller has ended it meanwhile
        name, role, index = self._owners[uid]
        pods = self._jobs[name].pods if name else {}
        pod = pods[role, index] if name else self._service[uid]
        shown = replace(pod, node_name=node, phase=RUNNING, started_seconds=int(self.now))
        if name:
            pods[role, index] = shown
        else:
            self._service[uid] = shown
        self._used[node] += CPU_MILLI[role]
        if role == TRAINER:
            self.started.setdefault(name, self.now)
        self._tell(Seen(shown))

    def _resize(self, action: Resize) -> bool:
        """Write a size; return whether the job has it now."""
        job = self._jobs[action.name.removesuffix("-trainer")]
        if str(job.version) != action.version:
            if job.size == action.instances:
                return True  # the evictions of one decision share a size
            self.refused.add((action.decision, job.name))
            refused = ResizeRefused(action.kind, action.namespace, action.name, action.uid, CHANGED, changed=True)
            self._tell(refused)
            return False
        if action.starts_window:
            self.resized.append(Resized(self.now, job.name, job.size, action.instances))
        job.write(action)
        self._tell(Seen(job.workload))
        self._sync(job)
        return True

    def _evict(self, uid: str) -> None:
        if uid not in self._owners:
            return
        name, role, index = self._owners[uid]
        self._end(self._jobs[name].pods[role, index] if name else self._service[uid])
        if name:
            self._sync(self._jobs[name])
        else:
            self._sync_service()

    def _end(self, pod: Pod) -> None:
        name, role, index = self._owners.pop(pod.uid)
        if name:
            del self._jobs[name].pods[role, index]
        else:
            del self._service[pod.uid]
        if pod.node_name:
            self._used[pod.node_name] -= pod.spec.request.amounts[CPU]
        self._tell(gone(Pod, pod.uid))

    def _sync(self, job: TrainingJob) -> None:
        """Make and end pods of a job as its controllers do: the highest indexes of its trainers go."""
        for (role, index), pod in sorted(job.pods.items(), reverse=True):
            if role == TRAINER and index >= job.size:
                self._end(pod)
        for role, index in job.missing():
            pod = self._new_pod(role, f"{job.name}-{role}-{index}")
            of_job = role == TRAINER  # the others have no index that the API server gives
            owner, rank = (f"Job/{job.name}-trainer", index) if of_job else ("", -1)
            pod = replace(pod, gang=GangClaim(job.gang.key, role, rank, job.gang), owner=owner)
            job.pods[role, index] = pod
            self._owners[pod.uid] = job.name, role, index
            self._tell(Seen(pod))

    def _sync_service(self) -> None:
        while len(self._service) < self._wanted:
            pod = self._new_pod(SERVICE, "")
            self._service[pod.uid] = pod
            self._owners[pod.uid] = "", SERVICE, 0
            self._tell(Seen(pod))

    def _new_pod(self, role: str, name: str) -> Pod:
        self._numbers[role] += 1
        uid = f"{name or role}-{self._numbers[role]:05d}"
        pod: Pod = replace(self._kinds[role], uid=uid, name=name or uid, created_seconds=int(self.now) + 1)
        return pod
