"""Tenants: the queues, the workloads, and which pods belong to which of them.

Invariants:
- What a pod says counts; what it does not say, its workload says, then the workload of that one, then its PodGroup,
  then the configuration by the kinds of these.
- Without queues, and where the API server serves none, no pod has a queue or a service type.
- A pod is known by the names of its queue and its workload, whether these exist or not.
"""

from collections import Counter
from collections.abc import Iterator

from aischeduler.model.card_shares import charge
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.tenant_queue import TenantQueue, TenantSettings
from aischeduler.model.workload import NO_TENANCY, NO_TERMS, ServiceType, Tenancy, Workload
from aischeduler.state.groups import Groups
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.tenant_queues import Chain, TenantQueues
from aischeduler.state.timers import Timers

WATCHED_KINDS = frozenset(("ReplicaSet", "StatefulSet", "DaemonSet", "Job", "JobSet"))
"""The kinds of workloads that are watched."""
POD_GROUP = "PodGroup"
ENDED_MAX = 4096
"""The most workloads that are remembered after their end; their pods soon go too."""
OWNERS_MAX = 3
"""The most workloads above one pod: a Job, its JobSet, and one more."""

WorkloadKey = tuple[str, str, str]


class Tenants:
    """The queues and workloads, with the pods of each by uid."""

    def __init__(self, settings: TenantSettings) -> None:
        self.settings = settings
        self.version = 0
        """Grows with each pod that comes or goes."""
        self.queues = TenantQueues()
        self.workloads: dict[WorkloadKey, Workload] = {}
        self.ended: dict[WorkloadKey, None] = {}
        """Workloads that were deleted before their pods: their kind still says what these are for."""
        self.shields = Timers()
        """Running pods (uid) that have not run as long as their queue lets them, and until when."""
        self.resumes = Timers()
        """Jobs that are suspended to evict their pods (kind/namespace/name), and when to look at them again."""
        self._numbers: dict[str, int] = {}
        self.cards: tuple[str, ...] = ()
        """The cards of nodes, as they were when held pods were checked last."""
        self.waiting: dict[str, Counter[str]] = {}
        """Queue -> what its pods request that are on no node, owners of claims too; `pods` counts pods.

        A share of GPUs in bytes counts as a whole GPU, because nobody knows yet which GPU the pod gets.
        """
        self._in_queue: Groups[str, str, PodRecord] = Groups()
        self._of_workload: Groups[WorkloadKey, str, PodRecord] = Groups()
        self._below: Groups[WorkloadKey, WorkloadKey, None] = Groups()
        """Workload -> the workloads that it controls."""
        self.in_use = False
        """Whether pods may be in a queue that they do not name: a workload names one, or it is the queue `default`."""
        self._naming: set[WorkloadKey] = set()
        """The workloads that name a queue."""

    def note_use(self) -> None:
        """Update `in_use` after a queue or a workload came, changed or went."""
        self.in_use = self.queues.in_force and (bool(self._naming) or bool(self.queues.default))

    def join(self, record: PodRecord) -> None:
        """Add a pod that waits in no queue of a pool, and set its tenancy."""
        self.note_workloads(record)
        record.tenancy, record.queue_priority = self.tenancy(record.pod), 0
        if not self.queues.in_force:
            return
        self.version += 1
        if not record.tenancy.queue:
            return
        queue = self.queue_of(record)
        record.queue_priority = queue.priority if queue is not None else 0
        self._in_queue.put(record.tenancy.queue, record.pod.uid, record)
        if record.counted is None:
            self.waits(record)

    def note_workloads(self, record: PodRecord) -> None:
        """Note of which workloads a pod is."""
        for key in _names_of(record.pod):
            self._of_workload.put(key, record.pod.uid, record)

    def leave(self, record: PodRecord) -> None:
        """Remove a pod."""
        self.version += 1
        self.waits_no_more(record)
        if record.tenancy.queue:
            self._in_queue.drop(record.tenancy.queue, record.pod.uid)
        for key in _names_of(record.pod):
            self._of_workload.drop(key, record.pod.uid)

    def waits(self, record: PodRecord) -> None:
        """Count a pod as waiting in its queue, with its present spec."""
        self.waits_no_more(record)
        if record.tenancy.queue:
            record.waits_with = record.pod.spec
            self._count(record.tenancy.queue, record.waits_with, 1)

    def waits_no_more(self, record: PodRecord) -> None:
        """Count a pod no longer as waiting, if it is."""
        if record.waits_with is not None:
            self._count(record.tenancy.queue, record.waits_with, -1)
            record.waits_with = None

    def _count(self, queue: str, spec: PodSpec, pods: int) -> None:
        waiting = self.waiting.get(queue)
        if waiting is None:
            waiting = self.waiting[queue] = Counter()
        for resource, amount in charge(spec).items():
            waiting[resource] += pods * amount

    def named(self) -> tuple[str, ...]:
        """Return the names of the queues that pods name, sorted."""
        return tuple(sorted(name for name in self._in_queue if name))

    def in_queues(self, names: tuple[str, ...]) -> list[PodRecord]:
        """Return the pods in these queues, by queue and uid."""
        return [record for name in names for _, record in sorted(self._in_queue.get(name, {}).items())]

    def of_workload(self, key: WorkloadKey) -> list[PodRecord]:
        """Return the pods of a workload, also those of its Jobs, by uid."""
        keys = (key, *sorted(self._below.get(key, {})))
        return [record for name in keys for _, record in sorted(self._of_workload.get(name, {}).items())]

    def has_begun(self, record: PodRecord) -> bool:
        """Return whether a pod of a workload of this pod is on a node."""
        return any(
            other.counted is not None
            for key in self._above(record.pod)
            for below in (key, *self._below.get(key, {}))
            for other in self._of_workload.get(below, {}).values()
        )

    def see_workload(self, workload: Workload) -> bool:
        """Store a workload as it is now; return whether that changed something."""
        before = self.workloads.get(workload.key)
        if before == workload:
            return False
        self._unlink(before)
        self.ended.pop(workload.key, None)
        self.workloads[workload.key] = workload
        if workload.terms.queue:
            self._naming.add(workload.key)
        else:
            self._naming.discard(workload.key)
        self.note_use()
        if workload.owner:
            self._below.put(_owner_key(workload), workload.key, None)
        return True

    def forget_workload(self, key: WorkloadKey) -> bool:
        """Remove a workload; return whether there was one."""
        before = self.workloads.pop(key, None)
        self._naming.discard(key)
        self.note_use()
        self._unlink(before)
        if before is not None and (not self.in_use or self._of_workload.get(key, {})):
            self.ended[key] = None
            if len(self.ended) > ENDED_MAX:
                del self.ended[next(iter(self.ended))]
        return before is not None

    def number(self, queue: str) -> int:
        """Return a number for the name of a queue, from 1."""
        return self._numbers.setdefault(queue, len(self._numbers) + 1)

    def chain(self, record: PodRecord) -> Chain:
        """Return the queue of a pod and its ancestors; empty where it is in none that exists."""
        queue = record.tenancy.queue
        return self.queues.chain(queue) if queue else ()

    def queue_of(self, record: PodRecord) -> TenantQueue | None:
        """Return the queue of a pod; None where it is in none that exists."""
        queue = record.tenancy.queue
        return self.queues.get(queue) if queue else None

    def tenancy(self, pod: Pod) -> Tenancy:
        """Return what counts for a pod."""
        if not self.in_use and not (self.queues.in_force and pod.terms is not None and pod.terms.queue):
            return NO_TENANCY
        workloads, known, kinds = self._workloads_of(pod)
        said = [pod.terms or NO_TERMS, *(workload.terms for workload in workloads)]
        queue = next((terms.queue for terms in said if terms.queue), "") or self.queues.default
        if not queue:
            return NO_TENANCY
        text = next((terms.service_type for terms in said if terms.service_type), "")
        service, misspelt = None, ""
        if text:
            service = next((kind for kind in ServiceType if kind == text), None)
            misspelt = "" if service is not None else text
        else:
            by_kind = dict(self.settings.service_types)
            service = next((by_kind[kind] for kind in reversed(kinds) if kind in by_kind), None)
        return Tenancy(
            queue,
            service,
            next((terms.preemptable for terms in said if terms.preemptable is not None), True),
            known,
            any(terms.aborts for terms in said),
            misspelt,
            next((terms.card_request for terms in said if terms.card_request), ()),
            _invalid(pod, workloads),
        )

    def _workloads_of(self, pod: Pod) -> tuple[list[Workload], bool, list[str]]:
        """Return the workloads of a pod, the nearest first; whether they were seen; and the kinds of its owners."""
        found, kinds, known, owner = list[Workload](), list[str](), True, pod.owner
        while owner and len(kinds) < OWNERS_MAX:
            kind, _, name = owner.partition("/")
            kinds.append(kind)
            workload = self.workloads.get((kind, pod.namespace, name))
            if workload is None:
                known = kind not in WATCHED_KINDS or (kind, pod.namespace, name) in self.ended
                break
            found.append(workload)
            owner = workload.owner
        group = self.workloads.get((POD_GROUP, pod.namespace, pod.gang.key.name)) if pod.gang is not None else None
        return ([*found, group] if group is not None else found), known, kinds

    def _unlink(self, workload: Workload | None) -> None:
        if workload is not None and workload.owner:
            self._below.drop(_owner_key(workload), workload.key)

    def _above(self, pod: Pod) -> Iterator[WorkloadKey]:
        yield from _names_of(pod)
        yield from (workload.key for workload in self._workloads_of(pod)[0])


def _names_of(pod: Pod) -> tuple[WorkloadKey, ...]:
    """Return the workload that made a pod, and the PodGroup that it names."""
    if not pod.owner and pod.gang is None:
        return ()
    kind, _, name = pod.owner.partition("/")
    owner: tuple[WorkloadKey, ...] = ((kind, pod.namespace, name),) if pod.owner else ()
    return owner if pod.gang is None else (*owner, (POD_GROUP, pod.namespace, pod.gang.key.name))


def _owner_key(workload: Workload) -> WorkloadKey:
    kind, _, name = workload.owner.partition("/")
    return kind, workload.namespace, name


def _invalid(pod: Pod, workloads: list[Workload]) -> str:
    """Return what of the pod's terms cannot be read, or else of those of a workload, which is named."""
    if pod.terms is not None and pod.terms.invalid:
        return pod.terms.invalid
    return next((f"{found.kind} {found.name}: {found.terms.invalid}" for found in workloads if found.terms.invalid), "")
