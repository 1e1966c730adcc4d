"""The filter of PodTopologySpread: the rows whose domains may take a pod, and the domains that may not.

Source: kube-scheduler's PodTopologySpread (PreFilter, Filter).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.model.pod import PodSpec
from aischeduler.model.topology_spread import TopologySpreadConstraint
from aischeduler.plugins.spread_domains import KeptCounts, counted_rows
from aischeduler.state.domain_counts import DomainCounts, Numbers
from aischeduler.state.label_index import NO_VALUE, Mask
from aischeduler.state.node_table import NodeTable

REASON: Final = "node(s) didn't match pod topology spread constraints"
MISSING_LABEL: Final = f"{REASON} (missing required label)"


@dataclass(frozen=True, slots=True, order=True)
class Skew:
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
        self.keys = tuple(dict.fromkeys(one.topology_key for one in constraints))
        masks = counted_rows(spec, constraints, nodes)
        self._domains = []
        for one, counted in zip(constraints, masks, strict=True):
            domains = self.follow(one, nodes.labels.numbers(one.topology_key), nodes, counted)
            self._domains.append(_Domains(one, nodes, domains, counted))

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
    """The domains of one constraint, and for each pool those in which it has rows that count.

    The pairs of pool and domain are sorted by pool; pools without pairs have the last place among the pools.
    """

    def __init__(self, one: TopologySpreadConstraint, nodes: NodeTable, domains: DomainCounts, counted: Mask) -> None:
        self._constraint, self._counts, self._counted = one, domains, counted
        rows, size = np.flatnonzero(counted), len(domains.pods)
        pairs = np.unique(nodes.pool[rows].astype(np.int64) * size + domains.of_row[rows])
        self._domain_of_pair = pairs % size
        pools, self._starts, number = np.unique(pairs // size, return_index=True, return_counts=True)
        self._too_few = np.append(number < one.min_domains, [True])
        self._place = np.full(int(nodes.pool.max(initial=0)) + 2, len(pools), dtype=np.intp)
        self._place[pools] = np.arange(len(pools))

    def labelled(self, at: NodeView) -> Mask:
        """Return a mask of the rows that have the label."""
        mask: Mask = self._counts.of_row[at.rows] != NO_VALUE
        return mask

    def filter(self, at: NodeView) -> Mask:
        """Return a mask of the rows in whose domain the pod would not exceed the skew, with claims and without."""
        pods, claims = self._counts.pods, self._counts.claims
        mask = self.labelled(at) & self._even(at, pods)
        return mask & self._even(at, pods + claims) if claims.any() else mask

    def _even(self, at: NodeView, pods_there: Numbers) -> Mask:
        """Return a mask of the rows that do not exceed the skew with this number of pods in each domain."""
        one, apart = self._constraint, at.nodes.pod_counts.apart
        pods, fewest = self._pods_and_fewest(at, pods_there)
        if apart is not None and one.selector in apart:
            # Each row is judged as if pods had left that row alone. Where its domain has fewer than `fewest` then, it
            # is the emptiest itself: the pod fits anyway, because maxSkew is 1 at least.
            pods = pods - apart[one.selector][at.rows] * self._counted[at.rows]
        within: Mask = pods + one.selects_itself - fewest <= one.max_skew
        return within

    def skews(self, at: NodeView) -> Iterator[tuple[int, Skew]]:
        """Yield the place in `at` of each row with a label that `filter` refuses, and the skew there."""
        one = self._constraint
        left = np.flatnonzero(self.labelled(at))
        for pods_there in (self._counts.pods, self._counts.pods + self._counts.claims) if len(left) else ():
            view = NodeView(at.nodes, at.rows[left])
            matching, fewest = self._pods_and_fewest(view, pods_there)
            too_few = self._too_few[self._place[at.nodes.pool[view.rows]]]
            uneven = matching + one.selects_itself - fewest > one.max_skew
            parts = (left[uneven], view.rows[uneven], matching[uneven], fewest[uneven], too_few[uneven])
            for place, row, there, least, few in zip(*(part.tolist() for part in parts), strict=True):
                node = at.nodes.nodes[row]
                assert node is not None, "a row with a domain has a node"
                numbers = (there, there + one.selects_itself, least, one.max_skew, one.min_domains if few else 0)
                yield place, Skew(one.topology_key, node.labels[one.topology_key], *numbers)
            left = left[~uneven]

    def _pods_and_fewest(self, at: NodeView, pods_there: Numbers) -> tuple[Numbers, Numbers]:
        """Return for each row the pods in its domain, and those in the emptiest domain of its pool."""
        emptiest = np.zeros(len(self._too_few), dtype=np.int64)
        if len(self._starts):
            emptiest[:-1] = np.minimum.reduceat(pods_there[self._domain_of_pair], self._starts)
            emptiest[self._too_few] = 0
        return pods_there[self._counts.of_row[at.rows]], emptiest[self._place[at.nodes.pool[at.rows]]]
