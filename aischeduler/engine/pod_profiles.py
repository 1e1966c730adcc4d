"""The profile of a pod: that which its home pool names, else that of its scheduler name.

Invariants:
- While there is one profile that ignores no resource and reads no label of pods, a pod keeps the spec that was read.
- Else profile and labels are part of the key of a spec, so that pods that differ in them are of two classes; requests
  that the profile ignores are left out.
- A waiting pod has its profile before it is tried; one on a node takes another profile with its next event.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from msgspec.structs import replace as replace_struct

from aischeduler.engine.pod_classes import classed
from aischeduler.engine.profile import Profile
from aischeduler.framework.plugin import Plugins, ResourceIgnoring
from aischeduler.model.pod import Pod, PodSpec

if TYPE_CHECKING:
    from aischeduler.engine.cluster import Cluster
    from aischeduler.state.pod_records import PodRecord

SPECS_MAX: Final = 20_000
"""The most specs that are kept with a profile; when there are more, all are made again."""
Marks = tuple[tuple[str, str], ...]


class ProfiledSpecs:
    """Specs with the profiles of their pods, and the labels that plugins read; `names` are those of all profiles.

    `divides` says whether the specs of pods may differ from those that were read.
    """

    def __init__(self, profile: Profile) -> None:
        self.names = frozenset(profile.names)
        every = {"": profile.plugins, **profile.others}
        self._ignores = {name: rules for name, plugins in every.items() if (rules := _ignoring(plugins))}
        self.divides = bool(profile.others or profile.plugins.reads or self._ignores)
        self.plain = not self.divides and profile.queue_sort is None
        """Whether `take_profile` changes nothing, which is so with built-in plugins and one profile."""
        self._specs: dict[tuple[bytes, str, Marks], PodSpec] = {}

    def of(self, spec: PodSpec, profile: str, marks: Marks) -> PodSpec:
        """Return the spec of pods of this profile, empty for the own one, from the spec with any profile."""
        key = (spec.own_key if spec.read is None else spec.read.key, profile, marks)
        found = self._specs.get(key)
        if found is None:
            if len(self._specs) >= SPECS_MAX:
                self._specs.clear()
            found = self._specs[key] = self._made(_as_read(spec), profile, marks)
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


def profiled(cluster: "Cluster", pod: Pod) -> Pod:
    """Return the pod with the spec of its profile; the same one where it has that already."""
    if not cluster.profiled.divides or not cluster.ours(pod):
        return pod
    name, profile = _name(cluster, pod), cluster.profile
    reads = (profile.others[name] if name else profile.plugins).reads
    marks = tuple((key, pod.labels[key]) for key in reads if key in pod.labels)
    spec = cluster.profiled.of(pod.spec, name, marks)
    return pod if spec.own_key == pod.spec.own_key else replace_struct(pod, spec=spec)


def take_profile(cluster: "Cluster", record: "PodRecord") -> None:
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
    return bool(name) and name not in cluster.profiled.names


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
