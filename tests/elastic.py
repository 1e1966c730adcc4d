"""Elastic jobs for tests of the engine: their objects, and a controller that makes and ends their pods in no time."""

from collections.abc import Callable
from typing import Any, Final

from aischeduler.engine.profile import Profile
from aischeduler.model.actions import Action, Bind, Evict, Resize, ResizeReason
from aischeduler.model.elastic import WEIGHTS, ElasticJob, ElasticTerms, PriorityLevel
from aischeduler.model.events import EvictRefusal, EvictRefused, ResizeRefused, Seen, gone
from aischeduler.model.gang import Gang, GangClaim, GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.workload import Workload
from tests.build import a_node, a_pod, replace
from tests.engine.session import Session
from tests.gangs import a_gang, a_key, member
from tests.tenants import in_queue

NORMAL: Final = WEIGHTS[PriorityLevel.NORMAL]
WINDOW: Final = 30.0
FORBIDDEN_SECONDS: Final = 60.0
LATE_SECONDS: Final = 4.0

OK, LOST, LATE, CONFLICT, FORBIDDEN = "ok", "lost", "late", "conflict", "forbidden"
"""What becomes of a size that is sent: it is written; neither written nor answered; written, and shown late; refused
because the object changed; refused for good."""


class AJob:
    """One Job: its terms and size, and the pods that it has, by index.

    It is Indexed if it is `ordered`. With `servers`, its gang is one of labels, of a master, so many pservers, and the
    trainers of its minimum. With `completions` so many instances are to succeed. Of another `kind` its pods name no
    gang, and a Deployment ends those on no node first, then the oldest.
    """

    def __init__(
        self,
        name: str,
        least: int,
        most: int,
        *,
        size: int = 0,
        allowed: tuple[int, ...] = (),
        window: float = WINDOW,
        weight: int = NORMAL,
        ordered: bool = True,
        servers: int = 0,
        completions: int = 0,
        queue: str = "",
        kind: str = "Job",
        retries: int = -1,
        **pod: Any,
    ) -> None:
        self.kind, self.retries = kind, retries
        self.name, self.ordered, self.servers, self.completions = name, ordered, servers, completions
        self.terms = ElasticTerms(least, most, allowed, window, weight)
        self.size, self.version, self.written = size or least, 1, 0
        self.resized_at, self.service, self.service_at, self.succeeded = 0.0, 0, 0.0, 0
        self.suspended, self.queue, self.pod = False, queue, pod
        self.pods: dict[int, Pod] = {}
        self.others: dict[str, Pod] = {}
        """Its master and its servers, by name."""
        self.made, self.by_another, self.by_priority = 0, False, False

    @property
    def workload(self) -> Workload:
        follows = self.ordered and not self.completions
        job = ElasticJob(
            replace(self.terms, by_priority=self.by_priority),
            self.size,
            str(self.version),
            ordered=self.ordered,
            completions_follow=follows,
            written_size=self.written,
            resized_at_seconds=self.resized_at,
            service=self.service,
            service_at_seconds=self.service_at,
            by_another=self.by_another,
            succeeded=self.succeeded,
            left=self.completions - self.succeeded if self.completions else None,
            finished=bool(self.completions) and self.succeeded >= self.completions,
            suspended=self.suspended,
        )
        return Workload(
            self.kind,
            "default",
            self.name,
            f"uid-{self.name}",
            retries=self.retries,
            elastic=job,
            suspended=self.suspended,
        )

    @property
    def gang(self) -> Gang:
        least = self.terms.min_instances
        if not self.servers:
            return a_gang(self.name, least, GangSource.JOB)
        return a_gang(self.name, least + self.servers + 1, GangSource.LABELS)

    def claim(self, role: str, count: int, index: int = -1) -> GangClaim:
        gang = replace(self.gang, roles=((role, count),))
        return GangClaim(gang.key, role, index, gang, (a_key(self.name, source=GangSource.JOB),))

    def new_pod(self, index: int, now: float) -> Pod:
        self.made += 1
        uid = f"uid-{self.name}-{index}-{self.made}"
        pod = a_pod(f"{self.name}-{index}", uid=uid, created=int(now), **self.pod)
        if self.kind != "Job":
            return self._queued(pod, f"{self.kind}/{self.name}")
        if self.servers:
            pod = replace(pod, gang=self.claim("trainer", self.terms.min_instances, index))
        else:
            pod = member(pod, self.gang, index=index)
        return self._queued(pod, f"Job/{self.name}")

    def new_other(self, role: str, index: int, now: float) -> Pod:
        """Return a master or a server."""
        self.made += 1
        name = f"{self.name}-{role}-{index}"
        pod = a_pod(name, uid=f"uid-{name}-{self.made}", created=int(now), **self.pod)
        count = 1 if role == "master" else self.servers
        return self._queued(replace(pod, gang=self.claim(role, count)), f"TrainingJob/{self.name}")

    def _queued(self, pod: Pod, owner: str) -> Pod:
        return in_queue(pod, self.queue, owner=owner) if self.queue else replace(pod, owner=owner)


class Jobs:
    """A session, and the Jobs in it. Pods run as soon as they are bound, and end as soon as they are to end."""

    def __init__(self, session: Session, *jobs: AJob) -> None:
        self.session = session
        self.jobs = {job.name: job for job in jobs}
        self.nodes_of: dict[str, str] = {}
        """The nodes to which pods were bound, by uid."""
        self.resizes: list[Resize] = []
        self.evicted: list[Evict] = []
        self.on_resize: Callable[[Resize], object] = lambda _: None
        """Called with each size before its pods are made."""
        self.answers: list[str] = []
        """What becomes of the next sizes that are sent; then all are written."""
        self.sent: list[Resize] = []
        """All sizes that were sent, written or not."""
        self._late: list[tuple[float, AJob]] = []
        for job in jobs:
            self.add(job)

    def add(self, job: AJob) -> None:
        self.jobs[job.name] = job
        self._show(job)
        self._sync(job)

    def _show(self, job: AJob) -> None:
        gang = (Seen(a_gang(job.name, job.terms.min_instances, GangSource.JOB)),) if job.kind == "Job" else ()
        self.session.tell(*gang, Seen(job.workload))

    def remove(self, name: str) -> None:
        """Delete a job and its pods."""
        job = self.jobs.pop(name)
        self._late = [late for late in self._late if late[1] is not job]
        self.session.tell(gone(Workload, job.kind, "default", name), gone(Gang, "Job", "default", name))
        self.session.tell(*(gone(Pod, pod.uid) for pod in (*job.pods.values(), *job.others.values())))

    def edit(self, name: str, least: int, most: int, allowed: tuple[int, ...] = ()) -> None:
        """Let a job have other bounds."""
        job = self.jobs[name]
        steps = tuple(sorted({least, *allowed})) if allowed else ()
        job.terms = replace(job.terms, min_instances=least, max_instances=most, allowed=steps)
        job.version += 1
        self._show(job)

    def write(self, name: str, size: int) -> None:
        """Let another program write the size of a job."""
        job = self.jobs[name]
        job.size, job.version = size, job.version + 1
        self.session.tell(Seen(job.workload))
        self._sync(job)

    def suspend(self, name: str, *, suspended: bool) -> None:
        """Suspend a job, which ends its pods, or resume it."""
        job = self.jobs[name]
        job.suspended, job.version = suspended, job.version + 1
        self.session.tell(Seen(job.workload))
        self._sync(job)

    def succeed(self, name: str) -> None:
        """Let an instance of a job with completions succeed."""
        job = self.jobs[name]
        on_nodes = [index for index, pod in job.pods.items() if pod.node_name]
        if not on_nodes or not job.completions:
            return
        pod = job.pods.pop(min(on_nodes))
        job.succeeded, job.version = job.succeeded + 1, job.version + 1
        self.session.tell(gone(Pod, pod.uid), Seen(job.workload))
        self._sync(job)

    def lose(self, node: str) -> None:
        """Let the pods on a node end; the jobs make others."""
        for job in self.jobs.values():
            for pod in [pod for pod in (*job.pods.values(), *job.others.values()) if pod.node_name == node]:
                self.end(pod)

    def restart(self, profile: Profile | None = None, *objects: object, events: tuple[Any, ...] = ()) -> None:
        """Let another scheduler go on from the objects as they are now."""
        now = self.session.now
        self.session = Session(profile=profile)
        self.session.now = now
        self._late = []
        self.session.tell(*events)
        self.session.see(*objects)  # type: ignore[arg-type]
        for job in self.jobs.values():
            self._show(job)
            self.session.see(*job.pods.values(), *job.others.values())

    def run(self, seconds: float = 0.0, step: float = 1.0) -> list[Action]:
        """Let time pass; return all actions."""
        said, until = list[Action](), self.session.now + seconds
        while True:
            self._show_late()
            actions = self.session.decide()
            said += actions
            self._carry_out(actions)
            if not any(isinstance(action, Bind | Resize | Evict) for action in actions):
                if self.session.now >= until:
                    return said
                self.session.now = min(until, self.session.now + step)

    def sizes(self) -> dict[str, int]:
        return {name: job.size for name, job in self.jobs.items()}

    def running(self) -> dict[str, int]:
        return {name: sum(bool(pod.node_name) for pod in job.pods.values()) for name, job in self.jobs.items()}

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Resize():
                    self._resize(action, self.answers.pop(0) if self.answers else OK)
                case Evict(suspends=None, resizes=None):
                    self.evicted.append(action)
                    self.end(action.victim)
                case Evict(victim=victim, resizes=Resize() as resize):
                    self.evicted.append(action)
                    if self._is_current(resize) or resize in self.resizes:
                        self._resize(resize, OK)
                    else:
                        self.session.tell(EvictRefused(victim.uid, EvictRefusal.CALLED_OFF, "conflict"))
                        self._refuse(resize, changed=True)
                case Bind(pod, node):
                    self._bound(pod, node)

    def _is_current(self, resize: Resize) -> bool:
        job = self.jobs.get(resize.name)
        return job is not None and str(job.version) == resize.version

    def _refuse(self, resize: Resize, *, changed: bool, seconds: float = 0.0) -> None:
        key = resize.kind, "default", resize.name, f"uid-{resize.name}"
        self.session.tell(ResizeRefused(*key, "refused", changed=changed, retry_after_seconds=seconds))

    def _resize(self, resize: Resize, answer: str) -> None:
        if resize in self.resizes:
            return  # by another eviction of the decision
        self.sent.append(resize)
        if answer == LOST:
            return
        if answer == FORBIDDEN:
            self._refuse(resize, changed=False, seconds=FORBIDDEN_SECONDS)
            return
        if answer == CONFLICT or not self._is_current(resize):
            self._refuse(resize, changed=True)
            return
        job = self.jobs[resize.name]
        assert not job.suspended or resize.instances == job.size, "a suspended job keeps its size"
        self.resizes.append(resize)
        self.on_resize(resize)
        job.size, job.written, job.version = resize.instances, resize.instances, job.version + 1
        job.service, job.service_at = resize.service, resize.now_seconds
        if resize.reason is not ResizeReason.NOTED:
            job.by_another = resize.reason is ResizeReason.WRITTEN_BY_ANOTHER
        if resize.starts_window:
            job.resized_at = resize.now_seconds
        if answer == LATE:
            self._late.append((self.session.now + LATE_SECONDS, job))
            return
        self.session.tell(Seen(job.workload))
        self._sync(job)

    def _show_late(self) -> None:
        due = [job for at, job in self._late if at <= self.session.now]
        self._late = [(at, job) for at, job in self._late if at > self.session.now]
        for job in due:
            self.session.tell(Seen(job.workload))
            self._sync(job)

    def pods_of(self, name: str) -> list[Pod]:
        """Return the pods of a job: its master and its servers, then its instances."""
        job = self.jobs[name]
        return [*job.others.values(), *job.pods.values()]

    def _bound(self, pod: Pod, node: str) -> None:
        self.nodes_of[pod.uid] = node
        self.show(replace(pod, node_name=node, phase="Running", started_seconds=int(self.session.now)))

    def show(self, pod: Pod) -> None:
        """Let a pod be as it is here, unless its job has ended it before."""
        there = not pod.owner
        for job in self.jobs.values():
            for pods in (job.pods, job.others):
                for key, known in pods.items():
                    if known.uid == pod.uid:
                        pods[key], there = pod, True  # type: ignore[index]
        if there:
            self.session.see(pod)

    def end(self, pod: Pod) -> None:
        """Let a pod be gone."""
        self.session.tell(gone(Pod, pod.uid))
        for job in self.jobs.values():
            for pods in (job.pods, job.others):
                for key, known in list(pods.items()):
                    if known.uid == pod.uid:
                        del pods[key]  # type: ignore[arg-type]
                        self._sync(job)

    def _sync(self, job: AJob) -> None:
        """Let the controllers make and end pods: of Indexed Jobs the highest go, else those on no node, the newest."""
        finished = bool(job.completions) and job.succeeded >= job.completions
        wanted = 0 if job.suspended or finished else job.size
        if job.completions:
            wanted = min(wanted, job.completions - job.succeeded)
        for index in self._first_to_end(job)[: max(len(job.pods) - wanted, 0)]:
            self.session.tell(gone(Pod, job.pods.pop(index).uid))
        index = 0
        while len(job.pods) < wanted:
            if index not in job.pods:
                job.pods[index] = job.new_pod(index, self.session.now)
                self.session.see(job.pods[index])
            index += 1
        roles = [("master", 0), *(("pserver", number) for number in range(job.servers))] if job.servers else []
        for role, number in roles:
            name = f"{role}-{number}"
            if name not in job.others:
                job.others[name] = job.new_other(role, number, self.session.now)
                self.session.see(job.others[name])

    def _first_to_end(self, job: AJob) -> list[int]:
        if job.ordered:
            return sorted(job.pods, reverse=True)
        newer = 1 if job.kind == "Deployment" else -1
        newest = sorted(job.pods, key=lambda index: (newer * job.pods[index].created_seconds, job.pods[index].name))
        return sorted(newest, key=lambda index: bool(job.pods[index].node_name))


def a_cluster(*jobs: AJob, count: int = 2, cpu: str = "4", **node: Any) -> Jobs:
    """Return the jobs on so many nodes."""
    return Jobs(Session(*(a_node(f"n{number}", cpu=cpu, **node) for number in range(count))), *jobs)


def reasons(jobs: Jobs) -> list[tuple[str, int, str]]:
    """Return name, new size and reason of each size that was written."""
    return [(resize.name, resize.instances, str(resize.reason)) for resize in jobs.resizes]
