"""PodTopologySpread: hard constraints on how unevenly matching pods are spread over the domains of a node label.

The domains of a pod are those of one pool: the nodes of other pools are to it like nodes that its node affinity
excludes.

Source: kube-scheduler's PodTopologySpread (filter, PreFilter).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PreFilterState
from aischeduler.model.pod import PodSpec
from aischeduler.model.topology_spread import TopologySpreadConstraint
from aischeduler.plugins.node_affinity import NodeAffinity
from aischeduler.plugins.taint_toleration import TaintToleration
from aischeduler.state.counted_pods import Counted
from aischeduler.state.label_index import NO_VALUE, Mask, Rows
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_counts import Change
from aischeduler.state.rows_by_pool import NO_POOL

REASON: Final = "node(s) didn't match pod topology spread constraints"
MISSING_LABEL: Final = f"{REASON} (missing required label)"
NO_DOMAIN: Final = -1
NO_MINIMUM: Final = 2**40
"""The pods of the emptiest domain where a pool has none: every skew is below it."""

Numbers = npt.NDArray[np.int64]


class PodTopologySpread:
    """Filter nodes by the constraints with whenUnsatisfiable DoNotSchedule."""

    name = "PodTopologySpread"

    def applies(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod has constraints."""
        return bool(spec.topology_spread)

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return the selectors of the constraints."""
        return tuple(one.selector for one in spec.topology_spread if one.selector is not None)

    def prefilter(self, spec: PodSpec, nodes: NodeTable, before: PreFilterState | None) -> PreFilterState:
        """Return the pods by domain."""
        versions = (nodes.static_version, nodes.pool_version, nodes.width)
        if isinstance(before, SpreadState) and before.versions == versions and before.catch_up(nodes):
            return before
        return SpreadState(spec, nodes, versions)


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


class SpreadState:
    """The domains of each constraint of a class, with the pods in them."""

    def __init__(self, spec: PodSpec, nodes: NodeTable, versions: tuple[int, int, int]) -> None:
        self.versions = versions
        at = NodeView(nodes, np.arange(nodes.width, dtype=np.intp))
        in_pool = nodes.alive & (nodes.pool != NO_POOL)
        labelled = in_pool.copy()
        for one in spec.topology_spread:
            labelled &= nodes.labels.numbers(one.topology_key) != NO_VALUE
        matching, tolerated = NodeAffinity().filter(spec, at), TaintToleration().filter(spec, at)
        self._domains = []
        for one in spec.topology_spread:
            counted = labelled
            if one.honors_affinity and matching is not None:
                counted = counted & matching
            if one.honors_taints and tolerated is not None:
                counted = counted & tolerated
            self._domains.append(_Domains(one, nodes, in_pool, counted))

    def catch_up(self, nodes: NodeTable) -> bool:
        """Read the changes of counts; return whether they are still kept."""
        return all(domains.catch_up(nodes) for domains in self._domains)

    def filter(self, at: NodeView) -> Mask:
        """Return a mask of the rows whose domains may take the pod."""
        mask = self._domains[0].filter(at)
        for domains in self._domains[1:]:
            mask = mask & domains.filter(at)
        return mask

    def resolvable(self, at: NodeView) -> Mask:
        """Return a mask of the rows that have every label."""
        mask: Mask = np.logical_and.reduce([domains.of_row[at.rows] != NO_DOMAIN for domains in self._domains])
        return mask

    def reasons(self, at: NodeView) -> Counter[str]:
        """Count each row for the first constraint that it breaks."""
        found, left = Counter[str](), at
        for domains in self._domains:
            missing = int(np.count_nonzero(domains.of_row[left.rows] == NO_DOMAIN))
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
    """The domains of one constraint over all pools, sorted by pool: `of_row` has the domain of each row.

    Per domain: `pods` that the selector matches there, and owners of `claims`.
    """

    def __init__(self, one: TopologySpreadConstraint, nodes: NodeTable, in_pool: Mask, counted: Mask) -> None:
        self._constraint = one
        self._counted = counted
        numbers = nodes.labels.numbers(one.topology_key)
        rows = np.flatnonzero(in_pool & (numbers != NO_VALUE))
        values = int(numbers.max(initial=0)) + 1
        keys, of_row = np.unique(nodes.pool[rows].astype(np.int64) * values + numbers[rows], return_inverse=True)
        self.of_row: Rows = np.full(nodes.width, NO_DOMAIN, dtype=np.intp)
        self.of_row[rows] = of_row
        pools = keys // values
        first = np.ones(len(keys), dtype=np.bool_)
        np.not_equal(pools[1:], pools[:-1], out=first[1:])
        self._starts = np.flatnonzero(first)
        self._pool = np.cumsum(first) - 1
        self._present: Mask = np.zeros(len(keys), dtype=np.bool_)
        self._present[self.of_row[np.flatnonzero(counted)]] = True
        few = np.add.reduceat(self._present, self._starts, dtype=np.int64) if len(keys) else np.zeros(0, dtype=np.int64)
        self._too_few = few < one.min_domains
        self.pods: Numbers = np.zeros(len(keys), dtype=np.int64)
        self.claims: Numbers = np.zeros_like(self.pods)
        self._version = 0
        if one.selector is not None:
            count = nodes.pod_counts.of(one.selector)
            self._version = count.version
            self._count_pods(count.all())

    def catch_up(self, nodes: NodeTable) -> bool:
        """Read the changes of the count; return whether they are still kept."""
        if self._constraint.selector is None:
            return True
        count = nodes.pod_counts.of(self._constraint.selector)
        changes = count.since(self._version)
        if changes is None:
            return False
        self._count_pods(changes)
        self._version = count.version
        return True

    def filter(self, at: NodeView) -> Mask:
        """Return a mask of the rows in whose domain the pod would not exceed the skew, with claims and without."""
        labelled: Mask = self.of_row[at.rows] != NO_DOMAIN
        if not len(self.pods):
            return labelled
        mask = labelled & self._even(at, self.pods)
        return mask & self._even(at, self.pods + self.claims) if self.claims.any() else mask

    def _even(self, at: NodeView, pods_there: Numbers) -> Mask:
        """Return a mask of the rows that do not exceed the skew with this number of pods in each domain."""
        one, domain = self._constraint, self.of_row[at.rows]
        emptiest = self._emptiest(pods_there)
        apart = at.nodes.pod_counts.apart
        if apart is None or one.selector not in apart:
            fits: Mask = pods_there + one.selects_itself - emptiest[self._pool] <= one.max_skew
            return fits[domain]
        # Each row is judged as if pods had left that row alone.
        pods = pods_there[domain] - apart[one.selector][at.rows] * self._counted[at.rows]
        least = emptiest[self._pool[domain]]
        least = np.where(self._present[domain], np.minimum(least, pods), least)
        within: Mask = pods + one.selects_itself - least <= one.max_skew
        return within

    def skews(self, at: NodeView) -> Iterator[tuple[int, Skew]]:
        """Yield the place in `at` of each row with a label that `filter` refuses, and the skew there."""
        one = self._constraint
        left = np.flatnonzero(self.of_row[at.rows] != NO_DOMAIN)
        for pods_there in (self.pods, self.pods + self.claims) if len(left) else ():
            domain = self.of_row[at.rows[left]]
            matching, fewest = pods_there[domain], self._emptiest(pods_there)[self._pool[domain]]
            uneven = matching + one.selects_itself - fewest > one.max_skew
            for place, there, least in zip(left[uneven], matching[uneven], fewest[uneven], strict=True):
                node = at.nodes.nodes[at.rows[place]]
                assert node is not None, "a row with a domain has a node"
                few = one.min_domains if self._too_few[self._pool[self.of_row[at.rows[place]]]] else 0
                numbers = (int(there), int(there) + one.selects_itself, int(least), one.max_skew, few)
                yield int(place), Skew(one.topology_key, node.labels[one.topology_key], *numbers)
            left = left[~uneven]

    def _emptiest(self, pods_there: Numbers) -> Numbers:
        """Return the pods of the emptiest domain of each pool, with this number of pods in each domain."""
        emptiest = np.minimum.reduceat(np.where(self._present, pods_there, NO_MINIMUM), self._starts)
        emptiest[self._too_few] = 0
        return emptiest

    def _count_pods(self, changes: Iterable[Change]) -> None:
        for row, number, claims in changes:
            if self._counted[row]:
                (self.claims if claims else self.pods)[self.of_row[row]] += number
