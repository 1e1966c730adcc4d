"""Explanations while claims, evictions and loans are under way: each remedy starts the pod, and nothing changes."""

from random import Random  # noqa: TID251 - a type; the generator comes from the seed

import pytest

from aischeduler.analysis.deciding import decide_all
from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import EditPool, EndPods, Explanation, LowerRequest
from aischeduler.analysis.what_if import requesting
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.self_check import digest
from aischeduler.model.events import Seen, gone
from aischeduler.model.pod import Pod
from aischeduler.state.pod_records import PodState
from tests import seeds
from tests.analysis.clusters import (
    POOLS,
    Documents,
    cluster_of,
    random_documents,
    random_pairs,
    random_pod,
    settled,
    waiting,
)
from tests.analysis.oracle import starts_in
from tests.build import replace
from tests.invariants.state import check
from tests.objects import pod_object
from tests.pairs import PAIR

CLUSTERS = 25
NEWCOMERS = 6


def disturbed(chance: Random, *, pairs: bool = False) -> Documents:
    """Return a cluster at rest to which important pods are added; with `pairs`, some pods start two at a time."""
    documents = random_pairs(chance) if pairs else random_documents(chance)
    settled(documents)
    for number in range(NEWCOMERS):
        pod = random_pod(chance, f"q{number}", documents)
        if pairs:
            pair = number // 2
            pod = pod_object(f"q{number}", cpu="2", pool=POOLS[pair % len(POOLS)], labels={PAIR: f"q{pair}"})
        pod["spec"]["priority"] = 1_000
        documents.put(pod)
    return documents


@pytest.mark.parametrize("pairs", [False, True])
def test_explaining_every_pod_changes_nothing(pairs: bool) -> None:
    chance = seeds.random("unsettled")
    states: set[PodState] = set()
    for _ in range(CLUSTERS):
        scheduler = disturbed(chance, pairs=pairs).engine()
        decide_all(scheduler, 0.0)
        cluster = cluster_of(scheduler)
        before, spare = digest(cluster), dict(cluster.running.spare)
        for uid in sorted(cluster.records):
            record = cluster.records[uid]
            if cluster.ours(record.pod):
                states.add(record.state)
                explain(cluster, record, 0.0)
        assert (digest(cluster), cluster.running.spare, cluster.units.stale) == (before, spare, {})
        assert check(cluster) == ()
    assert states >= {PodState.PARKED, PodState.NOMINATED, PodState.ASSUMED, PodState.HELD}
    assert (PodState.GROUPED in states) == (PodState.GATED in states) == pairs


def test_remedies_count_the_claims_of_others() -> None:
    chance = seeds.random("claims")
    judged = 0
    for _ in range(CLUSTERS):
        documents = disturbed(chance)
        scheduler = documents.engine()
        decide_all(scheduler, 0.0)
        cluster = cluster_of(scheduler)
        if not len(cluster.claims):
            continue
        for record in waiting(cluster):
            found = explain(cluster, record, 0.0)
            judged += sum(_judge(documents, cluster, found, number) for number in range(len(found.remedies)))
    assert judged


def _judge(documents: Documents, cluster: Cluster, found: Explanation, number: int) -> bool:
    """Check one remedy in a fresh engine that has decided the same; return whether it is of a kind judged here."""
    edit = found.remedies[number].edit
    scheduler = documents.engine()
    decide_all(scheduler, 0.0)
    other = cluster_of(scheduler)
    assert digest(other) == digest(cluster)
    record = other.records[found.pod.uid]
    match edit:
        case EditPool(name, patch) if set(patch) <= {"disableSharing", "disableBorrowing", "disablePreemption"}:
            flags = {"disableSharing": "disable_sharing", "disableBorrowing": "disable_borrowing"}
            fields = {flags.get(field, "disable_preemption"): value for field, value in patch.items()}
            scheduler.observe(Seen(replace(other.pools.pools[name], **fields)), 0.0)
        case EndPods(pods):
            for pod in pods:
                scheduler.observe(gone(Pod, pod.uid), 0.0)
        case LowerRequest(resource, amount):
            record = requesting(record, resource, amount)
        case _:
            return False
    assert starts_in(other, replace(record, queue=record.home, visited=())), found.remedies[number]
    return True
