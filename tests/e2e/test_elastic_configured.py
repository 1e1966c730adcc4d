"""A kind that the configuration lets be elastic, on the real control plane, with a controller of the test."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aischeduler.model.elastic import SIZE_KEY
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import create_nodes, create_pods, create_pools, wait_until
from tests.e2e.daemon import Daemon
from tests.e2e.elastic_stage import POOL, Sizes, elastic
from tests.e2e.fleets import GROUP, IN_NAMESPACE, KIND, Fleets, configuration, fleet
from tests.objects import Json, node_object, pod_object, pool_object

CPUS = 8


@pytest.fixture(autouse=True)
def team(control_plane: ControlPlane, clean_cluster: None, pools_served: None) -> None:
    """Create a pool of one node of eight CPUs."""
    create_pools(control_plane, pool_object(POOL, labels={"team": "a"}))
    create_nodes(control_plane, [node_object("node", cpu=str(CPUS), labels={"team": "a"})])


@pytest.fixture(params=[True, False], ids=["ordered", "unordered"])
def ordered(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


@pytest.fixture
def fleets(control_plane: ControlPlane, ordered: bool) -> Iterator[Fleets]:
    """Yield the controller of Fleets."""
    with Fleets(control_plane, ordered=ordered) as found:
        yield found


@pytest.fixture
def scheduler(control_plane: ControlPlane, clean_cluster: None, ordered: bool, tmp_path: Path) -> Iterator[Daemon]:
    """Yield the scheduler, not yet started, that lets Fleets be elastic."""
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(configuration(ordered=ordered)))
    with Daemon(control_plane, None, "--config", str(path)) as daemon:
        yield daemon


def create(plane: ControlPlane, namespace: str, document: Json) -> None:
    created = plane.api("POST", IN_NAMESPACE.format(namespace), document)
    assert created.status == 201, created.body


def not_elastic(plane: ControlPlane, namespace: str) -> list[tuple[Json, str]]:
    """Return what the events NotElastic are about, and their notes."""
    found = plane.api("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").body["items"]
    return [(one["regarding"], one["note"]) for one in found if one["reason"] == "NotElastic"]


@pytest.mark.usefixtures("kubelets")
def test_object_grows_and_shrinks_for_the_minimum_of_another_and_for_a_home_pod(
    control_plane: ControlPlane, namespace: str, scheduler: Daemon, fleets: Fleets
) -> None:
    with Sizes(control_plane) as sizes:
        scheduler.start()

        def running(*names: str) -> int:
            return sum(len(sizes.running(namespace, f"{name}-")) for name in names)

        def written(*names: str) -> int:
            return sum(fleets.replicas(namespace, name) for name in names)

        create(control_plane, namespace, elastic(fleet("first", 5), 2, 60, window="5s"))
        sizes.wait_until(lambda: running("first") == CPUS, "instances on all CPUs", lacks=lambda: scheduler.log[-2000:])
        found = control_plane.api("GET", f"{IN_NAMESPACE.format(namespace)}/first").body
        assert (found["spec"]["replicas"], found["metadata"]["annotations"][SIZE_KEY]) == (CPUS, str(CPUS))
        create(control_plane, namespace, elastic(fleet("second", 3), 3, 60, window="5s"))
        wait_until(lambda: running("second") >= 3 and running("first") >= 2, "the minimum of the other")
        create_pods(control_plane, namespace, [pod_object("home", namespace=namespace, cpu="2", pool=POOL)])
        wait_until(lambda: bool(sizes.running(namespace, "home")), "the home pod on a node")
        wait_until(
            lambda: running("first", "second") == written("first", "second") == CPUS - 2, "sizes of what fits", 90.0
        )
        assert min(running("first"), running("second") - 1) >= 2


@pytest.mark.parametrize("ordered", [True], indirect=True)
def test_object_that_ray_scales_keeps_its_size_and_says_why(
    control_plane: ControlPlane, namespace: str, scheduler: Daemon
) -> None:
    """The kind is served only after the start: it is looked for again."""
    scheduler.start()
    with Fleets(control_plane, ordered=True) as fleets:
        create(control_plane, namespace, elastic(fleet("ray", 1, enableInTreeAutoscaling=True), 2, 60))
        wait_until(lambda: bool(not_elastic(control_plane, namespace)), "the event", 120.0)
        ((about, note),) = not_elastic(control_plane, namespace)
        assert (about["apiVersion"], about["kind"], about["name"]) == (f"{GROUP}/v1", KIND, "ray")
        assert note == "Ray's autoscaler scales it. It keeps its size."
        assert fleets.replicas(namespace, "ray") == 1
