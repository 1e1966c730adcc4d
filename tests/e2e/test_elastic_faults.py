"""Elastic jobs on the real control plane while things go wrong: kills, other writers, and Jobs that end meanwhile."""

import json
from functools import partial

import pytest

from aischeduler.model.elastic import SIZE_KEY
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import condition, create_nodes, create_pods, create_pools, kubectl, wait_until
from tests.e2e.daemon import Daemon
from tests.e2e.elastic_stage import POOL, Sizes, job, start_job
from tests.e2e.replicas import KubeconfigContext, stand_by, two_replicas
from tests.objects import node_object, pod_object, pool_object

NODES = 2
CPUS = 4
KILLS = [4, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(0)])]
SUCCEEDED = {"status": {"phase": "Succeeded"}}


@pytest.fixture(autouse=True)
def team(control_plane: ControlPlane, clean_cluster: None, pools_served: None) -> None:
    """Create a pool of two nodes of four CPUs."""
    create_pools(control_plane, pool_object(POOL, labels={"team": "a"}))
    create_nodes(control_plane, [node_object(f"node-{n}", cpu=str(CPUS), labels={"team": "a"}) for n in range(NODES)])


def grown(sizes: Sizes, namespace: str, count: int, name: str = "train") -> None:
    """Wait until so many instances are on nodes."""
    sizes.wait_until(
        lambda: len(sizes.running(namespace, f"{name}-")) == count,
        f"{count} instances of {name}",
        lacks=lambda: (sizes.running(namespace, ""), sizes.sizes),
    )


def has_come(sizes: Sizes, namespace: str, name: str, before: int) -> bool:
    """Return whether a pod is on a node, or the job has had another size since it had so many."""
    return name in sizes.running(namespace, name) or len(sizes.sizes["train"]) > before


def home(namespace: str, name: str, cpu: str = "2") -> dict[str, object]:
    return pod_object(name, namespace=namespace, cpu=cpu, pool=POOL)


@pytest.mark.parametrize("kills", KILLS)
def test_scheduler_that_is_killed_while_sizes_change_loses_no_job(
    control_plane: ControlPlane, namespace: str, kubelets: Part, kills: int
) -> None:
    """Home pods come and go, so that the job shrinks and grows; each run of the scheduler is killed after a while."""
    with Sizes(control_plane) as sizes, Daemon(control_plane) as daemon:
        start_job(control_plane, namespace, "train", 2, 6, window="1s")
        for turn in range(kills):
            name = f"home-{turn}"
            daemon.start()
            if turn % 2:
                before = len(sizes.sizes["train"])
                create_pods(control_plane, namespace, [home(namespace, name, "3")])
                sizes.wait_until(partial(has_come, sizes, namespace, name, before), "room for the home pod")
            else:
                sizes.wait_until(lambda: len(sizes.running(namespace, "train-")) > 2, "growth")
            daemon.kill()
            if turn % 2:
                control_plane.api("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
        daemon.start()
        grown(sizes, namespace, 6)
        assert 2 <= min(sizes.sizes["train"]) <= max(sizes.sizes["train"]) <= 6
        assert sizes.failed["train"] == 0
        assert condition(job(control_plane, namespace, "train"), "Failed") == {}


def test_job_whose_size_another_program_writes_is_left_alone_after_the_second_time(
    control_plane: ControlPlane, namespace: str, kubelets: Part, daemon: Daemon
) -> None:
    with Sizes(control_plane) as sizes:
        daemon.start()
        start_job(control_plane, namespace, "train", 2, 60, window="60s")
        grown(sizes, namespace, 8)
        for size in (4, 5):
            patch = json.dumps({"spec": {"parallelism": size, "completions": size}})
            kubectl(control_plane, "patch", "job", "train", "-n", namespace, "--type=merge", "-p", patch)
            grown(sizes, namespace, size)
            if size == 4:
                wait_until(
                    lambda: job(control_plane, namespace, "train")["metadata"]["annotations"][SIZE_KEY] == "4",
                    "a note of the new size",
                )
        path = f"/api/v1/namespaces/{namespace}/events?fieldSelector=reason=NotElastic"
        wait_until(lambda: bool(control_plane.api("GET", path).body["items"]), "an event")
        assert sizes.sizes["train"] == [2, 8, 4, 5]


def test_job_that_finishes_while_it_is_to_shrink_is_complete(
    control_plane: ControlPlane, namespace: str, kubelets: Part, daemon: Daemon
) -> None:
    """An instance succeeds: from then on its size stays, and a home pod waits."""
    with Sizes(control_plane) as sizes:
        daemon.start()
        start_job(control_plane, namespace, "train", 2, 60, window="1s")
        grown(sizes, namespace, 8)
        names = sizes.running(namespace, "train-")
        succeed(control_plane, namespace, names[:1])
        wait_until(lambda: job(control_plane, namespace, "train")["status"].get("succeeded", 0) == 1, "a success")
        create_pods(control_plane, namespace, [home(namespace, "home", "2")])
        wait_until(lambda: bool(condition(pod(control_plane, namespace, "home"), "PodScheduled")), "an attempt")
        succeed(control_plane, namespace, names[1:])
        wait_until(lambda: bool(condition(job(control_plane, namespace, "train"), "Complete")), "the end of the Job")
        sizes.wait_until(lambda: bool(sizes.running(namespace, "home")), "the home pod on a node")
        found = job(control_plane, namespace, "train")
        assert (found["status"]["succeeded"], found["status"].get("failed", 0)) == (8, 0)
        assert sizes.sizes["train"] == [2, 8]


def pod(plane: ControlPlane, namespace: str, name: str) -> object:
    return plane.api("GET", f"/api/v1/namespaces/{namespace}/pods/{name}").body


def succeed(plane: ControlPlane, namespace: str, names: list[str]) -> None:
    """Report that the programs of these pods have ended well, as their kubelets do."""
    for name in names:
        plane.api("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", SUCCEEDED)


def test_leader_that_is_killed_leaves_sizes_and_service_to_the_next(
    control_plane: ControlPlane, namespace: str, kubelets: Part, access: KubeconfigContext
) -> None:
    with Sizes(control_plane) as sizes, two_replicas(control_plane, access) as (leader, standby):
        start_job(control_plane, namespace, "train", 2, 60, window="5s")
        grown(sizes, namespace, 8)
        leader.kill()
        wait_until(standby.leads, "the next leader")
        stand_by(leader)
        create_pods(control_plane, namespace, [home(namespace, "home", "2")])
        sizes.wait_until(lambda: bool(sizes.running(namespace, "home")), "the home pod on a node")
        size = job(control_plane, namespace, "train")["spec"]["parallelism"]
        grown(sizes, namespace, size)
        assert size < 8
        assert sizes.failed["train"] == 0
