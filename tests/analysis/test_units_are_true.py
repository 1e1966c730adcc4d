"""Explanations and plans of pairs are true: random small clusters in which two pods of a name start together."""

from collections import Counter
from random import Random  # noqa: TID251 - a type; the generator comes from the seed

import pytest

from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import Explanation, RemedyKind, Verdict
from aischeduler.analysis.plan import UNIT, Plan, UnitVerdict
from tests import seeds
from tests.analysis.clusters import Documents, cluster_of, merged, random_pairs, settled, waiting
from tests.analysis.oracle import starts
from tests.analysis.plan_worlds import REST_SECONDS, a_cluster, a_pod, planned, snapshot_of, starts_and_victims
from tests.analysis.test_truth import LATER, carried_out
from tests.harness import Json
from tests.pairs import PAIR, pair_profile

EXPLAINED = pytest.mark.parametrize("pods", [250, pytest.param(3_000, marks=pytest.mark.soak)])
CLUSTERS, CLUSTERS_MAX = 15, 150
"""At least so many random clusters, and more until each verdict has come; a verdict that never comes is a failure."""


def started(documents: Documents, pods: list[str]) -> bool:
    """Return whether an engine that decides about these waiting pods alone starts two of them, or the only one."""
    alone = documents.copy()
    for pod in documents.of("Pod"):
        name = pod["metadata"]["name"]
        if not pod["spec"].get("nodeName") and name not in pods:
            del alone.objects["Pod", "default", name]
    settled(alone)
    return sum(bool(alone.pod(name)["spec"].get("nodeName")) for name in pods) >= min(len(pods), 2)


@pytest.mark.timeout(3_600)
@EXPLAINED
def test_every_remedy_of_a_pair_starts_the_pair(pods: int) -> None:
    chance = seeds.random("true pairs")
    found = Counter[Verdict]()
    kinds = Counter[RemedyKind]()
    while found[Verdict.WAITS] < pods:
        documents = random_pairs(chance)
        cluster = cluster_of(settled(documents))
        for record in waiting(cluster):
            explanation = explain(cluster, record, LATER)
            unit = explanation.unit
            if unit is None or (not unit.required and explanation.verdict is not Verdict.GATED):
                continue
            found[explanation.verdict] += 1
            _judge(documents, explanation)
            kinds.update(remedy.kind for remedy in explanation.remedies)
    assert found[Verdict.GATED]
    assert {RemedyKind.NODE, RemedyKind.FLAG, RemedyKind.PODS_END} <= set(kinds)
    assert RemedyKind.REQUEST not in kinds


def _judge(documents: Documents, explanation: Explanation) -> None:
    name, unit = explanation.pod.name, explanation.unit
    assert unit is not None
    if explanation.verdict in (Verdict.WAITS, Verdict.GATED):
        assert not starts(documents, name), explanation
    if explanation.verdict is Verdict.GATED:
        assert explanation.remedies == ()
    for remedy in explanation.remedies:
        after = carried_out(documents, explanation, remedy)
        assert starts(after, name), remedy
        assert started(after, [pod.removeprefix("default/") for pod in unit.pods]), remedy


def pair_of(pod: Json) -> str:
    """Return the name of the pod's pair; empty where it has none."""
    pair: str = pod["metadata"].get("labels", {}).get(PAIR, "")
    return pair


def some_pods(chance: Random, mark: str, halves: list[Json]) -> list[Json]:
    """Return pods with the mark in their names: single ones, pairs of equal pods, halves, and what completes halves.

    The uid, which the API server draws, decides which pod of a pair is placed first, so that its pods must be equal.
    """
    pods: list[Json] = []
    for number in range(chance.randint(1, 3)):
        kind, name = chance.choice(("single", "pair", "pair", "pair", "half", "other")), f"{mark}{number}"
        if kind == "other" and halves:
            half = halves.pop()
            kept = {field: half["metadata"].get(field, {}) for field in ("labels", "annotations")}
            pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **kept}, "spec": half["spec"]})
            continue
        pod = a_pod(chance, name)
        if kind == "single":
            pods.append(pod)
            continue
        names = [f"{name}-{index}" for index in range(1 if kind == "half" else 2)]
        pods += [merged(pod, {"metadata": {"name": one, "labels": {PAIR: name}}}) for one in names]
    return pods


Started = list[tuple[str, str]]


def said(plan: Plan) -> tuple[Started, list[str]]:
    """Return which pods start where by a plan, and the victims."""
    starts, victims = starts_and_victims([*plan.other_starts, *plan.other_evictions])
    nodes = [(pod.removeprefix("default/"), node) for one in plan.units for pod, node in one.nodes.items()]
    evicts = [victim.removeprefix("default/") for one in plan.units for victim in one.evicts]
    others = [one for one in starts if one[0] not in evicts]
    return sorted([*nodes, *others]), sorted([*evicts, *victims])


def as_equals(started: Started, pairs: dict[str, str]) -> Started:
    """Return the nodes of single pods, and of pairs without saying which of its pods gets which node."""
    return sorted((pairs.get(pod, pod), node) for pod, node in started)


@pytest.mark.parametrize("batch", range(3))
def test_plan_of_pairs_equals_what_then_happens(batch: int) -> None:
    verdicts = Counter[UnitVerdict]()
    for number in range(CLUSTERS_MAX):
        if number >= CLUSTERS and set(verdicts) == set(UnitVerdict):
            break
        name = f"pairs {batch} {number}"
        chance = seeds.random(name)
        harness = a_cluster(chance, seeds.number(name), pair_profile())
        harness.add(*some_pods(chance, "early", []))
        harness.run(REST_SECONDS)
        waits = [pod for pod in harness.all("Pod") if not pod["spec"].get("nodeName")]
        counts = Counter(pair_of(pod) for pod in harness.all("Pod"))
        file = some_pods(chance, "new", [pod for pod in waits if pair_of(pod) and counts[pair_of(pod)] == 1])
        plan = planned(snapshot_of(harness), file, profile=pair_profile())
        assert (plan.notes, plan.at_rest) == ((), True), name
        harness.restart_scheduler()
        harness.run(15.0)
        before = len(harness.actions)
        harness.add(*file)
        harness.run(REST_SECONDS)
        pairs = {pod["metadata"]["name"]: pair for pod in harness.all("Pod") if (pair := pair_of(pod))}
        (starts, victims), (started, evicted) = said(plan), starts_and_victims(harness.actions[before:])
        assert (as_equals(starts, pairs), victims) == (as_equals(started, pairs), evicted), name
        for one in plan.units:
            if one.unit.kind == UNIT:
                verdicts[one.verdict] += 1
                assert (len(one.unit.pods), len(one.nodes)) in ((2, 0), (2, 2)), name
    assert set(verdicts) == set(UnitVerdict), verdicts
