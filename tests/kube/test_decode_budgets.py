import json
from typing import Any

import msgspec
import pytest

from aischeduler.kube.decode.api_types import BudgetDocument, NamespaceDocument
from aischeduler.kube.decode.pods import budget_problem, read_budget, read_namespace
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.elastic import PriorityLevel
from aischeduler.model.events import Seen
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace
from tests.build import a_pod, replace

IDENTITY = {"name": "b", "namespace": "team-a", "uid": "u-b", "resourceVersion": "1"}


def document(spec: Any = None, status: Any = None) -> BudgetDocument:
    text = json.dumps({"metadata": IDENTITY, "spec": spec, "status": status})
    return msgspec.json.decode(text, type=BudgetDocument)


def selecting(selector: Any) -> DisruptionBudget:
    return read_budget(document({"minAvailable": 1, "selector": selector}, {"disruptionsAllowed": 2}))


def labelled(namespace: str, **labels: str) -> Pod:
    return replace(a_pod(namespace=namespace), labels=labels)


def test_budget_is_read_with_what_its_status_allows() -> None:
    found = read_budget(
        document(
            {"selector": {"matchLabels": {"app": "a"}}},
            {"disruptionsAllowed": 2, "disruptedPods": {"x": "2026-01-02T03:04:05Z"}},
        )
    )
    assert (found.namespace, found.name, found.uid) == ("team-a", "b", "u-b")
    assert (found.disruptions_allowed, found.disrupted) == (2, frozenset({"x"}))
    assert budget_problem(document({"selector": {"matchLabels": {"app": "a"}}})) == ""


def test_budget_covers_the_pods_of_its_namespace_that_its_selector_matches() -> None:
    labels = selecting({"matchLabels": {"app": "a"}})
    expressions = selecting({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]})
    for budget in (labels, expressions):
        assert budget.covers(labelled("team-a", app="a"))
        assert not budget.covers(labelled("team-a", app="c"))
        assert not budget.covers(labelled("team-b", app="a"))


def test_budget_without_a_status_allows_nothing() -> None:
    found = read_budget(document({"selector": {"matchLabels": {"app": "a"}}}))
    assert (found.disruptions_allowed, found.disrupted) == (0, frozenset())


@pytest.mark.parametrize("spec", [None, {}, {"selector": None}])
def test_budget_without_a_selector_covers_nothing_and_is_no_problem(spec: Any) -> None:
    assert read_budget(document(spec)).selector is None
    assert budget_problem(document(spec)) == ""


@pytest.mark.parametrize(
    ("selector", "problem"),
    [
        (5, "spec.selector: must be a mapping, not a whole number"),
        (
            {"matchLabels": {"a b": "c"}},
            "spec.selector.matchLabels: 'a b' is not a label key, which is a name, or a prefix, a slash and a name",
        ),
        ({"matchLabels": {"a": 1}}, "spec.selector.matchLabels[...]: must be a string, not a whole number"),
        (
            {"matchExpressions": [{"key": "a", "operator": "In"}]},
            "spec.selector.matchExpressions[0].values: In needs at least one value",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
            "spec.selector.matchExpressions[0].operator: 'Gt' is not one of In, NotIn, Exists, DoesNotExist",
        ),
    ],
)
def test_budget_whose_selector_cannot_be_read_covers_nothing_and_has_a_problem(selector: Any, problem: str) -> None:
    assert selecting(selector).selector is None
    assert budget_problem(document({"selector": selector})) == problem


def test_namespace_is_read_with_its_labels() -> None:
    def read(metadata: Any) -> Seen:
        return read_namespace(msgspec.json.decode(json.dumps({"metadata": metadata}), type=NamespaceDocument))

    assert read({"name": "team-a", "labels": {"team": "a"}}) == Seen(Namespace("team-a", {"team": "a"}))
    assert read({"name": "team-a"}) == Seen(Namespace("team-a", {}))
    said = {"name": "team-a", "annotations": {"resource.aibee.cn/priority-levels": "Offline, Experiment,Best"}}
    assert read(said) == Seen(Namespace("team-a", {}, (PriorityLevel.EXPERIMENT, PriorityLevel.OFFLINE)))
    for text in (7, "", " ,"):
        said["annotations"] = {"resource.aibee.cn/priority-levels": text}
        assert read(said) == Seen(Namespace("team-a", {}))


@pytest.mark.parametrize(
    ("spec", "status", "go"),
    [
        ({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, {}, True),
        ({}, {"currentHealthy": 2, "desiredHealthy": 2}, True),
        ({}, {"currentHealthy": 1, "desiredHealthy": 2}, False),
        ({}, {"currentHealthy": 0, "desiredHealthy": 0}, False),
    ],
)
def test_budget_says_whether_pods_that_are_not_ready_may_go(
    spec: dict[str, Any], status: dict[str, Any], go: bool
) -> None:
    assert read_budget(document(spec, status)).unhealthy_go is go
