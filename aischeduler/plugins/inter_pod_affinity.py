"""InterPodAffinity: pods near which, and away from which, a pod runs, by the domains of node labels.

Pods on all nodes of the cluster count, whatever their pool: affinity is about where things are, not about whose they
are.

Source: kube-scheduler's InterPodAffinity (PreFilter, Filter, PreScore, Score, NormalizeScore).
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, PreFilterState, PreScoreState, Scores
from aischeduler.model.pod import PodSpec
from aischeduler.model.pod_affinity import CarriedKind, PodAffinityTerm
from aischeduler.state.counted_pods import Counted, SelectedByTerms, selected_by
from aischeduler.state.kept import StatePart, Versions, reading
from aischeduler.state.label_index import Mask, Rows, all_hold
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_counts import DomainCounts, Numbers

AFFINITY: Final = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
SCORE_MAX: Final = 100
SCALES_MAX: Final = 64
"""The most scales of scores that are kept."""
HARD_WEIGHT: Final = 1
"""The default of hardPodAffinityWeight: what a required affinity of a pod on a node adds to a score."""

READ: Final = reading(StatePart.COUNTED, StatePart.LABELS)
"""What grows where counts, labels or rows come or go, so that other domains may matter."""


class InterPodAffinity:
    """Filter by required terms, of the pod and of pods on nodes; score by preferred terms, and by required affinity.

    With `ignores_preferences`, a pod without preferred terms is not scored by those of pods on nodes.
    """

    name = "InterPodAffinity"
    weight = 2

    def __init__(self, hard_weight: int = HARD_WEIGHT, *, ignores_preferences: bool = False) -> None:
        self._hard_weight = hard_weight
        self._ignores_preferences = ignores_preferences

    def by_class(self, spec: PodSpec) -> bool:
        """Return whether no term of another pod may select the class, because it has no namespace."""
        return spec.namespace is None

    def applies(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod has required terms, or a pod objects to it."""
        own = spec.pod_affinity
        return bool(own.required or own.anti_required or nodes.pod_counts.objecting(spec))

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return the pods that the required terms select."""
        own = spec.pod_affinity
        near = (selected_by(*own.required),) if own.required else ()
        return (*near, *(_kept_from(term) for term in own.anti_required))

    def scored(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return the pods that the preferred terms select."""
        return tuple(selected_by(term) for _, term in spec.pod_affinity.preferred)

    def prefilter(self, spec: PodSpec, nodes: NodeTable, before: PreFilterState | None) -> PreFilterState:
        """Return the domains that matter; those of the last call as long as they are the same."""
        if isinstance(before, AffinityState) and before.made_from == READ(nodes):
            return before
        return AffinityState(spec, nodes)

    def prefers(self, spec: PodSpec, nodes: NodeTable) -> bool:
        """Return whether the pod has preferred terms, or a term of a pod selects it."""
        own = bool(spec.pod_affinity.preferred)
        if spec.namespace is None or (self._ignores_preferences and not own):
            return own
        return own or any(term.kind is not CarriedKind.ANTI_AFFINITY for term in nodes.pod_counts.terms.selecting(spec))

    def prescore(self, ask: PlacementRequest, nodes: NodeTable, before: PreScoreState | None) -> PreScoreState:
        """Return the domains that score, with their weights; those of the last call as long as they are the same."""
        versions = READ(nodes)  # before labels are read
        if isinstance(before, AffinityScores) and before.made_from == versions:
            return before
        counts, labels, own = nodes.pod_counts, nodes.labels, ask.spec.pod_affinity.preferred
        weighted = [(weight, counts.of(selected_by(term)).by_domain(term.topology_key, labels)) for weight, term in own]
        for carried in counts.terms.selecting(ask.spec) if own or not self._ignores_preferences else ():
            weight = carried.weight * (self._hard_weight if carried.kind is CarriedKind.AFFINITY else 1)
            if carried.kind is not CarriedKind.ANTI_AFFINITY and weight:
                weighted.append((weight, counts.of(carried).by_domain(carried.term.topology_key, labels)))
        return AffinityScores(weighted, versions)


class AffinityState:
    """The domains of the terms that one class meets. It reads the counts as they are now, trials included."""

    def __init__(self, spec: PodSpec, nodes: NodeTable) -> None:
        counts, labels, own = nodes.pod_counts, nodes.labels, spec.pod_affinity
        self.made_from = READ(nodes)
        self._near: list[DomainCounts] = []
        self._may_be_first = False
        if own.required:
            self._by: Counted = selected_by(*own.required)
            count = counts.of(self._by)
            self._near = [count.by_domain(term.topology_key, labels) for term in own.required]
            namespace, labels_of_pods = spec.namespace or "", dict(spec.labels)
            self._may_be_first = all(
                term.selects(namespace, labels_of_pods, counts.namespaces, unseen=False) for term in own.required
            )
        self._apart = [self._domains(_kept_from(term), term, nodes) for term in own.anti_required]
        self._existing = [self._domains(carried, carried.term, nodes) for carried in counts.objecting(spec)]

    def filter(self, at: NodeView) -> Mask:
        """Return a mask of the rows where every required term holds, with claims and without."""
        masks = [self._beside(at)] if self._near else []
        kept_away = (*self._apart, *self._existing)
        if at.nodes.pod_counts.apart is None:
            masks += (free.take(at.pick(of_row)) for of_row, free in _free(kept_away))
        else:
            masks += (~_taken(by, domains, at) for by, domains in kept_away)
        return all_hold(masks or [np.ones(len(at), dtype=np.bool_)])

    def resolvable(self, at: NodeView) -> Mask:
        """Return a mask of the rows where the affinity holds: pods that leave do not help it."""
        return self._beside(at)

    def reasons(self, at: NodeView) -> Counter[str]:
        """Count each row for the affinity, else for its anti-affinity, else for that of pods on nodes."""
        found, left = Counter[str](), at
        for reason, domains in ((ANTI_AFFINITY, self._apart), (EXISTING, self._existing)):
            if reason is ANTI_AFFINITY:
                beside = self._beside(left)
                found[AFFINITY] = int(np.count_nonzero(~beside))
                left = NodeView(at.nodes, left.rows[beside])
            taken = np.zeros(len(left), dtype=np.bool_)
            for by, existing in domains:
                taken |= _taken(by, existing, left)
            found[reason] = int(np.count_nonzero(taken))
            left = NodeView(at.nodes, left.rows[~taken])
        return +found

    def _beside(self, at: NodeView) -> Mask:
        """Return a mask of the rows with every label, and with pods in every domain that all terms select.

        The first of a set of pods that select themselves may come to any row with the labels.
        """
        if not self._near:
            return np.ones(len(at), dtype=np.bool_)
        apart = at.nodes.pod_counts.apart
        among = self._among if apart is None or self._by not in apart else self._among_left
        mask = among(at, claims=False)
        return mask & among(at, claims=True) if any(near.claims.any() for near in self._near) else mask

    def _among(self, at: NodeView, *, claims: bool) -> Mask:
        """Return a mask of the rows with selected pods in every domain.

        Where no term selects a pod anywhere, it has all rows with the labels.
        """
        there = [near.pods + near.claims if claims else near.pods for near in self._near]
        first = self._may_be_first and not any(pods.any() for pods in there)
        masks: list[Mask] = []
        for domains, pods in zip(self._near, there, strict=True):
            allowed = pods > 0
            if first:
                allowed[:-1] = True
            masks.append(allowed.take(at.pick(domains.of_row)))
        return all_hold(masks)

    def _among_left(self, at: NodeView, *, claims: bool) -> Mask:
        """Do what `_among` does beside a search, which has removed pods of each row for that row alone."""
        among = labelled = np.ones(len(at), dtype=np.bool_)
        nowhere: Mask | bool = self._may_be_first
        for domains in self._near:
            there = domains.pods + domains.claims if claims else domains.pods
            gone = _gone(self._by, at, domains)
            among = among & _more(there, gone, domains, at)
            labelled = labelled & (at.pick(domains.of_row) >= 0)
            nowhere = nowhere & (int(there.sum()) <= gone)
        return (among | nowhere) & labelled

    @staticmethod
    def _domains(by: Counted, term: PodAffinityTerm, nodes: NodeTable) -> tuple[Counted, DomainCounts]:
        return by, nodes.pod_counts.of(by).by_domain(term.topology_key, nodes.labels)


class AffinityScores:
    """The weights of domains for one class."""

    def __init__(self, weighted: list[tuple[int, DomainCounts]], made_from: Versions) -> None:
        self._weighted = weighted
        self.made_from = made_from

    def score(self, at: NodeView) -> Scores:
        """Return 100 for the rows with the largest sum of weights, 0 for those with the smallest."""
        if not self._weighted:
            return np.zeros(len(at), dtype=np.int64)
        by_key: dict[int, tuple[Rows, Scores]] = {}
        for weight, domains in self._weighted:  # terms of one topology key share the domains of rows
            _, there = by_key.get(id(domains.of_row), (domains.of_row, 0))
            by_key[id(domains.of_row)] = domains.of_row, there + weight * domains.pods
        sums = [there.take(at.pick(of_row)) for of_row, there in by_key.values()]
        total = sums[0] if len(sums) == 1 else np.sum(sums, axis=0)
        least, most = int(total.min()), int(total.max())
        if least == most:
            return np.zeros_like(total)
        total -= least
        if most - least > len(total):
            return (SCORE_MAX * (total / (most - least))).astype(np.int64)
        return _scaled(most - least).take(total)


@lru_cache(maxsize=SCALES_MAX)
def _scaled(most: int) -> Scores:
    """Return the score of each sum from 0 to the largest."""
    return (SCORE_MAX * (np.arange(most + 1) / most)).astype(np.int64)


def _kept_from(term: PodAffinityTerm) -> SelectedByTerms:
    """Return the pods from which a required anti-affinity keeps away: in doubt, a pod is among them."""
    return selected_by(term, unseen=True)


def _free(kept_away: Iterable[tuple[Counted, DomainCounts]]) -> Iterable[tuple[Rows, Mask]]:
    """Return the domain of each row, with the domains where none of these pods is or owns a claim, by topology key."""
    found: dict[int, tuple[Rows, Mask]] = {}
    for _, domains in kept_away:
        free = domains.pods + domains.claims == 0
        before = found.get(id(domains.of_row))
        found[id(domains.of_row)] = domains.of_row, free if before is None else before[1] & free
    return found.values()


def _taken(by: Counted, domains: DomainCounts, at: NodeView) -> Mask:
    """Return a mask of the rows in whose domain such a pod is, or owns a claim."""
    return _more(domains.pods + domains.claims, _gone(by, at, domains), domains, at)


def _more(there: Numbers, gone: Numbers | int, domains: DomainCounts, at: NodeView) -> Mask:
    """Return a mask of the rows in whose domain there are more pods than those that are gone."""
    of_row = at.pick(domains.of_row)
    mask: Mask = (there > 0).take(of_row) if isinstance(gone, int) else there.take(of_row) > gone
    return mask


def _gone(by: Counted, at: NodeView, domains: DomainCounts) -> Numbers | int:
    """Return how many of these pods a search for victims has removed from each row; without the label, none."""
    apart = at.nodes.pod_counts.apart
    if apart is None or by not in apart:
        return 0
    return np.where(at.pick(domains.of_row) >= 0, at.pick(apart[by]), 0)
