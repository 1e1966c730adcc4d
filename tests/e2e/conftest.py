"""The fixtures of the tests on the real control plane: a namespace for each test, and a clean cluster after it."""

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import yaml

from aischeduler.model.names import DEFAULT_POOL
from tests.controlplane.binaries import the_helm
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.e2e.cluster import (
    CPU_POOL,
    EXAMPLES,
    GPU_POOL,
    MASTERS,
    create_namespace,
    create_nodes,
    create_pools,
    install,
    kubectl,
    nodes,
)
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.e2e.operator_program import OperatorProgram
from tests.e2e.release import Release
from tests.e2e.replicas import KubeconfigContext
from tests.objects import pool_object

LOG_CHARACTERS_SHOWN = 3_000
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
SHORT_LEASE = {"leaseDurationSeconds": 6, "renewDeadlineSeconds": 4, "retryPeriodSeconds": 1}
_numbers = count(1)


@pytest.fixture(autouse=True)
def clean_cluster(control_plane: ControlPlane) -> Iterator[None]:
    """After the test, start stopped parts again and delete its jobs, pods, budgets, nodes and pools."""
    yield
    control_plane.heal()
    sweep(control_plane)


@pytest.fixture
def namespace(control_plane: ControlPlane, clean_cluster: None) -> str:
    """Return the name of a namespace that no other test has used."""
    name = f"test-{next(_numbers)}"
    create_namespace(control_plane, name)
    return name


@pytest.fixture(scope="session")
def pools_served(control_plane: ControlPlane) -> None:
    """Install the Pool resource as a user does."""
    install(control_plane)


@pytest.fixture
def cluster(control_plane: ControlPlane, clean_cluster: None, pools_served: None) -> None:
    """Create the pools of the examples, without borrowing and sharing, and 25 nodes."""
    # without kubectl: it needs ten times the CPU of its requests, and many tests use this cluster
    examples = list(yaml.safe_load_all((EXAMPLES / "pools.yaml").read_text()))
    assert [one["metadata"]["name"] for one in examples] == [CPU_POOL, GPU_POOL, MASTERS]
    for one in examples:
        one["spec"]["disableBorrowing"] = True
    create_pools(control_plane, *examples, pool_object(DEFAULT_POOL, disableBorrowing=True))
    create_nodes(control_plane, nodes())


@pytest.fixture
def release(control_plane: ControlPlane, clean_cluster: None, pools_served: None, tmp_path: Path) -> Iterator[Release]:
    """Yield the chart, not yet installed; uninstall it at the end."""
    found = Release(control_plane, the_helm(), tmp_path)
    yield found
    found.uninstall()
    control_plane.api("DELETE", f"{LEASES}/ai-scheduler")


@pytest.fixture
def access(release: Release) -> KubeconfigContext:
    """Return the credentials and the configuration of the chart's pods, with a short lease."""
    release.install(config={"leaderElection": SHORT_LEASE})
    return release.access()


@pytest.fixture
def daemon(control_plane: ControlPlane, clean_cluster: None, pools_served: None) -> Iterator[Daemon]:
    """Yield the scheduler, not yet started."""
    with Daemon(control_plane) as daemon:
        yield daemon


@pytest.fixture
def replica_controllers(control_plane: ControlPlane, namespace: str) -> Iterator[None]:
    """Run the controllers of what has replicas; delete these objects of the test, whose pods would come back."""
    part = control_plane.replica_controllers()
    part.start()
    yield
    kubectl(control_plane, "delete", "deployments,statefulsets,replicasets", "--all", "-n", namespace)
    part.kill()


@pytest.fixture
def operator(
    control_plane: ControlPlane, clean_cluster: None, pools_served: None, tmp_path: Path
) -> Iterator[OperatorProgram]:
    """Yield the operator, running, with the rights of the chart."""
    with OperatorProgram(control_plane, the_helm(), tmp_path) as found:
        found.start()
        yield found
        assert found.troubles() == []


@pytest.fixture
def history(control_plane: ControlPlane, clean_cluster: None) -> Iterator[History]:
    """Yield the record of all pods during the test."""
    with History(control_plane) as history:
        yield history


@pytest.fixture
def kubelets(control_plane: ControlPlane, clean_cluster: None) -> Iterator[Part]:
    """Run kubelets: bound pods run, and deleted pods are removed."""
    identity = (control_plane.authority, control_plane.admin.certificate, control_plane.admin.key)
    command = [sys.executable, "-m", "tests.e2e.kubelets", control_plane.url, *map(str, identity)]
    log = control_plane.directory / "kubelets.log"
    part = control_plane.program("kubelets", command, lambda: "watching" in log.read_text())
    part.start()
    yield part
    alive = part.running()
    part.kill()
    said = log.read_text()[-LOG_CHARACTERS_SHOWN:]
    assert alive, f"the kubelets have failed:\n{said}"
