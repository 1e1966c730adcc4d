"""Pods with volume claims: they run where their volumes are, and claims that wait for them are bound for their node.

The scenarios do what the volume controller and a provisioner do; on the real control plane its own controller runs too.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.plane import ControlPlane
from tests.gang_objects import gang_labels
from tests.objects import claim_object, storage_class_object, volume_object
from tests.scenarios.environment import Environment
from tests.scenarios.environment_real import RealEnvironment
from tests.scenarios.stage import Stage

FIELD = "spec.volumes[0].persistentVolumeClaim"
HOST = "stage.example/host"
BOUND = "pv.kubernetes.io/bind-completed"
SELECTED = "volume.kubernetes.io/selected-node"


@pytest.fixture(autouse=True, scope="module")
def volume_controllers(request: pytest.FixtureRequest, environment: Environment) -> Iterator[None]:
    """Run the controllers of claims and volumes on the real control plane."""
    if not isinstance(environment, RealEnvironment):
        yield
        return
    plane: ControlPlane = request.getfixturevalue("control_plane")
    controllers = plane.volume_controllers()
    controllers.start()
    yield
    controllers.kill()


def using(*claims: str) -> list[dict[str, Any]]:
    """Return the volumes of a pod that uses these claims."""
    return [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]


VOLUMES = using("data")


def hosts(stage: Stage, *names: str, **more: Any) -> None:
    """Create nodes with a label of their own, as that of their host is."""
    for name in names:
        stage.node(name, labels={"kubernetes.io/hostname": stage.own(name)}, **more)


def a_claim(stage: Stage, name: str = "data", *, volume: str = "", storage_class: str = "") -> None:
    """Create an unbound claim."""
    named = {"volume": stage.own(volume) if volume else "", "storage_class": storage_class}
    stage.create(claim_object(name, namespace=stage.own("ns"), **named))


def a_volume(stage: Stage, name: str = "disk", *, node: str = "", **more: Any) -> None:
    """Create a free volume; with a `node` it can be used only there."""
    stage.create(volume_object(stage.own(name), node=stage.own(node) if node else "", **more))
    stage.patch("PersistentVolume", name, {"status": {"phase": "Available"}}, "status")


def a_class(stage: Stage, **more: Any) -> str:
    """Create a class whose claims wait for their first pod, and return its name."""
    stage.create(storage_class_object(stage.own("late"), **more))
    return stage.own("late")


def is_bound(stage: Stage, claim: str = "data", volume: str = "disk") -> None:
    """Write what the volume controller writes into a claim whose volume it has bound."""
    change = {"metadata": {"annotations": {BOUND: "yes"}}, "spec": {"volumeName": stage.own(volume)}}
    stage.patch("PersistentVolumeClaim", claim, change)
    stage.patch("PersistentVolumeClaim", claim, {"status": {"phase": "Bound"}}, "status")


def claim_of(stage: Stage, volume: str) -> str:
    """Return the name of the claim to which a volume belongs; empty where it belongs to none."""
    return str(stage.get("PersistentVolume", volume)["spec"].get("claimRef", {}).get("name", ""))


def selected_node(stage: Stage, claim: str = "data") -> str:
    """Return the node for which a volume of the claim is to be created."""
    metadata = stage.get("PersistentVolumeClaim", claim)["metadata"]
    return str(metadata.get("annotations", {}).get(SELECTED, ""))


def test_pod_waits_until_its_claim_is_created_and_bound(stage: Stage) -> None:
    stage.node("a")
    stage.pod("p", volumes=VOLUMES)
    stage.waits("p", f'{FIELD}: persistentvolumeclaim "data" not found')
    a_claim(stage)
    stage.waits("p", f"{FIELD}: pod has unbound immediate PersistentVolumeClaims")
    a_volume(stage)
    is_bound(stage)
    stage.goes(p="a")


def test_pod_waits_until_the_volume_of_its_bound_claim_exists(stage: Stage) -> None:
    stage.node("a")
    a_claim(stage, volume="disk")
    is_bound(stage)
    stage.pod("p", volumes=VOLUMES)
    stage.waits("p", 'persistentvolume "disk"')
    a_volume(stage)
    stage.goes(p="a")


def test_pod_runs_on_the_node_to_which_its_volume_is_tied(stage: Stage) -> None:
    hosts(stage, "a", "b")
    a_volume(stage, node="b")
    a_claim(stage, volume="disk")
    is_bound(stage)
    stage.pods("p", "q", volumes=VOLUMES)
    stage.goes(p="b", q="b")


def test_pod_whose_volume_is_tied_to_a_node_that_is_full_evicts_only_there(stage: Stage) -> None:
    hosts(stage, "a", "b", cpu="1")
    stage.pods("low-a", on="a")
    stage.pods("low-b", on="b")
    stage.goes(low_a="a", low_b="b")
    a_volume(stage, node="b")
    a_claim(stage, volume="disk")
    is_bound(stage)
    stage.pod("high", priority=9, volumes=VOLUMES)
    stage.evicts("low-b")
    stage.goes(high="b")


def test_reason_changes_when_the_claim_of_a_waiting_pod_is_deleted(stage: Stage) -> None:
    stage.node("a")
    a_claim(stage)
    stage.pod("p", volumes=VOLUMES)
    stage.waits("p", "pod has unbound immediate PersistentVolumeClaims")
    stage.delete("PersistentVolumeClaim", "data")
    stage.waits("p", 'persistentvolumeclaim "data" not found')
    assert stage.events("p", "FailedScheduling")[-1].startswith(f'{FIELD}: persistentvolumeclaim "data" not found')


def test_claim_that_waits_for_its_pod_gets_the_free_volume_of_a_node_where_the_pod_fits(stage: Stage) -> None:
    hosts(stage, "a", cpu="1")
    hosts(stage, "b", "c")
    late = a_class(stage)
    for node in ("a", "b"):
        a_volume(stage, f"disk-{node}", node=node, storage_class=late)
    a_claim(stage, storage_class=late)
    stage.pod("p", cpu="2", volumes=VOLUMES)
    stage.until(lambda: claim_of(stage, "disk-b") == "data")
    assert stage.node_of("p") == "" or stage.get("PersistentVolumeClaim", "data")["status"]["phase"] == "Bound"
    is_bound(stage, volume="disk-b")
    stage.goes(p="b")
    assert claim_of(stage, "disk-a") == ""


def test_pods_wait_for_free_volumes_and_take_them_one_by_one(stage: Stage) -> None:
    hosts(stage, "a", "b")
    late = a_class(stage)
    a_volume(stage, "disk-a", node="a", storage_class=late)
    for name in ("x", "y"):
        a_claim(stage, name, storage_class=late)
    stage.pod("p", volumes=using("x"))
    stage.until(lambda: claim_of(stage, "disk-a") == "x")
    is_bound(stage, "x", "disk-a")
    stage.goes(p="a")
    stage.pod("q", volumes=using("y"))
    stage.waits("q", "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.")
    a_volume(stage, "disk-b", node="b", storage_class=late)
    stage.until(lambda: claim_of(stage, "disk-b") == "y")
    is_bound(stage, "y", "disk-b")
    stage.goes(q="b")


def test_volume_is_created_for_the_node_of_the_pod_which_is_bound_once_the_claim_is(stage: Stage) -> None:
    hosts(stage, "a", "b")
    late = a_class(stage, provisioner="csi.stage.example")
    a_claim(stage, storage_class=late)
    stage.pod("p", on="b", volumes=VOLUMES)
    stage.until(lambda: selected_node(stage) == "b")
    stage.stays(lambda: stage.node_of("p") == "")
    a_volume(stage, node="b", storage_class=late, claim=(stage.own("ns"), "data"))
    is_bound(stage)
    stage.goes(p="b")


def test_provisioner_that_fails_gives_the_claim_back_and_another_node_is_chosen(stage: Stage) -> None:
    hosts(stage, "a", "b")
    a_claim(stage, storage_class=a_class(stage, provisioner="csi.stage.example"))
    stage.pod("p", volumes=VOLUMES)
    stage.until(lambda: selected_node(stage) == "a")
    stage.taint("a")
    stage.patch("PersistentVolumeClaim", "data", {"metadata": {"annotations": {SELECTED: None}}})
    stage.until(lambda: selected_node(stage) == "b")
    assert any("provisioning failed for PVC" in text for text in stage.events("p", "FailedScheduling"))


def test_gang_gets_a_volume_on_each_node(stage: Stage) -> None:
    hosts(stage, "a", "b")
    late = a_class(stage)
    for node in ("a", "b"):
        a_volume(stage, f"disk-{node}", node=node, storage_class=late)
        a_claim(stage, f"data-{node}", storage_class=late)
    for name in ("a", "b"):
        stage.pod(f"g-{name}", volumes=using(f"data-{name}"), labels=gang_labels("g"))
    stage.until(lambda: "" not in {claim_of(stage, f"disk-{node}") for node in ("a", "b")})
    for node in ("a", "b"):
        is_bound(stage, claim_of(stage, f"disk-{node}"), f"disk-{node}")
    stage.runs("g-a", "g-b")
    assert {stage.node_of(name) for name in ("g-a", "g-b")} == {"a", "b"}


def a_lender_and_a_home(stage: Stage) -> None:
    """Create pool a without nodes, and pool b, which lends two nodes of one CPU."""
    stage.pools("a")
    hosts(stage, "b1", "b2", cpu="1", pool="b")
    stage.pools("b")


def test_borrower_runs_on_the_node_of_the_lender_to_which_its_volume_is_tied(stage: Stage) -> None:
    a_lender_and_a_home(stage)
    a_volume(stage, node="b2")
    a_claim(stage, volume="disk")
    is_bound(stage)
    stage.pod("p", pool="a", volumes=VOLUMES)
    stage.goes(p="b2")
    stage.pod("q", pool="a", volumes=VOLUMES)
    stage.waits("q", "borrowing: no node fits: ")


def test_owner_takes_back_the_room_on_the_node_to_which_its_volume_is_tied(stage: Stage) -> None:
    a_lender_and_a_home(stage)
    stage.pods("guest-1", pool="a", on="b1")
    stage.pods("guest-2", pool="a", on="b2")
    stage.runs("guest-1", "guest-2")
    a_volume(stage, node="b2")
    a_claim(stage, volume="disk")
    is_bound(stage)
    stage.pod("own", pool="b", volumes=VOLUMES)
    stage.evicts("guest-2")
    stage.goes(own="b2")
