"""Profiles: the plugins and settings of one scheduler name."""

from dataclasses import dataclass, field

from aischeduler.framework.plugin import Plugins
from aischeduler.model.names import DEFAULT_POOL, GPU_DEFAULT, SCHEDULER_NAME
from aischeduler.model.pool import MakeRoom, Pool
from aischeduler.plugins.node_affinity import NodeAffinity, NodeAffinityNames
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
    `default_pool` is the default pool while it has no object.
    """

    scheduler_name: str
    gpu_resources: tuple[str, ...]
    plugins: Plugins
    preemption: bool = True
    make_room: MakeRoom = MakeRoom.PREEMPT_THEN_BORROW
    hold_unsupported: bool = True
    backoff: Backoff = field(default_factory=Backoff)
    default_pool: Pool = field(default_factory=lambda: Pool(DEFAULT_POOL))

    def first_room(self, pool: Pool) -> MakeRoom:
        """Return what a pod of this pool that fits on none of its nodes tries first."""
        return pool.make_room or self.make_room


def default_profile(
    scheduler_name: str = SCHEDULER_NAME, gpu_resources: tuple[str, ...] = (GPU_DEFAULT,), *, preemption: bool = True
) -> Profile:
    """Return the profile of all built-in plugins, in kube-scheduler's order."""
    fit = NodeResourcesFit(gpu_resources)
    taints = TaintToleration()
    affinity = NodeAffinity()
    plugins = Plugins(
        gates=(SchedulingGates(),),
        filters=(NodeAffinityNames(), NodeUnschedulable(), taints, affinity, NodePorts(), fit),
        scores=(taints, affinity, NodeFragmentation(gpu_resources), fit, NodeResourcesBalancedAllocation()),
        cross_row=(PodTopologySpread(),),
    )
    return Profile(scheduler_name, gpu_resources, plugins, preemption)
