"""Profiles: which rules are in force, for the pods of which scheduler name."""

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
from aischeduler.plugins.scheduling_gates import SchedulingGates
from aischeduler.plugins.taint_toleration import TaintToleration
from aischeduler.state.records import Backoff


@dataclass(frozen=True, slots=True)
class Profile:
    """What one scheduler does.

    `gpu_resources` are the resource names that count as GPUs; without `preemption` nobody is ever evicted.
    `make_room` holds for pools that do not say, `hold_unsupported` says whether pods with hard constraints that no rule
    looks at wait instead of being placed, and `default_pool` is the default pool while it has no object.
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
        """Return what is tried first for a pod of this pool that fits on none of its nodes."""
        return pool.make_room or self.make_room


def default_profile(
    scheduler_name: str = SCHEDULER_NAME, gpu_resources: tuple[str, ...] = (GPU_DEFAULT,), *, preemption: bool = True
) -> Profile:
    """Return the profile of all built-in rules, in kube-scheduler's order."""
    fit = NodeResourcesFit(gpu_resources)
    taints = TaintToleration()
    affinity = NodeAffinity()
    plugins = Plugins(
        gates=(SchedulingGates(),),
        filters=(NodeAffinityNames(), NodeUnschedulable(), taints, affinity, NodePorts(), fit),
        scores=(taints, affinity, NodeFragmentation(gpu_resources), fit, NodeResourcesBalancedAllocation()),
    )
    return Profile(scheduler_name, gpu_resources, plugins, preemption)
