"""Topology spread constraints as they are decoded."""

from typing import Any

import pytest

from aischeduler.model.selectors import Operator, Requirement, label_selector
from aischeduler.model.topology_spread import PodSelector, TopologySpreadConstraint
from tests.kube import api_objects
from tests.kube.test_decode import decode_pod

LABELS = {"app": "web", "pod-template-hash": "7"}
SELECTOR = {"matchLabels": {"app": "web"}}


def decoded(*constraints: Any, labels: dict[str, str] = LABELS) -> Any:
    pod = api_objects.pod(spec={"topologySpreadConstraints": list(constraints)})
    pod["metadata"]["labels"] = labels
    return decode_pod(pod).spec


def test_constraint_counts_the_pods_of_its_namespace_and_knows_whether_it_selects_its_own_pod() -> None:
    constraint = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}
    expected = TopologySpreadConstraint(
        "zone", 2, PodSelector("default", label_selector("s", {"app": "web"}, ())), selects_itself=True
    )
    assert decoded(constraint).topology_spread == (expected,)
    other = decoded(constraint, labels={"app": "db"})
    assert not other.topology_spread[0].selects_itself
    assert other.key != decoded(constraint).key


def test_rarer_fields_are_read() -> None:
    """T13 of kube-scheduler's cases: of the pods, only those with the pod's own hash of its template count."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": SELECTOR,
        "minDomains": 3,
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
        "matchLabelKeys": ["pod-template-hash", "absent"],
    }
    (found,) = decoded(constraint).topology_spread
    assert (found.min_domains, found.honors_affinity, found.honors_taints) == (3, False, True)
    assert Requirement("pod-template-hash", Operator.IN, ("7",)) in found.selector.labels.requirements
    assert len(found.selector.labels.requirements) == 2


@pytest.mark.parametrize(
    ("selector", "itself"), [({}, True), ({"labelSelector": {}}, True), ({"labelSelector": None}, False)][1:]
)
def test_selector_without_requirements_counts_no_pod(selector: Any, itself: bool) -> None:
    (found,) = decoded({"maxSkew": 1, "topologyKey": "zone", **selector}).topology_spread
    assert (found.selector, found.selects_itself) == (None, itself)


def test_preference_is_no_hard_constraint() -> None:
    hard = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": SELECTOR}
    found = decoded({**hard, "whenUnsatisfiable": "ScheduleAnyway"}, {**hard, "topologyKey": "rack"})
    assert [constraint.topology_key for constraint in found.topology_spread] == ["rack"]
    assert [constraint.topology_key for constraint in found.spread_preferences] == ["zone"]
    assert found.spread_preferences[0].selects_itself


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"maxSkew": 0}, "spec.topologySpreadConstraints[0].maxSkew: 0 is not a whole number above zero"),
        ({"topologyKey": ""}, "spec.topologySpreadConstraints[0].topologyKey: is not set"),
        (
            {"nodeTaintsPolicy": "Perhaps"},
            "spec.topologySpreadConstraints[0].nodeTaintsPolicy: 'Perhaps' is not one of Honor, Ignore",
        ),
        ({"maxSkew": "many"}, "spec.topologySpreadConstraints[0].maxSkew: must be a whole number"),
        (
            {"labelSelector": {"matchLabels": {"-": "x"}}},
            "spec.topologySpreadConstraints[0].labelSelector.matchLabels: '-' is not a label key",
        ),
    ],
)
def test_malformed_constraint_makes_the_spec_invalid_with_its_field(change: Any, message: str) -> None:
    found = decoded({"maxSkew": 1, "topologyKey": "zone", "labelSelector": SELECTOR, **change})
    assert found.invalid.startswith(message)
