"""The cluster of the real tests: 25 nodes in the three pools of the examples, and sets of pods that fill it exactly."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.controlplane.many import create
from tests.controlplane.plane import ControlPlane
from tests.e2e.history import History
from tests.objects import Json, node_object, pod_object, priority_class_object

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
CRDS = ROOT / "manifests" / "crds"
CRD = "pools.resource.aibee.cn"
QUEUE_CRD = "queues.resource.aibee.cn"
POOLS_PATH = "/apis/resource.aibee.cn/v1alpha1/pools"
POLL_SECONDS = 0.1
"""Long, because a look may read the whole audit log, and the schedulers need the processors."""
REPEAT = int(os.environ.get("AI_SCHEDULER_REPEAT", "1"))
"""How often each scenario of lagging watches runs."""

CPU_POOL, GPU_POOL, MASTERS = "cpu-pool", "gpu-pool", "masters"
CPU_NODES, GPU_NODES, MASTER_NODES = 12, 10, 3
NODE_CPU, NODE_GPUS = 16, 4


def nodes() -> list[Json]:
    """Return twelve CPU nodes, ten with four GPUs, and three masters."""
    cpu = [node_object(f"cpu-{n:02d}", cpu=str(NODE_CPU), labels={"cpu": "true"}) for n in range(CPU_NODES)]
    gpu = [
        node_object(f"gpu-{n:02d}", cpu=str(NODE_CPU), gpu=NODE_GPUS, labels={"gpu": "true"}) for n in range(GPU_NODES)
    ]
    master = {"node-role.kubernetes.io/control-plane": ""}
    masters = [node_object(f"master-{n}", cpu="8", labels=master) for n in range(MASTER_NODES)]
    return [*cpu, *gpu, *masters]


def backlog(namespace: str) -> list[Json]:
    """Return 200 pods: 160 of one CPU, and 40 that use all GPUs."""
    cpu = [pod_object(f"cpu-{n:03d}", namespace=namespace, memory="64Mi", pool=CPU_POOL) for n in range(160)]
    gpu = [
        pod_object(f"gpu-{n:03d}", namespace=namespace, cpu="1", memory="64Mi", gpu=1, pool=GPU_POOL) for n in range(40)
    ]
    return [*cpu, *gpu]


def later(namespace: str) -> list[Json]:
    """Return 100 more pods: 32 that use the remaining CPU of cpu-pool, and 68 that run beside the GPU pods."""
    cpu = [pod_object(f"late-{n:03d}", namespace=namespace, memory="64Mi", pool=CPU_POOL) for n in range(32)]
    small = [
        pod_object(f"small-{n:03d}", namespace=namespace, cpu="500m", memory="64Mi", pool=GPU_POOL) for n in range(68)
    ]
    return [*cpu, *small]


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> float:
    """Wait until the condition holds; return how many seconds that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + seconds, f"{what}: not within {seconds:.0f} s"
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


def kubectl(plane: ControlPlane, *arguments: str, stdin: str | None = None) -> str:
    """Return the output of kubectl, which must succeed."""
    ran = plane.kubectl(*arguments, stdin=stdin)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def apply(plane: ControlPlane, *documents: Json, namespace: str = "") -> None:
    """Create or change objects as a user does, in this namespace instead of their own if there is one."""
    there = {"namespace": namespace} if namespace else {}
    items = [one | {"metadata": one["metadata"] | there} for one in documents]
    kubectl(plane, "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def install(plane: ControlPlane) -> None:
    """Define Pools as a user does, and wait until they are served."""
    kubectl(plane, "apply", "-f", str(CRDS))
    wait_until(lambda: plane.api("GET", POOLS_PATH).status == 200, "Pools served")


def create_priority(plane: ControlPlane, name: str, value: int, **more: Any) -> None:
    """Create a PriorityClass, for the whole cluster, and wait until the API server takes pods with it."""
    document = priority_class_object(name, value=value) | more
    created = plane.api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", document)
    assert created.status == 201, created.body
    pod, path = pod_object("dry-run"), "/api/v1/namespaces/default/pods?dryRun=All"
    pod["spec"]["priorityClassName"] = name
    wait_until(lambda: plane.api("POST", path, pod).status == 201, f"pods of the class {name}")


def token_kubeconfig(plane: ControlPlane, name: str, namespace: str, directory: Path) -> Path:
    """Return the kubeconfig of a service account, in this directory."""
    access = json.loads(plane.token_kubeconfig.read_text())
    access["users"][0]["user"] = {"token": kubectl(plane, "create", "token", name, "-n", namespace).strip()}
    kubeconfig = directory / f"{name}.kubeconfig"
    kubeconfig.write_text(json.dumps(access))
    return kubeconfig


def create_namespace(plane: ControlPlane, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    created = plane.api("POST", "/api/v1/namespaces", body)
    assert created.status == 201, created.body


def create_pods(plane: ControlPlane, namespace: str, pods: list[Json]) -> None:
    create(plane.connect, f"/api/v1/namespaces/{namespace}/pods", pods)


def create_nodes(plane: ControlPlane, documents: list[Json]) -> None:
    create(plane.connect, "/api/v1/nodes", documents)


def create_pools(plane: ControlPlane, *documents: Json) -> None:
    create(plane.connect, POOLS_PATH, documents)


def pod(plane: ControlPlane, namespace: str, name: str) -> Any:
    return plane.api("GET", f"/api/v1/namespaces/{namespace}/pods/{name}").body


def events(plane: ControlPlane, namespace: str, reason: str) -> dict[str, str]:
    """Return object -> note of its latest event with this reason."""
    items = plane.api("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").body["items"]
    told = [item for item in items if item["reason"] == reason]
    return {item["regarding"]["name"]: item["note"] for item in sorted(told, key=lambda item: item["eventTime"])}


def wait_for_event(plane: ControlPlane, history: History, namespace: str, reason: str, name: str) -> str:
    """Wait until the object has an event with this reason; return its note."""
    history.wait_until(lambda: name in events(plane, namespace, reason), f"an event {reason} of {name}")
    return events(plane, namespace, reason)[name]


def condition(document: Any, kind: str) -> Json:
    """Return a condition of an object; empty if it has none of this type."""
    found = (one for one in document.get("status", {}).get("conditions", ()) if one["type"] == kind)
    return next(found, {})
