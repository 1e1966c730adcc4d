"""The objects of the demo: the definition of Pools, three Pools, twenty nodes, two Jobs."""

from importlib import resources
from typing import Any, Final

import orjson
import yaml

from aischeduler.kube.crds import pool_crd
from aischeduler.kube.http.client import Client
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, GPU_DEFAULT, GROUP, MEMORY, PODS, VERSION

Object = dict[str, Any]

NAMESPACE: Final = "default"
_PATHS: Final = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Node": "/api/v1/nodes",
    "Pool": f"/apis/{GROUP}/{VERSION}/pools",
    "Job": f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
}


async def create(client: Client, *objects: Object) -> None:
    """Create these objects, in this order; raises ApiError."""
    for item in objects:
        await client.post(_PATHS[item["kind"]], orjson.dumps(item))


def cluster() -> list[Object]:
    """Return the definition of Pools, the Pools and the nodes."""
    small = {CPU: "16", MEMORY: "64Gi", EPHEMERAL_STORAGE: "500Gi"}
    return [
        pool_crd(),
        *_manifest("pools.yaml"),
        *_nodes("cpu", 8, {"cpu": "true"}, {CPU: "32", MEMORY: "128Gi", EPHEMERAL_STORAGE: "1Ti"}),
        *_nodes("gpu", 8, {"gpu": "true"}, {CPU: "96", MEMORY: "1Ti", EPHEMERAL_STORAGE: "4Ti", GPU_DEFAULT: "8"}),
        *_nodes("master", 3, {"node-role.kubernetes.io/control-plane": ""}, small),
        *_nodes("spare", 1, {}, small),
    ]


def jobs() -> list[Object]:
    """Return the Jobs: one that fits its pool, and one that is larger than its pool."""
    return [*_manifest("job.yaml"), *_manifest("large-job.yaml")]


def _manifest(name: str) -> list[Object]:
    """Return the objects in a file of `manifests`."""
    text = (resources.files("aischeduler.cli") / "manifests" / name).read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def _nodes(name: str, count: int, labels: dict[str, str], amounts: dict[str, str]) -> list[Object]:
    """Return equal nodes, named `name-0`, `name-1`, …; one core of each is kept for the system."""
    capacity = {**amounts, PODS: "110"}
    allocatable = {**capacity, CPU: str(int(capacity[CPU]) - 1)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a node of the demo"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"{name}-{number}", "labels": labels},
            "status": {"capacity": capacity, "allocatable": allocatable, "conditions": [ready]},
        }
        for number in range(count)
    ]
