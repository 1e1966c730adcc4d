"""Run the plugins over the node table and keep their results per class of pods.

Invariants:
- Every result equals a run of all plugins over all rows; kept results only save the rows that did not change.
- The row with the largest key is the best: the score, then the order of node names, so that there is no tie.
- No row that a request closes is returned, whatever the filters say; kept results know nothing of closed rows.
- Kept results are those of the table without open trials. Results with open trials are kept apart until the last ends.
- Of several profiles, each class of pods is judged by the plugins of its own.
- The answers of cross-row filters and scores are asked in each call, for all rows at once: a change of one row reaches
  others.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from aischeduler.framework.cross_rows import CrossRowAnswer, CrossRows
from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import (
    AmountFilter,
    Filter,
    LastingFilter,
    NamingFilter,
    PlacementRequest,
    Plugins,
    PreScoreState,
    Scores,
)
from aischeduler.model.node import Node
from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.state.class_scores import INFEASIBLE, NO_ROWS, Classes, ClassView
from aischeduler.state.counted_pods import Counted, Interest
from aischeduler.state.diagnosis import Diagnosis
from aischeduler.state.kept import Kept
from aischeduler.state.label_index import Mask, Rows, all_hold
from aischeduler.state.node_table import NODES_MAX, Column, NodeTable
from aischeduler.state.requests import requested

SHIFT: Final = np.array(NODES_MAX)
"""Leaves room for the tie rank; a 0-d array, because converting a Python number costs time in each call."""
NO_KEY: Final = np.array(INFEASIBLE)
NOTHING: Final[Rows] = np.zeros(0, dtype=np.intp)
FULL_PASS_SHARE: Final = 4
"""Where more than a quarter of the rows changed, one pass over all rows is faster."""
CLASSES_IN_TRIAL_MAX: Final = 64
"""The most classes whose keys are kept while trials are open."""


class Runner:
    """Runs the plugins of one profile on one node table."""

    def __init__(self, plugins: Plugins, nodes: NodeTable) -> None:
        self.plugins = plugins
        self.nodes = nodes
        self._classes = Classes()
        self._static_filters = tuple(f for f in plugins.filters if f.static)
        self._live_filters = tuple(f for f in plugins.filters if not f.static)
        self._amount_filters = tuple(f for f in self._live_filters if isinstance(f, AmountFilter))
        self._other_filters = tuple(f for f in self._live_filters if not isinstance(f, AmountFilter))
        self._lasting_filters = tuple(f for f in self._live_filters if isinstance(f, LastingFilter))
        self._naming_filters = tuple(f for f in plugins.filters if isinstance(f, NamingFilter))
        last = plugins.filters[-1:]
        self._last_by_amounts = last[0] if last and isinstance(last[0], AmountFilter) else None
        self._preferences = tuple(s for s in plugins.scores if s.normalize)
        self._live_scores = tuple(s for s in plugins.scores if not s.normalize)
        self._cross = CrossRows(plugins, nodes)
        self._trial: tuple[list[int], int] = ([], 0)
        """The changes of the trials, and the version of the table, that `_in_trial` is about."""
        self._in_trial: dict[tuple[bytes, PlacementStrategy], tuple[Column, int]] = {}
        """Class -> its keys in the open trials, and how many changes of the trials they have."""

    def best(self, ask: PlacementRequest, rows: Rows) -> tuple[int, int] | None:
        """Return the best of `rows` for the pod and the number of rows that fit; None where no row fits.

        Results are kept only for a class that comes a second time: where all pods differ, no kept result is read again.
        A class that names few nodes is judged on these alone.
        """
        for rule in self._naming_filters if ask.spec.required else ():
            named = rule.named(ask.spec, self.nodes)
            if named is not None:
                places = rows.searchsorted(named).tolist()
                found = [row for row, at in zip(named, places, strict=True) if at < len(rows) and rows[at] == row]
                return self.best_of_few(ask, np.array(found, dtype=np.intp))
        if not self._classes.meets(ask.spec, ask.placement):
            return self.best_of_few(ask, rows)
        view, every = self._view(ask)
        rows = ask.open(rows)
        keys = every.take(rows)
        fitting = keys != NO_KEY
        if view.crosses is None:
            view.crosses = self._cross.concerns(ask.spec)
        filters = self._cross.prefiltered(ask.spec) if view.crosses else []
        if filters:
            fitting &= _passing_across(filters, NodeView(self.nodes, rows))
        feasible = int(np.count_nonzero(fitting))
        if not feasible:
            return None
        crossing = self._cross.prescored(ask) if view.crosses else []
        candidates = rows
        if not (crossing or view.preferences):
            keys = np.where(fitting, keys, NO_KEY) if filters else keys
            return int(rows[int(keys.argmax())]), feasible
        if feasible < len(rows):
            places = fitting.nonzero()[0]
            candidates, keys = rows.take(places), keys.take(places)
        if feasible > 1:
            for weight, reverse, raw in view.preferences:
                keys = keys + weight * NODES_MAX * normalized(raw[candidates], reverse=reverse)
            keys = keys + self._cross_scores(crossing, candidates)
        return int(candidates[int(keys.argmax())]), feasible

    def best_of_few(self, ask: PlacementRequest, rows: Rows) -> tuple[int, int] | None:
        """Return what `best` returns, without kept results."""
        candidates = self._fitting(ask, rows)
        if len(candidates) < 2:
            return (int(candidates[0]), 1) if len(candidates) else None
        return int(candidates[int(self._keys_of_all(ask, candidates).argmax())]), len(candidates)

    def ranked(self, ask: PlacementRequest, rows: Rows) -> list[tuple[int, int]]:
        """Return each of `rows` that fits with its score, the best first; nothing is kept."""
        candidates = self._fitting(ask, rows)
        keys = self._keys_of_all(ask, candidates)
        order = np.argsort(-keys)
        scores = -(-keys[order] // NODES_MAX)  # the tie rank lowers a key by less than one point of its score
        return list(zip(candidates[order].tolist(), scores.tolist(), strict=True))

    def _fitting(self, ask: PlacementRequest, rows: Rows) -> Rows:
        """Return those of `rows` that fit."""
        rows = ask.open(rows)
        allowed = rows[self.allowed(ask.spec, rows)]
        return allowed[self.fits(ask.spec, allowed)] if len(allowed) else allowed

    def _keys_of_all(self, ask: PlacementRequest, candidates: Rows) -> Column:
        """Return the keys of these rows, which are all that fit, with all scores."""
        if not len(candidates):
            return np.zeros(0, dtype=np.int64)
        at = NodeView(self.nodes, candidates)
        keys = self._keys(ask, at)
        for score in self._preferences:
            raw = score.score(ask, at)
            if raw is not None:
                keys = keys + score.weight * NODES_MAX * normalized(raw, reverse=score.reverse)
        return keys + self._cross_scores(self._cross.prescored(ask), candidates)

    def feasible(self, ask: PlacementRequest) -> Mask:
        """Return a mask over all rows of the table, True where the pod passes every filter and the row is open."""
        mask: Mask = self._view(ask)[1] != INFEASIBLE
        mask = mask if ask.closed is None else mask & ~ask.closed
        filters = self._cross.prefiltered(ask.spec)
        return mask & _passing_across(filters, NodeView.everywhere(self.nodes)) if filters else mask

    def allowed(self, spec: PodSpec, rows: Rows) -> Mask:
        """Return a mask as long as `rows`, True where there is a node and every static filter passes."""
        return self.nodes.alive[rows] & _passing(self._static_filters, spec, NodeView(self.nodes, rows))

    def fits(self, spec: PodSpec, rows: Rows) -> Mask:
        """Return a mask as long as `rows`, True where every live filter passes now, cross-row filters included."""
        at = NodeView(self.nodes, rows)
        mask, filters = _passing(self._live_filters, spec, at), self._cross.prefiltered(spec)
        return mask & _passing_across(filters, at) if filters else mask

    def interest(self, spec: PodSpec) -> Interest:
        """Return what cross-row filters and scores count for a pod of this class, and the terms that it carries."""
        return self._cross.interest(spec)

    def counts(self, spec: PodSpec) -> tuple[Counted, ...]:
        """Return what counts for the cross-row filters of this class now, each once."""
        counts = self._cross.interest(spec).counts
        return (*counts, *self.nodes.pod_counts.objecting(spec))

    def crosses_rows(self, spec: PodSpec) -> bool:
        """Return whether a row may fit or not because of pods on other rows."""
        return bool(self.plugins.cross_row and self._cross.prefiltered(spec))

    def by_amounts(self, spec: PodSpec) -> bool:
        """Return whether amounts alone decide where the pod fits, so that `fits_using` may be called."""
        if self.crosses_rows(spec):
            return False
        nowhere = NodeView(self.nodes, np.zeros(0, dtype=np.intp))
        return all(rule.filter(spec, nowhere) is None for rule in self._other_filters)

    def fits_using(self, spec: PodSpec, rows: Rows, used: Column) -> Mask:
        """Return the result of `fits` with `used` [column, one of rows] in use; `rows` may repeat a row."""
        return _passing(self._amount_filters, spec, NodeView(self.nodes, rows, used))

    def passes(self, spec: PodSpec, rows: Rows) -> Mask:
        """Return a mask as long as `rows`, True where every filter passes; nothing is kept."""
        passed = self.allowed(spec, rows)
        return passed & self.fits(spec, rows) if passed.any() else passed

    def could_run(self, spec: PodSpec, rows: Rows) -> Mask:
        """Return a mask of the rows on which the pod fits if the node is empty; use it for few rows."""
        could = self.allowed(spec, rows)
        for resource, amount in spec.request.amounts.items():
            column = self.nodes.column(resource)
            could = could & (self.nodes.allocatable[column, rows] >= requested(amount))
        for plugin in self._cross.prefiltered(spec):
            could = could & plugin.state.resolvable(NodeView(self.nodes, rows))
        for rule in self._lasting_filters:
            could = could & rule.resolvable(spec, NodeView(self.nodes, rows))
        return could

    def refused_for_now(self, spec: PodSpec, rows: Rows) -> Mask:
        """Return a mask of the rows whose first refusal may end when pods leave; a later one may not.

        Source: kube-scheduler's statuses Unschedulable and UnschedulableAndUnresolvable, of which a row has one.
        """
        lasting = np.zeros(self.nodes.width, dtype=np.bool_)
        for rule, at in self.refused(spec, rows):
            if isinstance(rule, CrossRowAnswer):
                lasting[at.rows] = ~rule.state.resolvable(at)
            elif rule.static:
                lasting[at.rows] = True
            elif rule in self._lasting_filters:
                lasting[at.rows] = ~rule.resolvable(spec, at)
            elif rule in self._amount_filters:  # a check against the protocol is slow
                for resource, amount in spec.request.amounts.items():
                    short = at.allocatable[self.nodes.column(resource)] < requested(amount)
                    lasting[at.rows[short]] = True
        return ~lasting[rows]

    def helps(self, spec: PodSpec, node: Node) -> bool:
        """Return whether every filter's `helps` is True for the node."""
        return all(rule.helps(spec, node) for rule in self.plugins.filters)

    def diagnose(self, ask: PlacementRequest, rows: Rows) -> Diagnosis:
        """Return why no row fits: each row counts for the first filter that refuses it."""
        nodes = self.nodes
        if nodes.tentative:
            return self.refusals(ask.spec, rows)
        view = self._classes.view(ask.spec, ask.placement, nodes.width)
        if view.static_version != nodes.static_version:
            view, _ = self._view(ask)
        versions = nodes.version_for(ask.spec)
        if view.refusal is None or view.refusal[1].made_from != versions or view.refusal[0] is not rows:
            filters = self._live_filters if view.static.take(rows).all() else self.plugins.filters
            view.refusal = rows, Kept(versions, self.refusals(ask.spec, rows, filters))
        return view.refusal[1].value

    def refusals(self, spec: PodSpec, rows: Rows, filters: tuple[Filter, ...] | None = None) -> Diagnosis:
        """Do what `diagnose` does without keeping the result, for trials; without `filters`, all are asked."""
        reasons = Counter[str]()
        for rule, at in self.refused(spec, rows, filters):
            reasons.update(rule.reasons(spec, at))
        return Diagnosis(len(rows), reasons)

    def refused(
        self, spec: PodSpec, rows: Rows, filters: tuple[Filter, ...] | None = None
    ) -> Iterator[tuple[Filter | CrossRowAnswer, NodeView]]:
        """Yield each filter that refuses some of `rows`, with the rows that no filter before it refused.

        A last filter that reads amounts comes with every row that is left: those that it passes count for nothing.
        """
        left, crossing = NodeView(self.nodes, rows), self._cross.prefiltered(spec)
        rules: list[Filter | CrossRowAnswer] = [*(self.plugins.filters if filters is None else filters), *crossing]
        for rule in rules:
            if rule is self._last_by_amounts and not crossing:
                yield rule, left
                break
            mask = rule.filter(spec, left)
            if mask is None or mask.all():
                continue
            yield rule, NodeView(self.nodes, left.rows[~mask])
            left = NodeView(self.nodes, left.rows[mask])

    def _view(self, ask: PlacementRequest) -> tuple[ClassView, Column]:
        """Return the kept results of a class, and the keys of all rows as open trials have them; no cross-row filter.

        The keys are the kept ones themselves where no trial is open.
        """
        nodes = self.nodes
        view = self._classes.view(ask.spec, ask.placement, nodes.width)
        if nodes.tentative:
            keys = self._keys_in_trial(view, ask)
        else:
            rows = self._outdated(view, ask)
            if len(rows):
                self._score(view.keys, view.static, ask, rows)
            view.behind, keys = NO_ROWS, view.keys
        view.version = nodes.version
        return view, keys

    def _outdated(self, view: ClassView, ask: PlacementRequest) -> Rows:
        """Return the rows whose keys are to be written again, sorted; update what depends on labels and taints."""
        nodes = self.nodes
        if view.static_version != nodes.static_version:
            changed = nodes.changed_since(view.version) if self._follow_labels(view, ask) else None
        elif view.version == nodes.version:
            return np.array(sorted(view.behind), dtype=np.intp) if view.behind else NOTHING
        else:
            changed = nodes.changed_since(view.version)
        if changed is None or len(changed) * FULL_PASS_SHARE > len(nodes.rows):
            view.keys[:] = INFEASIBLE
            return np.flatnonzero(view.static)
        return np.array(sorted({*changed, *view.behind}) if view.behind else changed, dtype=np.intp)

    def _follow_labels(self, view: ClassView, ask: PlacementRequest) -> bool:
        """Update what depends on labels and taints, for changed rows alone where these are few; return whether so."""
        nodes, every = self.nodes, np.arange(self.nodes.width, dtype=np.intp)
        changed = nodes.static_since(view.static_version)
        few = changed is not None and len(changed) * FULL_PASS_SHARE <= len(nodes.rows)
        rows = np.array(changed, dtype=np.intp) if few else every
        if few:
            view.static[rows] = self.allowed(ask.spec, rows)
        else:
            view.static = self.allowed(ask.spec, rows)
        preferences = self._preferred(ask, rows)
        if few and (preferences or view.preferences):
            preferences = self._preferred(ask, every)
        view.preferences, view.static_version = preferences, nodes.static_version
        return few

    def _preferred(self, ask: PlacementRequest, rows: Rows) -> tuple[tuple[int, bool, Scores], ...]:
        """Return the raw static scores of rows, without those that are 0 for all of them."""
        raws = ((score, score.score(ask, NodeView(self.nodes, rows))) for score in self._preferences)
        return tuple((score.weight, score.reverse, raw) for score, raw in raws if raw is not None and raw.any())

    def _keys_in_trial(self, view: ClassView, ask: PlacementRequest) -> Column:
        """Return the keys with open trials: those of the last call, with the rows that the trials changed since.

        Of the rows that changed before, keep in the view those that no trial changed.
        """
        nodes, key = self.nodes, (ask.spec.key, ask.placement)
        if self._trial[0] is not nodes.trial_rows or self._trial[1] != nodes.version:
            self._trial, self._in_trial = (nodes.trial_rows, nodes.version), {}
        keys, read = self._in_trial.get(key, (view.keys, 0))
        if keys is not view.keys and view.static_version == nodes.static_version:
            since = nodes.trial_rows[read:]
            if since:
                self._score(keys, view.static, ask, np.array(sorted({*since}), dtype=np.intp))
        else:
            outdated = np.zeros(nodes.width, dtype=np.bool_)
            rows = self._outdated(view, ask)
            outdated[rows] = True
            tentative = [*nodes.tentative]
            view.behind = frozenset([row for row in tentative if outdated[row]])
            outdated[tentative] = True
            keys = view.keys.copy()
            self._score(keys, view.static, ask, outdated.nonzero()[0])
            view.keys[rows] = keys[rows]  # also of those behind, which are read again before they count
        if key in self._in_trial or len(self._in_trial) < CLASSES_IN_TRIAL_MAX:
            self._in_trial[key] = keys, len(nodes.trial_rows)
        return keys

    def plugins_of(self, spec: PodSpec) -> Plugins:  # noqa: ARG002 - all classes have these
        """Return the plugins by which pods of this class are judged."""
        return self.plugins

    def prefiltered(self, spec: PodSpec) -> list[CrossRowAnswer]:
        """Return the cross-row filters that apply to this class, with their states; almost none has one."""
        return self._cross.prefiltered(spec)

    def _cross_scores(self, crossing: list[tuple[int, PreScoreState]], rows: Rows) -> Column | int:
        """Return what these scores add to the keys of `rows`, which are all that fit."""
        total: Column | int = 0
        if crossing:
            at = NodeView(self.nodes, rows)
            for weight, state in crossing:
                total = total + weight * NODES_MAX * state.score(at)
        return total

    def _score(self, keys: Column, static: Mask, ask: PlacementRequest, rows: Rows) -> None:
        """Write the keys of these rows, of which there is at least one."""
        at = NodeView(self.nodes, rows)
        feasible = static.take(rows) & _passing(self._live_filters, ask.spec, at)
        if not feasible[feasible.argmin()]:  # a fifth of the time of `all`
            keys[rows] = INFEASIBLE
            at = NodeView(self.nodes, rows[feasible])
        if len(at):
            keys[at.rows] = self._keys(ask, at)

    def _keys(self, ask: PlacementRequest, at: NodeView) -> Column:
        """Return the keys of rows: the score without normalised scores, and the tie rank, as one number."""
        total: Scores | int = 0
        for score in self._live_scores:
            raw = score.score(ask, at)
            if raw is not None:
                total = total + (raw if score.weight == 1 else raw * score.weight)
        keys: Column = total * SHIFT - self.nodes.ranks().take(at.rows)
        return keys


def _passing_across(filters: list[CrossRowAnswer], at: NodeView) -> Mask:
    """Return a mask of the rows that pass all of these cross-row filters."""
    return all_hold([prepared.state.filter(at) for prepared in filters])


def _passing(filters: Sequence[Filter], spec: PodSpec, at: NodeView) -> Mask:
    """Return a mask of the rows where all filters pass."""
    passing: Mask | None = None
    for rule in filters:
        mask = rule.filter(spec, at)
        if mask is not None:
            passing = mask if passing is None else passing & mask
    return np.ones(len(at), dtype=np.bool_) if passing is None else passing


def normalized(raw: Scores, *, reverse: bool) -> Scores:
    """Scale raw scores so that the largest becomes 100, or 0 with `reverse`.

    Source: kube-scheduler's DefaultNormalizeScore; all zeros stay 0, reversed they become 100.
    """
    top = int(np.max(raw))
    scaled = raw * 100 // top if top else np.zeros_like(raw)
    return 100 - scaled if reverse else scaled


class ProfileRunners(Runner):
    """Asks the runner of the profile that the class of pods has; it keeps no results of its own."""

    def __init__(self, plugins: Plugins, others: Mapping[str, Plugins], nodes: NodeTable) -> None:
        super().__init__(plugins, nodes)
        self._of = {"": Runner(plugins, nodes), **{name: Runner(found, nodes) for name, found in others.items()}}


def _asks_profile(method: str) -> Callable[..., object]:
    def asked(self: ProfileRunners, of: PodSpec | PlacementRequest, *rest: object) -> object:
        spec = of.spec if isinstance(of, PlacementRequest) else of
        return getattr(self._of[spec.profile], method)(of, *rest)

    return asked


for _method in [name for name in vars(Runner) if not name.startswith("_")]:
    setattr(ProfileRunners, _method, _asks_profile(_method))


def make_runner(plugins: Plugins, others: Mapping[str, Plugins], nodes: NodeTable) -> Runner:
    """Return what runs the plugins on a table; `others` are those of the profiles with a name."""
    return ProfileRunners(plugins, others, nodes) if others else Runner(plugins, nodes)
