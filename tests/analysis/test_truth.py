"""Explanations are true: remedies start the pod and have nothing to spare, misses are the nearest."""

from collections.abc import Iterator
from copy import deepcopy

import pytest

from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import (
    AddNode,
    EditNode,
    EditPool,
    EndPods,
    Explanation,
    LowerRequest,
    Remedy,
    RemedyKind,
    Verdict,
)
from aischeduler.analysis.remedies import OF_A_KIND_MAX, REMEDIES_MAX
from aischeduler.analysis.remedy_steps import lowered, steps
from aischeduler.model.quantity import parse_milli, parse_units, quantity_text
from tests import seeds
from tests.analysis.clusters import Documents, cluster_of, merged, random_documents, settled, waiting
from tests.analysis.oracle import endings, flips, misses, requests, starts

TRUE = pytest.mark.parametrize("pods", [200, pytest.param(5_000, marks=pytest.mark.soak)])
SMALLEST = pytest.mark.parametrize(("pods", "most_ended"), [(25, 2), pytest.param(1_000, 3, marks=pytest.mark.soak)])
"""Where no pods are named, no set of at most `most_ended` on one node starts the pod."""
LATER = 1_000.0


def explained(name: str, pods: int) -> Iterator[tuple[Documents, Explanation]]:
    """Yield this many waiting pods of random clusters with their explanations."""
    chance = seeds.random(name)
    count = 0
    while count < pods:
        documents = random_documents(chance)
        cluster = cluster_of(settled(documents))
        for record in waiting(cluster):
            yield documents, explain(cluster, record, LATER)
            count += 1


def carried_out(documents: Documents, explanation: Explanation, remedy: Remedy) -> Documents:
    """Return the documents after a remedy: after its steps, or with the node that it asks for."""
    if isinstance(remedy.edit, AddNode):
        like = documents.objects["Node", "", remedy.edit.like]
        node = merged(like, {"metadata": {"name": "new", "labels": {"kubernetes.io/hostname": "new"}}})
        node["metadata"]["uid"] = "uid-new"
        changed = documents.copy()
        changed.put(node)
        return changed
    told = steps(remedy, documents.pod(explanation.pod.name))
    assert told, "a remedy without steps needs a new node"
    return documents.after(told)


@pytest.mark.timeout(3_600)
@TRUE
def test_every_remedy_starts_the_pod_and_every_miss_is_the_nearest(pods: int) -> None:
    remedies = 0
    for documents, explanation in explained("truth", pods):
        name = explanation.pod.name
        found = explanation.remedies
        remedies += len(found)
        assert len(found) <= REMEDIES_MAX
        if explanation.verdict is Verdict.WAITS:
            assert not starts(documents, name), "a pod that waits could start"
            assert {one.rule: one for one in explanation.refused}.keys() == misses(
                documents, documents.pod(name)
            ).keys()
        for refusal in explanation.refused:
            truth = misses(documents, documents.pod(name))[refusal.rule]
            assert refusal.nearest is not None
            missing = tuple(sorted((one.name, one.amount) for one in refusal.nearest.missing))
            assert (refusal.nodes, refusal.nearest.node) == (truth.nodes, truth.nearest)
            assert missing == tuple(sorted(truth.missing))
        _judge_limits(documents, explanation)
        for remedy in found:
            assert starts(carried_out(documents, explanation, remedy), name), remedy
    assert remedies > pods / 4


@pytest.mark.timeout(3_600)
@SMALLEST
def test_nothing_smaller_of_its_kind_starts_the_pod(pods: int, most_ended: int) -> None:
    for documents, explanation in explained("brute", pods):
        _judge_requests(documents, explanation)
        _judge_ends(documents, explanation, most_ended)
        _judge_flags(documents, explanation)
        _judge_labels(documents, explanation)


def _of(explanation: Explanation, kind: RemedyKind) -> list[Remedy]:
    return [one for one in explanation.remedies if one.kind is kind]


def _judge_requests(documents: Documents, explanation: Explanation) -> None:
    pod = documents.pod(explanation.pod.name)
    named: dict[str, int] = {}
    for one in _of(explanation, RemedyKind.REQUEST):
        assert isinstance(one.edit, LowerRequest)
        named[one.edit.resource] = max(one.edit.amount, named.get(one.edit.resource, 0))
    cut = len(_of(explanation, RemedyKind.REQUEST)) == OF_A_KIND_MAX or len(explanation.remedies) == REMEDIES_MAX
    for resource, asked in requests(pod).items():
        if resource == "pods" or (cut and resource not in named):
            continue
        least = named.get(resource, 0)
        tried = {least + 1, (least + asked) // 2, asked - 1} if asked > 100 else set(range(least + 1, asked))
        for amount in sorted(one for one in tried if least < one < asked):
            less = merged(pod, {"spec": lowered(pod, resource, amount)})
            assert requests(less)[resource] == amount
            edited = documents.copy()
            edited.put(less)
            assert not starts(edited, explanation.pod.name), (resource, amount, explanation)


def _judge_limits(documents: Documents, explanation: Explanation) -> None:
    for one in _of(explanation, RemedyKind.LIMIT):
        assert isinstance(one.edit, EditPool)
        ((field, amounts),) = one.edit.spec.items()
        assert isinstance(amounts, dict)
        for resource, text in amounts.items():
            less = (parse_milli(text) if resource == "cpu" else parse_units(text)) - 1
            pool = deepcopy(documents.objects["Pool", "", one.edit.pool])
            pool["spec"][field] |= {**amounts, resource: quantity_text(resource, less)}
            edited = documents.copy()
            edited.put(pool)
            assert not starts(edited, explanation.pod.name), one


def _judge_ends(documents: Documents, explanation: Explanation, most_ended: int) -> None:
    ends = _of(explanation, RemedyKind.PODS_END)
    for remedy in ends:
        assert isinstance(remedy.edit, EndPods)
        for kept in remedy.edit.pods:
            left = documents.copy()
            for pod in remedy.edit.pods:
                if pod is not kept:
                    del left.objects["Pod", pod.namespace, pod.name]
            assert not starts(left, explanation.pod.name, evicting=bool(remedy.start.victims)), (kept.name, remedy)
    if ends or len(explanation.remedies) == REMEDIES_MAX:
        return
    for size in range(1, most_ended + 1):
        for left in endings(documents, size):
            assert not starts(left, explanation.pod.name), (size, explanation)


def _judge_flags(documents: Documents, explanation: Explanation) -> None:
    found = _of(explanation, RemedyKind.FLAG)
    if len(explanation.remedies) < REMEDIES_MAX and len(found) < OF_A_KIND_MAX:
        assert sum(starts(edited, explanation.pod.name) for edited in flips(documents)) == len(found), explanation


def _judge_labels(documents: Documents, explanation: Explanation) -> None:
    for one in _of(explanation, RemedyKind.NODE):
        if isinstance(one.edit, EditNode) and one.edit.labels and len(one.edit.labels) > 1:
            for left_out in one.edit.labels:
                fewer = {key: value for key, value in one.edit.labels.items() if key != left_out}
                for node in documents.of("Node"):
                    if any(key in node["metadata"]["labels"] for key in fewer):
                        continue
                    edited = documents.copy()
                    edited.put(merged(node, {"metadata": {"labels": fewer}}))
                    assert not starts(edited, explanation.pod.name), one
