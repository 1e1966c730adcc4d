"""ElasticPlaces: with `placement: Pack`, prefer the node where a pod takes the fewest places of elastic instances.

A place is the room for one more instance. Where pods and instances are of unlike sizes, the fullest node is not always
the best: on 17 free cores four pods of 4 leave no place for an instance of 5, three pods and an instance fill it. The
score is 100, less 12 for each place that the pod takes; where the jobs of a pool have instances of several sizes, the
mean counts. Pods like this one may follow: of one to four of them, it is the number that takes the fewest places each.
Nodes that are equal in this are chosen by the other scores.

Devices that are known singly are not looked at: a pod that asks for such, or for a part of one, has no score here.

Source: fragmentation gradient descent (Weng et al., USENIX ATC 2023), in which what is expected is known beforehand.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Scores
from aischeduler.model.pool import PlacementStrategy
from aischeduler.state.node_table import InstanceSize
from aischeduler.state.requests import requested

Integers = npt.NDArray[np.int64]

ALIKE: Final = 4
"""So many pods like the one that is placed may follow on the node, itself counted."""
POINTS: Final = 12
"""What a place is worth: a whole number for the part of it that one of two, three or four pods takes."""
SCORE_MAX: Final = 100
NUMBERS: Final = np.arange(ALIKE + 1).reshape(-1, 1, 1)
POINTS_EACH: Final = POINTS // np.arange(1, ALIKE + 1).reshape(-1, 1)
"""The points of a place for each of one, two ... pods that take it together."""
NONE_FIT: Final = np.array(1 << 40)
"""More points than pods take."""
SIZES_KEPT: Final = 1024
"""The most pairs of a pod and the sizes of instances that are kept in the form of arrays."""


class ElasticPlaces:
    """Score 0 to 100: 100 where no place is taken."""

    name = "ElasticPlaces"
    static = False
    weight = 20
    """A place outweighs the resource scores, which differ by at most 150; preferences outweigh some places."""
    normalize = False
    reverse = False

    def score(self, ask: PlacementRequest, at: NodeView) -> Scores | None:
        """Count the places of instances with and without the pod; return None where none are expected."""
        expected = at.nodes.instances
        if not expected or ask.placement is not PlacementStrategy.PACK or ask.spec.devices is not None:
            return None
        asked, pools = tuple(ask.spec.request.taken.items()), at.nodes.pool.take(at.rows)
        there = {*pools.tolist()}
        if len(there) == 1 and there <= expected.keys():
            return _score(at.left, _sizes(asked, expected[there.pop()]), at)
        found = np.full(len(at), SCORE_MAX, dtype=np.int64)
        for pool in sorted(there & expected.keys()):
            among = np.flatnonzero(pools == pool)
            found[among] = _score(at.left.take(among, axis=1), _sizes(asked, expected[pool]), at)
        return found


class _Sizes(NamedTuple):
    """What a pod asks for, as [resource, 1], and the sizes of instances: the resources of each, and their amounts."""

    resources: tuple[str, ...]
    asked: Integers
    instances: tuple[tuple[Integers, Integers], ...]


@lru_cache(maxsize=SIZES_KEPT)
def _sizes(asked: InstanceSize, instances: tuple[InstanceSize, ...]) -> _Sizes:
    """Return what a pod and instances ask for in the form of arrays, which are made once."""
    resources = sorted({resource for size in (asked, *instances) for resource, _ in size})
    amounts = [np.array([requested(dict(size).get(name, 0)) for name in resources]) for size in (asked, *instances)]
    used = [np.flatnonzero(size) for size in amounts]
    return _Sizes(
        tuple(resources),
        amounts[0].reshape(-1, 1),
        tuple((which, size[which].reshape(-1, 1)) for which, size in zip(used[1:], amounts[1:], strict=True)),
    )


def _score(left: Integers, sizes: _Sizes, at: NodeView) -> Scores:
    """Return by row of `left` 100 less the points of the places that a pod takes, on average over the sizes."""
    free = left.take([at.nodes.column(resource) for resource in sizes.resources], axis=0)
    after = free - NUMBERS * sizes.asked
    fits, room = (after[1:] >= 0).all(axis=1), np.maximum(after, 0)
    points = np.zeros(fits.shape, dtype=np.int64)
    for which, amounts in sizes.instances:
        places = (room.take(which, axis=1) // amounts).min(axis=1)
        points += (places[0] - places[1:]) * POINTS_EACH
    if len(sizes.instances) > 1:
        points //= len(sizes.instances)
    scores: Scores = np.maximum(SCORE_MAX - np.where(fits, points, NONE_FIT).min(axis=0), 0)
    return scores
