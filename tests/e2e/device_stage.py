"""Nodes with devices, pods that ask for them, and what the API server says of both at every moment.

Invariant: what pods have is read from their annotations here; the checks share no code with the scheduler.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tests import independent_requests
from tests.e2e.cluster import ROOT
from tests.e2e.record import Changes
from tests.e2e.rules import finished
from tests.objects import NOTHING, Json, node_object, pod_object, present

DEFINITION: Final = ROOT / "manifests" / "devices" / "device-crd.yaml"
CRD: Final = "devices.scheduling.koordinator.sh"
DEVICES: Final = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
UUIDS: Final = "scheduling.resource.aibee.cn/gpu-uuids"
DELIVERY: Final = "resource.aibee.cn/gpu-delivery"
PREFIXES: Final = ("kubernetes.io/", "koordinator.sh/")
GIB: Final = 2**30
WHERE: Final = "stage"
"""The label of a node with its own name, by which pods choose it."""
VISIBLE: Final = {
    "name": "NVIDIA_VISIBLE_DEVICES",
    "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{UUIDS}']"}},
}

Amounts = Counter[str]
Held = dict[tuple[str, int], Amounts]
"""Amounts by dimension, of each device by type and minor."""


def gpu(minor: int, *, memory: str = "80Gi", **fields: object) -> Json:
    """Return a GPU of a Device object; `fields` are further ones, or others."""
    resources = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": memory}
    resources |= {"koordinator.sh/gpu-memory-ratio": "100"}
    return {"type": "gpu", "id": f"GPU-{minor}", "minor": minor, "health": True, "resources": resources, **fields}


def other(kind: str, minor: int, *, total: int = 100, **fields: object) -> Json:
    """Return a device of another type."""
    resources = {f"koordinator.sh/{kind}": str(total)}
    return {"type": kind, "id": f"{kind}-{minor}", "minor": minor, "health": True, "resources": resources, **fields}


def device_object(node: str, *devices: Json, annotations: Mapping[str, str] = NOTHING) -> Json:
    """Return the Device object of a node."""
    metadata = {"name": node, **present(annotations=dict(annotations))}
    kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    return {**kind, "metadata": metadata, "spec": {"devices": list(devices)}}


def stage_node(name: str, *devices: Json, delivery: str = "", gpus: int = 0) -> Json:
    """Return a node that lists the sums of these devices in both spellings, and so many nvidia.com/gpu."""
    sums: Amounts = sum((amounts for amounts in totals(*devices).values()), Counter())
    sums["gpu"] = sums["gpu-core"]
    document = node_object(name, cpu="64", gpu=gpus, labels={WHERE: name, **present(**{DELIVERY: delivery})})
    for listed in document["status"].values():
        listed |= {prefix + what: str(amount) for what, amount in sums.items() for prefix in PREFIXES if amount}
    return document


def totals(*devices: Json) -> Held:
    """Return what devices have, as they say it."""
    return {(one["type"], one["minor"]): _amounts(one["resources"]) for one in devices}


def asking(
    name: str,
    requests: Mapping[str, str],
    *,
    namespace: str,
    node: str = "",
    visible: bool = False,
    annotations: Mapping[str, str] = NOTHING,
) -> Json:
    """Return a pod that requests these amounts, on this node if there is one; `visible` adds the variable."""
    where = {WHERE: node} if node else {}
    pod = pod_object(name, namespace=namespace, annotations=annotations, node_selector=where)
    (container,) = pod["spec"]["containers"]
    container["resources"] = resources(requests)
    if visible:
        container["env"] = [VISIBLE]
    return pod


def resources(requests: Mapping[str, str]) -> Json:
    """Return the resources of a container, with limits where the API server requires them."""
    limits = {what: much for what, much in requests.items() if not what.startswith("kubernetes.io/")}
    return {"requests": dict(requests), **present(limits=limits)}


def allocated(pod: Json) -> Held | None:
    """Return the devices that a pod says to have; None where it does not say."""
    said = pod["metadata"].get("annotations", {}).get(ALLOCATED)
    if said is None:
        return None
    return {(kind, one["minor"]): _amounts(one["resources"]) for kind, of in json.loads(said).items() for one in of}


def share(core: int = 0, *, gib: int = 0, ratio: int = 0) -> Amounts:
    """Return what a pod has of one GPU."""
    return Counter(present(**{"gpu-core": core, "gpu-memory": gib * GIB, "gpu-memory-ratio": ratio}))


def used(pods: Iterable[Json]) -> dict[str, Held]:
    """Return what pods have, by node: all that are on nodes and have not finished."""
    found: defaultdict[str, Held] = defaultdict(dict)
    for pod in pods:
        node = pod["spec"].get("nodeName")
        for device, amounts in (allocated(pod) or {}).items() if node and not finished(pod) else ():
            found[node].setdefault(device, Counter()).update(amounts)
    return dict(found)


def oversubscribed(record: Changes, has: Mapping[str, Held]) -> list[str]:
    """Return each moment at which pods had more of a device than there is, or a device that a node does not have."""
    taken: defaultdict[str, defaultdict[tuple[str, int], Amounts]] = defaultdict(lambda: defaultdict(Counter))
    counted: dict[str, tuple[str, Held]] = {}
    found = []
    for change in record.changes["pods"]:
        pod = change.document
        node, held = counted.pop(pod["metadata"]["uid"], ("", Held()))
        for device, amounts in held.items():
            taken[node][device].subtract(amounts)
        node = pod["spec"].get("nodeName", "")
        if not node or change.gone or finished(pod):
            continue
        held = allocated(pod) or {}
        counted[pod["metadata"]["uid"]] = node, held
        for device, amounts in held.items():
            taken[node][device].update(amounts)
            there = has[node].get(device, Counter())
            if any(much > there[what] for what, much in taken[node][device].items()):
                found.append(f"{device} of {node} has too little since {pod['metadata']['name']}")
    return found


def binding_changes(record: Changes) -> Iterator[tuple[Json, list[Json]]]:
    """Yield each pod that became bound as it was in that revision, and in all others."""
    revisions: defaultdict[str, list[Json]] = defaultdict(list)
    for change in record.changes["pods"]:
        revisions[change.document["metadata"]["uid"]].append(change.document)
    for those in revisions.values():
        bound = [one for one in those if one["spec"].get("nodeName")]
        if bound:
            yield bound[0], [one for one in those if one is not bound[0]]


def _amounts(quantities: Mapping[str, str]) -> Amounts:
    found = independent_requests.amounts(quantities)
    return Counter({name.removeprefix("koordinator.sh/"): amount for name, amount in found.items()})
