"""InterPodAffinity equals a slow reference on random clusters, after any changes and inside trials."""

from collections.abc import Callable, Iterable
from random import Random  # noqa: TID251 - the generator is made from a drawn seed

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from aischeduler.framework.plugin import PlacementRequest
from aischeduler.model.names import SCHEDULER_NAME
from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import PodAffinity, pod_affinity
from aischeduler.model.pool import PlacementStrategy
from aischeduler.plugins.inter_pod_affinity import InterPodAffinity
from aischeduler.state.running_pods import RunningFacts, RunningPods
from aischeduler.state.what_if import Clearing, Trial
from tests import seeds
from tests.affinity_oracle import AFFINITY, Reference
from tests.affinity_terms import term
from tests.build import a_node, a_pod, on_row, replace
from tests.plugins.affinity_scene import Scene

PODS_MAX = 12
ASKERS = 3
NODES, TEAMS, KEYS = [f"n{number}" for number in range(6)], ["default", "blue", "red"], ["host", "zone", "disk"]
SELECTED = ["", "app=x", "app=y", "app=x|y", "app!=x", "app", "!app", "app=x,tier", "tier=z", None]
AMONG = [None, None, "", "team=a", "team!=a", "!team"]
TERMS = st.builds(
    lambda key, pods, named, among: term(key, pods, *named, among=among),
    st.sampled_from(KEYS),
    st.sampled_from(SELECTED),
    st.sampled_from([(), (), ("red",), ("default", "blue")]),
    st.sampled_from(AMONG),
)
FEW = st.lists(TERMS, max_size=2).map(lambda terms: [*terms, *terms[:1]] if len(terms) > 1 else terms)
"""Up to two terms; of two, the first is there twice."""
WEIGHTS = st.sampled_from([1, 1, 7, 100, -1, -50])
AFFINITIES = st.builds(
    pod_affinity,
    FEW,
    st.one_of(st.just([]), FEW),
    st.builds(lambda terms, weights: list(zip(weights, terms, strict=False)), FEW, st.lists(WEIGHTS, max_size=3)),
)
POD_LABELS = st.sampled_from([{"app": "x"}, {"app": "x"}, {"app": "y"}, {"app": "x", "tier": "z"}, {"tier": "z"}, {}])
NODE_LABELS = st.fixed_dictionaries(
    {}, optional={"zone": st.sampled_from(["a", "b"]), "disk": st.sampled_from(["ssd", "hdd"])}
)
TEAM = st.sampled_from([None, {}, {"team": "a"}, {"team": "b"}])
RULES = [InterPodAffinity(), InterPodAffinity(0), InterPodAffinity(100), InterPodAffinity(ignores_preferences=True)]
ASK = PlacementStrategy.SPREAD
FACTS = RunningFacts(priority=0, borrower=False, evictable=True, leaving=False, started_seconds=1)
STEPS = 30


class Affinities(RuleBasedStateMachine):
    """A cluster that changes, and pods that ask after each change."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.hard_weight, self.ignores = 1, False
        self.askers: list[Pod] = []
        self.claims: dict[str, tuple[Pod, str]] = {}
        self.made = 0
        self.chance = Random(0)
        """What trials do; the seed is drawn."""

    @initialize(
        number=st.integers(0, 3),
        labels=st.lists(NODE_LABELS, min_size=2, max_size=5),
        chance=st.integers(0, 2**32),
        pods=st.lists(st.tuples(POD_LABELS, AFFINITIES), min_size=8, max_size=8),
    )
    def there_is_a_cluster(
        self, number: int, labels: list[dict[str, str]], chance: int, pods: list[tuple[dict[str, str], PodAffinity]]
    ) -> None:
        self.scene = Scene(rule=RULES[number], namespaces={"default": {}, "blue": {"team": "a"}})
        self.scene.counts.pods_on_rows = self._everything
        self.hard_weight, self.ignores = [1, 0, 100, 1][number], number == 3
        self.chance = Random(chance)
        for name, more in zip(NODES, labels, strict=False):
            self.a_node_comes_or_changes(name, more, hosted=True)
        for of_pod, terms in pods[ASKERS:]:
            self.pods_come(self.chance.choice(NODES[:4]), of_pod, "default", terms, ours=True, copies=1)
        for of_pod, terms in pods[:ASKERS]:
            self.a_pod_asks(of_pod, "default", terms)

    def _everything(self) -> list[tuple[Pod, int, bool]]:
        rows = self.scene.table.rows
        pods = [(pod, rows[node], False) for pod, node in self.scene.pods.values()]
        return [*pods, *((pod, rows[node], True) for pod, node in self.claims.values())]

    # Changes.

    @rule(name=st.sampled_from(NODES), labels=NODE_LABELS, hosted=st.sampled_from([True, True, False]))
    def a_node_comes_or_changes(self, name: str, labels: dict[str, str], *, hosted: bool) -> None:
        every = labels | ({"host": name} if hosted else {})
        self.scene.nodes[name] = every
        self.scene.table.see(a_node(name, labels=every))
        self.check()

    @rule(name=st.sampled_from(NODES))
    def a_node_leaves_its_pods(self, name: str) -> None:
        if len(self.scene.nodes) > 1 and self.scene.nodes.pop(name, None) is not None:
            self._drop_claims(lambda node: node == name)
            self.scene.table.forget(name)
        self.check()

    @rule(
        node=st.sampled_from(NODES),
        labels=POD_LABELS,
        namespace=st.sampled_from(TEAMS),
        terms=AFFINITIES,
        ours=st.booleans(),
        copies=st.integers(1, 2),
    )
    def pods_come(
        self, node: str, labels: dict[str, str], namespace: str, terms: PodAffinity, *, ours: bool, copies: int
    ) -> None:
        for _ in range(copies):
            if len(self.scene.pods) >= PODS_MAX:
                self._remove(next(iter(self.scene.pods)))
            self.scene.place(self._pod(labels, namespace, terms, ours=ours), node)
        self.check()

    def _pod(self, labels: dict[str, str], namespace: str, terms: PodAffinity, *, ours: bool = True) -> Pod:
        self.made += 1
        scheduler = SCHEDULER_NAME if ours else "other"
        name = f"p{self.made}"
        return a_pod(name, labels=labels, namespace=namespace, pod_affinity=terms, scheduler_name=scheduler)

    @rule(number=st.integers(0, 50))
    def a_pod_leaves(self, number: int) -> None:
        if self.scene.pods:
            self._remove(sorted(self.scene.pods)[number % len(self.scene.pods)])
        self.check()

    def _remove(self, uid: str) -> None:
        pod, node = self.scene.pods.pop(uid)
        row = self.scene.table.rows[node]
        self.scene.table.remove(on_row(pod, row))
        self.scene.table.release_stub(row)
        self.scene.counts.disuse(pod.spec, self.scene.interest(pod))

    @rule(number=st.integers(0, 50), labels=POD_LABELS, terminating=st.booleans())
    def a_pod_changes(self, number: int, labels: dict[str, str], *, terminating: bool) -> None:
        if self.scene.pods:
            uid = sorted(self.scene.pods)[number % len(self.scene.pods)]
            pod, node = self.scene.pods[uid]
            new = replace(pod, labels=labels, terminating=terminating)
            self.scene.pods[uid] = new, node
            self.scene.counts.change(pod, new, self.scene.table.rows[node], claims=False)
        self.check()

    @rule(name=st.sampled_from(TEAMS), labels=TEAM)
    def a_namespace_changes(self, name: str, labels: dict[str, str] | None) -> None:
        self.scene.counts.namespace_changed(name, self.scene.counts.namespaces.get(name), labels)
        self.check()

    @rule(labels=POD_LABELS, namespace=st.sampled_from(TEAMS), terms=AFFINITIES)
    def a_pod_asks(self, labels: dict[str, str], namespace: str, terms: PodAffinity) -> None:
        if len(self.askers) == ASKERS:
            gone = self.askers.pop(0)
            self.scene.counts.disuse(gone.spec, self.scene.interest(gone))
        self.askers.append(self.scene.know(self._pod(labels, namespace, terms)))
        self.check()

    @rule(number=st.integers(0, 50), labels=POD_LABELS, terms=AFFINITIES)
    def room_is_claimed(self, number: int, labels: dict[str, str], terms: PodAffinity) -> None:
        self._drop_claims(lambda _: bool(number % 2))
        node = sorted(self.scene.nodes)[number % len(self.scene.nodes)]
        pod = self.scene.know(self._pod(labels, "default", terms))
        self.claims[pod.uid] = pod, node
        self.scene.counts.add(pod, self.scene.table.rows[node], claims=True)
        self.check()

    def _drop_claims(self, dropped: Callable[[str], bool]) -> None:
        for uid, (pod, node) in list(self.claims.items()):
            if dropped(node):
                del self.claims[uid]
                self.scene.counts.remove(pod, self.scene.table.rows[node], claims=True)
                self.scene.counts.disuse(pod.spec, self.scene.interest(pod))

    # Trials.

    def try_and_drop(self) -> None:
        """Compare inside a trial that places and removes pods, inside one in it, and after each is dropped."""
        table, there = self.scene.table, dict(self.scene.pods)
        with Trial(table) as trial:
            self._try_to_remove(trial, there)
            for pod in self.chance.sample(self.askers, self.chance.randint(0, len(self.askers))):
                tried = replace(pod, uid=f"{pod.uid} tried")
                there[tried.uid] = tried, self.chance.choice(sorted(self.scene.nodes))
                trial.place(on_row(tried, table.rows[there[tried.uid][1]]))
            self.compare(there.values())
            with Trial(table) as inner:
                without = dict(there)
                self._try_to_remove(inner, without)
                self.compare(without.values())
            self.compare(there.values())

    def _try_to_remove(self, trial: Trial, there: dict[str, tuple[Pod, str]]) -> None:
        for uid in self.chance.sample(sorted(there), self.chance.randint(0, len(there))):
            pod, node = there.pop(uid)
            trial.remove([on_row(pod, self.scene.table.rows[node])])

    def let_leave_apart(self) -> None:
        """Compare each node as if pods had left that node alone, and after some of them have come back."""
        table, running = self.scene.table, RunningPods()
        on_rows = [uid for uid, (_, node) in sorted(self.scene.pods.items()) if node in self.scene.nodes]
        for uid in on_rows:
            pod, node = self.scene.pods[uid]
            running.add(uid, pod.spec, table.rows[node], FACTS)
        gone = self.chance.sample(on_rows, self.chance.randint(0, len(on_rows)))
        back = self.chance.sample(gone, self.chance.randint(0, len(gone)))
        for asker in self.askers:
            counts, rows = self.scene.runner.counts(asker.spec), np.sort(self.scene.rows())
            with Clearing(asker.spec, table, running, rows, counts) as clearing:
                clearing.take_off(running.slots_of(gone))
                self._compare_apart(asker, gone)
                clearing.put_on(running.slots_of(back))
                self._compare_apart(asker, [uid for uid in gone if uid not in back])

    def _compare_apart(self, asker: Pod, gone: list[str]) -> None:
        """Compare each node with the reference without the pods that left that node."""
        for name in self.scene.nodes:
            left = [(pod, node) for pod, node in self.scene.pods.values() if node != name or pod.uid not in gone]
            fits = bool(self.scene.runner.fits(asker.spec, self.scene.rows(name))[0])
            assert fits == self.both(asker, left)[name], f"{name} without {gone}"

    # Comparisons.

    def check(self) -> None:
        """Compare as it is, in trials, and as it is again."""
        self.compare()
        self.try_and_drop()
        self.let_leave_apart()
        self.compare()

    def reference(self) -> Reference:
        return Reference(self.scene.nodes, self.scene.counts.namespaces, self.hard_weight, self.ignores)

    def both(self, asker: Pod, placed: Iterable[tuple[Pod, str]]) -> dict[str, bool]:
        """Return where the pod fits with the owners of claims and without."""
        pods, reference = list(placed), self.reference()
        without = reference.verdicts(asker, pods)
        beside = reference.verdicts(asker, [*pods, *self.claims.values()])
        return {name: not without[name] and not beside[name] for name in self.scene.nodes}

    def compare(self, placed: Iterable[tuple[Pod, str]] | None = None) -> None:
        """Compare fits, reasons and scores of every asker with the reference."""
        pods = list(self.scene.pods.values() if placed is None else placed)
        scene, reference, rows = self.scene, self.reference(), self.scene.rows()
        for asker in self.askers:
            fits = self.both(asker, pods)
            assert dict(zip(scene.nodes, scene.runner.fits(asker.spec, rows).tolist(), strict=True)) == fits
            verdicts = reference.verdicts(asker, pods)
            if not self.claims:
                assert scene.reasons(asker) == verdicts
                resolvable = scene.runner.could_run(asker.spec, rows)
                assert resolvable.tolist() == [verdicts[name] != AFFINITY for name in scene.nodes]
            good = [name for name in scene.nodes if fits[name]]
            expected = reference.scores(asker, pods, good)
            if good:
                assert scene.scores(asker, *good) == list(expected.values())
            self._compare_choice(asker, good, expected)

    def _compare_choice(self, asker: Pod, good: list[str], expected: dict[str, int]) -> None:
        """Compare what the runner chooses, from kept results and without."""
        ask, rows = PlacementRequest(asker.spec, ASK), np.sort(self.scene.rows())
        best = min(good, key=lambda name: (-expected[name], name), default="")
        chosen = (self.scene.table.rows[best], len(good)) if good else None
        assert self.scene.runner.best(ask, rows) == chosen
        assert self.scene.runner.best_of_few(ask, rows) == chosen
        ranked = [(self.scene.table.names[row], score) for row, score in self.scene.runner.ranked(ask, rows)]
        assert ranked == sorted(((name, 2 * expected[name]) for name in good), key=lambda one: (-one[1], one[0]))


def play(number: int, runs: int, phases: tuple[Phase, ...] = tuple(Phase)) -> None:
    """Play this many runs; the same seed gives the same runs."""
    how = settings(
        phases=phases,
        max_examples=runs,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=False,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(Affinities), settings=how)


def test_vectors_equal_the_reference_after_any_changes_and_in_trials() -> None:
    play(seeds.number("affinity"), runs=10)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(10))
def test_vectors_equal_the_reference_at_length(number: int) -> None:
    play(seeds.number(f"affinity, at length {number}"), runs=1000)
