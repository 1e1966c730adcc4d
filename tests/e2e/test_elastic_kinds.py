"""The kinds of workloads that are elastic, on the real control plane: JobSet, Deployment, StatefulSet, TrainingJob."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aischeduler.model.elastic import SIZE_KEY
from aischeduler.model.names import POOL_KEY
from tests.controlplane.binaries import the_helm
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import create_nodes, create_pods, create_pools, wait_until
from tests.e2e.daemon import Daemon
from tests.e2e.elastic_stage import APPS, POOL, Sizes, elastic, scaled
from tests.e2e.operator_program import OperatorProgram
from tests.gang_objects import job_set_crd, job_set_object
from tests.objects import Json, node_object, pod_object, pool_object
from tests.operator.documents import OURS
from tests.operator.training_world import training_job

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
TRAINING_JOBS = f"/apis/{OURS}/namespaces/{{}}/trainingjobs"
CPUS = 8


@pytest.fixture(autouse=True)
def team(control_plane: ControlPlane, clean_cluster: None, pools_served: None) -> None:
    """Create a pool of one node of eight CPUs."""
    create_pools(control_plane, pool_object(POOL, labels={"team": "a"}))
    create_nodes(control_plane, [node_object("node", cpu=str(CPUS), labels={"team": "a"})])


@pytest.fixture
def job_sets(control_plane: ControlPlane) -> Iterator[None]:
    """Let JobSets be served."""
    definition = job_set_crd()
    created = control_plane.api("POST", DEFINITIONS, definition)
    assert created.status in (201, 409), created.body
    wait_until(lambda: control_plane.api("GET", JOB_SETS.format("default")).status == 200, "JobSets")
    yield
    control_plane.api("DELETE", f"{DEFINITIONS}/{definition['metadata']['name']}")


def create(plane: ControlPlane, path: str, document: Json) -> None:
    created = plane.api("POST", path, document)
    assert created.status == 201, created.body


def replicas_of(plane: ControlPlane, path: str) -> Any:
    return plane.api("GET", path).body["spec"]["replicas"]


@pytest.mark.usefixtures("kubelets", "replica_controllers")
def test_deployment_grows_and_gives_room_to_a_home_pod_of_its_own_priority(
    control_plane: ControlPlane, namespace: str, daemon: Daemon
) -> None:
    path = f"{APPS.format(namespace, 'deployments')}/web"
    with Sizes(control_plane) as sizes:
        daemon.start()
        create(
            control_plane,
            APPS.format(namespace, "deployments"),
            elastic(scaled("Deployment", "web", 5), 2, 60, window="60s"),
        )
        sizes.wait_until(
            lambda: len(sizes.running(namespace, "web-")) == CPUS,
            "instances on all CPUs",
            lacks=lambda: (sizes.running(namespace, ""), replicas_of(control_plane, path)),
        )
        found = control_plane.api("GET", path).body
        assert (found["spec"]["replicas"], found["metadata"]["annotations"][SIZE_KEY]) == (CPUS, str(CPUS))
        before = sizes.running(namespace, "web-")
        create_pods(control_plane, namespace, [pod_object("home", namespace=namespace, cpu="2", pool=POOL)])
        sizes.wait_until(lambda: bool(sizes.running(namespace, "home")), "the home pod on a node")
        wait_until(lambda: replicas_of(control_plane, path) == CPUS - 2, "the smaller size")
        assert set(sizes.running(namespace, "web-")) < set(before), "two of them have gone, and no other one"
        assert len(sizes.running(namespace, "web-")) == CPUS - 2


@pytest.mark.usefixtures("kubelets", "replica_controllers")
def test_stateful_set_grows_and_gives_its_highest_ordinals_to_a_home_pod(
    control_plane: ControlPlane, namespace: str, daemon: Daemon
) -> None:
    """Its controller makes one pod after the other, each once the last one is ready."""
    path = APPS.format(namespace, "statefulsets")
    with Sizes(control_plane) as sizes:
        daemon.start()
        create(control_plane, path, elastic(scaled("StatefulSet", "db", 5, serviceName="db"), 2, 60, window="60s"))
        sizes.wait_until(lambda: len(sizes.running(namespace, "db-")) == CPUS, "instances on all CPUs")
        assert control_plane.api("GET", f"{path}/db").body["metadata"]["annotations"][SIZE_KEY] == str(CPUS)
        create_pods(control_plane, namespace, [pod_object("home", namespace=namespace, cpu="2", pool=POOL)])
        sizes.wait_until(lambda: bool(sizes.running(namespace, "home")), "the home pod on a node")
        assert replicas_of(control_plane, f"{path}/db") == CPUS - 2
        assert sizes.running(namespace, "db-") == [f"db-{ordinal}" for ordinal in range(CPUS - 2)]


@pytest.mark.usefixtures("job_sets")
def test_job_set_gets_its_minimum_when_it_is_adopted(
    control_plane: ControlPlane, namespace: str, daemon: Daemon
) -> None:
    """The controller of JobSets is absent: the write of parallelism and completions is what is seen."""
    daemon.start()
    document = elastic(
        job_set_object("set", namespace=namespace, gang="", jobs={"driver": (2, 1), "worker": (1, 6)}), 2, 60
    )
    create(control_plane, JOB_SETS.format(namespace), document)

    def spec() -> Any:
        found = control_plane.api("GET", f"{JOB_SETS.format(namespace)}/set").body
        return [one["template"]["spec"] for one in found["spec"]["replicatedJobs"]]

    wait_until(lambda: spec()[1]["parallelism"] == 2, "the minimum")
    assert [(one["parallelism"], one["completions"]) for one in spec()] == [(1, 1), (2, 2)]
    control_plane.api("DELETE", f"{JOB_SETS.format(namespace)}/set")


@pytest.mark.usefixtures("kubelets")
def test_training_job_grows_and_gives_room_back(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, tmp_path: Path
) -> None:
    path = TRAINING_JOBS.format(namespace)
    with Sizes(control_plane) as sizes, OperatorProgram(control_plane, the_helm(), tmp_path) as operator:
        operator.start()
        daemon.start()
        document = training_job(least=2, most=6, annotations={POOL_KEY: POOL}, freezingWindow="5s")
        document["metadata"]["namespace"] = namespace
        create(control_plane, path, document)
        sizes.wait_until(
            lambda: len(sizes.running(namespace, "train-trainer-")) == 5,
            "the trainers for which there is room beside master, etcd and pserver",
            lacks=lambda: (sizes.running(namespace, ""), sizes.sizes, daemon.log[-2000:]),
        )
        assert len(sizes.running(namespace, "train-")) == 7
        create_pods(control_plane, namespace, [pod_object("home", namespace=namespace, cpu="2", pool=POOL)])
        sizes.wait_until(lambda: bool(sizes.running(namespace, "home")), "the home pod on a node")
        sizes.wait_until(lambda: len(sizes.running(namespace, "train-trainer-")) == 3, "three trainers")

        def status() -> Any:
            return control_plane.api("GET", f"{path}/train").body.get("status", {})

        wait_until(lambda: status().get("trainersReady") == "3/3/2-6", "a status with the size")
        assert status()["phase"] in ("running", "scaling")
        assert sizes.failed["train-trainer"] == 0
        assert operator.troubles() == []
        control_plane.api("DELETE", f"{path}/train")
