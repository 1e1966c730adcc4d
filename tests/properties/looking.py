"""Checks of looks: each leaves the whole state as it was, and what rules and searches keep changes no answer.

What is found is noted, because an exception inside the engine would cost only an attempt.
"""

import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, Final

import numpy as np
import pytest
from cachetools import LRUCache
from msgspec.structs import replace

import aischeduler.engine
import aischeduler.policies
from aischeduler.engine import propose as proposing
from aischeduler.engine import searches
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.search_cache import Searches
from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, PreFilterState
from aischeduler.framework.runner import Runner, make_runner
from aischeduler.model.pod import PodSpec
from aischeduler.model.pool import PlacementStrategy
from aischeduler.policies import borrowing
from aischeduler.policies.unit_capacity import UnitCapacity
from aischeduler.state.label_index import Mask
from aischeduler.state.node_table import NodeTable
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.volume_limits import VolumeLimits
from aischeduler.state.volume_topology import VolumeTopology
from aischeduler.state.what_if import Trial
from tests.engine_state import change, state
from tests.invariants import recount

PROPOSALS: Final = (proposing.propose, proposing.propose_on)
LOOKS: Final = (
    *PROPOSALS,
    borrowing.choose_lender,
    borrowing.wanted_by_home_pods,
    borrowing.place_spanning,
    searches.find_lender,
    searches.find_unit_victims,
    searches.find_victims,
)
WHOLE: Final = 23
"""The whole state is compared around one of so many looks, which takes a hundred times as long as the look."""
AFRESH: Final = 3
"""One of so many proposals is made again without kept results, and one of so many steps of trials is checked."""


class Looks:
    """Checks the looks of one engine after the other."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        """The looks of all days."""
        self.faults: list[str] = []
        self._today: Counter[str] = Counter()
        self._cluster: Cluster | None = None
        self._checking = False

    def begin_day(self) -> None:
        """Forget what was found, so that a day that is played again is the same."""
        self._cluster = None
        self.faults = []
        self._today = Counter()

    def note(self, name: str) -> int:
        """Count something, and return how often it occurred on this day."""
        self.done[name] += 1
        self._today[name] += 1
        return self._today[name]

    def begin(self, cluster: Cluster) -> None:
        """Check the looks of this engine from now on."""
        self._cluster = cluster

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have every look checked, from wherever the engine calls it, and every step of a trial."""
        for package in (aischeduler.engine, aischeduler.policies):
            for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
                module = import_module(found.name)
                for name, value in vars(module).copy().items():
                    if any(value is look for look in LOOKS):
                        monkeypatch.setattr(module, name, self._checked(value))
        monkeypatch.setattr(Trial, "place", self._checked_step(Trial.place))

    @contextmanager
    def look(self, name: str) -> Iterator[None]:
        """Check that the state after this look is the state before it."""
        cluster = self._cluster
        assert cluster is not None, "an engine has begun"
        self.note(name)
        whole = self._today.total() % WHOLE == 0
        read_columns(cluster)
        before = state(cluster) if whole else amounts(cluster)
        yield
        after = state(cluster) if whole else amounts(cluster)
        if before != after:
            self.faults.append(f"{name} changes {change(before, after)}")

    @contextmanager
    def question(self, name: str) -> Iterator[None]:
        """Check that this question, which may change the state for a moment, leaves it as it was, but for versions."""
        cluster = self._cluster
        assert cluster is not None, "an engine has begun"
        self.note(name)
        read_columns(cluster)
        before = state(cluster, versions=False)
        yield
        after = state(cluster, versions=False)
        if before != after:
            self.faults.append(f"{name} changes {change(before, after)}")

    def _checked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if self._checking:
                return function(*args, **options)
            with self.look(name):
                result = function(*args, **options)
            if function in PROPOSALS:
                self.note(type(result).__name__)
            if function in PROPOSALS and self._today[name] % AFRESH == 0:
                self._compare_afresh(name, result, lambda: function(*args, **options))
            return result

        return call

    def _compare_afresh(self, name: str, result: object, again: Callable[[], object]) -> None:
        """Note a proposal that an engine without kept results would not make."""
        cluster = self._cluster
        assert cluster is not None, "an engine has begun"
        self._checking = True
        try:
            with nothing_kept(cluster):
                other = again()
        finally:
            self._checking = False
        if other != result:
            self.faults.append(f"{name} gives {result}; without kept results it gives {other}")

    def _checked_step(self, place: Callable[[Trial, AssignedPod], None]) -> Callable[[Trial, AssignedPod], None]:
        @wraps(place)
        def call(trial: Trial, pod: AssignedPod) -> None:
            place(trial, pod)
            cluster = self._cluster
            if self._checking or cluster is None or trial.nodes is not cluster.nodes:
                return
            if self.note("step") % AFRESH == 0:
                self._checking = True
                try:
                    self.faults += wrongly_kept(cluster.nodes, cluster.runner, pod.spec)
                finally:
                    self._checking = False

        return call


def read_columns(cluster: Cluster) -> None:
    """Let the queues read the new columns of the node table, as the first look at them does."""
    room = np.zeros(len(cluster.nodes.used), dtype=np.int64)
    for queue in cluster.queues.values():
        queue.usable_within(room)


def amounts(cluster: Cluster) -> list[str | bytes]:
    """Return the part of the state that trials change, and the versions, quickly."""
    nodes, storage = cluster.nodes, cluster.nodes.storage
    counts = [
        (sorted(one.rows.items()), sorted(one.claimed.items()), sorted(one._members.items()), one.users)
        for one in nodes.pod_counts.all()
    ]
    domains = [recount.domains(cluster, count) for count in nodes.pod_counts.all()]
    volumes = sorted((row, sorted(pods.items())) for row, pods in storage.used.on.items())
    versions = (nodes.version, nodes.static_version, nodes.pool_version, storage.version, cluster.running.version)
    parts: tuple[object, ...] = (
        versions,
        (
            cluster.ledger.version,
            cluster.pools.version,
            cluster.budgets.version,
            cluster.deferred.queue_changes.version,
        ),
        (sorted(nodes.tentative.items()), sorted(nodes.ports.on.items(), key=repr)),
        counts,
        domains,
        (volumes, sorted(storage.chosen.all().items(), key=repr)),
        [(claim.owner.pod.uid, claim.rows) for claim in cluster.claims.all()],
        [(uid, one.state, one.queue, one.visited, one.row) for uid, one in cluster.records.items()],
        (
            cluster.decisions,
            len(cluster.said.outbox),
            sorted((pool, one.relook) for pool, one in cluster.deferred.agendas.items() if one.relook is not None),
        ),
    )
    arrays = (nodes.used, nodes.scored, nodes.alive, nodes.pool, cluster.running.table)
    return [*map(repr, parts), *(array.tobytes() for array in arrays)]


@contextmanager
def nothing_kept(cluster: Cluster) -> Iterator[None]:
    """Let the engine have no kept results of rules and searches meanwhile, and give back those that it had."""
    nodes, storage, cards = cluster.nodes, cluster.nodes.storage, cluster.nodes.cards
    kept: list[tuple[object, str, object]] = [
        (cluster, "runner", make_runner(cluster.profile.plugins, cluster.profile.others, nodes)),
        (cluster, "searches", Searches()),
        (storage, "topology", VolumeTopology()),
        (storage, "limits", VolumeLimits()),
        (storage, "tables", {}),
        (storage, "nodes", {}),
        (storage.used, "stale", {}),
        (nodes, "_pool_rows", {}),
        (nodes, "_grouped", None),
        (cards, "_numbers_made_from", ()),
        (cards, "_masks_made_from", ()),
        (cards, "_masks", {}),
    ]
    runner = kept[0][2]
    assert isinstance(runner, Runner)
    fresh = replace(
        cluster.borrowing,
        runner=runner,
        capacity=UnitCapacity(runner, cluster.running, cluster.claims),
        fits=LRUCache(maxsize=1),
    )
    kept.append((cluster, "borrowing", fresh))
    before = [(one, name, getattr(one, name)) for one, name, _ in kept]
    for one, name, value in kept:
        setattr(one, name, value)
    try:
        yield
    finally:
        for one, name, value in before:
            setattr(one, name, value)


def wrongly_kept(nodes: NodeTable, runner: Runner, spec: PodSpec) -> list[str]:
    """Return which kept results for pods of this class are not those that would be made now, in whatever trial."""
    every, found = NodeView.everywhere(nodes), list[str]()
    plugins = runner.plugins
    for answer in runner.prefiltered(spec):
        rule = next(one for one in plugins.cross_row if one.name == answer.name)
        made = rule.prefilter(spec, nodes, None)
        passing = made.filter(every)
        if not np.array_equal(passing, answer.state.filter(every)):
            found.append(f"{rule.name} keeps other rows for {spec}")
        elif _choices(made, passing & nodes.alive) != _choices(answer.state, passing & nodes.alive):
            found.append(f"{rule.name} keeps other choices for {spec}")
    rows = np.flatnonzero(nodes.alive)
    for placement in PlacementStrategy:
        ask = PlacementRequest(spec, placement)
        best, few = runner.best(ask, rows), runner.best_of_few(ask, rows)
        if best != few:
            found.append(f"the kept keys give {best}, those made now {few}, for {spec}")
    if not np.array_equal(
        runner.feasible(PlacementRequest(spec, PlacementStrategy.PACK))[rows], runner.passes(spec, rows)
    ):
        found.append(f"the kept keys pass other rows for {spec}")
    return found


def _choices(made: PreFilterState, passing: Mask) -> list[object]:
    """Return what a rule that chooses volumes chooses for each of these rows."""
    choose = getattr(made, "choices", None)
    return [choose(row) for row in np.flatnonzero(passing).tolist()] if choose is not None else []
