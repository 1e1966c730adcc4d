"""The objects of the demo: the definition of Pools, three Pools, twenty nodes, two Jobs."""

from importlib import resources
from typing import Any, Final

import orjson
import yaml
from msgspec import Struct

from aischeduler.kube.client import Client
from aischeduler.kube.crds import pool_crd
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, GPU_DEFAULT, GROUP, MEMORY, PODS, VERSION

Object = dict[str, Any]

NAMESPACE: Final = "default"
_PATHS: Final = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Node": "/api/v1/nodes",
    "Pool": f"/apis/{GROUP}/{VERSION}/pools",
    "Job": f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
}


class NodeGroup(Struct, frozen=True):
    """Equal nodes, named `name-0`, `name-1`, …; `capacity` is that of each node."""

    name: str
    count: int
    labels: dict[str, str]
    capacity: dict[str, str]

    def objects(self) -> list[Object]:
        """Return the nodes as API objects; one core of each is kept for the system."""
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


class Goal(Struct, frozen=True):
    """The result that a Job has to reach: `bound` of its `pods` run in its pool, the others wait with a reason."""

    job: str
    pool: str
    nodes: str
    pods: int
    bound: int


def _capacity(cpu: int, memory: str, storage: str, gpus: int = 0) -> dict[str, str]:
    capacity = {CPU: str(cpu), MEMORY: memory, EPHEMERAL_STORAGE: storage, PODS: "110"}
    return {**capacity, GPU_DEFAULT: str(gpus)} if gpus else capacity


NODES: Final = (
    NodeGroup("cpu", 8, {"cpu": "true"}, _capacity(cpu=32, memory="128Gi", storage="1Ti")),
    NodeGroup("gpu", 8, {"gpu": "true"}, _capacity(cpu=96, memory="1Ti", storage="4Ti", gpus=8)),
    NodeGroup(
        "master", 3, {"node-role.kubernetes.io/control-plane": ""}, _capacity(cpu=16, memory="64Gi", storage="500Gi")
    ),
    NodeGroup("spare", 1, {}, _capacity(cpu=16, memory="64Gi", storage="500Gi")),
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
    """Return the objects in a file of `manifests`."""
    text = (resources.files("aischeduler.cli") / "manifests" / name).read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def cluster() -> list[Object]:
    """Return the definition of Pools, the Pools and the nodes."""
    return [pool_crd(), *manifest("pools.yaml"), *(node for nodes in NODES for node in nodes.objects())]


def jobs() -> list[Object]:
    """Return the Jobs: one that fits its pool, and one that is larger than its pool."""
    return [*manifest("job.yaml"), *manifest("large-job.yaml")]
