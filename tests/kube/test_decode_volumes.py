"""Watched claims and volumes: their events, and the claims of a pod."""

import json
from typing import Any

import pytest

from aischeduler.kube import watched_resources
from aischeduler.model.events import VolumeClaimGone, VolumeClaimSeen, VolumeGone, VolumeSeen
from aischeduler.model.volumes import Volume, VolumeClaim, VolumeClaimUse
from tests.kube import api_objects
from tests.kube.api_objects import line, listing
from tests.kube.reflector_world import World
from tests.kube.scripted_server import reply, stream, until
from tests.kube.test_decode import decode_pod

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"


def claim(*, version: int = 1, spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    identity = {"name": "data", "namespace": "team", "uid": "u-data", "resourceVersion": str(version), **metadata}
    return {"kind": "PersistentVolumeClaim", "metadata": identity, "spec": spec, "status": status}


def volume(*, version: int = 1, spec: Any = None, **labels: str) -> dict[str, Any]:
    metadata = {"name": "disk", "uid": "u-disk", "resourceVersion": str(version), "labels": labels}
    return {"kind": "PersistentVolume", "metadata": metadata, "spec": spec}


async def test_claim_is_observed_as_it_is_created_bound_deleted_and_gone() -> None:
    world, bound = World(), {"spec": {"volumeName": "disk"}, "status": {"phase": "Bound"}}
    world.script.on("get", CLAIMS, reply(200, listing(claim(status={"phase": "Pending"}), version=10)))
    world.script.on(
        "watch",
        CLAIMS,
        stream(
            line("MODIFIED", claim(version=11, **bound)),
            line("MODIFIED", claim(version=12, deletionTimestamp="2026-01-02T03:04:05Z", **bound)),
            line("MODIFIED", claim(version=13, spec={"volumeName": "disk"}, status={"phase": "Lost"})),
            line("DELETED", claim(version=14)),
        ),
    )
    async with world.running(watched_resources.claims()):
        await until(lambda: len(world.events) == 5)
    assert world.events == [
        VolumeClaimSeen(VolumeClaim("team", "data")),
        VolumeClaimSeen(VolumeClaim("team", "data", volume="disk", bound=True)),
        VolumeClaimSeen(VolumeClaim("team", "data", volume="disk", bound=True, terminating=True)),
        VolumeClaimSeen(VolumeClaim("team", "data", volume="disk", lost=True)),
        VolumeClaimGone("team", "data"),
    ]


async def test_volume_is_observed_with_the_field_that_ties_it_to_nodes() -> None:
    world = World()
    affinity: Any = {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}
    world.script.on("get", VOLUMES, reply(200, listing(volume(spec={"nodeAffinity": {}}), version=10)))
    zoned = {"topology.kubernetes.io/zone": "z1"}
    world.script.on(
        "watch",
        VOLUMES,
        stream(
            line("MODIFIED", volume(version=11, spec=affinity)),
            line("MODIFIED", volume(version=12, **zoned)),
            line("DELETED", volume(version=13)),
        ),
    )
    async with world.running(watched_resources.volumes()):
        await until(lambda: len(world.events) == 4)
    assert world.events == [
        VolumeSeen(Volume("disk")),
        VolumeSeen(Volume("disk", "spec.nodeAffinity.required")),
        VolumeSeen(Volume("disk", "metadata.labels[topology.kubernetes.io/zone]")),
        VolumeGone("disk"),
    ]


def test_claim_of_an_ephemeral_volume_has_the_uid_of_its_pod() -> None:
    owners = [{"kind": "Pod", "uid": "u-other"}, {"kind": "Pod", "uid": "u-pod", "controller": True}]
    resource = watched_resources.claims()
    event = resource.seen_event(resource.object_decoder.decode(json.dumps(claim(ownerReferences=owners))))
    assert event == VolumeClaimSeen(VolumeClaim("team", "data", controller="u-pod"))


@pytest.mark.parametrize(
    ("volumes", "claims"),
    [
        (None, ()),
        ([{"name": "settings", "configMap": {"name": "volumeClaim"}}], ()),
        (
            [{"name": "a", "emptyDir": {}}, {"name": "b", "persistentVolumeClaim": {"claimName": "data-0"}}],
            (VolumeClaimUse("spec.volumes[1].persistentVolumeClaim", "data-0"),),
        ),
        (
            [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}],
            (VolumeClaimUse("spec.volumes[0].ephemeral", "p-scratch", owned=True),),
        ),
    ],
)
def test_pod_has_the_claims_of_its_volumes(volumes: Any, claims: tuple[VolumeClaimUse, ...]) -> None:
    assert decode_pod(api_objects.pod("p", spec={"volumes": volumes})).volume_claims == claims
