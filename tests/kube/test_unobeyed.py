"""Which hard constraints of a pod are named because nobody obeys them."""

from typing import Any

import pytest

from aischeduler.kube.podspec import SpecCache
from aischeduler.kube.unobeyed import FIELDS_MAX
from tests.kube import docs
from tests.kube.test_decode import decode_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM = {"labelSelector": {"matchLabels": {"app": "m"}}, "topologyKey": "kubernetes.io/hostname"}
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}
SETTINGS = {"name": "settings", "configMap": {"name": "settings"}}


def spread(**parts: Any) -> dict[str, Any]:
    return {"maxSkew": 1, "topologyKey": "zone", **parts}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [TERM]}}}, (f"spec.affinity.podAffinity.{REQUIRED}",)),
        ({"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}}, (f"spec.affinity.podAntiAffinity.{REQUIRED}",)),
        (
            {"topologySpreadConstraints": [spread(whenUnsatisfiable="ScheduleAnyway"), spread()]},
            ("spec.topologySpreadConstraints[1]",),
        ),
        (
            {"topologySpreadConstraints": [spread(whenUnsatisfiable="DoNotSchedule")]},
            ("spec.topologySpreadConstraints[0]",),
        ),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}, ("spec.resourceClaims",)),
        ({"volumes": [SETTINGS, CLAIM]}, ("spec.volumes[1].persistentVolumeClaim",)),
        (
            {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
            ("spec.volumes[0].ephemeral",),
        ),
    ],
)
def test_hard_constraint_that_no_rule_looks_at_is_named_by_its_field(spec: Any, fields: tuple[str, ...]) -> None:
    found = decode_pod(docs.pod(spec=spec)).spec
    assert (found.unobeyed, found.invalid) == (fields, "")


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]}, "podAntiAffinity": {}}},
        {"affinity": {"podAffinity": None, "podAntiAffinity": {REQUIRED: []}}},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
        {"topologySpreadConstraints": [spread(whenUnsatisfiable="ScheduleAnyway")], "resourceClaims": []},
        {"topologySpreadConstraints": None, "resourceClaims": None, "volumes": None},
        {"volumes": [SETTINGS, {"name": "tmp", "emptyDir": {}}, {"name": "volumeClaim"}]},
        {"volumes": "volumeClaim"},
        {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]},
    ],
)
def test_wishes_and_what_rules_obey_are_not_named(spec: Any) -> None:
    assert decode_pod(docs.pod(spec=spec)).spec.unobeyed == ()


def test_pods_that_differ_in_such_a_constraint_alone_are_read_apart() -> None:
    specs = SpecCache()
    plain, claiming = (decode_pod(docs.pod(name, spec={"volumes": [one]}), specs) for name, one in PAIR.items())
    assert (plain.spec.unobeyed, claiming.spec.unobeyed) == ((), ("spec.volumes[0].persistentVolumeClaim",))
    assert plain.spec.key != claiming.spec.key


PAIR = {"plain": SETTINGS, "claiming": CLAIM}


def test_pods_of_a_stateful_set_share_their_spec_though_each_has_its_own_claim() -> None:
    specs = SpecCache()
    first, second = (
        decode_pod(docs.pod(spec={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}), specs)
        for name in ("data-0", "data-1")
    )
    assert first.spec is second.spec


def test_of_a_thousand_claims_the_first_are_named_and_the_rest_counted() -> None:
    fields = decode_pod(docs.pod(spec={"volumes": [CLAIM] * 1000})).spec.unobeyed
    assert fields[-2:] == (f"spec.volumes[{FIELDS_MAX - 1}].persistentVolumeClaim", f"{1000 - FIELDS_MAX} more fields")
    assert len(fields) == FIELDS_MAX + 1
