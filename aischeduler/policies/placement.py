"""PlacementStrategy: which nodes a pool prefers for a pod."""

from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import PlacementStrategy, Pool


def placement_strategy(pool: Pool, spec: PodSpec, gpu_resources: tuple[str, ...]) -> PlacementStrategy:
    """Return the placement of the pool; where it has none, pods with devices are packed, and others spread."""
    if pool.placement is not None:
        return pool.placement
    if spec.devices is not None:
        return PlacementStrategy.PACK
    for resource in gpu_resources:
        if spec.request.amounts.get(resource):
            return PlacementStrategy.PACK
    return PlacementStrategy.SPREAD
