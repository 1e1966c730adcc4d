"""NodeFragmentation: with `placement: Fragmentation`, prefer the node where a pod strands the fewest GPUs.

The plugin assumes jobs of 1, 2, 4 and 8 GPUs, equally often. Each asks per GPU for three quarters of the node's CPU
and memory per GPU; the rest is for other pods. The free GPUs of a node that remain after as many jobs of one size as
fit are stranded for that size. The score is 50, less one for each further GPU that the pod strands, summed over the
sizes: a whole free node scores lower, a node whose gap the pod fills scores higher. A pod without GPUs is scored in the
same way, for the CPU and memory that it takes from the GPUs of the node.

On nodes with Device objects single GPUs are known, and what recent pods asked for is expected again: there the score is
50, less one for each tenth of a GPU that the pod makes useless for them (`expected_waste`). Where the kubelet chooses
the GPUs, counts decide all the same: which GPUs are free is known late, or never.

Source: fragmentation gradient descent (Weng et al., USENIX ATC 2023), for whole GPUs and a fixed mix of jobs.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Scores
from aischeduler.model.pool import PlacementStrategy
from aischeduler.plugins.expected_waste import ExpectedRequests, FreeRoom, waste_growth
from aischeduler.state.devices import DeliveryMode
from aischeduler.state.node_table import CPU_AND_MEMORY
from aischeduler.state.recent_requests import WeightedShapes
from aischeduler.state.requests import requested

JOB_GPUS: Final = (1, 2, 4, 8)
QUARTERS_ASKED: Final = 3
"""The quarters of a GPU's share of CPU and memory that a typical job requests."""
TENTH: Final = 100
"""The thousandths of a GPU in a tenth, for which a node loses one point."""
_NONE, _DEVICE_PLUGIN = int(DeliveryMode.NONE), int(DeliveryMode.DEVICE_PLUGIN)
UNCHANGED: Final = 50
SCORE_MAX: Final = 100


class NodeFragmentation:
    """Score 0 to 100: 50 where the number of stranded GPUs does not change."""

    name = "NodeFragmentation"
    static = False
    weight = 200
    """One GPU outweighs the resource scores, which differ by at most 150; preferences may outweigh a few GPUs."""
    normalize = False
    reverse = False

    def __init__(self, gpu_resources: tuple[str, ...]) -> None:
        self._gpu_resources = gpu_resources

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Compare the stranded GPUs with and without the pod; return None for other placements."""
        if ask.placement is not PlacementStrategy.FRAGMENTATION:
            return None
        devices = at.nodes.devices
        if devices.active:
            mode = devices.mode.take(at.rows)
            known = (mode != _NONE) & (mode != _DEVICE_PLUGIN)
            if known.all():
                return _by_device(ask, at)
            if known.any():
                return np.where(known, _by_device(ask, at), self._by_count(ask, at))
        return self._by_count(ask, at)

    def _by_count(self, ask: PlacementRequest, at: NodeView) -> Scores:
        amounts = ask.spec.request.amounts
        asked = at.nodes.wanted(ask.spec).cpu_and_memory
        stranded = np.zeros(len(at), dtype=np.int64)
        for resource in self._gpu_resources:
            column = at.nodes.column(resource)
            gpus = at.allocatable[column]
            share = at.allocatable[CPU_AND_MEMORY] * QUARTERS_ASKED // (4 * np.maximum(gpus, 1))
            room = at.left[CPU_AND_MEMORY]
            free = at.left[column]
            after = free - requested(amounts.get(resource, 0))
            stranded += _stranded(after, room - asked, share) - _stranded(free, room, share)
        return np.clip(UNCHANGED - stranded, 0, SCORE_MAX)


def _by_device(ask: PlacementRequest, at: NodeView) -> Scores:
    """Return 50 less a point for each tenth of a GPU of which recent requests can make no use because of the pod."""
    devices = at.nodes.devices
    room = FreeRoom(devices.hundredths[at.rows], *at.left[CPU_AND_MEMORY])
    growth, _ = waste_growth(room, _expected(devices.recent.shapes()), devices.shape_of(ask.spec))
    return np.clip(UNCHANGED - (growth + TENTH // 2) // TENTH, 0, SCORE_MAX)


@lru_cache(maxsize=2)
def _expected(shapes: WeightedShapes) -> ExpectedRequests:
    return ExpectedRequests(shapes)


def _stranded(free: Scores, room: Scores, share: Scores) -> Scores:
    """Return the number of `free` GPUs that are stranded, summed over the job sizes.

    `room` and `share` are [CPU and memory, rows]: what is free, and what a job requests per GPU.
    """
    free = np.maximum(free, 0)
    served = np.where(share > 0, np.maximum(room, 0) // np.maximum(share, 1), free)
    usable = np.minimum(free, served.min(axis=0))
    return sum((free - usable // size * size for size in JOB_GPUS), np.zeros_like(free))
