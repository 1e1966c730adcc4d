"""PlacementStrategy: which nodes a pool prefers for a pod."""

from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import PlacementStrategy, Pool


def placement_strategy(pool: Pool, spec: PodSpec, gpu_resources: tuple[str, ...]) -> PlacementStrategy:
    """Return the placement of the pool; where it has none, GPU pods are packed and others spread."""
    if pool.placement is not None:
        return pool.placement
    asks_gpu = any(spec.request.amounts.get(resource) for resource in gpu_resources)
    return PlacementStrategy.PACK if asks_gpu else PlacementStrategy.SPREAD
