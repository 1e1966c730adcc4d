"""The rules of PodTopologySpread in plain Python, node by node and pod by pod, to compare the vectors with.

Written from the rules: skew = pods in the domain + 1 for the pod itself - pods of the emptiest domain of the pool, and
the score round(sum of pods * ln(domains + 2) + maxSkew - 1), from 100 for the least.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aischeduler.model.node import Node, Taint
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.topology_spread import TopologySpreadConstraint

HOSTNAME = "kubernetes.io/hostname"


@dataclass
class World:
    """Nodes by name, the pool of each, and the pods on each."""

    nodes: dict[str, Node]
    pools: dict[str, int]
    pods: dict[str, list[Pod]] = field(default_factory=dict)

    def matching(self, one: TopologySpreadConstraint, node: str) -> int:
        """Return how many pods on the node the constraint selects."""
        number = 0
        for pod in self.pods.get(node, []):
            selected = one.selector is not None and one.selector.namespace == pod.namespace
            if selected and one.selector is not None and not pod.terminating:
                number += all(rule.matches(pod.labels) for rule in one.selector.labels.requirements)
        return number


def fits(world: World, spec: PodSpec, name: str) -> bool:
    """Return whether the constraints that the pod requires hold on the node."""
    for one in spec.topology_spread:
        value = world.nodes[name].labels.get(one.topology_key)
        if value is None:
            return False
        in_domain: dict[str, int] = {}
        of_pool: set[str] = set()
        for other, node in world.nodes.items():
            if _has_keys(node, spec.topology_spread) and _passes(one, spec, node):
                there = node.labels[one.topology_key]
                in_domain[there] = in_domain.get(there, 0) + world.matching(one, other)
                if world.pools[other] == world.pools[name]:
                    of_pool.add(there)
        fewest = min((in_domain[there] for there in of_pool), default=0)
        if len(of_pool) < one.min_domains:
            fewest = 0
        if in_domain.get(value, 0) + one.selects_itself - fewest > one.max_skew:
            return False
    return True


def scores(
    world: World, spec: PodSpec, rules: Sequence[TopologySpreadConstraint], names: Sequence[str], *, every_key: bool
) -> list[int]:
    """Return the scores of these nodes, which are all that fit."""
    scored = [name for name in names if not every_key or _has_keys(world.nodes[name], rules)]
    raw = {name: _rounded(_raw(world, spec, rules, scored, name, every_key)) for name in scored}
    most, least = max(raw.values(), default=0), min(raw.values(), default=0)
    return [(100 * (most + least - raw[name]) // most if most else 100) if name in raw else 0 for name in names]


def _raw(
    world: World,
    spec: PodSpec,
    rules: Sequence[TopologySpreadConstraint],
    scored: Sequence[str],
    name: str,
    every_key: bool,
) -> float:
    total = 0.0
    for one in rules:
        value = world.nodes[name].labels.get(one.topology_key)
        if value is None:
            continue
        if one.topology_key == HOSTNAME:
            number, size = world.matching(one, name), len(scored)
        else:
            number, size = 0, len({world.nodes[other].labels.get(one.topology_key, "") for other in scored})
            for other, node in world.nodes.items():
                counts = _passes(one, spec, node) and (not every_key or _has_keys(node, rules))
                if counts and node.labels.get(one.topology_key, "") == value:
                    number += world.matching(one, other)
        total += number * math.log(size + 2) + (one.max_skew - 1)
    return total


def _rounded(value: float) -> int:
    return math.floor(value) + (value - math.floor(value) >= 0.5)


def _has_keys(node: Node, rules: Sequence[TopologySpreadConstraint]) -> bool:
    return all(one.topology_key in node.labels for one in rules)


def _passes(one: TopologySpreadConstraint, spec: PodSpec, node: Node) -> bool:
    chosen = _has(node.labels, spec.node_selector)
    closed = any(taint.effect != "PreferNoSchedule" and not _tolerated(taint, spec) for taint in node.taints)
    return (chosen or not one.honors_affinity) and (not closed or not one.honors_taints)


def _has(labels: Mapping[str, str], wanted: Sequence[tuple[str, str]]) -> bool:
    return all(labels.get(key) == value for key, value in wanted)


def _tolerated(taint: Taint, spec: PodSpec) -> bool:
    return any(one.key == taint.key and one.operator == "Exists" for one in spec.tolerations)
