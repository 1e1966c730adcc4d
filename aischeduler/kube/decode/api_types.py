"""The API objects that Ai-Scheduler reads, as msgspec structs with only the fields it needs.

Invariants:
- An unknown field is never an error, and null means absent.
- A `Raw` field holds the bytes that the server sent: caches look them up before anything parses them.
"""

from typing import Any

from msgspec import Raw, Struct, field

from aischeduler.kube.decode.meta_types import ABSENT, LabelledMetadata, Metadata
from aischeduler.model.device_request import (
    DEVICE_ALLOCATED_KEY,
    DEVICE_HINT_KEY,
    DEVICE_JOINT_KEY,
    GPU_PARTITION_KEY,
    HAMI_ALLOCATED_KEY,
)
from aischeduler.model.elastic import PRIORITY_LEVELS_KEY
from aischeduler.model.gang import GANG_KEY, GANG_SPAN_KEY, GANG_TIMEOUT_KEY, GANG_TOPOLOGY_KEY
from aischeduler.model.names import GPU_TYPE_KEY, GPU_TYPE_POLICY_KEY, MACHINE_GROUP_KEY, POOL_KEY
from aischeduler.model.tenant_queue import QUEUE_KEY, VOLCANO_QUEUE_KEY
from aischeduler.model.workload import CARD_NAME_KEY, PREEMPTABLE_KEY, SERVICE_TYPE_KEY


class TenantAnnotations(Struct, gc=False):
    """The annotations of a pod or a workload that say whose share of the cluster it uses, and what it is for."""

    queue: str | None = field(name=QUEUE_KEY, default=None)
    volcano_queue: str | None = field(name=VOLCANO_QUEUE_KEY, default=None)
    service_type: str | None = field(name=SERVICE_TYPE_KEY, default=None)
    preemptable: str | None = field(name=PREEMPTABLE_KEY, default=None)


class PodAnnotations(TenantAnnotations, gc=False):
    """The annotations of a pod that Ai-Scheduler reads: its home pool, its wishes, its gang, its tenant, its mirror.

    `card_name` are the cards that it needs, as Volcano names them. `volcano_group` and `older_volcano_group` name a
    PodGroup of Volcano, `volcano_task` the task of the pod in it. `device_allocated` and `hami_allocated` have the
    devices that it got, the next three what it says of those that it asks for.
    """

    pool: str | None = field(name=POOL_KEY, default=None)
    gpu_type: str | None = field(name=GPU_TYPE_KEY, default=None)
    gpu_type_policy: str | None = field(name=GPU_TYPE_POLICY_KEY, default=None)
    card_name: str | None = field(name=CARD_NAME_KEY, default=None)
    machine_group: str | None = field(name=MACHINE_GROUP_KEY, default=None)
    mirror: str | None = field(name="kubernetes.io/config.mirror", default=None)
    volcano_group: str | None = field(name="scheduling.k8s.io/group-name", default=None)
    older_volcano_group: str | None = field(name="scheduling.volcano.sh/group-name", default=None)
    volcano_task: str | None = field(name="volcano.sh/task-spec", default=None)
    gang: str | None = field(name=GANG_KEY, default=None)
    gang_timeout: str | None = field(name=GANG_TIMEOUT_KEY, default=None)
    gang_span: str | None = field(name=GANG_SPAN_KEY, default=None)
    gang_topology: str | None = field(name=GANG_TOPOLOGY_KEY, default=None)
    device_allocated: str | None = field(name=DEVICE_ALLOCATED_KEY, default=None)
    hami_allocated: str | None = field(name=HAMI_ALLOCATED_KEY, default=None)
    device_hint: str | None = field(name=DEVICE_HINT_KEY, default=None)
    device_joint: str | None = field(name=DEVICE_JOINT_KEY, default=None)
    gpu_partition: str | None = field(name=GPU_PARTITION_KEY, default=None)


class PodMetadata(Metadata, rename="camel", gc=False):
    """The metadata of a pod. Caches look labels and owners up by their bytes."""

    creation_timestamp: str | None = None
    annotations: PodAnnotations | None = None
    labels: Raw = ABSENT
    owner_references: Raw = ABSENT
    deletion_grace_period_seconds: int | None = None


class ContainerPart(Struct, rename="camel", gc=False):
    """A container or an init container."""

    name: str = ""
    restart_policy: str | None = None
    resources: Raw = ABSENT
    ports: Raw = ABSENT
    image: Raw = ABSENT
    env: Raw = ABSENT
    restart_policy_rules: Raw = ABSENT


class Gate(Struct, gc=False):
    """A scheduling gate."""

    name: str = ""


class Present(Struct, gc=False):
    """An object of which only the presence counts."""


class ExpressionPart(Struct, gc=False):
    """A requirement of a selector."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class SelectorPart(Struct, rename="camel", gc=False):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[ExpressionPart] | None = None


class PodTermPart(Struct, rename="camel", gc=False):
    """A term of pod affinity or anti-affinity."""

    topology_key: str = ""
    label_selector: SelectorPart | None = None
    namespaces: list[str] | None = None
    namespace_selector: SelectorPart | None = None


class WeightedPodTermPart(Struct, rename="camel", gc=False):
    """A preferred term of pod affinity or anti-affinity."""

    weight: int = 0
    pod_affinity_term: PodTermPart | None = None


class PodAffinityPart(Struct, gc=False):
    """Pod affinity or anti-affinity."""

    required: list[PodTermPart] | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[WeightedPodTermPart] | None = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class AffinityPart(Struct, rename="camel", gc=False):
    """Affinity, unparsed."""

    node_affinity: Raw = ABSENT
    pod_affinity: Raw = ABSENT
    pod_anti_affinity: Raw = ABSENT


class SpreadPart(Struct, rename="camel", gc=False):
    """A topology spread constraint."""

    max_skew: int | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    label_selector: Raw = ABSENT
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class SchedulingGroupPart(Struct, rename="camel", gc=False):
    """The PodGroup of scheduling.k8s.io that a pod names, from Kubernetes 1.36 on."""

    pod_group_name: str | None = None


class PodSpecPart(Struct, rename="camel", gc=False):
    """The spec of a pod."""

    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    containers: list[ContainerPart] | None = None
    init_containers: list[ContainerPart] | None = None
    resources: Raw = ABSENT
    overhead: Raw = ABSENT
    node_selector: Raw = ABSENT
    affinity: AffinityPart | None = None
    tolerations: Raw = ABSENT
    scheduling_gates: list[Gate] | None = None
    topology_spread_constraints: Raw = ABSENT
    resource_claims: list[Present] | None = None
    volumes: Raw = ABSENT
    host_network: bool | None = None
    host_users: bool | None = None
    scheduling_group: SchedulingGroupPart | None = None


Quantities = dict[str, str | int | float]
"""Amounts by resource. The API server writes strings, but a number is a valid quantity too."""


class ResourceRequests(Struct, gc=False):
    """The requests of a container or a pod."""

    requests: Quantities | None = None


class ContainerStatus(Struct, rename="camel", gc=False):
    """The resources that the kubelet granted to a container."""

    name: str = ""
    allocated_resources: Raw = ABSENT
    resources: Raw = ABSENT


class PodStatus(Struct, rename="camel", gc=False):
    """The status of a pod; the conditions are unparsed."""

    phase: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    conditions: Raw = ABSENT
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: Raw = ABSENT
    resources: Raw = ABSENT


class PodDocument(Struct, gc=False):
    """A pod."""

    metadata: PodMetadata
    spec: PodSpecPart
    status: PodStatus | None = None


class PortPart(Struct, rename="camel", gc=False):
    """A port of a container."""

    host_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = field(name="hostIP", default=None)


class TolerationPart(Struct, gc=False):
    """A toleration."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeTermPart(Struct, rename="camel", gc=False):
    """A term of a node selector."""

    match_expressions: list[ExpressionPart] | None = None
    match_fields: list[ExpressionPart] | None = None


class NodeSelectorPart(Struct, rename="camel", gc=False):
    """A node selector: its terms are ORed."""

    node_selector_terms: list[NodeTermPart] | None = None


class PreferredTermPart(Struct, gc=False):
    """A preferred term of node affinity with its weight."""

    weight: int = 0
    preference: NodeTermPart | None = None


class NodeAffinityPart(Struct, gc=False):
    """Node affinity: required and preferred terms."""

    required: NodeSelectorPart | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredTermPart] | None = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class TaintPart(Struct, gc=False):
    """A taint."""

    key: str = ""
    value: str | None = None
    effect: str | None = None


class NodeSpecPart(Struct, gc=False):
    """The spec of a node."""

    unschedulable: bool | None = None
    taints: list[TaintPart] | None = None


class NodeStatus(Struct, rename="camel", gc=False):
    """The status of a node."""

    allocatable: Raw = ABSENT
    capacity: Raw = ABSENT
    images: Raw = ABSENT
    declared_features: Raw = ABSENT


class NodeAnnotations(Struct, gc=False):
    """The annotations of a node that Ai-Scheduler reads: the GPUs that HAMi registers on it, and how they connect."""

    hami_gpus: str | None = field(name="hami.io/node-nvidia-register", default=None)
    hami_scores: str | None = field(name="hami.io/node-nvidia-score", default=None)


class NodeMetadata(LabelledMetadata, rename="camel", gc=False):
    """The metadata of a node."""

    annotations: NodeAnnotations | None = None


class NodeDocument(Struct, gc=False):
    """A node."""

    metadata: NodeMetadata
    spec: NodeSpecPart | None = None
    status: NodeStatus | None = None


class PoolDocument(Struct, gc=False):
    """A Pool. `decode_pool` reads the spec field by field: an invalid spec becomes a condition, not an error."""

    metadata: Metadata
    spec: Any = None
    status: Any = None


class QueueAnnotations(Struct, gc=False):
    """The annotations of a tenant queue that Ai-Scheduler reads: of one of Volcano its cards, as JSON."""

    card_quota: str | None = field(name="volcano.sh/card.quota", default=None)


class QueueMetadata(Metadata, rename="camel", gc=False):
    """The metadata of a tenant queue."""

    annotations: QueueAnnotations | None = None


class QueueDocument(Struct, gc=False):
    """A tenant queue, our own or Volcano's. Its spec and status are read field by field, like those of a Pool."""

    metadata: QueueMetadata
    spec: Any = None
    status: Any = None


class BudgetSpecPart(Struct, rename="camel", gc=False):
    """The spec of a PodDisruptionBudget. The selector is unparsed: a budget with an invalid one protects nothing."""

    selector: Raw = ABSENT
    unhealthy_pod_eviction_policy: str | None = None


class BudgetStatus(Struct, rename="camel", gc=False):
    """The status of a PodDisruptionBudget: how many more disruptions it allows, and the disrupted pods by name."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    disrupted_pods: dict[str, Any] | None = None


class BudgetDocument(Struct, gc=False):
    """A PodDisruptionBudget."""

    metadata: Metadata
    spec: BudgetSpecPart | None = None
    status: BudgetStatus | None = None


class NamespaceAnnotations(Struct, gc=False):
    """The annotation of a namespace that is read."""

    priority_levels: Any = field(name=PRIORITY_LEVELS_KEY, default=None)


class NamespaceMetadata(LabelledMetadata, gc=False):
    """The metadata of a namespace."""

    annotations: NamespaceAnnotations | None = None


class NamespaceDocument(Struct, gc=False):
    """A namespace."""

    metadata: NamespaceMetadata
