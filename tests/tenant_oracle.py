"""A test oracle of tenant queues: which queue a pod is in, what it is for, who may be evicted for it, and its quotas.

Invariants:
- It sees the events of the scheduler, and none of its tables; it uses no code of the product but values of events.
- It sums over all pods each time: for small clusters.
- Whole cards alone are modelled, by the full name of the product; other forms are `card_of` a test's own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from aischeduler.model.card_types import card_names
from aischeduler.model.events import Event, Gone, Seen
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.selectors import Labels
from aischeduler.model.tenant_queue import QueueState, TenantQueue, TenantSettings
from aischeduler.model.workload import TenantTerms, Workload

INFERENCE, TRAINING = "inference", "training"
GPU: Final = "nvidia.com/gpu"
SHARE: Final = "nvidia.com/gpu/100"
PRODUCT: Final = "nvidia.com/gpu.product"
WATCHED: Final = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job", "JobSet")

Placed = Iterable[tuple[Pod, Node | None]]
"""Pods on nodes."""


class TenantOracle:
    """Follows one scheduler from its start."""

    def __init__(self, settings: TenantSettings) -> None:
        self.settings, self.now, self.served = settings, 0.0, False
        self.share: Callable[[Pod, Node | None], int] = lambda _pod, _node: 0
        """Returns for how many hundredths of GPUs a pod with parts of some counts; a world with devices sets it."""
        self._own: dict[str, TenantQueue] = {}
        self._volcano: dict[str, TenantQueue] = {}
        self._workloads: dict[tuple[str, str, str], Workload] = {}
        self._seen: set[tuple[str, str, str]] = set()
        self._namespaces: dict[str, Labels] = {}

    def observe(self, event: Event) -> None:
        """Take note of what the scheduler is told."""
        match event:
            case Seen(TenantQueue() as queue):
                (self._own if queue.source == "Queue" else self._volcano)[queue.name] = queue
            case Gone("TenantQueue", (source, name)):
                (self._own if source == "Queue" else self._volcano).pop(name, None)
            case Seen(Workload() as workload):
                self._workloads[workload.key] = workload
                self._seen.add(workload.key)
            case Gone("Workload", (kind, namespace, name)):
                self._workloads.pop((kind, namespace, name), None)
            case Seen(Namespace(name, labels)):
                self._namespaces[name] = labels
            case Gone("Namespace", (name,)):
                self._namespaces.pop(name, None)
            case _:
                pass

    @property
    def matter(self) -> bool:
        """Whether names of queues mean something."""
        return bool(self._own or self._volcano or self.served)

    def queue_of(self, pod: Pod) -> str:
        """Return the name of the pod's queue; empty where it has none."""
        if not self.matter:
            return ""
        said = next((terms.queue for terms in self._said(pod) if terms.queue), "")
        return said or ("default" if "default" in self._own else "")

    def kind(self, pod: Pod) -> tuple[str, str]:
        """Return what of its tenant tells a pod from others."""
        return self.queue_of(pod), self.service_of(pod)

    def service_of(self, pod: Pod) -> str:
        """Return the service type that counts; empty where it is unknown, or its workload was not seen."""
        if not self.queue_of(pod):
            return ""
        text = next((terms.service_type for terms in self._said(pod) if terms.service_type), "")
        if not text:
            by_kind = dict(self.settings.service_types)
            kinds = [owner.split("/")[0] for owner in self._owners(pod)]
            text = next((by_kind[kind] for kind in kinds[::-1] if kind in by_kind), "")
        return text if text in (INFERENCE, TRAINING) and self._is_known(pod) else ""

    def lets_go(self, asker: Pod, victim: Pod, home: Pool, *, lower: bool) -> bool:
        """Return whether one home pod may be evicted for another of this pool; `lower` is whether it stands below."""
        mine, its = self.queue_of(asker), self.queue_of(victim)
        if its and self._stays(victim, home):
            return False
        if not mine:
            return not its and lower
        match self.service_of(asker) if self._is_known(asker) else TRAINING:
            case "training":
                return False
            case "inference":
                if self.service_of(victim) != TRAINING:
                    return False
                here, there = self._get(mine), self._get(its)
                if mine == its:
                    return lower
                return bool(here and there) and there.reclaimable and there.priority < here.priority  # type: ignore[union-attr]
            case _:
                return mine == its and lower

    def orders(self, pod: Pod, *, drains: bool) -> bool:
        """Return whether the queue of a pod, or one above it, wants pods to go now."""
        for queue in self._chain(self.queue_of(pod)):
            if drains:
                after: int | None = queue.drain_after_seconds if queue.state is QueueState.DRAINING else None
                since = queue.draining_since_seconds
            else:
                after, since = queue.shrink_after_seconds, queue.over_quota_since_seconds
            if after is not None and since and since + after <= self.now:
                return True
        return False

    def refuses(self, pod: Pod, node: Node, placed: Placed) -> bool:
        """Return whether the pod's queue takes it not, or a quota would be exceeded with it on the node."""
        name = self.queue_of(pod)
        if not name:
            return False
        return not self._takes(name, pod) or bool(list(self.over(pod, node, placed)))

    def over(self, pod: Pod, node: Node, placed: Placed) -> Iterator[str]:
        """Yield the quotas that a pod on a node would exceed beside those that are placed."""
        placed = list(placed)
        for queue in self._chain(self.queue_of(pod)):
            inside = [(one, at) for one, at in placed if queue in self._chain(self.queue_of(one))]
            for resource, most in queue.capability.items():
                asked = self._amount(pod, resource, None)
                if self._is_free(resource, pod) or not asked:
                    continue
                used = sum(self._amount(one, resource, at) for one, at in inside if not self._is_free(resource, one))
                limit = most * self.settings.over_commit_milli // 1000 if resource in ("cpu", "memory") else most
                if used + asked > limit * (100 if resource == GPU else 1):
                    yield f"queue {queue.name} has too little {resource}"
            if queue.cards and (asked := self._amount(pod, GPU, node)):
                yield from self._over_cards(queue, asked, node, inside)

    def sums(self, placed: Placed) -> dict[str, Counter[str]]:
        """Return by queue what the pods in it and below it take together, with shares of GPUs."""
        found: dict[str, Counter[str]] = {}
        for pod, node in placed:
            share = self.share(pod, node)
            shares = {SHARE: share} if share else {}
            for queue in self._chain(self.queue_of(pod)):
                found.setdefault(queue.name, Counter()).update({**pod.spec.request.amounts, "pods": 1, **shares})
        return found

    def _over_cards(self, queue: TenantQueue, asked: int, node: Node, inside: Placed) -> Iterator[str]:
        covering = [entry for entry in queue.cards if entry.card in names_of(node)]
        if not covering:
            yield f"queue {queue.name} has no such card"
        for entry in covering:
            used = sum(
                self._amount(one, GPU, at) for one, at in inside if at is not None and entry.card in names_of(at)
            )
            if used + asked > entry.cards * 100:
                yield f"queue {queue.name} has too few {entry.name}"

    def _takes(self, name: str, pod: Pod) -> bool:
        chain, labels = self._chain(name), self._namespaces.get(pod.namespace)
        if not chain or any(queue.invalid or queue.state is not QueueState.OPEN for queue in chain):
            return False
        allowed = chain[0].allowed_namespaces
        if allowed is not None and (labels is None or not allowed.matches(labels)):
            return False
        return not chain[-1].parent and not any(terms.invalid for terms in self._said(pod))

    def _stays(self, victim: Pod, home: Pool) -> bool:
        if victim.namespace == "kube-system":
            return True
        queue, labels = self._get(self.queue_of(victim)), self._namespaces.get(victim.namespace)
        said = next((terms.preemptable for terms in self._said(victim) if terms.preemptable is not None), True)
        selectors = (home.non_preemptible_namespaces, self.settings.non_preemptible)
        may_say = labels is not None and any(found is not None and found.matches(labels) for found in selectors)
        least = queue.min_runtime_seconds if queue is not None else 0
        young = bool(least) and self.now < (victim.placed_seconds or self.now) + least
        return (not said and may_say) or young

    def _is_free(self, resource: str, pod: Pod) -> bool:
        return (
            self.settings.card_unlimited_cpu_memory
            and resource in ("cpu", "memory")
            and bool(self._amount(pod, GPU, None))
        )

    def _amount(self, pod: Pod, resource: str, node: Node | None) -> int:
        """Return how much of a resource a pod takes, of GPUs in hundredths."""
        amount = Counter({**pod.spec.request.amounts, "pods": 1})[resource]
        return amount * 100 + self.share(pod, node) if resource == GPU else amount

    def _get(self, name: str) -> TenantQueue | None:
        return self._own.get(name) or self._volcano.get(name)

    def _chain(self, name: str) -> list[TenantQueue]:
        chain: list[TenantQueue] = []
        queue = self._get(name)
        while queue is not None and queue not in chain:
            chain.append(queue)
            queue = self._get(queue.parent)
        return chain

    def _owners(self, pod: Pod) -> list[str]:
        owners, owner = list[str](), pod.owner
        while owner and len(owners) < 3:
            owners.append(owner)
            kind, _, name = owner.partition("/")
            found = self._workloads.get((kind, pod.namespace, name))
            owner = found.owner if found is not None else ""
        return owners

    def _said(self, pod: Pod) -> list[TenantTerms]:
        keys = [(*owner.partition("/")[::2], pod.namespace) for owner in self._owners(pod)]
        found = [self._workloads.get((kind, namespace, name)) for kind, name, namespace in keys]
        if pod.gang is not None:
            found.append(self._workloads.get(("PodGroup", pod.namespace, pod.gang.key.name)))
        return [pod.terms or TenantTerms(), *(workload.terms for workload in found if workload is not None)]

    def _is_known(self, pod: Pod) -> bool:
        return all(
            kind not in WATCHED or (kind, pod.namespace, name) in self._seen
            for kind, _, name in (owner.partition("/") for owner in self._owners(pod))
        )


def names_of(node: Node) -> tuple[str, ...]:
    """Return the names of the cards of a node; none where it has none."""
    return card_names(node.labels.get(PRODUCT, ""))
