"""A gang of a Job on the real control plane gives way as a whole, and comes back: the Job is suspended, and resumed."""

from typing import Any

import pytest

from aischeduler.model.gang import GANG_KEY
from aischeduler.model.workload import ON_EVICTION_KEY, SUSPENDED_KEY
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import condition, create_nodes, create_pods, create_pools, create_priority, events
from tests.e2e.daemon import Daemon
from tests.e2e.history import History, Sight
from tests.objects import job_object, node_object, pod_object, pool_object

POOL = "team"
NODES = 3
PODS = 8
"""Of two CPUs each, spread over nodes of eight CPUs: two of the three would hold them."""
JOBS = "/apis/batch/v1/namespaces/{}/jobs"


@pytest.fixture(autouse=True)
def team(control_plane: ControlPlane, clean_cluster: None, pools_served: None) -> None:
    """Create a pool of three nodes."""
    create_pools(control_plane, pool_object(POOL, labels={"team": "a"}))
    create_nodes(control_plane, [node_object(f"node-{n}", cpu="8", labels={"team": "a"}) for n in range(NODES)])


def start_job(plane: ControlPlane, namespace: str, **annotations: str) -> None:
    """Create a Job whose pods are a gang, and which bears fewer failures than it has pods."""
    document = job_object("train", namespace=namespace, completions=PODS, parallelism=PODS, cpu="2", pool=POOL)
    del document["spec"]["backoffLimit"]
    document["metadata"]["annotations"] = {GANG_KEY: "true", **annotations}
    created = plane.api("POST", JOBS.format(namespace), document)
    assert created.status == 201, created.body


def job(plane: ControlPlane, namespace: str) -> Any:
    return plane.api("GET", f"{JOBS.format(namespace)}/train").body


def of_job(history: History, namespace: str) -> list[Sight]:
    return [sight for sight in history.pods(namespace) if sight.name.startswith("train-")]


def run_gang(plane: ControlPlane, namespace: str, history: History, **annotations: str) -> set[str]:
    """Have the Job run, and return the uids of its pods."""
    start_job(plane, namespace, **annotations)
    history.wait_for_bound(namespace, PODS)
    history.wait_until(lambda: job(plane, namespace)["status"].get("ready", 0) == PODS, "pods that run")
    return {sight.uid for sight in of_job(history, namespace)}


def urge(plane: ControlPlane, namespace: str, pods: int) -> None:
    """Create pods that take a node each, whatever runs there."""
    name = f"urgent-{namespace}"
    create_priority(plane, name, 1000)
    urgent = [pod_object(f"urgent-{n}", namespace=namespace, cpu="8", pool=POOL) for n in range(pods)]
    for document in urgent:
        document["spec"]["priorityClassName"] = name
    create_pods(plane, namespace, urgent)


def test_gang_of_a_job_is_evicted_by_suspending_it_and_runs_again_without_having_failed(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History, kubelets: Part
) -> None:
    daemon.start()
    first = run_gang(control_plane, namespace, history)
    urge(control_plane, namespace, 1)
    history.wait_until(lambda: "urgent-0" in history.bound(namespace), "the urgent pod on a node")

    def back() -> bool:
        found = [sight for sight in of_job(history, namespace) if sight.node and not sight.gone]
        return len(found) == PODS and first.isdisjoint(sight.uid for sight in found)

    history.wait_until(back, "new pods of the Job on nodes", 60.0)
    found = job(control_plane, namespace)
    assert not found["spec"]["suspend"]
    assert SUSPENDED_KEY not in found["metadata"]["annotations"]
    assert condition(found, "Failed") == {}
    assert found["status"].get("failed", 0) == 0
    assert [line["name"] for line in daemon.said("suspend")] == ["train"]
    assert [line["name"] for line in daemon.said("resume")] == ["train"]
    assert {line["uid"] for line in daemon.said("evict")} == first
    with_job = PODS + 1
    history.wait_until(lambda: len(events(control_plane, namespace, "Preempted")) == with_job, "an event of each")


def test_gang_of_a_job_that_aborts_stays_suspended(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History, kubelets: Part
) -> None:
    daemon.start()
    run_gang(control_plane, namespace, history, **{ON_EVICTION_KEY: "Abort"})
    urge(control_plane, namespace, NODES)
    history.wait_until(lambda: len(history.bound(namespace)) == NODES, "the urgent pods on nodes")
    history.wait_until(lambda: not of_job(history, namespace), "no pod of the Job")
    found = job(control_plane, namespace)
    assert found["spec"]["suspend"]
    assert found["metadata"]["annotations"][SUSPENDED_KEY] == "abort"
    assert condition(found, "Failed") == {}
    assert daemon.said("resume") == []
