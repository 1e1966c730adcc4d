"""The profile of a pod: that which its home pool names, else that of its scheduler name.

Invariants:
- While there is one profile that ignores no resource, a pod keeps the spec that was read.
- Else the profile is part of the key of a spec, so that pods of two profiles are of two classes; requests that the
  profile ignores are left out.
- A waiting pod has its profile before it is tried; one on a node takes another profile with its next event.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

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


class ProfiledSpecs:
    """Specs with the profiles of their pods; `names` are the names of all profiles.

    `divides` says whether the specs of pods may differ from those that were read.
    """

    def __init__(self, profile: Profile) -> None:
        self.names = frozenset(profile.names)
        ignores = {"": profile.plugins, **profile.others}
        self._ignores = {name: rules for name, plugins in ignores.items() if (rules := _ignoring(plugins))}
        self.divides = bool(profile.others or self._ignores)
        self._specs: dict[tuple[bytes, str], PodSpec] = {}

    def of(self, spec: PodSpec, profile: str) -> PodSpec:
        """Return the spec of pods of this profile, empty for the own one, from the spec with any profile."""
        key = (spec.own_key if spec.read is None else spec.read.key, profile)
        found = self._specs.get(key)
        if found is None:
            if len(self._specs) >= SPECS_MAX:
                self._specs.clear()
            found = self._specs[key] = self._made(_as_read(spec), profile)
        return found

    def _made(self, read: PodSpec, profile: str) -> PodSpec:
        ignores, amounts = self._ignores.get(profile, ()), read.request.amounts
        counting = {name: amounts[name] for name in amounts if not any(rule(name) for rule in ignores)}
        if not profile and len(counting) == len(amounts):
            return read
        request = replace(read.request, amounts=counting) if len(counting) < len(amounts) else read.request
        suffix = f"/{profile}/{len(amounts) - len(counting)}".encode()
        return replace(read, key=read.key + suffix, profile=profile, request=request, read=read)


def profiled(cluster: "Cluster", pod: Pod) -> Pod:
    """Return the pod with the spec of its profile; the same one where it has that already."""
    if not cluster.profiled.divides or not cluster.ours(pod):
        return pod
    spec = cluster.profiled.of(pod.spec, _name(cluster, pod))
    return pod if spec.own_key == pod.spec.own_key else replace_struct(pod, spec=spec)


def take_profile(cluster: "Cluster", record: "PodRecord") -> None:
    """Give a pod that is in no queue the profile that it has now."""
    pod = profiled(cluster, record.pod)
    if pod is not record.pod:
        cluster.rename(record, classed(cluster, pod))


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
    return replace(spec, key=spec.origin, namespace=None, labels=(), origin=b"") if spec.origin else spec
