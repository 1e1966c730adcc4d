"""What a pod takes of the row on which it is placed, for whose room it waits, or to which it is bound."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import CannotAllocateError, GroupAllocator, Plugins
from aischeduler.framework.runner import Runner
from aischeduler.model.allocation import Allocation, allocation_of
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod


def allocation_on(
    runner: Runner,
    spec: PodSpec,
    row: int,
    placement: PlacementStrategy = PlacementStrategy.PACK,
    *,
    claims: bool = False,
) -> Allocation:
    """Return what a pod takes on a row where it fits, or what it `claims` there, with what allocators choose.

    `placement` is that of the pool for the pod. A claim may be without what cannot be chosen now; else that raises
    CannotAllocateError.
    """
    allocation = allocation_of(spec)
    for allocator in runner.plugins_of(spec).allocators:
        if not allocator.allocates(spec, runner.nodes) or (claims and not allocator.for_claims):
            continue
        state = next((answer.state for answer in runner.prefiltered(spec) if answer.name == allocator.name), None)
        at = NodeView(runner.nodes, np.array([row], dtype=np.intp))
        try:
            allocation = allocator.choose(allocation, spec, at, state, placement)
        except CannotAllocateError:
            if not claims:
                raise
    return allocation


def allocated_together(
    runner: Runner, pods: Sequence[AssignedPod], placement: PlacementStrategy
) -> tuple[AssignedPod, ...]:
    """Return the pods of a gang on one row, where they fit, with what allocators choose for all at once."""
    found = tuple(pods)
    at = NodeView(runner.nodes, np.array([pods[0].row], dtype=np.intp))
    for allocator in runner.plugins_of(pods[0].spec).allocators:
        if isinstance(allocator, GroupAllocator) and all(allocator.allocates(pod.spec, runner.nodes) for pod in pods):
            given, specs = [pod.allocation for pod in found], [pod.spec for pod in found]
            chosen = allocator.choose_together(given, specs, at, placement)
            found = tuple(replace(pod, allocation=one) for pod, one in zip(found, chosen, strict=True))
    return found


def claims_something(runner: Runner, spec: PodSpec) -> bool:
    """Return whether an allocator chooses for pods of this class that claim room."""
    return any(
        allocator.for_claims and allocator.allocates(spec, runner.nodes)
        for allocator in runner.plugins_of(spec).allocators
    )


def bound_allocation(plugins: Plugins, pod: Pod, nodes: NodeTable) -> Allocation:
    """Return what a pod takes of the row to which it is bound."""
    allocation = allocation_of(pod.spec)
    for allocator in plugins.allocators:
        if allocator.allocates(pod.spec, nodes):
            allocation = allocator.bound(allocation, pod, nodes)
    return allocation
