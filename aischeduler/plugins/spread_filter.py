"""The filter of PodTopologySpread: the rows whose domains may take a pod, and the domains that may not.

Source: kube-scheduler's PodTopologySpread (PreFilter, Filter).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from aischeduler.framework.node_view import NodeView
from aischeduler.model.pod import PodSpec
from aischeduler.model.topology_spread import TopologySpreadConstraint
from aischeduler.plugins.spread_domains import KeptCounts, counted_rows
from aischeduler.state.label_index import NO_VALUE, Mask, Rows
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_counts import DomainCounts, Numbers

REASON: Final = "node(s) didn't match pod topology spread constraints"
MISSING_LABEL: Final = f"{REASON} (missing required label)"
NO_MINIMUM: Final = 2**40
"""The pods of the emptiest domain where a pool has none: every skew is below it."""


class Skew(Struct, frozen=True, order=True):
    """A domain in which a pod would exceed the maxSkew of a constraint, as numbers of pods that the selector matches.

    `matching` pods are in the domain, `with_pod` with the pod itself, which its selector may not match. The emptiest
    domain has `fewest`; that counts as 0 where there are fewer domains than `min_domains`, which is 0 where there are
    enough. Owners of claims count only where the pod would not exceed `max_skew` without them.
    """

    topology_key: str
    domain: str
    matching: int
    with_pod: int
    fewest: int
    max_skew: int
    min_domains: int

    @property
    def excess(self) -> int:
        """By how many pods the skew would exceed `max_skew`."""
        return self.with_pod - self.fewest - self.max_skew


class SpreadState(KeptCounts):
    """The domains of each constraint that a class requires, with the pods in them."""

    def __init__(self, spec: PodSpec, constraints: tuple[TopologySpreadConstraint, ...], nodes: NodeTable) -> None:
        super().__init__(nodes)
        self.keys = tuple(dict.fromkeys(constraint.topology_key for constraint in constraints))
        masks = counted_rows(spec, constraints, nodes)
        self._domains = []
        for constraint, counted in zip(constraints, masks, strict=True):
            domains = self.follow(constraint, nodes.labels.numbers(constraint.topology_key), nodes, counted)
            self._domains.append(_Domains(constraint, nodes, domains, counted))

    def filter(self, at: NodeView) -> Mask:
        """Return a mask of the rows whose domains may take the pod."""
        mask = self._domains[0].filter(at)
        for domains in self._domains[1:]:
            mask = mask & domains.filter(at)
        return mask

    def resolvable(self, at: NodeView) -> Mask:
        """Return a mask of the rows that have every label."""
        mask: Mask = np.logical_and.reduce([domains.labelled(at) for domains in self._domains])
        return mask

    def reasons(self, at: NodeView) -> Counter[str]:
        """Count each row for the first constraint that it breaks."""
        found, left = Counter[str](), at
        for domains in self._domains:
            missing = int(np.count_nonzero(~domains.labelled(left)))
            mask = domains.filter(left)
            found[MISSING_LABEL] += missing
            found[REASON] += int(np.count_nonzero(~mask)) - missing
            left = NodeView(at.nodes, left.rows[mask])
        return +found

    def skews(self, at: NodeView) -> list[list[Skew]]:
        """Return for each row the skew by every constraint whose maxSkew the pod would exceed there.

        Call it outside a search for victims: pods that the search removed from a row still count.
        """
        found: list[list[Skew]] = [[] for _ in at.rows]
        for domains in self._domains:
            for place, skew in domains.skews(at):
                found[place].append(skew)
        return found


class _Domains:
    """The domains of one constraint, by pool: a pair is a pool and a domain in which it has rows with the label.

    The pairs are sorted by pool. `_present` are those with rows that count; after the last pair follows one for rows
    without the label.
    """

    def __init__(
        self, constraint: TopologySpreadConstraint, nodes: NodeTable, domains: DomainCounts, counted: Mask
    ) -> None:
        self._constraint, self._counts, self._counted = constraint, domains, counted
        rows, size = np.flatnonzero(nodes.alive & (domains.of_row != NO_VALUE)), len(domains.pods)
        keys = nodes.pool[rows].astype(np.int64) * size + domains.of_row[rows]
        pairs, of_row = np.unique(keys, return_inverse=True)
        self._pairs = len(pairs)
        self._pair: Rows = np.full(nodes.width, len(pairs), dtype=np.intp)
        self._pair[rows] = of_row
        self._domain = np.append(pairs % size, size - 1)
        _, self._starts, self._place = np.unique(pairs // size, return_index=True, return_inverse=True)
        self._present: Mask = np.zeros(len(pairs), dtype=np.bool_)
        self._present[of_row[counted[rows]]] = True
        self._too_few = self._sums(self._present) < constraint.min_domains

    def labelled(self, at: NodeView) -> Mask:
        """Return a mask of the rows that have the label."""
        mask: Mask = at.pick(self._pair) != self._pairs
        return mask

    def filter(self, at: NodeView) -> Mask:
        """Return a mask of the rows in whose domain the pod would not exceed the skew, with claims and without."""
        pods, claims = self._counts.pods, self._counts.claims
        mask = self._even(at, pods)
        return mask & self._even(at, pods + claims) if claims.any() else mask

    def _even(self, at: NodeView, pods_there: Numbers) -> Mask:
        """Return a mask of the rows that do not exceed the skew with this number of pods in each domain."""
        constraint, apart = self._constraint, at.nodes.pod_counts.apart
        pods, fewest = self._pods_and_fewest(pods_there)
        if apart is None or constraint.selector not in apart:
            fits: Mask = pods + constraint.selects_itself - fewest <= constraint.max_skew
            return fits.take(at.pick(self._pair))
        # Each row is judged as if pods had left that row alone. Where its domain has fewer than `fewest` then, it is
        # the emptiest itself: the pod fits anyway, because maxSkew is 1 at least.
        pair = self._pair[at.rows]
        left = pods[pair] - apart[constraint.selector][at.rows] * self._counted[at.rows]
        within: Mask = left + constraint.selects_itself - fewest[pair] <= constraint.max_skew
        return within

    def skews(self, at: NodeView) -> Iterator[tuple[int, Skew]]:
        """Yield the place in `at` of each row with a label that `filter` refuses, and the skew there."""
        constraint = self._constraint
        left = np.flatnonzero(self.labelled(at))
        for pods_there in (self._counts.pods, self._counts.pods + self._counts.claims) if len(left) else ():
            pods, fewest = self._pods_and_fewest(pods_there)
            pair = self._pair[at.rows[left]]
            uneven = pods[pair] + constraint.selects_itself - fewest[pair] > constraint.max_skew
            for place, of_row in zip(left[uneven].tolist(), pair[uneven].tolist(), strict=True):
                node = at.nodes.nodes[at.rows[place]]
                assert node is not None, "a row with a domain has a node"
                there, few = int(pods[of_row]), bool(self._too_few[self._place[of_row]])
                numbers = (there, there + constraint.selects_itself, int(fewest[of_row]), constraint.max_skew)
                skew = Skew(
                    constraint.topology_key,
                    node.labels[constraint.topology_key],
                    *numbers,
                    constraint.min_domains if few else 0,
                )
                yield place, skew
            left = left[~uneven]

    def _pods_and_fewest(self, pods_there: Numbers) -> tuple[Numbers, Numbers]:
        """Return for each pair the pods in its domain, and those in the emptiest domain of its pool.

        A row without the label has no pods, and so few elsewhere that no pod fits.
        """
        pods = pods_there.take(self._domain)
        fewest = np.full(len(pods), -NO_MINIMUM, dtype=np.int64)
        if self._pairs:
            emptiest = np.minimum.reduceat(np.where(self._present, pods[:-1], NO_MINIMUM), self._starts)
            emptiest[self._too_few] = 0
            fewest[:-1] = emptiest.take(self._place)
        return pods, fewest

    def _sums(self, present: Mask) -> Numbers:
        """Return the number of these pairs by pool."""
        return np.add.reduceat(present, self._starts, dtype=np.int64) if len(present) else np.zeros(0, dtype=np.int64)
