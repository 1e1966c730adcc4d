"""The hard constraints of a pod that are found as unsupported."""

from typing import Any

import pytest

from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.model.pod import PodSpec
from aischeduler.model.pod_affinity import PodAffinityTerm
from aischeduler.model.selectors import LabelSelector, Operator, Requirement
from tests.kube import api_objects
from tests.kube.test_decode import decode_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM: dict[str, Any] = {"labelSelector": {"matchLabels": {"app": "m"}}, "topologyKey": "kubernetes.io/hostname"}
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}
SETTINGS = {"name": "settings", "configMap": {"name": "settings"}}


def fields_of(spec: PodSpec) -> tuple[str, ...]:
    return tuple(constraint.field for constraint in spec.unsupported_constraints)


def spread(**parts: Any) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": "zone", **parts}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}, ("spec.resourceClaims",)),
    ],
)
def test_hard_constraint_that_no_plugin_checks_is_found_with_its_field(spec: Any, fields: tuple[str, ...]) -> None:
    found = decode_pod(api_objects.pod(spec=spec)).spec
    assert (fields_of(found), found.invalid) == (fields, "")


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]}, "podAntiAffinity": {}}},
        {"affinity": {"podAffinity": None, "podAntiAffinity": {REQUIRED: []}}},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
        {"topologySpreadConstraints": [spread(whenUnsatisfiable="DoNotSchedule")], "resourceClaims": []},
        {"topologySpreadConstraints": None, "resourceClaims": None, "volumes": None},
        {"volumes": [SETTINGS, CLAIM]},
        {"volumes": [SETTINGS, {"name": "tmp", "emptyDir": {}}, {"name": "volumeClaim"}]},
        {"volumes": "volumeClaim"},
        {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]},
    ],
)
def test_preferences_and_supported_constraints_are_not_found(spec: Any) -> None:
    assert fields_of(decode_pod(api_objects.pod(spec=spec)).spec) == ()


def test_required_anti_affinity_is_read_with_its_selectors_and_namespaces() -> None:
    among = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    terms = [TERM | {"namespaces": ["b", "a"], "namespaceSelector": among}, {"topologyKey": "zone"}]
    found = decode_pod(api_objects.pod(spec={"affinity": {"podAntiAffinity": {REQUIRED: terms, PREFERRED: []}}})).spec
    teams = LabelSelector((Requirement("team", Operator.EXISTS),))
    pods = LabelSelector((Requirement("app", Operator.IN, ("m",)),))
    expected = (
        PodAffinityTerm(TERM["topologyKey"], pods, ("a", "b"), teams),
        PodAffinityTerm("zone", None, ("default",)),
    )
    assert (found.pod_affinity.anti_required, found.invalid) == (expected, "")


def test_anti_affinity_that_cannot_be_read_makes_the_spec_invalid_and_names_the_field() -> None:
    term = {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}, "topologyKey": "zone"}
    for terms in ([term], "near"):
        found = decode_pod(api_objects.pod(spec={"affinity": {"podAntiAffinity": {REQUIRED: terms}}})).spec
        assert found.invalid.startswith("spec.affinity.podAntiAffinity")


def test_pods_with_different_anti_affinity_have_different_specs() -> None:
    specs = SpecCache()
    keys = {
        decode_pod(api_objects.pod(spec={"affinity": {"podAntiAffinity": {REQUIRED: [TERM | more]}}}), specs).spec.key
        for more in ({}, {"topologyKey": "zone"}, {"namespaces": ["x"]})
    }
    assert len(keys) == 3
