"""Watched claims, volumes and objects of storage: their events, and the volumes of a pod."""

import json
from typing import Any

import pytest

from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.watch import storage_resources
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.model.events import Event, Gone, Seen, gone
from aischeduler.model.selectors import NodeSelectorTerm, Operator, Requirement, label_selector
from aischeduler.model.storage_objects import (
    CsiDriver,
    CsiNode,
    StorageCapacity,
    StorageClass,
    VolumeAttachment,
)
from aischeduler.model.volumes import (
    ClaimRef,
    DriverVolume,
    PodVolumes,
    Volume,
    VolumeClaim,
    VolumeClaimUse,
)
from tests.kube import api_objects
from tests.kube.api_objects import line, listing
from tests.kube.reflector_world import World
from tests.kube.scripted_server import reply, stream, until
from tests.kube.test_decode import decode_pod

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
ZONE = "topology.kubernetes.io/zone"
GIB = 2**30
CLAIM = VolumeClaim("team", "data", uid="u-data")
DISK = Volume("disk")


def claim(*, version: int = 1, spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    identity = {"name": "data", "namespace": "team", "uid": "u-data", "resourceVersion": str(version), **metadata}
    return {"kind": "PersistentVolumeClaim", "metadata": identity, "spec": spec, "status": status}


def volume(*, version: int = 1, spec: Any = None, status: Any = None, labels: Any = None) -> dict[str, Any]:
    metadata = {"name": "disk", "uid": "u-disk", "resourceVersion": str(version), "labels": labels or {}}
    return {"kind": "PersistentVolume", "metadata": metadata, "spec": spec, "status": status}


def read(resource: WatchedResource[Any], document: dict[str, Any]) -> Event:
    (event,) = resource.read(json.dumps(document).encode())
    return event


def read_volume(**spec: Any) -> Volume:
    event = read(storage_resources.volumes(), volume(spec=spec))
    assert isinstance(event, Seen)
    assert isinstance(event.object, Volume)
    return event.object


def of_kind(kind: str) -> WatchedResource[Any]:
    return next(resource for resource in storage_resources.storage_resources() if resource.kind == kind)


def one_of(key: str, *values: str) -> Requirement:
    return Requirement(key, Operator.IN, values)


async def test_claim_is_observed_as_it_is_created_bound_deleted_and_gone() -> None:
    world, bound = World(), {"spec": {"volumeName": "disk"}, "status": {"phase": "Bound"}}
    done: dict[str, Any] = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    world.script.on("get", CLAIMS, reply(200, listing(claim(status={"phase": "Pending"}), version=10)))
    world.script.on(
        "watch",
        CLAIMS,
        stream(
            line("MODIFIED", claim(version=11, **bound)),
            line("MODIFIED", claim(version=12, **bound, **done)),
            line("MODIFIED", claim(version=13, deletionTimestamp="2026-01-02T03:04:05Z", **bound, **done)),
            line("MODIFIED", claim(version=14, spec={"volumeName": "disk"}, status={"phase": "Lost"})),
            line("DELETED", claim(version=15)),
        ),
    )
    async with world.running(storage_resources.claims()):
        await until(lambda: len(world.events) == 6)
    assert world.events == [
        Seen(CLAIM),
        Seen(VolumeClaim("team", "data", volume="disk", uid="u-data")),
        Seen(VolumeClaim("team", "data", volume="disk", bound=True, uid="u-data")),
        Seen(VolumeClaim("team", "data", volume="disk", bound=True, terminating=True, uid="u-data")),
        Seen(VolumeClaim("team", "data", volume="disk", lost=True, uid="u-data")),
        gone(VolumeClaim, "team", "data"),
    ]


async def test_volume_is_observed_as_it_is_available_taken_and_gone() -> None:
    world, ref = World(), {"namespace": "team", "name": "data", "uid": "u-data"}
    world.script.on("get", VOLUMES, reply(200, listing(volume(status={"phase": "Available"}), version=10)))
    world.script.on(
        "watch",
        VOLUMES,
        stream(
            line("MODIFIED", volume(version=11, spec={"claimRef": ref}, status={"phase": "Bound"})),
            line("DELETED", volume(version=12)),
        ),
    )
    async with world.running(storage_resources.volumes()):
        await until(lambda: len(world.events) == 3)
    assert world.events == [
        Seen(Volume("disk", available=True)),
        Seen(Volume("disk", claim=ClaimRef("team", "data", "u-data"))),
        gone(Volume, "disk"),
    ]


def test_claim_has_what_decides_which_volumes_fit() -> None:
    spec = {
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "5Gi"}},
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Block",
        "volumeAttributesClassName": "gold",
        "selector": {"matchLabels": {"disk": "ssd"}},
    }
    chosen = {"volume.kubernetes.io/selected-node": "n"}
    event = read(storage_resources.claims(), claim(spec=spec, annotations=chosen))
    assert event == Seen(
        VolumeClaim(
            "team",
            "data",
            uid="u-data",
            storage_class="fast",
            request_bytes=5 * GIB,
            access_modes=("ReadWriteOnce",),
            block=True,
            selector=label_selector("selector", {"disk": "ssd"}, ()),
            attributes_class="gold",
            selected_node="n",
        )
    )


def test_class_of_an_old_claim_is_that_of_its_annotation() -> None:
    old: dict[str, Any] = {"annotations": {"volume.beta.kubernetes.io/storage-class": ""}}
    event = read(storage_resources.claims(), claim(spec={"storageClassName": "fast"}, **old))
    assert event == Seen(CLAIM)


def test_claim_with_a_selector_that_cannot_be_read_takes_no_volume() -> None:
    event = read(storage_resources.claims(), claim(spec={"selector": {"matchLabels": {"bad key": "x"}}}))
    assert isinstance(event, Seen)
    assert isinstance(event.object, VolumeClaim)
    assert event.object.selector is not None
    assert not event.object.selector.matches({"bad key": "x"})


def test_volume_has_its_node_affinity_class_size_and_modes() -> None:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}
    found = read_volume(
        nodeAffinity={"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        storageClassName="local",
        capacity={"storage": "10Gi"},
        accessModes=["ReadWriteOnce", "ReadOnlyMany"],
        csi={"driver": "csi.example", "volumeHandle": "v-1"},
    )
    assert found == Volume(
        "disk",
        (NodeSelectorTerm((one_of("kubernetes.io/hostname", "n"),)),),
        storage_class="local",
        capacity_bytes=10 * GIB,
        access_modes=("ReadWriteOnce", "ReadOnlyMany"),
        driver=DriverVolume("csi.example", "v-1"),
    )


def test_volume_without_required_node_affinity_is_usable_everywhere() -> None:
    assert [read_volume(), read_volume(nodeAffinity={})] == [DISK, DISK]
    assert read_volume(nodeAffinity={"required": {"nodeSelectorTerms": []}}).affinity == ()


IN_TREE = [
    {"gcePersistentDisk": {"pdName": "d"}},
    {"awsElasticBlockStore": {"volumeID": "vol-1"}},
    {"azureDisk": {"diskName": "d", "diskURI": "/disks/d"}},
    {"cinder": {"volumeID": "c-1"}},
    {"portworxVolume": {"volumeID": "p-1"}},
    {"iscsi": {"iqn": "q"}},
    {"rbd": {"monitors": ["m1", "m2"], "image": "i", "readOnly": True}},
]
"""Disks of in-tree plugins."""


@pytest.mark.parametrize("source", [*IN_TREE, {"nfs": {"server": "s", "path": "/"}}])
def test_node_affinity_of_a_volume_without_a_csi_driver_counts(source: Any) -> None:
    expression = {"key": ZONE, "operator": "In", "values": ["z1"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    assert read_volume(**source, nodeAffinity=affinity) == Volume("disk", (NodeSelectorTerm((one_of(ZONE, "z1"),)),))


def test_claim_of_an_ephemeral_volume_has_the_uid_of_its_pod() -> None:
    owners = [{"kind": "Pod", "uid": "u-other"}, {"kind": "Pod", "uid": "u-pod", "controller": True}]
    event = read(storage_resources.claims(), claim(ownerReferences=owners))
    assert event == Seen(VolumeClaim("team", "data", controller="u-pod", uid="u-data"))


@pytest.mark.parametrize(
    ("kind", "document", "found"),
    [
        (
            "StorageClass",
            {
                "metadata": {"name": "x"},
                "provisioner": "csi.example",
                "volumeBindingMode": "WaitForFirstConsumer",
                "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
            },
            StorageClass("x", "csi.example", True, (NodeSelectorTerm((one_of("zone", "a", "b"),)),)),
        ),
        (
            "StorageClass",
            {"metadata": {"name": "x"}, "provisioner": "csi.example", "volumeBindingMode": "Immediate"},
            StorageClass("x", "csi.example"),
        ),
        (
            "CSINode",
            {
                "metadata": {"name": "x"},
                "spec": {"drivers": [{"name": "d", "allocatable": {"count": 3}}, {"name": "without-limit"}]},
            },
            CsiNode("x", {"d": 3}),
        ),
        ("CSINode", {"metadata": {"name": "x"}, "spec": {"drivers": []}}, CsiNode("x")),
        ("CSIDriver", {"metadata": {"name": "x"}, "spec": {"storageCapacity": True}}, CsiDriver("x", True)),
        ("CSIDriver", {"metadata": {"name": "x"}, "spec": {}}, CsiDriver("x")),
        (
            "CSIStorageCapacity",
            {
                "metadata": {"name": "x", "namespace": "ns"},
                "storageClassName": "fast",
                "nodeTopology": {"matchLabels": {"zone": "a"}},
                "capacity": "10Gi",
                "maximumVolumeSize": "5Gi",
            },
            StorageCapacity("ns", "x", "fast", label_selector("topology", {"zone": "a"}, ()), 5 * GIB),
        ),
        (
            "CSIStorageCapacity",
            {"metadata": {"name": "x", "namespace": "ns"}, "storageClassName": "fast", "capacity": "10Gi"},
            StorageCapacity("ns", "x", "fast", None, 10 * GIB),
        ),
        (
            "VolumeAttachment",
            {
                "metadata": {"name": "x"},
                "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "disk"}},
            },
            VolumeAttachment("x", "d", "n", "disk"),
        ),
    ],
)
def test_object_of_storage_is_observed(kind: str, document: dict[str, Any], found: Any) -> None:
    resource = of_kind(kind)
    assert read(resource, document) == Seen(found)
    assert resource.gone_event("ns", "x", "u") == Gone(type(found).__name__, ("ns", "x"))


def test_attachment_of_a_volume_without_an_object_tells_nothing() -> None:
    document = {"metadata": {"name": "x"}, "spec": {"attacher": "d", "nodeName": "n", "source": {}}}
    assert of_kind("VolumeAttachment").read(json.dumps(document).encode()) == ()


def test_only_claims_and_volumes_are_needed() -> None:
    needed = [resource.kind for resource in storage_resources.storage_resources() if resource.needed]
    assert needed == ["PersistentVolume", "PersistentVolumeClaim"]


DATA = {"name": "b", "persistentVolumeClaim": {"claimName": "data-0"}}


@pytest.mark.parametrize(
    ("volumes", "claims"),
    [
        ([{"name": "a", "emptyDir": {}}, DATA], (VolumeClaimUse("spec.volumes[1].persistentVolumeClaim", "data-0"),)),
        (
            [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}],
            (VolumeClaimUse("spec.volumes[0].ephemeral", "p-scratch", owned=True),),
        ),
    ],
)
def test_pod_has_the_claims_of_its_volumes(volumes: Any, claims: tuple[VolumeClaimUse, ...]) -> None:
    found = decode_pod(api_objects.pod("p", spec={"volumes": volumes}))
    assert found.spec.volumes == PodVolumes(found.namespace, claims)
    assert found.volume_claims == claims


@pytest.mark.parametrize("source", IN_TREE)
def test_disk_of_an_in_tree_plugin_decides_nothing(source: Any) -> None:
    assert decode_pod(api_objects.pod("p", spec={"volumes": [{"name": "a", **source}]})).spec.volumes is None


@pytest.mark.parametrize(
    "volumes", [None, [{"name": "settings", "configMap": {"name": "volumeClaim"}}], "volumeClaim", [{"name": "rbd"}]]
)
def test_pod_whose_volumes_decide_nothing_has_none(volumes: Any) -> None:
    assert decode_pod(api_objects.pod("p", spec={"volumes": volumes})).spec.volumes is None


def test_pods_of_a_stateful_set_are_of_classes_of_their_own_because_each_has_its_own_claim() -> None:
    specs = SpecCache()
    first, second, again = (
        decode_pod(api_objects.pod(spec={"volumes": [{**DATA, "persistentVolumeClaim": {"claimName": name}}]}), specs)
        for name in ("data-0", "data-1", "data-0")
    )
    assert first.spec.key != second.spec.key
    assert first.spec == again.spec
    assert first.spec.request is second.spec.request
