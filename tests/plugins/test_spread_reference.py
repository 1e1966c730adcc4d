"""PodTopologySpread on random clusters: what the vectors say equals the rules node by node, in trials too."""

from random import Random  # noqa: TID251 - the generator is made from the seed

import numpy as np

from aischeduler.framework.node_view import NodeView
from aischeduler.framework.plugin import PlacementRequest, Plugins
from aischeduler.framework.runner import Runner
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import PlacementStrategy
from aischeduler.model.topology_spread import HOSTNAME, TopologySpreadConstraint
from aischeduler.plugins.pod_topology_spread import PodTopologySpread
from aischeduler.plugins.spread_filter import SpreadState
from aischeduler.plugins.spread_scores import SpreadScores
from aischeduler.state.counted_pods import is_counted
from aischeduler.state.node_table import NodeTable
from aischeduler.state.what_if import Trial
from tests import seeds
from tests.build import a_node, a_pod, a_taint, on_row, spread, tolerates
from tests.plugins import spread_reference
from tests.plugins.spread_reference import World

CLUSTERS = 60
STEPS = 25
APPS = ({"app": "foo"}, {"app": "bar"}, {"app": "foo", "also": "bar"})


class Pair:
    """A random cluster twice: as a node table with a class of pods, and in plain Python."""

    def __init__(self, chance: Random) -> None:
        self.chance, self.table = chance, NodeTable()
        nodes = [self._node(f"n{number}") for number in range(chance.randint(2, 9))]
        self.world = World({node.name: node for node in nodes}, {node.name: chance.randint(0, 1) for node in nodes})
        for node in nodes:
            self.table.pool[self.table.see(node)[0]] = self.world.pools[node.name]
        self.plugin = PodTopologySpread()
        self.runner = Runner(Plugins((), (), (), (self.plugin,), (self.plugin,)), self.table)
        self.spec = a_pod(
            node_selector={"pick": "yes"} if chance.random() < 0.5 else {},
            tolerations=(tolerates("soft"),) if chance.random() < 0.5 else (),
            topology_spread=self._rules(["zone", "rack", HOSTNAME]),
            spread_preferences=self._rules(["zone", "rack", HOSTNAME]),
        ).spec
        self.table.pod_counts.use(self.spec, self.runner.interest(self.spec))
        self.states: tuple[SpreadState | None, SpreadScores | None, SpreadScores | None] = (None, None, None)

    def _node(self, name: str) -> Node:
        keys = ("zone", "rack", HOSTNAME)
        values = ("", "1", "2", "3")
        labels = {key: self.chance.choice(values) for key in keys if self.chance.random() < 0.85}
        labels |= {"pick": self.chance.choice(("yes", "no"))}
        taints = (a_taint(self.chance.choice(("hard", "soft"))),) if self.chance.random() < 0.3 else ()
        return a_node(name, labels=labels, taints=taints)

    def _rules(self, keys: list[str]) -> tuple[TopologySpreadConstraint, ...]:
        chance = self.chance
        return tuple(
            spread(
                key,
                app=chance.choice(("foo", "bar")),
                skew=chance.randint(1, 3),
                itself=chance.random() < 0.7,
                min_domains=chance.randint(1, 3),
                honors_affinity=chance.random() < 0.5,
                honors_taints=chance.random() < 0.5,
            )
            for key in chance.sample(keys, chance.randint(1, 2))
        )

    def pod(self, name: str) -> Pod:
        """Return a new pod that some of the constraints count."""
        chance = self.chance
        namespace = "other" if chance.random() < 0.1 else "default"
        return a_pod(name, namespace=namespace, labels=chance.choice(APPS), terminating=chance.random() < 0.1)

    def compare(self) -> None:
        """Ask both, for every node and for the scores of some that fit."""
        names = list(self.world.nodes)
        rows = np.array([self.table.rows[name] for name in names], dtype=np.intp)
        self._prepare()
        filtering, scoring, of_defaults = self.states
        assert filtering is not None
        assert scoring is not None
        assert of_defaults is not None
        fits = filtering.filter(NodeView(self.table, rows)).tolist()
        assert fits == [spread_reference.fits(self.world, self.spec, name) for name in names]
        few = self.chance.sample(range(len(names)), self.chance.randint(1, len(names)))
        at = NodeView(self.table, rows[few])
        for state, every_key in ((scoring, True), (of_defaults, False)):
            found, rules = state.score(at).tolist(), self.spec.spread_preferences
            chosen = [names[place] for place in few]
            assert found == spread_reference.scores(self.world, self.spec, rules, chosen, every_key=every_key)

    def _prepare(self) -> None:
        """Make the states, or take those of before where they still hold, as the runner does."""
        filtering = self.plugin.prefilter(self.spec, self.table, self.states[0])
        scoring = self.plugin.prescore(PlacementRequest(self.spec, PlacementStrategy.PACK), self.table, self.states[1])
        of_defaults = self.states[2]
        if of_defaults is None or not of_defaults.is_of(self.table):
            of_defaults = SpreadScores(self.spec, self.spec.spread_preferences, self.table, every_key=False)
        assert isinstance(filtering, SpreadState)
        assert isinstance(scoring, SpreadScores)
        self.states = (filtering, scoring, of_defaults)


def random_pairs(clusters: int = CLUSTERS) -> list[Pair]:
    chance = Random(seeds.number("spread"))
    return [Pair(chance) for _ in range(clusters)]


def test_vectors_equal_the_rules_node_by_node_after_any_changes() -> None:
    for pair in random_pairs():
        there: list[tuple[str, Pod]] = []
        names = list(pair.world.nodes)
        for step in range(STEPS):
            if there and pair.chance.random() < 0.4:
                name, gone = there.pop(pair.chance.randrange(len(there)))
                pair.world.pods[name].remove(gone)
                pair.table.remove(on_row(gone, pair.table.rows[name]))
            elif pair.chance.random() < 0.1:
                node = pair._node(pair.chance.choice(names))
                pair.world.nodes[node.name] = node
                pair.table.see(node)
            elif pair.chance.random() < 0.1:
                name = pair.chance.choice(names)
                pair.world.pools[name] = pair.chance.randint(0, 1)
                pair.table.pool[pair.table.rows[name]] = pair.world.pools[name]
                pair.table.pool_version += 1
            else:
                name, came = pair.chance.choice(names), pair.pod(f"p{step}")
                there.append((name, came))
                pair.world.pods.setdefault(name, []).append(came)
                pair.table.add(on_row(came, pair.table.rows[name]))
            pair.compare()


def test_vectors_equal_the_rules_inside_trials_and_after_they_are_dropped() -> None:
    for pair in random_pairs():
        names = list(pair.world.nodes)
        for number in range(8):
            name, pod = pair.chance.choice(names), pair.pod(f"p{number}")
            pair.world.pods.setdefault(name, []).append(pod)
            pair.table.add(on_row(pod, pair.table.rows[name]))
        for _ in range(3):
            before = {name: list(pods) for name, pods in pair.world.pods.items()}
            with Trial(pair.table) as trial:
                for step in range(6):
                    everywhere = [(name, pod) for name, pods in pair.world.pods.items() for pod in pods]
                    if everywhere and pair.chance.random() < 0.5:
                        name, pod = pair.chance.choice(everywhere)
                        pair.world.pods[name].remove(pod)
                        trial.remove([on_row(pod, pair.table.rows[name])])
                    else:
                        name, pod = pair.chance.choice(names), pair.pod(f"t{step}")
                        pair.world.pods.setdefault(name, []).append(pod)
                        trial.place(on_row(pod, pair.table.rows[name]))
                    pair.compare()
            pair.world.pods = before
            pair.compare()


def test_each_row_is_judged_as_if_pods_had_left_it_alone_in_a_search_for_victims() -> None:
    for pair in random_pairs(5 * CLUSTERS):
        names, selectors = list(pair.world.nodes), pair.plugin.counts(pair.spec)
        apart = {one: np.zeros(pair.table.width, dtype=np.int64) for one in selectors}
        for number in range(20):
            name, pod = pair.chance.choice(names), pair.pod(f"p{number}")
            pair.world.pods.setdefault(name, []).append(pod)
            pair.table.add(on_row(pod, pair.table.rows[name]))
        pair.compare()
        expected = []
        for name in names:
            there = pair.world.pods.get(name, [])
            gone = pair.chance.sample(there, pair.chance.randint(0, len(there)))
            for one in selectors:
                counted = [is_counted(one, pod, {}) for pod in gone]
                apart[one][pair.table.rows[name]] = sum(counted)
            pair.world.pods[name] = [pod for pod in there if pod not in gone]
            expected.append(spread_reference.fits(pair.world, pair.spec, name))
            pair.world.pods[name] = there
        rows = np.array([pair.table.rows[name] for name in names], dtype=np.intp)
        pair.table.pod_counts.apart = apart
        assert pair.states[0] is not None
        assert pair.states[0].filter(NodeView(pair.table, rows)).tolist() == expected
