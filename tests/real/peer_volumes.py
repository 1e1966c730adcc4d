"""The volumes of the states of the differential test: claims that are bound already, and what limits their use.

Invariants:
- The states write what the volume controllers would write, so that none of these needs to run.
- A claim has its own volume. Each pod on a node may be there, as far as its volumes decide.
"""

from collections.abc import Mapping, Sequence
from random import Random  # noqa: TID251 - a type; the generator comes from the seed
from typing import Final

from tests.objects import Json, present
from tests.real.peer_features import Feature

DRIVER: Final = "csi.peer.example"
ZONE_LABELS: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
VOLUMES: Final = frozenset(
    {
        Feature.VOLUMES_BOUND,
        Feature.VOLUMES_UNUSABLE,
        Feature.VOLUME_ZONE,
        Feature.READ_WRITE_ONCE_POD,
        Feature.CSI_LIMITS,
        Feature.DISKS,
    }
)
CLAIMS_OF_A_FEATURE: Final = 4


def add_volumes(
    chance: Random, name: str, nodes: Sequence[Json], running: Sequence[Json], features: frozenset[Feature]
) -> list[Json]:
    """Return the volume objects of a state; running pods get claims and disks."""
    objects: list[Json] = []
    for feature in sorted(features & VOLUMES):
        for number in range(CLAIMS_OF_A_FEATURE):
            claim = f"{name}-{feature.replace('_', '-')}-{number}"
            match feature:
                case Feature.VOLUMES_BOUND:
                    objects += _bound(claim, _namespace(chance, running), _affinity(chance, nodes), {})
                case Feature.VOLUMES_UNUSABLE:
                    objects += _unusable(claim, _namespace(chance, running), number)
                case Feature.VOLUME_ZONE:
                    zone = chance.choice(("a", "b", "c", "a__b"))
                    objects += _bound(claim, _namespace(chance, running), {}, {chance.choice(ZONE_LABELS): zone})
                case Feature.READ_WRITE_ONCE_POD:
                    objects += _once(chance, claim, running)
                case Feature.CSI_LIMITS:
                    objects += _limited(chance, claim, running)
                case _:
                    _add_disk(chance, running)
    if Feature.CSI_LIMITS in features:
        objects += [
            _csi_node(node["metadata"]["name"], chance.randint(1, 3)) for node in nodes if chance.random() < 0.8
        ]
    return objects


def claims_for(objects: Sequence[Json], feature: Feature) -> list[Json]:
    """Return the claims of a state that were made for a feature."""
    mark = f"-{feature.replace('_', '-')}-"
    return [one for one in objects if one["kind"] == "PersistentVolumeClaim" and mark in one["metadata"]["name"]]


def use_claim(pod: Json, claim: str) -> None:
    """Let the pod use a claim of its namespace."""
    volumes = pod["spec"].setdefault("volumes", [])
    if all(one.get("persistentVolumeClaim", {}).get("claimName") != claim for one in volumes):
        volumes.append({"name": f"v{len(volumes)}", "persistentVolumeClaim": {"claimName": claim}})


def use_disk(pod: Json, disk: Json) -> None:
    """Let the pod use a disk without a claim."""
    volumes = pod["spec"].setdefault("volumes", [])
    volumes.append({"name": f"v{len(volumes)}", **disk})


def a_disk(chance: Random) -> Json:
    """Return a disk that two pods of a node may share for reading at most."""
    read_only = {"readOnly": True} if chance.random() < 0.4 else {}
    number = chance.randint(1, 2)
    match chance.randrange(3):
        case 0:
            return {"gcePersistentDisk": {"pdName": f"disk-{number}", **read_only}}
        case 1:
            return {"rbd": {"monitors": ["m1", "m2"], "image": f"image-{number}", **read_only}}
        case _:
            return {"iscsi": {"targetPortal": "1.2.3.4", "iqn": f"iqn.2026-01.example:{number}", "lun": 0, **read_only}}


def _namespace(chance: Random, running: Sequence[Json]) -> str:
    """Return a namespace of the state."""
    namespace: str = chance.choice(running)["metadata"]["namespace"] if running else "peer-blue"
    return namespace


def _bound(
    claim: str, namespace: str, affinity: Json, labels: Mapping[str, str], modes: str = "ReadWriteMany"
) -> list[Json]:
    """Return a claim and its volume on a file server."""
    source = {"nfs": {"server": "files.example", "path": "/data"}}
    return [_volume(claim, namespace, source | affinity, labels, modes), _claim(claim, namespace, modes)]


def _volume(claim: str, namespace: str, fields: Json, labels: Mapping[str, str], modes: str) -> Json:
    spec = {
        "accessModes": [modes],
        "capacity": {"storage": "1Gi"},
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim},
        **fields,
    }
    metadata = {"name": f"pv-{claim}", **present(labels=dict(labels))}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _claim(claim: str, namespace: str, modes: str, *, bound: bool = True, volume: str = "") -> Json:
    marks = {f"pv.kubernetes.io/{mark}": "yes" for mark in ("bind-completed", "bound-by-controller") if bound}
    spec = {
        "accessModes": [modes],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
        **present(volumeName=volume or (f"pv-{claim}" if bound else "")),
    }
    metadata = {"name": claim, "namespace": namespace, **present(annotations=marks)}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _affinity(chance: Random, nodes: Sequence[Json]) -> Json:
    """Return the node affinity of a volume, which is for some nodes, for a zone or for all nodes."""
    names = [node["metadata"]["name"] for node in nodes]
    match chance.randrange(4):
        case 0:
            return {}
        case 1:
            expression = {"key": ZONE_LABELS[0], "operator": "In", "values": [chance.choice("abc")]}
        case _:
            few = chance.sample(names, chance.randint(1, 3))
            expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": few}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


def _unusable(claim: str, namespace: str, number: int) -> list[Json]:
    """Return a claim without a volume: never bound, or bound to one that does not exist."""
    if number % 2:
        return [_claim(claim, namespace, "ReadWriteOnce", bound=False)]
    return [_claim(claim, namespace, "ReadWriteOnce", volume=f"pv-none-{claim}")]


def _once(chance: Random, claim: str, running: Sequence[Json]) -> list[Json]:
    """Return a claim that one pod alone may use; most are in use."""
    user = chance.choice(running) if running and chance.random() < 0.8 else None
    if user is not None:
        use_claim(user, claim)
    namespace = user["metadata"]["namespace"] if user is not None else "peer-blue"
    return _bound(claim, namespace, {}, {}, "ReadWriteOncePod")


def _limited(chance: Random, claim: str, running: Sequence[Json]) -> list[Json]:
    """Return a claim of a driver that attaches few volumes to a node; most are in use."""
    user = chance.choice(running) if running and chance.random() < 0.8 else None
    namespace = user["metadata"]["namespace"] if user is not None else _namespace(chance, running)
    if user is not None:
        use_claim(user, claim)
    fields = {"csi": {"driver": DRIVER, "volumeHandle": claim}}
    return [_volume(claim, namespace, fields, {}, "ReadWriteMany"), _claim(claim, namespace, "ReadWriteMany")]


def _csi_node(name: str, limit: int) -> Json:
    driver = {"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": limit}}
    metadata = {"name": name}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": {"drivers": [driver]}}


def _add_disk(chance: Random, running: Sequence[Json]) -> None:
    """Give a running pod without volumes a disk that no other pod of the state has."""
    free = [pod for pod in running if "volumes" not in pod["spec"]]
    if free:
        use_disk(chance.choice(free), a_disk(chance))
