"""What the demo puts into its cluster: the Pool resource, three pools, twenty nodes, two Jobs."""

from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import orjson
import yaml

from aischeduler.kube.client import Client
from aischeduler.kube.pool_crd import pool_crd
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, GPU_DEFAULT, GROUP, MEMORY, PODS, VERSION

Object = dict[str, Any]

NAMESPACE: Final = "default"
_PATHS: Final = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Node": "/api/v1/nodes",
    "Pool": f"/apis/{GROUP}/{VERSION}/pools",
    "Job": f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
}


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes that are alike, named `name-0`, `name-1`, … with what each has."""

    name: str
    count: int
    labels: dict[str, str]
    capacity: dict[str, str]

    def objects(self) -> list[Object]:
        """Return the nodes as the API server takes them; a little of each is kept for the system."""
        allocatable = {**self.capacity, CPU: str(int(self.capacity[CPU]) - 1)}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a node of the demo"}
        return [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"{self.name}-{number}", "labels": self.labels},
                "status": {"capacity": self.capacity, "allocatable": allocatable, "conditions": [ready]},
            }
            for number in range(self.count)
        ]


@dataclass(frozen=True, slots=True)
class Goal:
    """What has to become of a Job: so many pods bound in its pool, the others waiting with a reason."""

    job: str
    pool: str
    nodes: str
    pods: int
    bound: int


def _has(cpu: int, memory: str, storage: str, gpus: int = 0) -> dict[str, str]:
    capacity = {CPU: str(cpu), MEMORY: memory, EPHEMERAL_STORAGE: storage, PODS: "110"}
    return {**capacity, GPU_DEFAULT: str(gpus)} if gpus else capacity


NODES: Final = (
    Nodes("cpu", 8, {"cpu": "true"}, _has(cpu=32, memory="128Gi", storage="1Ti")),
    Nodes("gpu", 8, {"gpu": "true"}, _has(cpu=96, memory="1Ti", storage="4Ti", gpus=8)),
    Nodes("master", 3, {"kubernetes.io/role": "master"}, _has(cpu=16, memory="64Gi", storage="500Gi")),
    Nodes("spare", 1, {}, _has(cpu=16, memory="64Gi", storage="500Gi")),
)
GOALS: Final = (
    Goal("test-job-cpu", "cpu-pool", "cpu", pods=10, bound=10),
    Goal("train-large", "gpu-pool", "gpu", pods=80, bound=64),
)


async def create(client: Client, *objects: Object) -> None:
    """Create these objects, in this order; raises ApiError."""
    for item in objects:
        await client.post(_PATHS[item["kind"]], orjson.dumps(item))


def manifest(name: str) -> list[Object]:
    """Return the objects of one of the files beside this module."""
    text = (resources.files("aischeduler.cli") / "manifests" / name).read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def cluster() -> list[Object]:
    """Return the Pool resource, the pools and the nodes."""
    return [pool_crd(), *manifest("pools.yaml"), *(node for nodes in NODES for node in nodes.objects())]


def jobs() -> list[Object]:
    """Return the Jobs: one that fits, and one that is larger than its pool."""
    return [*manifest("job.yaml"), *manifest("large-job.yaml")]
