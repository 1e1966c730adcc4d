"""The device reporter on a real API server, with the rights that the chart gives it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chart.rendering import CHART, Helm
from tests.chart.test_device_reporter import NAME
from tests.controlplane.binaries import the_helm
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.device_reporter.hosts import add_rdma, entry, write_checkpoint
from tests.e2e.cluster import apply, create_nodes, token_kubeconfig

DEFINITION = CHART / "files" / "devices" / "device-crd.yaml"
DEVICE = "/apis/scheduling.koordinator.sh/v1alpha1/devices/gpu-0"
AMOUNT = {"kubernetes.io/rdma": "100", "koordinator.sh/rdma": "100"}


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with a node, the definition of Device and the account of the reporter."""
    applied = control_plane.kubectl("apply", "-f", str(DEFINITION))
    assert applied.returncode == 0, applied.stderr
    control_plane.kubectl("wait", "--for=condition=Established", "crd/devices.scheduling.koordinator.sh")
    chart = Helm(the_helm()).render({"deviceReporter": {"enabled": True}})
    apply(control_plane, *(chart.one(kind, NAME) for kind in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")))
    create_nodes(control_plane, [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-0"}}])
    yield control_plane
    control_plane.kubectl("delete", "crd", "devices.scheduling.koordinator.sh", "--wait")
    control_plane.kubectl("delete", "serviceaccount", NAME, "-n", "kube-system")
    control_plane.kubectl("delete", "clusterrole,clusterrolebinding", NAME)
    sweep(control_plane)


def test_report_is_made_once_and_what_the_node_loses_comes_back(plane: ControlPlane, tmp_path: Path) -> None:
    kubeconfig = token_kubeconfig(plane, NAME, "kube-system", tmp_path)
    add_rdma(tmp_path, functions=1)
    write_checkpoint(tmp_path, [entry("u1", ["0000:18:00.1"], "example.com/vf")])

    def report() -> tuple[Any, Any]:
        options = ["--node-name", "gpu-0", "--host-root", str(tmp_path), "--kubeconfig", str(kubeconfig), "--once"]
        command = [sys.executable, "-m", "aischeduler", "device-reporter", *options]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return plane.api("GET", DEVICE).body, plane.api("GET", "/api/v1/nodes/gpu-0").body

    device, node = report()
    assert device["spec"]["devices"][0]["vfGroups"] == [{"vfs": [{"minor": 0, "busID": "0000:18:00.1"}]}]
    assert [
        record["podUID"]
        for record in json.loads(device["metadata"]["annotations"]["node.koordinator.sh/devices-checkpoints"])
    ] == ["u1"]
    assert device["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    assert node["status"]["capacity"].items() >= AMOUNT.items()
    assert node["status"]["allocatable"].items() >= AMOUNT.items()
    versions = [document["metadata"]["resourceVersion"] for document in (device, node)]
    assert [document["metadata"]["resourceVersion"] for document in report()] == versions
    plane.api("PATCH", "/api/v1/nodes/gpu-0/status", {"status": {"capacity": {"koordinator.sh/rdma": "0"}}})
    device, node = report()
    assert device["metadata"]["resourceVersion"] == versions[0]
    assert node["status"]["capacity"]["koordinator.sh/rdma"] == "100"
    add_rdma(tmp_path, "0000:5e:00.0", state="1: DOWN")
    device, node = report()
    assert [(info["minor"], info["health"]) for info in device["spec"]["devices"]] == [(0, True), (1, False)]
    assert node["status"]["allocatable"]["kubernetes.io/rdma"] == "200"
