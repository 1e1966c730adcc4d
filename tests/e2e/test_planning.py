"""A plan and a snapshot for a user who may only list three kinds: what is missing is said."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aischeduler.model.names import GROUP
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import create_nodes, create_pods, create_pools
from tests.e2e.test_access import account, command, grant
from tests.objects import node_object, pod_object, pool_object

ROLE = "ai-scheduler-planner"
NEEDED = [
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
    {"apiGroups": [GROUP], "resources": ["pools"], "verbs": ["list"]},
]
OTHERS = ["Namespaces", "PodDisruptionBudgets", "PersistentVolumeClaims", "PersistentVolumes", "PriorityClasses"]
OF_GANGS = ["Jobs", "JobSets", "PodGroups"]


@pytest.fixture
def planner(control_plane: ControlPlane, namespace: str, tmp_path: Path, pools_served: None) -> Iterator[Path]:
    """Yield the kubeconfig of a service account that may list nodes, pods and Pools."""
    grant(control_plane, ROLE, NEEDED)
    yield account(control_plane, namespace, ROLE, tmp_path)
    control_plane.kubectl("delete", "clusterrole,clusterrolebinding", ROLE, "--ignore-not-found")


def test_user_who_may_list_three_kinds_plans_and_hears_what_is_missing(
    control_plane: ControlPlane, namespace: str, planner: Path, tmp_path: Path
) -> None:
    create_pools(control_plane, pool_object("a", labels={"pool": "a"}))
    create_nodes(control_plane, [node_object("n", cpu="2", labels={"pool": "a"})])
    create_pods(control_plane, namespace, [pod_object("there", namespace=namespace, node="n", pool="a")])
    file, snapshot = tmp_path / "f.json", tmp_path / "snapshot.jsonl"
    pods = [pod_object(f"p{i}", pool="a") for i in range(2)]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))

    listed = command("plan", "-f", str(file), "-o", "json", "--kubeconfig", str(planner))
    assert listed.returncode == 0, listed.stderr
    assert [unit["verdict"] for unit in json.loads(listed.stdout)["units"]] == ["starts", "waits"]
    assert [kind for kind in OTHERS if f"does not allow you to list {kind} (" not in listed.stderr] == []
    assert [kind for kind in OF_GANGS if f"does not allow you to list {kind}" not in listed.stderr] == []
    assert [line for line in listed.stderr.splitlines() if "does not allow you to list" not in line] == []

    taken = command("snapshot", "-o", str(snapshot), "--kubeconfig", str(planner))
    assert taken.returncode == 0, taken.stderr
    read = command("plan", "-f", str(file), "-o", "json", "--snapshot", str(snapshot))
    assert json.loads(read.stdout)["units"] == json.loads(listed.stdout)["units"]
    assert read.stderr == listed.stderr


def test_user_who_may_not_list_nodes_gets_no_plan_and_one_sentence(control_plane: ControlPlane, planner: Path) -> None:
    grant(control_plane, ROLE, [NEEDED[1]])
    refused = command("plan", "--without", "n", "--kubeconfig", str(planner))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "does not allow you to list Nodes (" in refused.stderr
    assert refused.stderr.endswith("): there is no answer without them\n")
