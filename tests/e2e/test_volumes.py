"""Volumes with the real volume controller, applied by kubectl: local ones, a new one, and one for a single pod."""

from collections.abc import Iterator

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import apply, create_nodes, wait_for_event
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import Json, claim_object, node_object, pod_object, storage_class_object, volume_object

SELECTED = "volume.kubernetes.io/selected-node"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"

pytestmark = pytest.mark.usefixtures("pools_served", "controllers")


@pytest.fixture
def controllers(control_plane: ControlPlane, clean_cluster: None) -> Iterator[None]:
    """Run the controllers of claims and volumes."""
    part = control_plane.volume_controllers()
    part.start()
    yield
    part.kill()


@pytest.fixture
def running(control_plane: ControlPlane, daemon: Daemon) -> Daemon:
    """Return the running scheduler of a cluster of three nodes."""
    names = ("a", "b", "c")
    create_nodes(control_plane, [node_object(name, cpu="4", labels={"kubernetes.io/hostname": name}) for name in names])
    daemon.start()
    return daemon


def claim(plane: ControlPlane, namespace: str, name: str) -> Json:
    found: Json = plane.api("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}").body
    return found


def using(name: str, namespace: str, claim_name: str, **more: object) -> Json:
    """Return a pod that uses a claim."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]
    return pod_object(name, namespace=namespace, volumes=volumes, **more)  # type: ignore[arg-type]


@pytest.mark.daily
def test_local_volumes_are_bound_to_the_claims_of_the_pods_that_run_on_their_nodes(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    local = storage_class_object("local")
    disks = [volume_object(f"disk-{node}", node=node, storage_class="local") for node in ("b", "c")]
    claims = [claim_object(f"data-{n}", namespace=namespace, storage_class="local") for n in range(3)]
    apply(control_plane, local, *disks, *claims, *(using(f"web-{n}", namespace, f"data-{n}") for n in range(2)))
    history.wait_for_bound(namespace, 2)
    assert set(history.bound(namespace).values()) == {"b", "c"}
    for number in range(2):
        one, node = claim(control_plane, namespace, f"data-{number}"), history.bound(namespace)[f"web-{number}"]
        assert (one["status"]["phase"], one["spec"]["volumeName"]) == ("Bound", f"disk-{node}")
    apply(control_plane, using("web-2", namespace, "data-2"))
    reason = "3 node(s) didn't find available persistent volumes to bind"
    assert reason in wait_for_event(control_plane, history, namespace, "FailedScheduling", "web-2")
    apply(control_plane, volume_object("disk-a", node="a", storage_class="local"))
    history.wait_for_bound(namespace, 3)
    assert history.bound(namespace)["web-2"] == "a"


def test_provisioner_creates_the_volume_for_the_node_that_was_chosen(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    cloud = storage_class_object("cloud", provisioner="csi.real.example")
    pod = using("p", namespace, "data", node_selector={"kubernetes.io/hostname": "b"})
    apply(control_plane, cloud, claim_object("data", namespace=namespace, storage_class="cloud"), pod)

    def selected() -> bool:
        annotations = claim(control_plane, namespace, "data")["metadata"].get("annotations", {})
        return bool(annotations.get(SELECTED) == "b")

    history.wait_until(selected, "the node in the claim")
    assert history.bound(namespace) == {}
    apply(control_plane, volume_object("new", node="b", storage_class="cloud", claim=(namespace, "data")))
    history.wait_for_bound(namespace, 1)
    assert history.bound(namespace) == {"p": "b"}
    assert claim(control_plane, namespace, "data")["status"]["phase"] == "Bound"


def test_claim_that_is_bound_at_once_holds_its_pod_until_then(
    control_plane: ControlPlane, namespace: str, running: Daemon, history: History
) -> None:
    once = claim_object("data", namespace=namespace, mode="ReadWriteOncePod")
    apply(control_plane, once, using("p", namespace, "data"), using("q", namespace, "data"))
    unbound = "pod has unbound immediate PersistentVolumeClaims"
    assert unbound in wait_for_event(control_plane, history, namespace, "FailedScheduling", "p")
    apply(control_plane, volume_object("disk", node="c", mode="ReadWriteOncePod"))
    history.wait_for_bound(namespace, 1)
    assert list(history.bound(namespace).values()) == ["c"]
    (waiting,) = {"p", "q"} - set(history.bound(namespace))
    control_plane.api(
        "DELETE", f"/api/v1/namespaces/{namespace}/pods/{'p' if waiting == 'q' else 'q'}?gracePeriodSeconds=0"
    )
    history.wait_until(lambda: history.bound(namespace).get(waiting) == "c", "the claim to be free")
