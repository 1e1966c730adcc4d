"""Pods with volume claims: they wait until each claim is bound to a volume that every node can use."""

from typing import Any

from tests.objects import claim_object, volume_object
from tests.stage.stage import Stage

FIELD = "spec.volumes[0].persistentVolumeClaim"
VOLUMES: list[dict[str, Any]] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


def a_claim(stage: Stage, *, volume: str = "") -> None:
    """Create the claim, unbound, without the finalizer of the controller that protects it from deletion."""
    stage.create(claim_object("data", namespace=stage.own("ns"), volume=stage.own(volume) if volume else ""))
    stage.patch("PersistentVolumeClaim", "data", {"metadata": {"finalizers": None}})


def a_volume(stage: Stage, *, node: str = "") -> None:
    stage.create(volume_object(stage.own("disk"), node=node))
    stage.patch("PersistentVolume", "disk", {"metadata": {"finalizers": None}})


def is_bound(stage: Stage) -> None:
    """Write the status of the claim as the controller of volumes does once it is bound."""
    stage.patch("PersistentVolumeClaim", "data", {"status": {"phase": "Bound"}}, "status")


def test_pod_waits_until_its_claim_is_created_and_bound(stage: Stage) -> None:
    stage.node("a")
    stage.pod("p", volumes=VOLUMES)
    stage.waits("p", f'{FIELD}: persistentvolumeclaim "data" not found')
    a_claim(stage, volume="disk")
    stage.waits("p", f'{FIELD}: persistentvolumeclaim "data" is not bound to a volume')
    a_volume(stage)
    is_bound(stage)
    stage.goes(p="a")


def test_pod_waits_until_the_volume_of_its_bound_claim_exists(stage: Stage) -> None:
    stage.node("a")
    a_claim(stage, volume="disk")
    is_bound(stage)
    stage.pod("p", volumes=VOLUMES)
    stage.waits("p", 'persistentvolumeclaim "data" is bound to the persistentvolume', "which does not exist")
    a_volume(stage)
    stage.goes(p="a")


def test_pod_whose_volume_is_tied_to_nodes_waits_and_its_reason_names_the_field(stage: Stage) -> None:
    stage.node("a")
    a_volume(stage, node="a")
    a_claim(stage, volume="disk")
    is_bound(stage)
    stage.pod("p", volumes=VOLUMES)
    stage.waits("p", 'persistentvolumeclaim "data" is bound', "spec.nodeAffinity.required limits to some nodes")


def test_reason_changes_when_the_claim_of_a_waiting_pod_is_deleted(stage: Stage) -> None:
    stage.node("a")
    a_claim(stage)
    stage.pod("p", volumes=VOLUMES)
    stage.waits("p", "is not bound to a volume")
    stage.delete("PersistentVolumeClaim", "data")
    stage.waits("p", 'persistentvolumeclaim "data" not found')
    assert stage.events("p", "FailedScheduling")[-1].startswith(f'{FIELD}: persistentvolumeclaim "data" not found')
