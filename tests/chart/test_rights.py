"""The RBAC rules of the chart are those of the documentation."""

import re
from collections.abc import Iterator

import pytest

from aischeduler.config.load import read_config
from aischeduler.kube.watch.cluster_lister import PRIORITY_CLASSES, resources
from tests.chart.rendering import ROOT, Helm, Json, Rendered, Values

Right = tuple[str, str, str]
"""API group, resource, verb."""


def tables() -> list[str]:
    """Return the two tables of the documentation: cluster-wide permissions and those in the namespace of the Lease."""
    text = (ROOT / "docs" / "security.md").read_text()
    section = text.partition("## Permissions of the scheduler\n")[2].partition("\n## ")[0]
    return re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)


CLONE_SETS = {"kinds": [{"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "resource": "clonesets"}]}


def documented(table: str, eviction: str, config: Values) -> Iterator[Right]:
    """Yield the permissions of a table that a configuration needs, with those of only one way to evict."""
    for row in table.splitlines()[2:]:
        group, resources, verbs, purpose = (cell.strip() for cell in row.strip("|").split("|"))
        if "Evicting" in purpose and f"`eviction: {eviction}`" not in purpose:
            continue
        if ("`hami: true`" in purpose and "hami" not in config) or (
            "`elastic.kinds`" in purpose and "elastic" not in config
        ):
            continue
        for resource in re.findall(r"`([^`]+)`", resources):
            for verb in re.findall(r"`([^`]+)`", verbs):
                yield group.strip("`").replace("core", ""), resource, verb


def granted(role: Json) -> list[Right]:
    return [
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


@pytest.mark.parametrize(
    ("config", "eviction"),
    [
        ({}, "Delete"),
        ({"eviction": "Evict"}, "Evict"),
        ({"disablePreemption": True}, "none"),
        ({"disablePreemption": True, "eviction": "Evict"}, "none"),
        ({"hami": True}, "Delete"),
        ({"elastic": CLONE_SETS}, "Delete"),
    ],
)
def test_rights_are_those_of_the_documentation(helm: Helm, config: Values, eviction: str) -> None:
    rights = granted(helm.render({"config": config}).one("ClusterRole"))
    assert len(set(rights)) == len(rights)
    assert sorted(rights) == sorted(documented(tables()[0], eviction, config))


def test_rights_of_the_election_are_those_of_the_documentation(defaults: Rendered) -> None:
    role = defaults.one("Role", "ai-scheduler-election")
    assert sorted(granted(role)) == sorted(documented(tables()[1], "", {}))


@pytest.mark.parametrize(
    ("config", "lease", "namespace"),
    [
        ({}, "ai-scheduler", "kube-system"),
        ({"schedulerName": "gpu-scheduler"}, "gpu-scheduler", "kube-system"),
        ({"schedulerName": "gpu-scheduler", "leaderElection": {"leaseName": "gpu"}}, "gpu", "kube-system"),
        ({"leaderElection": {"namespace": "leases"}}, "ai-scheduler", "leases"),
    ],
)
def test_election_reaches_one_lease_by_its_name(helm: Helm, config: Values, lease: str, namespace: str) -> None:
    rendered = helm.render({"config": config})
    role, binding = (rendered.one(kind, "ai-scheduler-election") for kind in ("Role", "RoleBinding"))
    create, others = role["rules"]
    assert (create["verbs"], "resourceNames" in create) == (["create"], False)
    assert others["resourceNames"] == [lease]
    assert {found["metadata"]["namespace"] for found in (role, binding)} == {namespace}
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "ai-scheduler", "namespace": "kube-system"},
    ]


def test_without_an_election_there_is_no_right_to_leases(helm: Helm) -> None:
    rendered = helm.render({"replicaCount": 1, "config": {"leaderElection": {"enabled": False}}})
    assert rendered.all("Role") + rendered.all("RoleBinding") == []


def test_binding_is_for_the_account_that_the_pods_run_as(helm: Helm) -> None:
    for values in ({}, {"serviceAccount": {"name": "mine"}}, {"serviceAccount": {"create": False}}):
        rendered = helm.render(values)
        (subject,) = rendered.one("ClusterRoleBinding")["subjects"]
        assert subject["name"] == rendered.pod()["serviceAccountName"]
        assert rendered.one("ClusterRoleBinding")["roleRef"]["name"] == "ai-scheduler"


def test_people_see_pools_with_view_and_edit_them_with_admin(defaults: Rendered) -> None:
    aggregated = {
        role["metadata"]["name"]: [
            label.rpartition("/")[2] for label in role["metadata"]["labels"] if "/aggregate-to-" in label
        ]
        for role in defaults.all("ClusterRole")
    }
    assert aggregated == {
        "ai-scheduler": [],
        "ai-scheduler-pool-viewer": ["aggregate-to-view"],
        "ai-scheduler-pool-editor": ["aggregate-to-admin"],
    }
    viewer, editor = (granted(defaults.one("ClusterRole", f"ai-scheduler-pool-{who}")) for who in ("viewer", "editor"))
    assert {verb for _, _, verb in viewer} == {"get", "list", "watch"}
    assert {verb for _, _, verb in editor} == {"get", "list", "watch", "create", "update", "patch", "delete"}
    assert {resource for _, resource, _ in viewer + editor} == {"pools", "queues"}


@pytest.mark.parametrize("elastic", [{}, CLONE_SETS])
def test_role_of_explain_and_plan_lists_what_they_list_and_nothing_else(helm: Helm, elastic: Json) -> None:
    values = {"rbac": {"explainRole": True}, "config": {"elastic": elastic}}
    role = helm.render(values).one("ClusterRole", "ai-scheduler-explain")
    kinds = read_config({"elastic": elastic}).elastic.kinds
    paths = [*(resource.path for resource in resources(kinds)), PRIORITY_CLASSES]
    groups = (path.split("/")[2] if path.startswith("/apis/") else "" for path in paths)
    listed = {(group, path.rpartition("/")[2], "list") for group, path in zip(groups, paths, strict=True)}
    assert set(granted(role)) == listed
