"""The classes of pods: which pods are alike to every rule in force. The spec of a class is made here and nowhere else.

A class begins with the spec that was read. It is divided by what else the rules in force read: the profile, which the
home pool names, else the scheduler name; the labels of pods that plugins read; where a term of affinity may select the
pods, their namespace and their labels as far as terms read them, because a term of another pod may select one of them
and not the other; and for pods that are spread by default, the Services that select them and their controller.

Invariants:
- A pod of another scheduler keeps the spec that was read. That of a pod on a row does not change its class.
- While there is one profile that ignores no resource and reads no label of pods, profiles divide nothing. Else profile
  and labels are part of the key of a spec, and requests that the profile ignores are left out.
- A waiting pod has its profile before it is tried; one on a node takes another profile with its next event.
- A pod that comes on a node is not scored any more: what it is spread among does not divide it.
- When a term reads something else, waiting pods change their classes before they are tried, parked ones by decisions.
  When the last pod with a term is gone, classes that it divided become one again as their pods are tried.
- When a Service or a controller changes, waiting pods change their classes before they are tried; a parked pod that
  leaves its class then wakes the next one of it.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from aischeduler.engine.agenda import Checks
from aischeduler.engine.profile import Profile
from aischeduler.framework.plugin import Plugins, ResourceIgnoring
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.topology_spread import DefaultSelector
from aischeduler.state.carried_terms import EVERY_NAMESPACE, OTHER, Read
from aischeduler.state.pod_records import NOWHERE, PodRecord, PodState
from aischeduler.state.scheduling_queue import class_key

if TYPE_CHECKING:
    from aischeduler.engine.cluster import Cluster

SPECS_MAX: Final = 20_000
"""The most specs of each kind that are kept; when there are more, all are made again."""
CHANGED_PER_CHECK: Final = 4
"""So many parked pods are put into other classes at the cost of a check."""
Marks = tuple[tuple[str, str], ...]


class PodClasses:
    """The specs of classes, made from specs that were read; `names` are those of all profiles.

    `has_profiles` says whether the specs of pods may differ from those that were read by profiles and their plugins.
    """

    def __init__(self, profile: Profile) -> None:
        self.names = frozenset(profile.names)
        every = {"": profile.plugins, **profile.others}
        self._ignores = {name: rules for name, plugins in every.items() if (rules := _ignoring(plugins))}
        self.has_profiles = bool(profile.others or profile.plugins.reads or self._ignores)
        self.plain = not self.has_profiles and profile.queue_sort is None
        """Whether `take_profile` changes nothing, which is so with built-in plugins and one profile."""
        self._profiled: dict[tuple[bytes, str, Marks], PodSpec] = {}
        self._divided: dict[tuple[bytes, str | None, Marks, DefaultSelector | None], PodSpec] = {}

    def profiled(self, spec: PodSpec, profile: str, marks: Marks) -> PodSpec:
        """Return the spec of pods of this profile, empty for the own one, from the spec with any profile."""
        key = (spec.own_key if spec.read is None else spec.read.key, profile, marks)
        found = self._profiled.get(key)
        if found is None:
            if len(self._profiled) >= SPECS_MAX:
                self._profiled.clear()
            found = self._profiled[key] = self._made(_as_read(spec), profile, marks)
        return found

    def divided(
        self, spec: PodSpec, namespace: str | None, labels: Marks, default_selector: DefaultSelector | None = None
    ) -> PodSpec:
        """Return the spec of the pods of this namespace with these labels, from the spec with its profile."""
        if (spec.namespace, spec.labels, spec.default_selector) == (namespace, labels, default_selector):
            return spec
        key = (spec.own_key, namespace, labels, default_selector)
        found = self._divided.get(key)
        if found is None:
            if len(self._divided) >= SPECS_MAX:
                self._divided.clear()
            divided = namespace is not None or default_selector is not None
            digest = blake2b(repr(key).encode(), digest_size=16).digest() if divided else spec.own_key
            found = self._divided[key] = replace(
                spec,
                key=digest,
                namespace=namespace,
                labels=labels,
                default_selector=default_selector,
                origin=spec.own_key if divided else b"",
            )
        return found

    def _made(self, read: PodSpec, profile: str, marks: Marks) -> PodSpec:
        ignores, amounts = self._ignores.get(profile, ()), read.request.amounts
        counting = {name: amounts[name] for name in amounts if not any(rule(name) for rule in ignores)}
        left_out = len(amounts) - len(counting)
        if not (profile or marks or left_out):
            return read
        request = replace(read.request, amounts=counting) if left_out else read.request
        key = read.key + f"/{profile}/{left_out}/{marks!r}".encode()
        return replace(read, key=key, profile=profile, marks=marks, request=request, read=read)


def classed(cluster: "Cluster", pod: Pod) -> Pod:
    """Return the pod with the spec of its class; what its terms read divides classes from now on."""
    pod = profiled(cluster, pod)
    terms, carried, ours = cluster.nodes.pod_counts.terms, pod.spec.pod_affinity.carried, cluster.ours(pod)
    counts = carried and not pod.finished and (ours or pod.node_name)
    new = terms.new_reads(carried) if counts else ()
    if new:
        _note_parked(cluster, new)
    if not (new or terms.divide or cluster.pod_sets.by_key) or not ours:
        return pod
    record = cluster.records.get(pod.uid)
    if record is not None and record.row != NOWHERE and record.pod.spec.own_key == pod.spec.own_key:
        return replace(pod, spec=record.pod.spec)
    return _divided(cluster, pod, new)


def profiled(cluster: "Cluster", pod: Pod) -> Pod:
    """Return the pod with the spec of its profile; the same one where it has that already."""
    if not cluster.classes.has_profiles or not cluster.ours(pod):
        return pod
    name, profile = _name(cluster, pod), cluster.profile
    reads = (profile.others[name] if name else profile.plugins).reads
    marks = tuple((key, pod.labels[key]) for key in reads if key in pod.labels)
    spec = cluster.classes.profiled(pod.spec, name, marks)
    return pod if spec.own_key == pod.spec.own_key else replace(pod, spec=spec)


def take_profile(cluster: "Cluster", record: PodRecord) -> None:
    """Give a pod that is in no queue the profile, and the place in the queue order, that it has now."""
    if cluster.profile.queue_sort is not None:
        record.rank = cluster.profile.queue_sort.rank(record.pod)
    pod = profiled(cluster, record.pod)
    if pod is not record.pod:
        cluster.rename(record, classed(cluster, pod))


def ruled(cluster: "Cluster", pod: Pod) -> tuple[int | None, str]:
    """Return the place of the pod in the queue order and why a gate holds it, where plugins of others say so."""
    sort = cluster.profile.queue_sort
    held = cluster.gate_of(pod) if len(cluster.profile.plugins_of(pod).gates) > 1 else ""
    return (sort.rank(pod) if sort is not None else None), held


def unknown_profile(cluster: "Cluster", name: str) -> bool:
    """Return whether a Pool names a profile that does not exist."""
    return bool(name) and name not in cluster.classes.names


def take_class(cluster: "Cluster", record: PodRecord) -> None:
    """Put a pod, and all pods of the unit that it leads, into their classes as they are now."""
    if not (cluster.nodes.pod_counts.terms.divide or cluster.pod_sets.by_key or record.pod.spec.origin):
        return
    changed = _changed(cluster, record)
    if changed:  # those of the old class would wait for no pod
        cluster.queues[record.queue or record.home].wake_next(record, cluster.now)
        _rename(cluster, record, changed)
    claim = cluster.claims.of(record.pod.uid)
    if claim is not None and claim.outdated:
        cluster.claims.renew(claim, cluster.accounts_of)


def take_classes(cluster: "Cluster", pool: str, checks: Checks) -> None:
    """Put the next parked pods of this pool into their classes as they are now."""
    agenda, queue = cluster.deferred.agenda(pool), cluster.queues[pool]
    parked, counted = agenda.dividing, agenda.counted
    while parked and checks.left > 0:
        _, record = parked.popitem(last=False)
        checks.spend_part(CHANGED_PER_CHECK, len(record.with_surplus))
        if record.queue == pool and record.state is PodState.PARKED and (changed := _changed(cluster, record)):
            before = class_key(record)
            queue.reclass(record, partial(_rename, cluster, record, changed))
            if before in counted:  # what is to be checked for the class, is to be checked for its parts
                counted[class_key(record)] = None


def _changed(cluster: "Cluster", record: PodRecord) -> list[tuple[PodRecord, Pod]]:
    """Return those of the pods that one attempt with this pod may place that change their classes, with their specs."""
    new = [(member, _divided(cluster, member.pod)) for member in record.with_surplus]
    return [(member, pod) for member, pod in new if pod.spec.key != member.pod.spec.key]


def _rename(cluster: "Cluster", record: PodRecord, changed: list[tuple[PodRecord, Pod]]) -> None:
    """Give the pods of an attempt the specs of their classes; that of the record itself is in no queue meanwhile."""
    for member, pod in changed:
        rename = partial(cluster.rename, member, pod)
        if member.queue and member is not record:
            cluster.queues[member.queue].reclass(member, rename)
        else:
            rename()


def _divided(cluster: "Cluster", pod: Pod, new: Sequence[Read] = ()) -> Pod:
    """Return the pod with the spec of its class; `new` is what terms read that are not counted yet."""
    read = cluster.nodes.pod_counts.terms.class_of(pod.namespace, pod.labels, new)
    namespace = pod.namespace if read is not None else None
    default_selector = cluster.pod_sets.default_of(pod) if not pod.node_name else None
    spec = cluster.classes.divided(pod.spec, namespace, read or (), default_selector)
    return pod if spec is pod.spec else replace(pod, spec=spec)


def _note_parked(cluster: "Cluster", new: Sequence[Read]) -> None:
    """Note the parked pods that may have to change their classes, because terms read this of pods now."""
    for pool, queue in cluster.queues.items():
        parked = OrderedDict(
            (member.pod.uid, member)
            for alike in queue.parked()
            if any(_may_divide(record.pod.spec, new) for record in alike.head.with_surplus)
            for member in alike.parked
            if any(_reads(each.pod, read) for each in member.with_surplus for read in new)
        )
        if parked:
            cluster.deferred.agenda(pool).dividing.update(parked)


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


def _name(cluster: "Cluster", pod: Pod) -> str:
    named = cluster.pools.pools[cluster.pools.home(pod.pool)].profile
    name = pod.scheduler_name if unknown_profile(cluster, named) or not named else named
    return "" if name == cluster.profile.scheduler_name else name


def _ignoring(plugins: Plugins) -> tuple[Callable[[str], bool], ...]:
    rules = (rule for rule in plugins.filters if isinstance(rule, ResourceIgnoring))
    return tuple(rule.ignores for rule in rules if rule.ignores_any)


def _as_read(spec: PodSpec) -> PodSpec:
    """Return the spec as it was read, without its profile and without its class."""
    if spec.read is not None:
        return spec.read
    return (
        replace(spec, key=spec.origin, namespace=None, labels=(), default_selector=None, origin=b"")
        if spec.origin
        else spec
    )
