"""Profiles: the plugins and settings of one scheduler name."""

from dataclasses import dataclass, field

from aischeduler.framework.plugin import Plugins
from aischeduler.model.names import DEFAULT_POOL, GPU_DEFAULT, GPU_TYPE_LABELS, SCHEDULER_NAME
from aischeduler.model.pool import GroupRule, MakeRoom, Pool
from aischeduler.plugins.gangs import Gangs
from aischeduler.plugins.gpu_type import GpuType
from aischeduler.plugins.image_locality import ImageLocality
from aischeduler.plugins.inter_pod_affinity import InterPodAffinity
from aischeduler.plugins.machine_group import MachineGroup
from aischeduler.plugins.node_affinity import NodeAffinity, NodeAffinityNames
from aischeduler.plugins.node_declared_features import NodeDeclaredFeatures
from aischeduler.plugins.node_fragmentation import NodeFragmentation
from aischeduler.plugins.node_ports import NodePorts
from aischeduler.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from aischeduler.plugins.node_resources_fit import NodeResourcesFit
from aischeduler.plugins.node_unschedulable import NodeUnschedulable
from aischeduler.plugins.pod_topology_spread import PodTopologySpread
from aischeduler.plugins.scheduling_gates import SchedulingGates
from aischeduler.plugins.taint_toleration import TaintToleration
from aischeduler.state.pod_records import Backoff


@dataclass(frozen=True, slots=True)
class Profile:
    """The settings of one scheduler.

    `gpu_resources` are the resource names that count as GPUs; without `preemption` no pod is evicted.
    `make_room` is that of pools without one. With `hold_unsupported`, pods with unsupported hard constraints are held.
    `default_pool` is the default pool while it has no object. `gpu_type_labels` are the labels of nodes that have the
    type of their cards, `rare_types` the full names of types that are rare in every pool, and `machine_groups` say who
    may name a group, beside those of Pools.
    """

    scheduler_name: str
    gpu_resources: tuple[str, ...]
    plugins: Plugins
    preemption: bool = True
    make_room: MakeRoom = MakeRoom.PREEMPT_THEN_BORROW
    hold_unsupported: bool = True
    backoff: Backoff = field(default_factory=Backoff)
    default_pool: Pool = field(default_factory=lambda: Pool(DEFAULT_POOL))
    gpu_type_labels: tuple[str, ...] = GPU_TYPE_LABELS
    rare_types: tuple[str, ...] = ()
    machine_groups: tuple[GroupRule, ...] = ()

    def first_room(self, pool: Pool) -> MakeRoom:
        """Return what a pod of this pool that fits on none of its nodes tries first."""
        return pool.make_room or self.make_room


def default_profile(
    scheduler_name: str = SCHEDULER_NAME,
    gpu_resources: tuple[str, ...] = (GPU_DEFAULT,),
    gpu_type_labels: tuple[str, ...] = GPU_TYPE_LABELS,
    *,
    preemption: bool = True,
) -> Profile:
    """Return the profile of all built-in plugins, in kube-scheduler's order; those of its own come after affinity."""
    fit = NodeResourcesFit(gpu_resources)
    taints = TaintToleration()
    affinity, cards = NodeAffinity(), GpuType(gpu_type_labels)
    pods, evenness = InterPodAffinity(), PodTopologySpread()
    plugins = Plugins(
        gates=(SchedulingGates(),),
        filters=(NodeAffinityNames(), NodeUnschedulable(), taints, affinity, MachineGroup(), cards, NodePorts(), fit),
        scores=(taints, affinity, cards, NodeFragmentation(gpu_resources), fit, NodeResourcesBalancedAllocation()),
        cross_row=(evenness, pods, NodeDeclaredFeatures()),
        cross_scores=(evenness, pods, ImageLocality()),
        units=Gangs(),
    )
    return Profile(scheduler_name, gpu_resources, plugins, preemption, gpu_type_labels=gpu_type_labels)
