"""The plugins that a profile may name: kube-scheduler's and Ai-Scheduler's own, in the order in which they are called.

Invariants:
- The order, points, weights and arguments of kube-scheduler's plugins are those of kube-scheduler 1.36.
- Plugins of others are found by entry points; see `entry_points`.
"""

from typing import Final

from msgspec import Struct

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
    KnownPlugin("NodePorts", ("preFilter", "filter")),
    KnownPlugin("NodeFragmentation", ("score",), 200, own=True),
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
KNOWN: Final = {one.name: one for one in TABLE}
