"""The operator in the chart: off by default, one pod with an account, rights and labels of its own."""

import pytest

from aischeduler.kube.crds import crd
from tests.chart.rendering import Helm, Json, Rendered
from tests.chart.test_pods import RESTRICTED_CONTAINER, RESTRICTED_POD
from tests.chart.test_rights import granted

NAME = "ai-scheduler-operator"
KINDS = ("batchprocesses", "trainingjobs")


@pytest.fixture
def on(helm: Helm) -> Rendered:
    return helm.render({"operator": {"enabled": True}})


def pod_of(rendered: Rendered, name: str = NAME) -> Json:
    spec: Json = rendered.one("Deployment", name)["spec"]["template"]["spec"]
    return spec


def test_operator_is_off_by_default_and_changes_nothing_of_the_scheduler(defaults: Rendered, on: Rendered) -> None:
    assert [one["metadata"]["name"] for one in defaults.objects if "operator" in one["metadata"]["name"]] == []
    known = {(one["kind"], one["metadata"]["name"]): one for one in on.objects}
    assert [one for one in defaults.objects if known[(one["kind"], one["metadata"]["name"])] != one] == []
    assert sorted(set(known) - {(one["kind"], one["metadata"]["name"]) for one in defaults.objects}) == [
        ("ClusterRole", "ai-scheduler-batch-editor"),
        ("ClusterRole", "ai-scheduler-batch-viewer"),
        ("ClusterRole", NAME),
        ("ClusterRoleBinding", NAME),
        ("CustomResourceDefinition", "batchprocesses.resource.aibee.cn"),
        ("CustomResourceDefinition", "trainingjobs.resource.aibee.cn"),
        ("Deployment", NAME),
        ("NetworkPolicy", NAME),
        ("ServiceAccount", NAME),
    ]


def test_one_operator_runs_at_a_time(on: Rendered) -> None:
    spec = on.one("Deployment", NAME)["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_operator_meets_the_standard_restricted_and_can_be_probed(on: Rendered) -> None:
    spec = pod_of(on)
    (container,) = spec["containers"]
    assert (spec["securityContext"], container["securityContext"]) == (RESTRICTED_POD, RESTRICTED_CONTAINER)
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"] for volume in spec["volumes"]]
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
    assert probes == [{"path": "/healthz", "port": "health"}] * 2
    assert container["image"] == on.container()["image"]


def test_operator_gets_the_name_of_the_scheduler_the_default_image_and_the_logging(helm: Helm) -> None:
    config = {"schedulerName": "blue", "logging": {"level": "debug", "format": "console"}}
    values = {"config": config, "operator": {"enabled": True, "defaultImage": "images.example/base:1"}}
    (container,) = pod_of(helm.render(values))["containers"]
    assert container["args"] == [
        "operator",
        "--scheduler-name=blue",
        "--default-image=images.example/base:1",
        "--health-address=:8080",
        "--log-format=console",
        "--log-level=debug",
    ]


def test_no_selector_of_one_program_finds_the_pods_of_the_other(on: Rendered) -> None:
    labels = {
        name: on.one("Deployment", name)["spec"]["template"]["metadata"]["labels"] for name in ("ai-scheduler", NAME)
    }
    selectors = [
        *((name, on.one("Deployment", name)["spec"]["selector"]["matchLabels"]) for name in labels),
        *((name, on.one("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"]) for name in labels),
        ("ai-scheduler", on.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"]),
        ("ai-scheduler", on.one("Service")["spec"]["selector"]),
    ]
    for owner, selector in selectors:
        assert [name for name, found in labels.items() if selector.items() <= found.items()] == [owner]


def test_operator_runs_where_the_scheduler_does_unless_the_values_say_otherwise(helm: Helm, on: Rendered) -> None:
    places = ("nodeSelector", "tolerations")
    assert [pod_of(on)[name] for name in places] == [on.pod()[name] for name in places]
    there = {"nodeSelector": {"for": "operators"}, "tolerations": [{"key": "operators"}]}
    other = helm.render({"operator": {"enabled": True, "replicas": 0, **there}})
    assert {name: pod_of(other)[name] for name in places} == there
    assert other.one("Deployment", NAME)["spec"]["replicas"] == 0
    anywhere = pod_of(helm.render({"operator": {"enabled": True, "tolerations": []}}))
    assert "tolerations" not in anywhere


def test_nobody_but_the_kubelet_reaches_the_operator(on: Rendered) -> None:
    spec = on.one("NetworkPolicy", NAME)["spec"]
    assert (spec["policyTypes"], spec["ingress"]) == (["Ingress", "Egress"], [])
    assert spec["egress"] == on.one("NetworkPolicy")["spec"]["egress"]


def test_operator_has_an_account_and_rights_of_its_own(on: Rendered) -> None:
    assert pod_of(on)["serviceAccountName"] == NAME
    binding = on.one("ClusterRoleBinding", NAME)
    assert (binding["roleRef"]["name"], [one["name"] for one in binding["subjects"]]) == (NAME, [NAME])
    rights = granted(on.one("ClusterRole", NAME))
    assert len(set(rights)) == len(rights)
    assert {resource for _, resource, _ in rights} == {
        "batchprocesses",
        "batchprocesses/status",
        "trainingjobs",
        "trainingjobs/status",
        "jobs",
        "pods",
        "services",
        "events",
        "customresourcedefinitions",
    }


def test_operator_makes_jobs_and_deletes_none(on: Rendered) -> None:
    rights = granted(on.one("ClusterRole", NAME))
    assert {verb for _, resource, verb in rights if resource == "jobs"} == {"get", "list", "watch", "create", "patch"}
    groups = {group for group, resource, _ in rights if resource == "trainingjobs"}
    assert groups == {"resource.aibee.cn", "paddlepaddle.org"}


def test_people_see_both_kinds_with_view_and_make_them_with_edit(on: Rendered) -> None:
    label = "rbac.authorization.k8s.io/aggregate-to-"
    viewer, editor = (on.one("ClusterRole", f"ai-scheduler-batch-{who}") for who in ("viewer", "editor"))
    assert viewer["metadata"]["labels"][f"{label}view"] == editor["metadata"]["labels"][f"{label}edit"] == "true"
    assert {verb for _, _, verb in granted(viewer)} == {"get", "list", "watch"}
    assert {"create", "delete"} <= {verb for _, _, verb in granted(editor)}
    assert {one for _, one, _ in granted(viewer)} == {one for _, one, _ in granted(editor)} == set(KINDS)


def test_definitions_come_with_the_operator_and_stay_when_it_goes(helm: Helm, on: Rendered) -> None:
    for plural in KINDS:
        found = on.one("CustomResourceDefinition", f"{plural}.resource.aibee.cn")
        assert found["spec"] == crd(plural)["spec"]
        assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    without = helm.render({"operator": {"enabled": True}, "crds": {"install": False}})
    assert without.all("CustomResourceDefinition") == []


def test_operator_without_rbac_and_policies_is_a_deployment_and_an_account(helm: Helm) -> None:
    values = {"operator": {"enabled": True}, "rbac": {"create": False}, "networkPolicy": {"enabled": False}}
    names = [one["kind"] for one in helm.render(values).objects if one["metadata"]["name"] == NAME]
    assert sorted(names) == ["Deployment", "ServiceAccount"]
