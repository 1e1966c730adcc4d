"""Ask the cross-row filters and scores of one profile, which keep a state per class of pods.

Invariant: a rule that applies by the class alone is asked once per class; every other rule is asked in each call.
"""

from collections import Counter
from typing import Any, Final

from cachetools import LRUCache
from msgspec import Struct

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import (
    CrossRowFilter,
    CrossRowScore,
    PlacementRequest,
    Plugins,
    PreFilterState,
    PreScoreState,
)
from aischeduler.model.pod import PodSpec
from aischeduler.state.counted_pods import NO_INTEREST, Interest
from aischeduler.state.label_index import Mask
from aischeduler.state.node_table import NodeTable

STATES_MAX: Final = 256
"""The most classes whose states are kept."""
CLASSES_MAX: Final = 4096
"""The most classes of which is kept which rules may apply, and what they count."""


class CrossRowAnswer(Struct, frozen=True):
    """A cross-row filter with its state for one class, which is asked like a filter."""

    name: str
    state: PreFilterState

    def filter(self, spec: PodSpec, at: NodeView) -> Mask:  # noqa: ARG002 - asked like a filter
        """Return a mask as long as `at`, True where a pod of the class may run."""
        return self.state.filter(at)

    def reasons(self, spec: PodSpec, at: NodeView) -> Counter[str]:  # noqa: ARG002
        """Return the reasons for rows that this filter refused."""
        return self.state.reasons(at)


class CrossRows:
    """The cross-row rules of one profile on one node table."""

    def __init__(self, plugins: Plugins, nodes: NodeTable) -> None:
        self._plugins = plugins
        self._nodes = nodes
        self._states: LRUCache[tuple[str, bytes], PreFilterState] = LRUCache(STATES_MAX)
        self._scoring: LRUCache[tuple[str, bytes], PreScoreState] = LRUCache(STATES_MAX)
        self._filters: dict[bytes, tuple[CrossRowFilter, ...]] = {}
        self._scores: dict[bytes, tuple[CrossRowScore, ...]] = {}
        self._interests: dict[bytes, Interest] = {}

    def concerns(self, spec: PodSpec) -> bool:
        """Return whether one of the rules may apply to this class now or later; of almost no class."""
        return bool(self._filters_of(spec) or self._scores_of(spec))

    def prefiltered(self, spec: PodSpec) -> list[CrossRowAnswer]:
        """Return the filters that apply to this class, with their states; almost no class has one."""
        found: list[CrossRowAnswer] = []
        rules = self._filters.get(spec.key)
        for rule in self._filters_of(spec) if rules is None else rules:
            if not rule.applies(spec, self._nodes):
                continue
            key = (rule.name, spec.key)
            before = self._states.get(key)
            state = rule.prefilter(spec, self._nodes, before)
            if state is not before:
                self._states[key] = state
            found.append(CrossRowAnswer(rule.name, state))
        return found

    def prescored(self, ask: PlacementRequest) -> list[tuple[int, PreScoreState]]:
        """Return the weights and states of the scores by which rows may differ; almost no class has one."""
        found: list[tuple[int, PreScoreState]] = []
        rules = self._scores.get(ask.spec.key)
        for rule in self._scores_of(ask.spec) if rules is None else rules:
            if not rule.prefers(ask.spec, self._nodes):
                continue
            key = (rule.name, ask.spec.key)
            before = self._scoring.get(key)
            state = rule.prescore(ask, self._nodes, before)
            if state is not before:
                self._scoring[key] = state
            found.append((rule.weight, state))
        return found

    def interest(self, spec: PodSpec) -> Interest:
        """Return what the rules count for a pod of this class, and the terms that it carries."""
        found = self._interests.get(spec.key)
        if found is None:
            _make_place(self._interests)
            found = self._interests[spec.key] = self._interest(spec)
        return found

    def _interest(self, spec: PodSpec) -> Interest:
        counts = tuple(dict.fromkeys(by for rule in self._plugins.cross_row for by in rule.counts(spec)))
        scored = tuple(dict.fromkeys(by for rule in self._plugins.cross_scores for by in rule.scored(spec)))
        return Interest(counts, scored, spec.pod_affinity.carried) or NO_INTEREST

    def _filters_of(self, spec: PodSpec) -> tuple[CrossRowFilter, ...]:
        """Return the filters that may apply to this class."""
        _make_place(self._filters)
        every = self._plugins.cross_row
        found = tuple(rule for rule in every if not _by_class(rule, spec) or rule.applies(spec, self._nodes))
        self._filters[spec.key] = found
        return found

    def _scores_of(self, spec: PodSpec) -> tuple[CrossRowScore, ...]:
        """Return the scores by which rows may differ for this class."""
        _make_place(self._scores)
        every = self._plugins.cross_scores
        found = tuple(rule for rule in every if not _by_class(rule, spec) or rule.prefers(spec, self._nodes))
        self._scores[spec.key] = found
        return found


def _by_class(rule: CrossRowFilter | CrossRowScore, spec: PodSpec) -> bool:
    said = getattr(rule, "by_class", False)
    return bool(said(spec) if callable(said) else said)


def _make_place(kept: dict[bytes, Any]) -> None:
    """Drop everything that is kept if there are too many classes; it is cheap to make again."""
    if len(kept) >= CLASSES_MAX:
        kept.clear()
