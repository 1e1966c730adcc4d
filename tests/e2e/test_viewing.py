"""The table of pools for a user who may only read Pools."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import ROOT, create_nodes, create_pods, create_pools
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.e2e.test_access import account, command, grant
from tests.objects import Json, node_object, pod_object, pool_object

ROLE = "ai-scheduler-pool-viewer"


@pytest.fixture
def viewer(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """Yield the kubeconfig of a service account with only the chart's role to read Pools."""
    documents = yaml.safe_load_all((ROOT / "manifests" / "poolroles.yaml").read_text())
    (role,) = (one for one in documents if one["metadata"]["name"] == ROLE)
    grant(control_plane, ROLE, role["rules"])
    yield account(control_plane, namespace, ROLE, tmp_path)
    control_plane.kubectl("delete", "clusterrole,clusterrolebinding", ROLE, "--ignore-not-found")


def table(kubeconfig: Path, *options: str) -> tuple[str, str]:
    shown = command("pools", "--kubeconfig", str(kubeconfig), *options)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout, shown.stderr


def numbers(kubeconfig: Path) -> dict[str, Json]:
    return {pool["name"]: pool for pool in json.loads(table(kubeconfig, "-o", "json")[0])}


@pytest.mark.usefixtures("pools_served")
def test_viewer_of_pools_sees_the_whole_table_and_follows_it(
    control_plane: ControlPlane, namespace: str, history: History, daemon: Daemon, viewer: Path
) -> None:
    create_pools(control_plane, pool_object("gpu", labels={"gpu": "true"}, disableSharing=True))
    shown, said = table(viewer)
    assert said == "no scheduler has written the status of gpu yet; is ai-scheduler running?\n"
    assert "p✓ b✓ s✗" in shown
    create_nodes(control_plane, [node_object("g", cpu="8", gpu=8, labels={"gpu": "true"}), node_object("n", cpu="4")])
    daemon.start()
    pods = [pod_object(f"p{number}", namespace=namespace, cpu="1", gpu=5, pool="gpu") for number in range(2)]
    create_pods(control_plane, namespace, pods)
    history.wait_for_bound(namespace, 1)

    def told() -> bool:
        gpu = numbers(viewer).get("gpu", {})
        return (gpu["own"]["gpus"], gpu["pending"]["gpus"], gpu["pods"], gpu["pendingPods"]) == (5, 5, 1, 1)

    history.wait_until(told, "the numbers of the pool")
    shown, said = table(viewer)
    assert said == ""
    gpu = shown[shown.index("gpu       cpu") :].splitlines()
    assert gpu[0].split()[2:] == ["8", "8", "1", "0", "1", "12"]
    assert gpu[1].split()[-6:] == ["8", "8", "5", "0", "5", "8"]
    following = subprocess.Popen(
        (sys.executable, "-m", "aischeduler", "pools", "--kubeconfig", str(viewer), "--watch", "-o", "json"),
        stdout=subprocess.PIPE,
    )
    assert following.stdout is not None
    assert [pool["name"] for pool in json.loads(following.stdout.readline())] == ["default", "gpu"]
    following.terminate()
    assert following.wait(timeout=60) == 0
    following.stdout.close()
