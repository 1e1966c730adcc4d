"""API documents of realistic size, with managedFields, environment, volumes, images and status.

A pending pod of a Job has about 4 kB, a running pod 6 kB and a node 8 kB. The cost of reading grows with the size.
"""

import json
from typing import Any

from tests.objects import Json, node_object, pod_object

GPUS = 8
CLASSES_MAX = 48
CREATED = "2026-01-02T03:04:05Z"
JOB_UID = "job"
"""The uid of the Job of every pod."""
PODS_OF_A_JOB = 100
NODE_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


def real_pod(number: int, *, version: int, node: str = "", classes: int = CLASSES_MAX) -> Json:
    """Return a pod of a Job as the API server stores it; with a `node` it runs there. Classes differ in CPU."""
    name = f"train-{number // PODS_OF_A_JOB:04d}-{number % PODS_OF_A_JOB:05d}"
    document = pod_object(name, cpu=f"{1000 + number % classes}m", memory="2Gi", gpu=1, pool="gpu-pool", node=node)
    document["metadata"] |= {
        "uid": f"0a1b2c3d-0000-4000-8000-{number:012d}",
        "resourceVersion": str(version),
        "creationTimestamp": CREATED,
        "generateName": name[:-5],
        "generation": 1,
        "labels": {"batch.kubernetes.io/job-name": name[:-6], "job-name": name[:-6], "team": "vision", "tier": "batch"},
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": name[:-6], "uid": JOB_UID, "controller": True}
        ],
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "managedFields": [_managed("kube-controller-manager", 12)] + ([_managed("kubelet", 8)] if node else []),
    }
    container = document["spec"]["containers"][0]
    container |= {
        "command": ["python", "-m", "train", "--config", "/etc/train/config.yaml"],
        "env": [{"name": f"SETTING_{index}", "value": f"value of the setting {index}"} for index in range(16)],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
        "volumeMounts": [{"name": f"volume-{index}", "mountPath": f"/mnt/volume-{index}"} for index in range(4)],
    }
    document["spec"] |= {
        "volumes": [{"name": f"volume-{index}", "configMap": {"name": f"settings-{index}"}} for index in range(4)],
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        ],
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "enableServiceLinks": True,
        "priority": 0,
    }
    document["status"] = _running(name) if node else {"phase": "Pending", "qosClass": "Burstable"}
    return document


def real_job(number: int) -> Json:
    """Return a Job of 100 pods that asks for no gang; the first one is that of every pod."""
    pod = real_pod(number * PODS_OF_A_JOB, version=1)
    labels = pod["metadata"]["labels"]
    return {
        "metadata": {
            "name": labels["job-name"],
            "namespace": pod["metadata"]["namespace"],
            "uid": f"{JOB_UID}-{number}" if number else JOB_UID,
            "resourceVersion": "1",
            "creationTimestamp": CREATED,
            "managedFields": [_managed("kubectl-create", 20), _managed("kube-controller-manager", 8)],
        },
        "spec": {
            "parallelism": PODS_OF_A_JOB,
            "completions": PODS_OF_A_JOB,
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
        },
        "status": {"active": PODS_OF_A_JOB, "startTime": CREATED},
    }


def real_node(number: int, *, version: int) -> Json:
    """Return a GPU node with its images and conditions."""
    name = f"gpu-{number:05d}"
    labels = {"gpu": "true", "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    document = node_object(name, cpu="96", memory="768Gi", gpu=8, labels=labels)
    document["metadata"] |= {
        "uid": f"node-{number}",
        "resourceVersion": str(version),
        "creationTimestamp": CREATED,
        "managedFields": [_managed("kubelet", 20)],
    }
    image = {"names": ["registry.example/team/image@sha256:" + "0" * 64, "registry.example/team/image:v1.2.3"]}
    document["status"] |= {
        "conditions": [_condition(kind) for kind in NODE_CONDITIONS],
        "images": [image | {"sizeBytes": 1_000_000_000 + index} for index in range(20)],
    }
    return document


def device_object(node: str) -> Json:
    """Return a Device object of GPUs of 80 GiB."""
    amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "80Gi"}
    devices = [
        {"type": "gpu", "id": f"GPU-{node}-{minor}", "minor": minor, "health": True, "resources": amounts}
        for minor in range(GPUS)
    ]
    kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    return {**kind, "metadata": {"name": node}, "spec": {"devices": devices}}


def watch_line(kind: str, document: Json) -> bytes:
    """Return one line of a watch response."""
    return compact({"type": kind, "object": document}) + b"\n"


def compact(document: Any) -> bytes:
    """Return JSON without spaces."""
    return json.dumps(document, separators=(",", ":")).encode()


def _managed(owner: str, fields: int) -> Json:
    owned: Json = {f"f:field{index}": {".": {}, 'k:{"type":"PodScheduled"}': {}} for index in range(fields)}
    return {
        "manager": owner,
        "operation": "Update",
        "apiVersion": "v1",
        "time": CREATED,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": owned},
    }


def _condition(kind: str) -> Json:
    return {"type": kind, "status": "True", "lastTransitionTime": CREATED, "lastProbeTime": None, "reason": "Kubelet"}


def _running(name: str) -> Json:
    return {
        "phase": "Running",
        "qosClass": "Burstable",
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "startTime": CREATED,
        "conditions": [_condition(kind) for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": "registry.example/worker:1",
                "imageID": "registry.example/worker@sha256:" + "0" * 64,
                "containerID": "containerd://" + "0" * 64,
                "state": {"running": {"startedAt": CREATED}},
                "lastState": {},
            }
        ],
    }
