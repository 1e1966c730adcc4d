"""PlacementStrategy: choose the best node of a pool for one pod."""

from dataclasses import dataclass

from aischeduler.framework.plugin import PlacementRequest
from aischeduler.framework.runner import Runner
from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import PlacementStrategy, Pool
from aischeduler.state.index import Rows
from aischeduler.state.trial import Trial


@dataclass(frozen=True, slots=True)
class BestNode:
    """The row of the best node, out of `feasible` rows that fit."""

    row: int
    feasible: int


def place(runner: Runner, ask: PlacementRequest, rows: Rows, trial: Trial) -> BestNode | None:
    """Place the pod on the best of the rows in the trial; return None where no row passes every filter."""
    found = runner.best(ask, rows)
    if found is None:
        return None
    row, feasible = found
    trial.place(ask.spec, row)
    return BestNode(row, feasible)


def placement_strategy(pool: Pool, spec: PodSpec, gpu_resources: tuple[str, ...]) -> PlacementStrategy:
    """Return the placement of the pool; where it has none, GPU pods are packed and others spread."""
    if pool.placement is not None:
        return pool.placement
    asks_gpu = any(spec.request.amounts.get(resource) for resource in gpu_resources)
    return PlacementStrategy.PACK if asks_gpu else PlacementStrategy.SPREAD
