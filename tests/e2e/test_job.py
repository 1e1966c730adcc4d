"""A Job applied by kubectl, its events, and the reason of a waiting pod, as a user sees them."""

import json
import subprocess
import sys

import pytest

from aischeduler.model.names import MARK_DECISION, MARK_HOME_POOL, MARK_POOL
from tests.controlplane.plane import ControlPlane
from tests.e2e.bindings import bindings
from tests.e2e.cluster import (
    CPU_NODES,
    CPU_POOL,
    EXAMPLES,
    GPU_NODES,
    GPU_POOL,
    MASTERS,
    NODE_GPUS,
    POOLS_PATH,
    condition,
    create_pods,
    kubectl,
    pod,
    wait_for_event,
)
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import pod_object

pytestmark = pytest.mark.usefixtures("cluster")

JOB_PODS = 10
CARDS = GPU_NODES * NODE_GPUS


@pytest.fixture
def running(daemon: Daemon) -> Daemon:
    """Return the running scheduler."""
    daemon.start()
    return daemon


def test_job_applied_by_kubectl_ends_with_its_ten_pods_on_nodes_of_cpu_pool(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    kubectl(control_plane, "apply", "-n", namespace, "-f", str(EXAMPLES / "job.yaml"))
    history.wait_for_bound(namespace, JOB_PODS)
    nodes = history.bound(namespace)
    assert len(nodes) == JOB_PODS
    assert all(node.startswith("cpu-") for node in nodes.values()), nodes
    assert len(set(nodes.values())) == JOB_PODS, "pods without GPUs spread"
    assert [one.status for one in bindings(control_plane, namespace)] == [201] * JOB_PODS


def test_job_that_is_older_than_the_scheduler_is_bound(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    kubectl(control_plane, "apply", "-n", namespace, "-f", str(EXAMPLES / "job.yaml"))
    history.wait_until(lambda: len(history.pods(namespace)) == JOB_PODS, "the pods of the Job")
    assert history.bound(namespace) == {}
    daemon.start()
    history.wait_for_bound(namespace, JOB_PODS)


def test_bound_pod_has_the_annotations_of_its_decision(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    create_pods(control_plane, namespace, [pod_object("p", namespace=namespace, pool=CPU_POOL)])
    history.wait_for_bound(namespace, 1)
    annotations = pod(control_plane, namespace, "p")["metadata"]["annotations"]
    assert annotations[MARK_POOL] == annotations[MARK_HOME_POOL] == CPU_POOL
    decided = [line["decision"] for line in running.said("bind")]
    assert [annotations[MARK_DECISION]] == decided


def test_describe_shows_the_node_of_the_pod(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    create_pods(control_plane, namespace, [pod_object("p", namespace=namespace, pool=CPU_POOL)])
    wait_for_event(control_plane, history, namespace, "Scheduled", "p")
    history.wait_for_bound(namespace, 1)  # the watch may be behind the event
    node = history.bound(namespace)["p"]
    described = control_plane.kubectl("describe", "pod", "p", "-n", namespace).stdout
    line = next(line for line in described.splitlines() if "Scheduled " in line and "Normal" in line)
    assert line.split()[0:2] == ["Normal", "Scheduled"]
    assert line.endswith(f"Successfully assigned {namespace}/p to {node}")
    assert "ai-scheduler" in line


def test_describe_shows_why_a_pod_fits_nowhere(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    create_pods(control_plane, namespace, [pod_object("big", namespace=namespace, cpu="33", pool=CPU_POOL)])
    said = wait_for_event(control_plane, history, namespace, "FailedScheduling", "big")
    assert said.startswith(f"pool {CPU_POOL}: 0/{CPU_NODES} nodes are available: {CPU_NODES} Insufficient cpu.")

    def unschedulable() -> bool:
        return condition(pod(control_plane, namespace, "big"), "PodScheduled").get("status") == "False"

    history.wait_until(unschedulable, "the condition PodScheduled=False")
    scheduled = condition(pod(control_plane, namespace, "big"), "PodScheduled")
    assert (scheduled["reason"], scheduled["message"]) == ("Unschedulable", said)
    described = control_plane.kubectl("describe", "pod", "big", "-n", namespace).stdout
    assert "Warning  FailedScheduling" in described
    assert said in described


def test_cordoned_node_takes_no_pod_until_it_is_uncordoned(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    control_plane.kubectl("cordon", "master-0", "master-1", "master-2")
    create_pods(control_plane, namespace, [pod_object("p", namespace=namespace, pool=MASTERS)])
    said = wait_for_event(control_plane, history, namespace, "FailedScheduling", "p")
    assert said.startswith(f"pool {MASTERS}: 0/3 nodes are available: 3 node(s) were unschedulable.")
    control_plane.kubectl("uncordon", "master-2")
    history.wait_until(lambda: history.bound(namespace) == {"p": "master-2"}, "the pod on the uncordoned node")


def test_table_of_pools_shows_capacity_and_use(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    pods = [pod_object(f"p-{n}", namespace=namespace, cpu="2", gpu=1, pool=GPU_POOL) for n in range(3)]
    create_pods(control_plane, namespace, pods)
    history.wait_for_bound(namespace, 3)

    def told() -> bool:
        status = control_plane.api("GET", f"{POOLS_PATH}/{GPU_POOL}").body.get("status", {})
        return bool(status.get("pods") == 3)

    history.wait_until(told, "the status of the pool")
    command = [sys.executable, "-m", "aischeduler", "pools", "--kubeconfig", str(control_plane.kubeconfig)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    for name in (CPU_POOL, GPU_POOL, MASTERS, "default"):
        assert name in shown.stdout
    lines = shown.stdout.splitlines()
    gpu_pool = lines[next(number for number, line in enumerate(lines) if GPU_POOL in line) :]
    gpu = next(line for line in gpu_pool if " gpu " in line)
    assert [int(word) for word in gpu.split() if word.isdigit()][:3] == [CARDS, CARDS, 3]
    assert json.loads(control_plane.kubectl("get", "pools", "-o", "json").stdout)["items"] != []
