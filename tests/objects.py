"""Builders of API documents for tests, as a user writes them in YAML; the test writes the fields that matter."""

from collections.abc import Mapping, Sequence
from typing import Any

from aischeduler.model.names import GPU_DEFAULT, GROUP, POOL_KEY, SCHEDULER_NAME, VERSION

Json = dict[str, Any]

NOTHING: Mapping[str, str] = {}
NO_OBJECTS: Mapping[str, Json] = {}
POOL_API = f"{GROUP}/{VERSION}"
NO_POOL_NOWHERE = (
    'The Pool "nowhere" does not exist (annotation or label resource.aibee.cn/pool); '
    "until it does, the pod belongs to the pool default."
)
"""The warning of a pod that names the pool `nowhere`."""


def pod_object(
    name: str = "p",
    *,
    namespace: str = "default",
    cpu: str = "1",
    memory: str = "1Gi",
    gpu: int = 0,
    pool: str = "",
    priority_class: str = "",
    scheduler_name: str = SCHEDULER_NAME,
    labels: Mapping[str, str] = NOTHING,
    annotations: Mapping[str, str] = NOTHING,
    gates: Sequence[str] = (),
    node_selector: Mapping[str, str] = NOTHING,
    tolerations: Sequence[Json] = (),
    node: str = "",
    affinity: Mapping[str, Json] = NO_OBJECTS,
    volumes: Sequence[Json] = (),
    spread: Sequence[Json] = (),
) -> Json:
    """Return a pod of one container named `main`; `pool` becomes the annotation."""
    spec = pod_spec(cpu=cpu, memory=memory, gpu=gpu, scheduler_name=scheduler_name)
    spec |= present(
        schedulingGates=[{"name": gate} for gate in gates],
        nodeSelector=dict(node_selector),
        tolerations=list(tolerations),
        priorityClassName=priority_class,
        nodeName=node,
        affinity=dict(affinity),
        volumes=list(volumes),
        topologySpreadConstraints=list(spread),
    )
    noted = {POOL_KEY: pool, **annotations} if pool else dict(annotations)
    metadata = {"name": name, "namespace": namespace, **present(labels=dict(labels), annotations=noted)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_spec(*, cpu: str = "1", memory: str = "1Gi", gpu: int = 0, scheduler_name: str = SCHEDULER_NAME) -> Json:
    """Return the spec of a pod that runs once; devices are in the limits too, as the API server requires."""
    requests = present(cpu=cpu, memory=memory)
    resources: Json = {}
    if gpu:
        requests[GPU_DEFAULT] = str(gpu)
        resources["limits"] = {GPU_DEFAULT: str(gpu)}
    if requests:
        resources["requests"] = requests
    container = {"name": "main", "image": "registry.example/worker:1", "resources": resources}
    return {"schedulerName": scheduler_name, "restartPolicy": "Never", "containers": [container]}


def node_object(
    name: str = "n",
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    gpu: int = 0,
    pods: int = 110,
    labels: Mapping[str, str] = NOTHING,
    taints: Sequence[Json] = (),
) -> Json:
    """Return a node whose capacity equals its allocatable."""
    amounts = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    if gpu:
        amounts[GPU_DEFAULT] = str(gpu)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **present(labels=dict(labels))},
        "spec": present(taints=list(taints)),
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }


def pool_object(name: str = "pool", *, labels: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """Return a pool of the nodes with these labels; `spec` has further fields with their API names."""
    selector = {} if labels is None else {"nodeSelector": {"matchLabels": dict(labels)}}
    return {"apiVersion": POOL_API, "kind": "Pool", "metadata": {"name": name}, "spec": {**selector, **spec}}


def job_object(
    name: str = "job",
    *,
    namespace: str = "default",
    completions: int = 1,
    parallelism: int = 1,
    cpu: str = "1",
    memory: str = "100M",
    gpu: int = 0,
    pool: str = "",
    scheduler_name: str = SCHEDULER_NAME,
) -> Json:
    """Return a Job whose pods name their pool by annotation."""
    template: Json = {"spec": pod_spec(cpu=cpu, memory=memory, gpu=gpu, scheduler_name=scheduler_name)}
    if pool:
        template["metadata"] = {"annotations": {POOL_KEY: pool}}
    spec = {"completions": completions, "parallelism": parallelism, "template": template, "backoffLimit": 3}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def binding_object(
    name: str,
    node: str,
    *,
    uid: str = "",
    annotations: Mapping[str, str] = NOTHING,
    labels: Mapping[str, str] = NOTHING,
) -> Json:
    """Return the Binding of a pod to a node; without a uid it binds whatever pod has the name."""
    metadata = {"name": name, **present(uid=uid, annotations=dict(annotations), labels=dict(labels))}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}


def pdb_object(name: str, *, namespace: str, min_available: int, labels: Mapping[str, str]) -> Json:
    """Return a disruption budget for the pods with these labels."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": dict(labels)}},
    }


def eviction_object(name: str, *, namespace: str) -> Json:
    """Return the request to evict a pod."""
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}


def priority_class_object(name: str, *, value: int) -> Json:
    """Return a priority class."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def event_object(name: str, *, namespace: str, regarding: Json, reason: str, note: str) -> Json:
    """Return a Warning event as a scheduler writes it; `regarding` is its object."""
    metadata = regarding["metadata"]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "type": "Warning",
        "reason": reason,
        "note": note,
        "action": "Scheduling",
        "reportingController": SCHEDULER_NAME,
        "reportingInstance": f"{SCHEDULER_NAME}-0",
        "regarding": {
            "kind": regarding["kind"],
            "apiVersion": regarding["apiVersion"],
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }


def present(**fields: Any) -> Json:
    """Return the fields that are not empty."""
    return {name: value for name, value in fields.items() if value}


def claim_object(
    name: str, *, namespace: str, volume: str = "", storage_class: str = "", mode: str = "ReadWriteMany"
) -> Json:
    """Return a PersistentVolumeClaim; `volume` is the name of its volume."""
    spec = {
        "accessModes": [mode],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
        **present(volumeName=volume),
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def storage_class_object(name: str, *, provisioner: str = "kubernetes.io/no-provisioner", waits: bool = True) -> Json:
    """Return a StorageClass; if it `waits`, its claims are bound for their first pod."""
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    return {**kind, "provisioner": provisioner, "volumeBindingMode": mode}


def volume_object(
    name: str,
    *,
    node: str = "",
    labels: Mapping[str, str] = NOTHING,
    storage_class: str = "",
    mode: str = "ReadWriteMany",
    claim: tuple[str, str] = ("", ""),
) -> Json:
    """Return a PersistentVolume on a file server; with a `node` it can be used only there.

    `claim` is the namespace and name of the claim to which it belongs from the start.
    """
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec = {
        "accessModes": [mode],
        "capacity": {"storage": "1Gi"},
        "nfs": {"server": "files.example", "path": "/data"},
        "persistentVolumeReclaimPolicy": "Retain",
        **present(storageClassName=storage_class),
        **present(claimRef={"namespace": claim[0], "name": claim[1]} if claim[1] else {}),
        **present(nodeAffinity={"required": {"nodeSelectorTerms": [term]}} if node else {}),
    }
    metadata = {"name": name, **present(labels=dict(labels))}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
