"""NodeFragmentation: where the pool asks for it, a pod goes where it makes the fewest GPUs useless to later jobs.

Jobs of 1, 2, 4 and 8 GPUs are thought to come equally often, each asking per GPU for three quarters of the node's
CPU and memory per GPU: the rest is for what runs beside jobs. Free GPUs of a node that are left over when as many
jobs of one size are put there as fit are stranded for that size. The score is 50, less one for each GPU that the pod
strands more, summed over the sizes: it loses points on a whole free node and gains some where it fills a gap.
Pods without GPUs are scored alike, for the CPU and memory that they take away from the GPUs beside them.

Source: fragmentation gradient descent (Weng et al., USENIX ATC 2023), for whole GPUs and a fixed mix of jobs.
"""

from typing import Final

import numpy as np

from aischeduler.framework.plugin import PlacementRequest, Scores
from aischeduler.model.pool import PlacementStrategy
from aischeduler.state.excerpt import Excerpt
from aischeduler.state.nodes import CPU_AND_MEMORY
from aischeduler.state.wanted import requested

JOB_GPUS: Final = (1, 2, 4, 8)
QUARTERS_ASKED: Final = 3
"""Quarters of a GPU's share of its node's CPU and memory that a typical job asks for."""
UNCHANGED: Final = 50
SCORE_MAX: Final = 100


class NodeFragmentation:
    """Score 0 to 100: 50 where the pod strands no GPU and frees none."""

    name = "NodeFragmentation"
    static = False
    weight = 200
    """One GPU outvotes the resource scores, which differ by 150 at most; preferences may outvote a few GPUs."""
    normalize = False
    reverse = False

    def __init__(self, gpu_resources: tuple[str, ...]) -> None:
        self._gpu_resources = gpu_resources

    def score(self, ask: PlacementRequest, at: Excerpt) -> Scores | None:
        """Compare the stranded GPUs with and without the pod; other placements are not scored."""
        if ask.placement is not PlacementStrategy.FRAGMENTATION:
            return None
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


def _stranded(free: Scores, room: Scores, share: Scores) -> Scores:
    """Sum up over the job sizes which of the `free` GPUs are useless to them.

    `room` and `share` are [CPU and memory, rows]: what is left, and what a job asks for per GPU.
    """
    free = np.maximum(free, 0)
    served = np.where(share > 0, np.maximum(room, 0) // np.maximum(share, 1), free)
    usable = np.minimum(free, served.min(axis=0))
    return sum((free - usable // size * size for size in JOB_GPUS), np.zeros_like(free))
