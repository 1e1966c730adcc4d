"""The tide of the article about tenant queues: one node of eight cards, two queues, three trainings and a service.

The YAML is the article's: names, annotations, quotas and priorities. Its scheduler is this one, and its jobs are Jobs
of batch/v1, of which one is a gang.
"""

from typing import Any, Final

import yaml

from tests.objects import POOL_API, Json, node_object

CARD: Final = "NVIDIA-GeForce-RTX-4090"
NODE: Final = "gpu-1"
CARDS: Final = 8
SERVICE: Final = "ai-service"
PRIORITIES: Final = {"pc-high": 80000, "pc-medium": 60000, "pc-normal": 40000, "pc-low": 20000}
TRAININGS: Final = {"training-medium": 1, "training-normal": 2, "training-low": 1}
"""The trainings, from the most important to the least, and how many pods each has; the one of two pods is a gang."""

VOLCANO_QUEUES: Final = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: queue-inference
  annotations:
    volcano.sh/card.quota: '{"NVIDIA-GeForce-RTX-4090":8}'
spec:
  weight: 1
  # 在线服务的队列设置的优先级需要比离线任务高,
  # 以便在线服务在进行资源抢占的时候优先抢占离线任务的队列资源。
  # 所有在线队列使用同一个优先级值即可。
  priority: 80000
  reclaimable: false
  capability:
    cpu: 4
    memory: 4Gi
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: queue-training
  annotations:
    volcano.sh/card.quota: '{"NVIDIA-GeForce-RTX-4090":8}'
spec:
  weight: 1
  # 离线任务的队列的优先级需要比在线服务低,
  # 以便在线服务在进行资源抢占的时候优先抢占离线任务的队列资源。
  # 所有离线任务队列使用同一个优先级值即可。
  priority: 20000
  reclaimable: true
  capability:
    cpu: 4
    memory: 4Gi
"""
PRIORITY_CLASS: Final = """
apiVersion: scheduling.k8s.io/v1
description: A priority class for Volcano.
kind: PriorityClass
metadata:
  name: {name}
globalDefault: false
preemptionPolicy: PreemptLowerPriority
value: {value}
"""
INFERENCE: Final = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: ai-service
  annotations:
    volcano.sh/service.type: inference
    # 是否可被抢占
    volcano.sh/preemptable: "false"
spec:
  replicas: 6
  selector:
    matchLabels:
      app: nginx
  template:
    metadata:
      labels:
        app: nginx
      annotations:
        volcano.sh/card.name: NVIDIA-GeForce-RTX-4090
        scheduling.volcano.sh/queue-name: "queue-inference"
    spec:
      schedulerName: ai-scheduler
      # 优先级控制
      priorityClassName: pc-high
      containers:
      - image: nginx:latest
        name: nginx
        resources:
          requests: {cpu: 100m, memory: 100Mi, nvidia.com/gpu: 1}
          limits: {cpu: 100m, memory: 100Mi, nvidia.com/gpu: 1}
"""
TRAINING: Final = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  annotations:
    volcano.sh/service.type: training
    # 是否可被抢占
    volcano.sh/preemptable: "true"
spec:
  parallelism: {pods}
  completions: {pods}
  template:
    metadata:
      annotations:
        volcano.sh/card.name: NVIDIA-GeForce-RTX-4090
        scheduling.volcano.sh/queue-name: queue-training
    spec:
      schedulerName: ai-scheduler
      # 优先级控制
      priorityClassName: {priority}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - key: nvidia.com/gpu.product
                operator: In
                values:
                - NVIDIA-GeForce-RTX-4090
      restartPolicy: Never
      containers:
      - image: alpine:latest
        imagePullPolicy: IfNotPresent
        name: worker
        command: ["sh", "-c", "sleep 1d"]
        resources:
          requests: {{cpu: 100m, memory: 100Mi, nvidia.com/gpu: {cards}}}
          limits: {{cpu: 100m, memory: 100Mi, nvidia.com/gpu: {cards}}}
"""


def node() -> Json:
    """Return the node with eight cards."""
    return node_object(NODE, cpu="64", memory="128Gi", gpu=CARDS, labels={"nvidia.com/gpu.product": CARD})


def queues(*, volcano: bool) -> list[Json]:
    """Return the article's queues: of Volcano as they stand there, or ours of the same meaning."""
    found = list(yaml.safe_load_all(VOLCANO_QUEUES))
    if volcano:
        return found
    kept = ("priority", "reclaimable", "capability")
    return [own_queue(one["metadata"]["name"], {name: one["spec"][name] for name in kept}) for one in found]


def own_queue(name: str, spec: Json) -> Json:
    """Return a queue of ours with the article's cards."""
    return {"apiVersion": POOL_API, "kind": "Queue", "metadata": {"name": name}, "spec": {**spec, "cards": {CARD: 8}}}


def priority_classes() -> list[Json]:
    """Return the article's four priority classes."""
    return [yaml.safe_load(PRIORITY_CLASS.format(name=name, value=value)) for name, value in PRIORITIES.items()]


def training(name: str, **annotations: str) -> Json:
    """Return one of the trainings, which asks for two cards; a gang if it has two pods."""
    pods = TRAININGS[name]
    priority = name.replace("training", "pc")
    job: Json = yaml.safe_load(TRAINING.format(name=name, pods=pods, cards=2 // pods, priority=priority))
    gang = {"resource.aibee.cn/gang": "true"} if pods > 1 else {}
    job["metadata"]["annotations"] |= gang | annotations
    return job


def service(replicas: int = 6) -> Json:
    """Return the inference service: the type is on the Deployment alone, the queue on its pods."""
    deployment: Any = yaml.safe_load(INFERENCE)
    deployment["spec"]["replicas"] = replicas
    found: Json = deployment
    return found
