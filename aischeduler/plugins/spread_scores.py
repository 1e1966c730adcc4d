"""The scores of PodTopologySpread: rows whose domains have few of the pods that the preferred constraints select.

Source: kube-scheduler's PodTopologySpread (PreScore, Score, NormalizeScore).
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from aischeduler.framework.node_view import NodeView, every_row
from aischeduler.framework.plugin import Scores
from aischeduler.model.pod import PodSpec
from aischeduler.model.topology_spread import HOSTNAME, TopologySpreadConstraint
from aischeduler.plugins.spread_domains import KeptCounts, counted_rows
from aischeduler.state.label_index import NO_VALUE, Mask, Rows
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_counts import DomainCounts

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
        masks = counted_rows(spec, constraints, nodes, every_key=every_key)
        self._parts: list[_Part] = []
        scored = nodes.alive.copy()
        for constraint, mask in zip(constraints, masks, strict=True):
            by_row = constraint.topology_key == HOSTNAME
            of_row = every_row(nodes.width) if by_row else _numbers(constraint.topology_key, nodes)
            domains = self.follow(constraint, of_row, nodes, None if by_row else mask)
            labelled = nodes.labels.having_key(constraint.topology_key)
            everywhere = bool(labelled[nodes.alive].all())
            self._parts.append(_Part(constraint.max_skew, domains, None if everywhere else labelled, by_row))
            scored &= labelled
        self._scored = scored if every_key and not scored[nodes.alive].all() else None
        first = self._parts[0]
        self._one_key = len(self._parts) == 1 and not first.by_row and first.labelled is None
        """Whether all rows are in a domain of one label, and no row differs from the others of its domain."""

    def score(self, at: NodeView) -> Scores:
        """Return 100 and less for rows whose domains have more pods than the emptiest, 0 for rows not scored."""
        if self._one_key:
            return self._by_domain(at)
        if self._scored is None:
            return _normalized(self._raw(at.rows))
        scored, result = self._scored.take(at.rows), np.zeros(len(at), dtype=np.int64)
        rows = at.rows[scored]
        if len(rows):
            result[scored] = _normalized(self._raw(rows))
        return result

    def _by_domain(self, at: NodeView) -> Scores:
        """Do what `score` does for each domain, not for each row."""
        part = self._parts[0]
        domain = at.pick(part.domains.of_row)
        present = np.bincount(domain, minlength=len(part.domains.pods)) > 0
        raw = _rounded(part.of_domains(present))
        raw[~present] = raw[present][0]  # as one of the others, so that it is neither least nor most
        return _normalized(raw).take(domain)

    def _raw(self, rows: Rows) -> Scores:
        """Return the sums of the constraints for rows that are scored: the more pods, the more."""
        total: npt.NDArray[np.floating] | float = 0.0
        for part in self._parts:
            total = total + part.values(rows)
        return _rounded(np.asarray(total))


class _Part(Struct, frozen=True):
    """One constraint. `labelled` is None where every node has the label; `by_row` where each row is a domain."""

    max_skew: int
    domains: DomainCounts
    labelled: Mask | None
    by_row: bool

    def values(self, rows: Rows) -> npt.NDArray[np.floating]:
        """Return what the constraint adds to the sum of each row; nothing without the label."""
        if self.by_row:
            values = self.domains.pods.take(rows) * math.log(len(rows) + 2) + (self.max_skew - 1)
        else:
            domain = self.domains.of_row.take(rows)
            present = np.zeros(len(self.domains.pods), dtype=np.bool_)
            present[domain] = True
            values = self.of_domains(present).take(domain)
        if self.labelled is not None:
            values[~self.labelled.take(rows)] = 0.0
        return values

    def of_domains(self, present: Mask) -> npt.NDArray[np.floating]:
        """Return what the constraint adds in each domain, of which these are present."""
        # With more domains, one has fewer pods: each pod counts for more, so that no constraint is drowned out.
        return self.domains.pods * math.log(np.count_nonzero(present) + 2) + (self.max_skew - 1)


def _rounded(sums: npt.NDArray[np.floating]) -> Scores:
    """Round halves up, as Go does for numbers from 0. A sum is 0 or above 1: adding the half is exact."""
    return (sums + 0.5).astype(np.int64)


def _normalized(raw: Scores) -> Scores:
    """Return 100 for the least of the sums, and less for the others; 100 where all are 0."""
    least, most = int(raw.min()), int(raw.max())
    return SCORE_MAX * (most + least - raw) // most if most else np.full_like(raw, SCORE_MAX)


def _numbers(key: str, nodes: NodeTable) -> Rows:
    """Return the domain of each row; rows without the label are in that of the empty value, if a row has it."""
    numbers = nodes.labels.numbers(key)
    if nodes.labels.values(key)[:1] == ("",):
        numbers = np.where(numbers == NO_VALUE, 0, numbers)
    return numbers
