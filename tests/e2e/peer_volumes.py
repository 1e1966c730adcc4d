"""The volumes of the states of the differential test: claims that are bound already, and what limits their use.

Invariants:
- Claims that are bound name their volume; the volume names no claim, which the controller of volumes writes.
- A bound claim has its own volume. Each pod on a node may be there, as far as its volumes decide.
- A claim that waits for its first pod finds only volumes of its class, and no other claim finds these.
"""

from collections.abc import Mapping, Sequence
from random import Random  # noqa: TID251 - a type; the generator comes from the seed
from typing import Final

from tests.e2e.peer_features import Feature
from tests.objects import Json, present

DRIVER: Final = "csi.peer.example"
ZONE_LABELS: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
VOLUMES: Final = frozenset(
    {
        Feature.VOLUMES_BOUND,
        Feature.VOLUMES_UNUSABLE,
        Feature.VOLUMES_LATE,
        Feature.VOLUME_ZONE,
        Feature.READ_WRITE_ONCE_POD,
        Feature.CSI_LIMITS,
    }
)
CLAIMS_OF_A_FEATURE: Final = 4
SIZES: Final = ("1Gi", "2Gi", "5Gi")


def add_volumes(
    chance: Random, name: str, nodes: Sequence[Json], running: Sequence[Json], features: frozenset[Feature]
) -> list[Json]:
    """Return the volume objects of a state; running pods get claims."""
    objects: list[Json] = []
    for feature in sorted(features & VOLUMES):
        for number in range(CLAIMS_OF_A_FEATURE):
            claim = f"{name}-{feature.replace('_', '-')}-{number}"
            match feature:
                case Feature.VOLUMES_BOUND:
                    objects += _bound(claim, _namespace(chance, running), _affinity(chance, nodes), {})
                case Feature.VOLUMES_UNUSABLE:
                    objects += _unusable(claim, _namespace(chance, running), number)
                case Feature.VOLUMES_LATE:
                    objects += _late(chance, claim, _namespace(chance, running), nodes, f"{name}-late")
                case Feature.VOLUME_ZONE:
                    zone = chance.choice(("a", "b", "c", "a__b"))
                    objects += _bound(claim, _namespace(chance, running), {}, {chance.choice(ZONE_LABELS): zone})
                case Feature.READ_WRITE_ONCE_POD:
                    objects += _once(chance, claim, running)
                case _:
                    objects += _limited(chance, claim, running)
    if Feature.VOLUMES_LATE in features:
        objects.insert(0, _storage_class(f"{name}-late"))
    if Feature.CSI_LIMITS in features:
        objects += [
            _csi_node(node["metadata"]["name"], chance.randint(1, 3)) for node in nodes if chance.random() < 0.8
        ]
    return objects


def a_free_claim(name: str, namespace: str) -> list[Json]:
    """Return a claim that every node can use, and its volume."""
    return _bound(name, namespace, {}, {})


def claims_for(objects: Sequence[Json], feature: Feature) -> list[Json]:
    """Return the claims of a state that were made for a feature."""
    mark = f"-{feature.replace('_', '-')}-"
    return [one for one in objects if one["kind"] == "PersistentVolumeClaim" and mark in one["metadata"]["name"]]


def use_claim(pod: Json, claim: str) -> None:
    """Let the pod use a claim of its namespace."""
    volumes = pod["spec"].setdefault("volumes", [])
    if all(one.get("persistentVolumeClaim", {}).get("claimName") != claim for one in volumes):
        volumes.append({"name": f"v{len(volumes)}", "persistentVolumeClaim": {"claimName": claim}})


def _namespace(chance: Random, running: Sequence[Json]) -> str:
    """Return a namespace of the state."""
    namespace: str = chance.choice(running)["metadata"]["namespace"] if running else "peer-blue"
    return namespace


def _bound(
    claim: str, namespace: str, affinity: Json, labels: Mapping[str, str], modes: str = "ReadWriteMany"
) -> list[Json]:
    """Return a claim and its volume on a file server."""
    source = {"nfs": {"server": "files.example", "path": "/data"}}
    return [_volume(claim, source | affinity, labels, modes), _claim(claim, namespace, modes)]


def _volume(claim: str, fields: Json, labels: Mapping[str, str], modes: str) -> Json:
    spec = {
        "accessModes": [modes],
        "capacity": {"storage": "1Gi"},
        **fields,
    }
    metadata = {"name": f"pv-{claim}", **present(labels=dict(labels))}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _claim(claim: str, namespace: str, modes: str, **given: Json | str) -> Json:
    """Return a claim, bound to its own volume unless other fields of its spec are given."""
    spec: Json = {"accessModes": [modes], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    spec |= given or {"volumeName": f"pv-{claim}"}
    marks = {"pv.kubernetes.io/bind-completed": "yes"} if "volumeName" in spec else {}
    metadata = {"name": claim, "namespace": namespace, **present(annotations=marks)}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _affinity(chance: Random, nodes: Sequence[Json]) -> Json:
    """Return the node affinity of a volume, which is for some nodes, for a zone or for all nodes."""
    names = [node["metadata"]["name"] for node in nodes]
    match chance.randrange(4):
        case 0:
            return {}
        case 1:
            return _only_on(ZONE_LABELS[0], [chance.choice("abc")])
        case _:
            return _only_on("kubernetes.io/hostname", chance.sample(names, chance.randint(1, 3)))


def _unusable(claim: str, namespace: str, number: int) -> list[Json]:
    """Return a claim without a volume: never bound, or bound to one that does not exist."""
    if number % 2:
        return [_claim(claim, namespace, "ReadWriteOnce", resources=_storage(100))]
    return [_claim(claim, namespace, "ReadWriteOnce", volumeName=f"pv-none-{claim}")]


def _late(chance: Random, claim: str, namespace: str, nodes: Sequence[Json], storage: str) -> list[Json]:
    """Return a claim that waits for its first pod, and a volume that it or another one may get."""
    fields = {"local": {"path": "/data"}, "storageClassName": storage, "capacity": {"storage": chance.choice(SIZES)}}
    few = chance.sample([node["metadata"]["name"] for node in nodes], chance.randint(1, 3))
    volume = _volume(claim, fields | _only_on("kubernetes.io/hostname", few), {}, "ReadWriteOnce")
    resources = _storage(chance.choice((1, 2, 4, 9)))
    return [volume, _claim(claim, namespace, "ReadWriteOnce", storageClassName=storage, resources=resources)]


def _storage(gibibytes: int) -> Json:
    return {"requests": {"storage": f"{gibibytes}Gi"}}


def _only_on(key: str, values: list[str]) -> Json:
    """Return the node affinity of a volume."""
    expression = {"key": key, "operator": "In", "values": values}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


def _once(chance: Random, claim: str, running: Sequence[Json]) -> list[Json]:
    """Return a claim that one pod alone may use; half of them are in use."""
    user = chance.choice(running) if running and chance.random() < 0.5 else None
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
    return [_volume(claim, fields, {}, "ReadWriteMany"), _claim(claim, namespace, "ReadWriteMany")]


def _storage_class(name: str) -> Json:
    """Return a class whose claims wait for the first pod, and whose volumes exist already."""
    fields = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, **fields}


def _csi_node(name: str, limit: int) -> Json:
    driver = {"name": DRIVER, "nodeID": name, "topologyKeys": [], "allocatable": {"count": limit}}
    metadata = {"name": name}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": {"drivers": [driver]}}
