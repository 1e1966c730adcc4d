"""The classes of pods: which pods are alike to every rule.

The pods of one class have equal specs, with the profiles of `pod_profiles`. Where a term of affinity may select them,
they are also of one namespace and have equal labels as far as terms read them, because a term of another pod may select
one of them and not the other. Pods that are spread by default are also alike in the Services that select them and in
their controller.

Invariants:
- A pod of another scheduler keeps the spec that was read. That of a pod on a row does not change its class.
- A pod that comes on a node is not scored any more: what it is spread among does not divide it.
- When a term reads something else, waiting pods change their classes before they are tried, parked ones by decisions.
  When the last pod with a term is gone, classes that it divided become one again as their pods are tried.
- When a Service or a controller changes, waiting pods change their classes before they are tried; a parked pod that
  leaves its class then wakes the next one of it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from msgspec.structs import replace as replace_struct

from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.topology_spread import DefaultSelector
from aischeduler.state.carried_terms import EVERY_NAMESPACE, OTHER, Read
from aischeduler.state.pod_records import NOWHERE, PodRecord, PodState

if TYPE_CHECKING:
    from aischeduler.engine.cluster import Cluster

SPECS_MAX: Final = 20_000
"""The most divided specs that are kept; when there are more, all are made again."""
CHANGED_AT_ONCE: Final = 256
"""The most parked pods that one decision puts into other classes."""


class DividedSpecs:
    """Specs divided by namespace, labels and the pods among which they are spread by default."""

    def __init__(self) -> None:
        self._specs: dict[tuple[bytes, str | None, tuple[tuple[str, str], ...], DefaultSelector | None], PodSpec] = {}

    def of(
        self,
        spec: PodSpec,
        namespace: str | None,
        labels: tuple[tuple[str, str], ...],
        default_selector: DefaultSelector | None = None,
    ) -> PodSpec:
        """Return the spec of the pods of this namespace with these labels, from the spec that was read."""
        if (spec.namespace, spec.labels, spec.default_selector) == (namespace, labels, default_selector):
            return spec
        key = (spec.own_key, namespace, labels, default_selector)
        found = self._specs.get(key)
        if found is None:
            if len(self._specs) >= SPECS_MAX:
                self._specs.clear()
            divided = namespace is not None or default_selector is not None
            digest = blake2b(repr(key).encode(), digest_size=16).digest() if divided else spec.own_key
            found = self._specs[key] = replace(
                spec,
                key=digest,
                namespace=namespace,
                labels=labels,
                default_selector=default_selector,
                origin=spec.own_key if divided else b"",
            )
        return found


def classed(cluster: "Cluster", pod: Pod) -> Pod:
    """Return the pod with the spec of its class; what its terms read divides classes from now on."""
    terms, carried, ours = cluster.nodes.pod_counts.terms, pod.spec.pod_affinity.carried, cluster.ours(pod)
    counts = carried and not pod.finished and (ours or pod.node_name)
    new = terms.new_reads(carried) if counts else ()
    if new:
        _note_parked(cluster, new)
    if not (new or terms.divide or cluster.pod_sets.by_key) or not ours:
        return pod
    record = cluster.records.get(pod.uid)
    if record is not None and record.row != NOWHERE and record.pod.spec.own_key == pod.spec.own_key:
        return replace_struct(pod, spec=record.pod.spec)
    return _divided(cluster, pod, new)


def take_class(cluster: "Cluster", record: PodRecord) -> None:
    """Put a pod, and the pods of the unit that it leads, into their classes as they are now."""
    if not (cluster.nodes.pod_counts.terms.divide or cluster.pod_sets.by_key or record.pod.spec.origin):
        return
    new = [(one, _divided(cluster, one.pod)) for one in record.together]
    changed = [(one, pod) for one, pod in new if pod.spec.key != one.pod.spec.key]
    if record.queue and changed:
        cluster.queues[record.queue].wake_next(record, cluster.now)  # those of the old class would wait for no pod
    for one, pod in changed:
        rename = partial(cluster.rename, one, pod)
        if one.queue:
            cluster.queues[one.queue].reclass(one, rename)
        else:
            rename()
    claim = cluster.claims.of(record.pod.uid)
    if claim is not None and claim.outdated:
        cluster.claims.renew(claim, cluster.accounts_of)


def take_classes(cluster: "Cluster", pool: str) -> None:
    """Put some parked pods of this pool into their classes as they are now."""
    parked, queue = cluster.deferred.dividing[pool], cluster.queues[pool]
    for _ in range(min(CHANGED_AT_ONCE, len(parked))):
        _, record = parked.popitem(last=False)
        if record.queue == pool and record.state is PodState.PARKED and record.leads is None:
            queue.reclass(record, partial(_rename, cluster, record))
    if not parked:
        del cluster.deferred.dividing[pool]


def _rename(cluster: "Cluster", record: PodRecord) -> None:
    pod = _divided(cluster, record.pod)
    if pod.spec.key != record.pod.spec.key:
        cluster.rename(record, pod)


def _divided(cluster: "Cluster", pod: Pod, new: Sequence[Read] = ()) -> Pod:
    """Return the pod with the spec of its class; `new` is what terms read that are not counted yet."""
    read = cluster.nodes.pod_counts.terms.class_of(pod.namespace, pod.labels, new)
    namespace = pod.namespace if read is not None else None
    default_selector = cluster.pod_sets.default_of(pod) if not pod.node_name else None
    spec = cluster.divided.of(pod.spec, namespace, read or (), default_selector)
    return pod if spec is pod.spec else replace_struct(pod, spec=spec)


def _note_parked(cluster: "Cluster", new: Sequence[Read]) -> None:
    """Note the parked pods that may have to change their classes, because terms read this of pods now."""
    for pool, queue in cluster.queues.items():
        parked = OrderedDict(
            (one.pod.uid, one)
            for alike in queue.parked()
            if _may_divide(alike.head.pod.spec, new)
            for one in alike.parked
            if any(_reads(one.pod, read) for read in new)
        )
        if parked:
            cluster.deferred.dividing.setdefault(pool, OrderedDict()).update(parked)


def _may_divide(spec: PodSpec, new: Sequence[Read]) -> bool:
    """Return whether pods of this class may differ in what terms read now."""
    if spec.namespace is None:
        return True
    here = [(key, value) for place, key, value in new if place in (EVERY_NAMESPACE, spec.namespace)]
    return any(value is None or (key, OTHER) in spec.labels for key, value in here)


def _reads(pod: Pod, read: Read) -> bool:
    """Return whether terms that read this read something of the pod."""
    place, key, value = read
    if place not in (EVERY_NAMESPACE, pod.namespace):
        return False
    return not key or (key in pod.labels if value is None else pod.labels.get(key) == value)
