"""Elastic jobs on the real control plane, with the real Job controller: growth, shrinking, room that others take."""

from typing import Any

import pytest

from aischeduler.model.elastic import (
    FREEZING_WINDOW_KEY,
    MAX_INSTANCES_KEY,
    MIN_INSTANCES_KEY,
    RESIZE_REASON_KEY,
    SIZE_KEY,
)
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import condition, create_nodes, create_pods, create_pools, wait_for_event
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import job_object, node_object, pod_object, pool_object

POOL = "team"
NODES = 2
JOBS = "/apis/batch/v1/namespaces/{}/jobs"


@pytest.fixture(autouse=True)
def team(control_plane: ControlPlane, clean_cluster: None, pools_served: None) -> None:
    """Create a pool of two nodes of four CPUs."""
    create_pools(control_plane, pool_object(POOL, labels={"team": "a"}))
    create_nodes(control_plane, [node_object(f"node-{n}", cpu="4", labels={"team": "a"}) for n in range(NODES)])


def start_job(plane: ControlPlane, namespace: str, name: str, least: int, most: int, window: str = "10s") -> None:
    """Create an elastic Indexed Job of one CPU an instance."""
    document = job_object(name, namespace=namespace, completions=least, parallelism=least, cpu="1", pool=POOL)
    document["spec"]["completionMode"] = "Indexed"
    document["metadata"]["annotations"] = {
        MIN_INSTANCES_KEY: str(least),
        MAX_INSTANCES_KEY: str(most),
        FREEZING_WINDOW_KEY: window,
    }
    created = plane.api("POST", JOBS.format(namespace), document)
    assert created.status == 201, created.body


def job(plane: ControlPlane, namespace: str, name: str) -> Any:
    return plane.api("GET", f"{JOBS.format(namespace)}/{name}").body


def running(history: History, namespace: str, name: str) -> list[str]:
    """Return the names of the instances on nodes."""
    found = [sight for sight in history.pods(namespace) if sight.name.startswith(f"{name}-")]
    return sorted(sight.name for sight in found if sight.node and not sight.gone)


def test_job_grows_to_what_fits_and_gives_room_back_without_a_failed_pod(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History, kubelets: Part
) -> None:
    daemon.start()
    start_job(control_plane, namespace, "train", 2, 60)
    history.wait_until(lambda: len(running(history, namespace, "train")) == 8, "instances on all CPUs", 30.0)
    found = job(control_plane, namespace, "train")
    assert (found["spec"]["parallelism"], found["spec"]["completions"]) == (8, 8)
    assert found["metadata"]["annotations"][SIZE_KEY] == "8"
    create_pods(control_plane, namespace, [pod_object("home", namespace=namespace, cpu="2", pool=POOL)])
    history.wait_until(lambda: "home" in history.bound(namespace), "the home pod on a node", 30.0)
    found = job(control_plane, namespace, "train")
    size = found["spec"]["parallelism"]
    assert 4 <= size <= 6
    assert "home" in found["metadata"]["annotations"][RESIZE_REASON_KEY]
    history.wait_until(lambda: len(running(history, namespace, "train")) == size, "the smaller size", 30.0)
    indexes = {int(name.split("-")[1]) for name in running(history, namespace, "train")}
    assert indexes == set(range(size))
    assert found["status"].get("failed", 0) == 0
    assert condition(found, "Failed") == {}
    assert [line["to"] for line in daemon.said("resized")][:1] == [8]
    note = wait_for_event(control_plane, history, namespace, "Resized", "train")
    assert note.startswith("Resized from ")


def test_two_jobs_share_the_room(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History, kubelets: Part
) -> None:
    daemon.start()
    start_job(control_plane, namespace, "first", 2, 60)
    history.wait_until(lambda: len(running(history, namespace, "first")) == 8, "the first on all CPUs", 30.0)
    start_job(control_plane, namespace, "second", 2, 60)
    history.wait_until(lambda: len(running(history, namespace, "second")) >= 2, "the minimum of the second", 60.0)
    for name in ("first", "second"):
        assert job(control_plane, namespace, name)["status"].get("failed", 0) == 0
