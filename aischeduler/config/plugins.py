"""The plugins that a profile may name: kube-scheduler's and our own in the order of their calls, and those of others.

Invariants:
- The order, points, weights and arguments of kube-scheduler's plugins are those of kube-scheduler 1.36.
- Installed distributions name plugins of others as entry points of the group `aischeduler.plugins`; a distribution is
  imported only when a profile names its plugin.
"""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, cast

from msgspec import Struct

from aischeduler.config.errors import PluginError
from aischeduler.config.plugin_args import (
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
    VolumeBindingArgs,
)

MULTI_POINT: Final = "multiPoint"
POINTS: Final = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
"""The extension points, in the order in which a pod meets them."""
PREPARES: Final = {"preFilter": "filter", "preScore": "score"}
"""A point that only prepares another one: here both are one step."""
_JUDGES: Final = ("preFilter", "filter", "preScore", "score")


class KnownPlugin(Struct, frozen=True):
    """A plugin, its points, the weight of its score, and the type of its arguments, None where it takes none.

    `own` plugins are not kube-scheduler's.
    """

    name: str
    points: tuple[str, ...]
    weight: int = 0
    args: type[PluginArgs] | None = None
    own: bool = False


TABLE: Final = (
    KnownPlugin("SchedulingGates", ("preEnqueue",)),
    KnownPlugin("PrioritySort", ("queueSort",)),
    KnownPlugin("NodeUnschedulable", ("filter",)),
    KnownPlugin("NodeName", ("filter",)),
    KnownPlugin("TaintToleration", ("filter", "preScore", "score"), 3),
    KnownPlugin("NodeAffinity", _JUDGES, 2, NodeAffinityArgs),
    KnownPlugin("MachineGroup", ("filter",), own=True),
    KnownPlugin("GpuType", ("filter", "score"), 4000, own=True),
    KnownPlugin("DeviceShare", ("filter", "score", "reserve"), 2, own=True),
    KnownPlugin("NodePorts", ("preFilter", "filter")),
    KnownPlugin("NodeFragmentation", ("score",), 200, own=True),
    KnownPlugin("ElasticPlaces", ("score",), 20, own=True),
    KnownPlugin("NodeResourcesFit", _JUDGES, 1, NodeResourcesFitArgs),
    KnownPlugin("VolumeRestrictions", ("preFilter", "filter")),
    KnownPlugin("NodeVolumeLimits", ("preFilter", "filter")),
    KnownPlugin("VolumeBinding", ("preFilter", "filter", "reserve", "preBind"), args=VolumeBindingArgs),
    KnownPlugin("VolumeZone", ("preFilter", "filter")),
    KnownPlugin("PodTopologySpread", _JUDGES, 2, PodTopologySpreadArgs),
    KnownPlugin("InterPodAffinity", _JUDGES, 2, InterPodAffinityArgs),
    KnownPlugin("DynamicResources", ("preEnqueue", *_JUDGES, "postFilter", "reserve", "preBind"), 2),
    KnownPlugin("DefaultPreemption", ("postFilter",), args=DefaultPreemptionArgs),
    KnownPlugin("NodeResourcesBalancedAllocation", ("preScore", "score"), 1, NodeResourcesBalancedAllocationArgs),
    KnownPlugin("ImageLocality", ("score",), 1),
    KnownPlugin("DefaultBinder", ("bind",)),
    KnownPlugin("NodeDeclaredFeatures", ("preFilter", "filter")),
    KnownPlugin("Gangs", ("preEnqueue",), own=True),
)
KNOWN: Final = {plugin.name: plugin for plugin in TABLE}
GROUP: Final = "aischeduler.plugins"


def plugin_names() -> tuple[str, ...]:
    """Return the names of all plugins of others, sorted; raises PluginError where a name is taken."""
    found = entry_points(group=GROUP)
    for point in sorted(found, key=lambda point: (point.name, point.value)):
        if point.name in KNOWN:
            raise PluginError(f"{_origin(point)} has a plugin {point.name}, which is the name of a built-in plugin")
        if len({other.value for other in found if other.name == point.name}) > 1:
            raise PluginError(f"several distributions have a plugin {point.name}; one of them is {_origin(point)}")
    return tuple(sorted({point.name for point in found}))


def load_factory(name: str) -> Callable[[dict[str, Any]], object]:
    """Import the plugin of this name; raises PluginError."""
    point = next(iter(entry_points(group=GROUP, name=name)), None)
    if point is None:
        raise PluginError(f"no installed distribution has a plugin {name}")
    try:
        factory = point.load()
    except Exception as error:  # whatever the import of foreign code raises
        raise PluginError(f"{_origin(point)} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(factory):
        raise PluginError(f"{_origin(point)}: {point.value} is nothing that can be called with arguments")
    return cast(Callable[[dict[str, Any]], object], factory)


def _origin(point: EntryPoint) -> str:
    return f"the distribution {point.dist.name if point.dist is not None else point.value}"
