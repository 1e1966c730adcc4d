"""The scores of PodTopologySpread: rows whose domains have few of the pods that the preferred constraints select.

Source: kube-scheduler's PodTopologySpread (PreScore, Score, NormalizeScore).
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import Scores
from aischeduler.model.pod import PodSpec
from aischeduler.model.topology_spread import HOSTNAME, TopologySpreadConstraint
from aischeduler.plugins.spread_domains import KeptCounts, counted_rows
from aischeduler.state.label_index import NO_VALUE, Mask, Rows
from aischeduler.state.node_table import NodeTable

SCORE_MAX: Final = 100


class SpreadScores(KeptCounts):
    """The domains of each constraint that a class prefers, with the pods in them; owners of claims do not count.

    With `every_key`, rows without the label of some constraint are not scored: they get 0, and are in no domain.
    """

    def __init__(
        self,
        spec: PodSpec,
        constraints: tuple[TopologySpreadConstraint, ...],
        nodes: NodeTable,
        *,
        every_key: bool = True,
    ) -> None:
        super().__init__(nodes)
        self._every_key = every_key
        masks = counted_rows(spec, constraints, nodes, every_key=every_key)
        self._parts = []
        for one, mask in zip(constraints, masks, strict=True):
            by_row = one.topology_key == HOSTNAME
            of_row = np.arange(nodes.width, dtype=np.intp) if by_row else _numbers(one.topology_key, nodes)
            domains = self.follow(one, of_row, nodes, None if by_row else mask)
            labelled = nodes.labels.numbers(one.topology_key) != NO_VALUE
            self._parts.append((one.max_skew, domains, labelled))

    def score(self, at: NodeView) -> Scores:
        """Return 100 and less for rows whose domains have more pods than the emptiest, 0 for rows not scored."""
        labels = [labelled[at.rows] for _, _, labelled in self._parts]
        scored: Mask = np.logical_and.reduce(labels) if self._every_key else np.ones(len(at), dtype=np.bool_)
        result = np.zeros(len(at), dtype=np.int64)
        if not scored.any():
            return result
        total = np.zeros(len(at), dtype=np.float64)
        for (max_skew, domains, _), labelled in zip(self._parts, labels, strict=True):
            domain = domains.of_row[at.rows]
            present = np.zeros(len(domains.pods), dtype=np.bool_)
            present[domain[scored]] = True
            # With more domains, one has fewer pods: each pod counts for more, so that no constraint is drowned out.
            weight = math.log(np.count_nonzero(present) + 2)
            total += np.where(labelled, domains.pods[domain] * weight + (max_skew - 1), 0.0)
        raw = _rounded(total)
        least, most = int(raw[scored].min()), int(raw[scored].max())
        result[scored] = SCORE_MAX * (most + least - raw[scored]) // most if most else SCORE_MAX
        return result


def _numbers(key: str, nodes: NodeTable) -> Rows:
    """Return the domain of each row; rows without the label are in that of the empty value, if a row has it."""
    numbers = nodes.labels.numbers(key)
    if nodes.labels.values(key)[:1] == ("",):
        numbers = np.where(numbers == NO_VALUE, 0, numbers)
    return numbers


def _rounded(total: npt.NDArray[np.float64]) -> Scores:
    """Round halves up, as Go does for numbers from 0."""
    whole = np.floor(total)
    rounded: Scores = (whole + (total - whole >= 0.5)).astype(np.int64)
    return rounded
