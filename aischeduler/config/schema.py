"""The fields of the configuration file, with their types, bounds and defaults, and which of them differ.

Invariants:
- A field is declared here only, and so is whether a running scheduler reloads it (`RELOADED`).
- Each field has a `description` of what it must be, and errors quote it. The docstring below a field says what it does;
  `make reference` copies it to docs/reference/configuration.md, so links in it are relative to that page.
- Values are frozen; an unknown field is refused.
"""

from collections.abc import Iterator
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.inspect import Metadata, StructType, Type

from aischeduler.config.profiles import Profiles
from aischeduler.config.section import (
    SUBDOMAIN,
    Boolean,
    LabelKey,
    OptionalName,
    SchedulerName,
    Section,
    whole_number,
)
from aischeduler.model.names import GPU_DEFAULT, GPU_TYPE_LABELS, SCHEDULER_NAME
from aischeduler.model.pool import MakeRoomOrder
from aischeduler.model.workload import ServiceType

API_VERSION: Final = "config.resource.aibee.cn/v1alpha1"
KIND: Final = "AiSchedulerConfiguration"

BIND_IN_FLIGHT_MAX: Final = 256
"""More Bindings in flight only queue inside the API server."""
GPU_RESOURCES_MAX: Final = 16
GPU_TYPE_LABELS_MAX: Final = 8
RARE_TYPES_MAX: Final = 32
GROUP_RULES_MAX: Final = 64
OVER_COMMIT_MAX: Final = 100
OWNER_KINDS_MAX: Final = 64
SELECTOR_PARTS_MAX: Final = 64
SELECTOR_VALUES_MAX: Final = 256
ELASTIC_KINDS_MAX: Final = 16
REQUEST_SECONDS_MAX: Final = 120
BACKOFF_SECONDS_MAX: Final = 300
"""The retry of waiting pods after five minutes would end a longer backoff early."""
EVENTS_PER_SECOND_MAX: Final = 10_000
EVENTS_BURST_MAX: Final = 100_000
LOG_VALUE_LENGTH_MIN: Final = 200
"""A smaller limit would cut the sentences of reasons."""
LOG_VALUE_LENGTH_MAX: Final = 100_000
HTTP_OFF: Final = "none"
"""The address that turns metrics and health off."""
ADDRESS_FORM: Final = f"host:port such as :8080 or 127.0.0.1:8080, or {HTTP_OFF}"
RETRY_SLACK: Final = 1.2
"""How much longer than the retry period the renew deadline is, as in client-go."""

KNOWN_KINDS: Final = frozenset((
    "BatchProcess", "CronJob", "CSIDriver", "CSINode", "CSIStorageCapacity", "DaemonSet", "Deployment", "Device",
    "HorizontalPodAutoscaler", "Job", "JobSet", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim",
    "Pod", "PodDisruptionBudget", "PodGroup", "Pool", "PriorityClass", "Queue", "ReplicaSet", "ReplicationController",
    "Service", "StatefulSet", "StorageClass", "TrainingJob", "VolumeAttachment",
))  # fmt: skip
"""The kinds that mean something already; owners of pods are told apart by their kinds without the group."""

RELOADED: Final = {"reloaded": True}
"""Marks a field (`Meta.extra`) that a running scheduler reloads; other fields need a restart."""

_PORT: Final = r"([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"


class LogFormat(StrEnum):
    """The format of a log line."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class EvictionWay(StrEnum):
    """How a victim is removed."""

    DELETE = "Delete"
    """Delete the pod; victims that break no PodDisruptionBudget are preferred."""
    EVICT = "Evict"
    """Use the Eviction API, which refuses what a PodDisruptionBudget forbids."""


class ConstraintRule(StrEnum):
    """What happens to a pod with a hard constraint that is not supported."""

    HOLD = "Hold"
    """The pod waits, with a reason that names the constraint."""
    IGNORE = "Ignore"
    """The pod is placed as if the constraint were absent, and gets a Warning event."""


GpuResource = Annotated[
    str,
    Meta(
        pattern=rf"\A{SUBDOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z",
        max_length=317,
        description="a resource name such as nvidia.com/gpu",
    ),
]
GpuResources = Annotated[
    tuple[GpuResource, ...],
    Meta(
        min_length=1,
        max_length=GPU_RESOURCES_MAX,
        description=f"a list of 1 to {GPU_RESOURCES_MAX} resource names such as nvidia.com/gpu",
    ),
]
GpuTypeLabel = Annotated[
    str,
    Meta(
        pattern=rf"\A({SUBDOMAIN}/)?[A-Za-z0-9][-A-Za-z0-9_.]*(\*[-A-Za-z0-9_.]*)?\Z",
        max_length=317,
        description="the key of a node label such as nvidia.com/gpu.product, with at most one *",
    ),
]
GpuTypeLabels = Annotated[
    tuple[GpuTypeLabel, ...],
    Meta(
        max_length=GPU_TYPE_LABELS_MAX,
        description=f"a list of at most {GPU_TYPE_LABELS_MAX} keys of node labels such as nvidia.com/gpu.product",
    ),
]
RareType = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9 ._/+*-]*\Z",
        max_length=63,
        description="a card type such as H200 or A100-80GB",
    ),
]
RareTypes = Annotated[
    tuple[RareType, ...],
    Meta(
        max_length=RARE_TYPES_MAX,
        description=f"a list of at most {RARE_TYPES_MAX} card types such as H200 or A100-80GB",
    ),
]
LabelValue = Annotated[
    str,
    Meta(
        pattern=r"\A([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?\Z",
        max_length=63,
        description="a label value of at most 63 characters",
    ),
]
GroupName = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z",
        max_length=63,
        description="a label value of 1 to 63 characters",
    ),
]
HttpAddress = Annotated[
    str,
    Meta(
        pattern=rf"\A({HTTP_OFF}|(\[[0-9A-Fa-f:.]+\]|[-A-Za-z0-9.]*):{_PORT})\Z",
        max_length=270,
        description=ADDRESS_FORM,
    ),
]
ElectionSeconds = Annotated[int, whole_number(1, 600, of="of seconds ")]
BackoffSeconds = Annotated[int, whole_number(1, BACKOFF_SECONDS_MAX, of="of seconds ")]


class BackoffConfig(Section, frozen=True):
    """How long an unschedulable pod waits at first, and at most: each failed attempt doubles the wait."""

    initial_seconds: BackoffSeconds = 1
    """How long a pod waits after its first failed attempt. Each further failed attempt doubles the wait."""
    max_seconds: BackoffSeconds = 10
    """The longest wait; at least `initialSeconds`."""

    def __post_init__(self) -> None:
        """Refuse a maximum below the initial wait; raises ValueError."""
        if self.max_seconds < self.initial_seconds:
            raise ValueError(
                f"maxSeconds must be at least initialSeconds ({self.initial_seconds}), not {self.max_seconds}"
            )


class DefaultPool(Section, frozen=True):
    """The switches of the pool `default` while no Pool of that name exists, and of the Pool that is created."""

    disable_preemption: Boolean = False
    """Switches of the Pool `default` while no object of that name exists. The daemon creates the object with them; from
    then on the spec of the object counts."""
    disable_borrowing: Boolean = False
    """As above."""
    disable_sharing: Boolean = False
    """As above."""


class EventsConfig(Section, frozen=True):
    """The rate limit of events: etcd keeps an event for an hour."""

    per_second: Annotated[int, whole_number(1, EVENTS_PER_SECOND_MAX, RELOADED)] = 50
    """The largest average number of events per second. Bindings, conditions and statuses do not count."""
    burst: Annotated[int, whole_number(1, EVENTS_BURST_MAX, RELOADED)] = 1000
    """The largest number of events at once after a pause."""


class LeaderElection(Section, frozen=True):
    """Leader election between the replicas of a scheduler, with the durations of client-go."""

    enabled: Boolean = True
    """Whether schedulers of one name elect a leader. Without the election only one replica may run."""
    namespace: OptionalName = ""
    """The namespace of the Lease. Empty: the namespace of the daemon's pod; outside a cluster `kube-system`."""
    lease_name: OptionalName = ""
    """The name of the Lease. Empty: `schedulerName`."""
    lease_duration_seconds: ElectionSeconds = 15
    """How long a standby waits after the leader's last renewal before it leads; the same in all replicas."""
    renew_deadline_seconds: ElectionSeconds = 10
    """How long after its last renewal the leader writes; less than `leaseDurationSeconds`."""
    retry_period_seconds: ElectionSeconds = 2
    """Time between two tries to take or renew the Lease; 1.2 times this is less than `renewDeadlineSeconds`."""

    def __post_init__(self) -> None:
        """Refuse durations that allow two leaders; raises ValueError."""
        lease, renew, retry = self.lease_duration_seconds, self.renew_deadline_seconds, self.retry_period_seconds
        if lease <= renew:
            raise ValueError(f"leaseDurationSeconds must be greater than renewDeadlineSeconds ({renew}), not {lease}")
        if renew <= RETRY_SLACK * retry:
            raise ValueError(
                f"renewDeadlineSeconds must be greater than {RETRY_SLACK} times retryPeriodSeconds ({retry}), "
                f"not {renew}"
            )


class LabelExpression(Section, frozen=True):
    """One comparison of a label of a namespace."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[LabelValue, ...], Meta(max_length=SELECTOR_VALUES_MAX)] = ()

    def __post_init__(self) -> None:
        """Refuse values that the operator does not take; raises ValueError."""
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            needs = "needs at least one value" if self.operator in ("In", "NotIn") else "takes no values"
            raise ValueError(f"values: {self.operator} {needs}")


class NamespaceSelector(Section, frozen=True):
    """Namespaces by their labels; all parts have to match."""

    match_labels: Annotated[dict[LabelKey, LabelValue], Meta(max_length=SELECTOR_PARTS_MAX)] = {}  # noqa: RUF012 - msgspec copies it
    match_expressions: Annotated[tuple[LabelExpression, ...], Meta(max_length=SELECTOR_PARTS_MAX)] = ()


class GroupRuleConfig(Section, frozen=True):
    """The namespaces whose pods may name a machine group."""

    name: GroupName
    namespace_selector: NamespaceSelector


MachineGroups = Annotated[
    tuple[GroupRuleConfig, ...],
    Meta(
        max_length=GROUP_RULES_MAX,
        description=(
            f"a list of at most {GROUP_RULES_MAX} rules such as "
            "{name: vision, namespaceSelector: {matchLabels: {team: vision}}}"
        ),
    ),
]

OverCommitFactor = Annotated[
    float,
    Meta(
        ge=1,
        le=OVER_COMMIT_MAX,
        description=f"a number from 1 to {OVER_COMMIT_MAX} with at most three digits after the point, such as 1.5",
        extra=RELOADED,
    ),
]
OwnerKind = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?\Z",
        max_length=63,
        description="a kind such as Deployment",
    ),
]
ServiceTypes = Annotated[
    dict[OwnerKind, Annotated[ServiceType, Meta(description="inference or training")]],
    Meta(
        max_length=OWNER_KINDS_MAX,
        description=f"a mapping of at most {OWNER_KINDS_MAX} kinds such as {{Deployment: inference, Job: training}}",
        extra=RELOADED,
    ),
]
NonPreemptible = Annotated[
    NamespaceSelector | None,
    Meta(description="a label selector such as matchLabels: {team: vision}", extra=RELOADED),
]


class ElasticKind(Section, frozen=True):
    """A kind with a number of pods in `spec.replicas`, whose objects may be elastic jobs."""

    api_version: Annotated[
        str,
        Meta(
            pattern=r"\A[a-z0-9][-a-z0-9]*(\.[a-z0-9][-a-z0-9]*)+/[a-z]([-a-z0-9]*[a-z0-9])?\Z",
            max_length=317,
            description="a group and a version such as apps.kruise.io/v1alpha1",
        ),
    ]
    kind: Annotated[
        str,
        Meta(
            pattern=r"\A[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?\Z",
            max_length=63,
            description="a kind such as CloneSet",
        ),
    ]
    resource: Annotated[
        str,
        Meta(
            pattern=r"\A[a-z]([-a-z0-9]*[a-z0-9])?\Z",
            max_length=63,
            description="the plural of the kind in paths, such as clonesets",
        ),
    ]
    ordered: Boolean = False
    """Whether its controller ends the highest index first, as that of a StatefulSet does."""

    def __post_init__(self) -> None:
        """Refuse a kind that means something already; raises ValueError."""
        if self.kind.lower() in map(str.lower, KNOWN_KINDS):
            known = f"the scheduler knows {self.kind} already"
            raise ValueError(f"kind: {known}, and tells kinds apart by their names alone")


class ElasticConfig(Section, frozen=True):
    """Which kinds may be elastic jobs, beside Job, JobSet, Deployment and StatefulSet."""

    kinds: Annotated[
        tuple[ElasticKind, ...],
        Meta(
            max_length=ELASTIC_KINDS_MAX,
            description=(
                f"a list of at most {ELASTIC_KINDS_MAX} kinds such as "
                "{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, resource: clonesets}"
            ),
        ),
    ] = ()
    """Further kinds with a number of pods in `spec.replicas`, whose objects may be [elastic
    jobs](../elastic.md#other-kinds). With `ordered: true` a controller ends the highest index first, as that of a
    StatefulSet does."""

    def __post_init__(self) -> None:
        """Refuse a kind or a resource that is named twice; raises ValueError."""
        names, resources = set[str](), set[tuple[str, str]]()
        for place, kind in enumerate(self.kinds):
            group = kind.api_version.partition("/")[0]
            if kind.kind.lower() in names:
                twice = f"{kind.kind} is there twice: kinds are told apart by their names alone"
                raise ValueError(f"kinds[{place}].kind: {twice}")
            if (group, kind.resource) in resources:
                raise ValueError(f"kinds[{place}].resource: {kind.resource} of {group} are there twice")
            names.add(kind.kind.lower())
            resources.add((group, kind.resource))


NO_ELECTION: Final = LeaderElection(enabled=False)


class Logging(Section, frozen=True):
    """The format and the amount of the log."""

    format: Annotated[LogFormat, Meta(description="json or console", extra=RELOADED)] = LogFormat.JSON
    """`json` writes one object per line, `console` is for people."""
    level: Annotated[LogLevel, Meta(description="debug, info, warning or error", extra=RELOADED)] = LogLevel.INFO
    """The daemon writes no line below this level."""
    value_length_max: Annotated[int, whole_number(LOG_VALUE_LENGTH_MIN, LOG_VALUE_LENGTH_MAX, RELOADED)] = 2000
    """The longest text of one value in a line, in characters; the daemon cuts longer texts."""


class Http(Section, frozen=True):
    """The address of metrics and health: without a host, all addresses; with port 0, a free port."""

    address: HttpAddress = ":8080"
    """The address of metrics and health; without a host, all addresses. `none` serves nothing."""


class Config(Section, frozen=True):
    """The whole file; an empty file is `Config()`."""

    api_version: Annotated[Literal["config.resource.aibee.cn/v1alpha1"], Meta(description=API_VERSION)] = API_VERSION
    """The version of the schema of this file."""
    kind: Annotated[Literal["AiSchedulerConfiguration"], Meta(description=KIND)] = KIND
    """The kind of this file."""
    scheduler_name: SchedulerName = SCHEDULER_NAME
    """The `spec.schedulerName` of the pods to schedule, beside those of `profiles`; the Lease has this name too."""
    profiles: Profiles = ()
    """The plugins by `spec.schedulerName`; see [Configure](../configure.md)."""
    bind_in_flight: Annotated[int, whole_number(1, BIND_IN_FLIGHT_MAX, RELOADED)] = 128
    """The largest number of Bindings of a Pool in flight. For every 16 of them one more of other Pools may be in
    flight, so that none waits for a Pool whose Bindings get no answer."""
    request_timeout_seconds: Annotated[int, whole_number(1, REQUEST_SECONDS_MAX, RELOADED, "of seconds ")] = 30
    """How long the daemon waits for an answer. Lists, watches and renewals of the Lease have limits of their own."""
    gpu_resources: GpuResources = (GPU_DEFAULT,)
    """Node resources that count as GPUs, in the table of Pools and for placement."""
    gpu_type_labels: GpuTypeLabels = GPU_TYPE_LABELS
    """Labels of nodes that name the [GPU type](../card-types.md); a `*` stands for any text."""
    rare_types: RareTypes = ()
    """GPU types whose nodes are closed to pods that do not name them, in every Pool."""
    machine_groups: MachineGroups = ()
    """Who may name which [machine group](../card-types.md), beside the rules of Pools."""
    disable_preemption: Boolean = False
    """`true` forbids every eviction in all Pools: preemption, taking lent room back, and `reclaimPolicy: Evict`."""
    eviction: Annotated[EvictionWay, Meta(description="Delete or Evict")] = EvictionWay.DELETE
    """How the scheduler removes a victim. `Delete` deletes the pod, and the scheduler prefers victims that break no
    PodDisruptionBudget. `Evict` uses the Eviction API; a pod that its budget protects, or that several budgets cover,
    is no victim."""
    make_room: Annotated[MakeRoomOrder, Meta(description="PreemptThenBorrow or BorrowThenPreempt")] = (
        MakeRoomOrder.PREEMPT_THEN_BORROW
    )
    """What the scheduler tries first for a pod that fits on no node of its Pool, for Pools without `makeRoom`."""
    unsupported_constraints: Annotated[ConstraintRule, Meta(description="Hold or Ignore")] = ConstraintRule.HOLD
    """What happens to a pod with a hard constraint that is not supported. `Hold`: the pod waits, and its event names
    the field. `Ignore`: the scheduler places the pod as if the constraint were absent, and the pod gets a Warning."""
    card_unlimited_cpu_memory: Annotated[bool, Meta(description="true or false", extra=RELOADED)] = False
    """`true`: pods that ask for GPUs are neither checked nor counted in the cpu and memory of their tenant's queue."""
    over_commit_factor: OverCommitFactor = 1.0
    """The cpu and memory of every queue's `capability` times this number is its quota; cards are never multiplied."""
    pod_owner_reference_to_service_type: ServiceTypes = {}  # noqa: RUF012 - msgspec copies it
    """The service type of pods by the kind of their owner, where annotations of pod and workload say none. Kinds count
    without their group, so that `Job` is a Job of Volcano too; `Deployment` counts before `ReplicaSet`, and `JobSet`
    before `Job`."""
    non_preemptible_namespaces: NonPreemptible = None
    """The namespaces whose pods `volcano.sh/preemptable: "false"` spares, beside those that their Pool names; empty: no
    namespace."""
    hami: Boolean = False
    """`true`: nodes that HAMi's device plugin serves get pods that ask for `nvidia.com/gpu`; see
    [Devices](../devices.md#nodes-of-hami)."""
    elastic: Annotated[ElasticConfig, Meta(description="a mapping with the key kinds")] = ElasticConfig()
    default_pool: Annotated[DefaultPool, Meta(description="a mapping such as disableSharing: true")] = DefaultPool()
    backoff: Annotated[BackoffConfig, Meta(description="a mapping such as maxSeconds: 30")] = BackoffConfig()
    events: Annotated[EventsConfig, Meta(description="a mapping with the keys perSecond and burst")] = EventsConfig()
    leader_election: Annotated[LeaderElection, Meta(description="a mapping such as enabled: true")] = LeaderElection()
    logging: Annotated[Logging, Meta(description="a mapping such as level: debug")] = Logging()
    http: Annotated[Http, Meta(description="a mapping with the key address")] = Http()

    def __post_init__(self) -> None:
        """Refuse a factor that thousandths cannot express; raises ValueError."""
        factor = Decimal(str(self.over_commit_factor))
        if not factor.is_finite() or factor * 1000 % 1:
            most = f"a number from 1 to {OVER_COMMIT_MAX} with at most three digits after the point, such as 1.5"
            raise ValueError(f"overCommitFactor must be {most}, not {self.over_commit_factor}")

    @property
    def over_commit_milli(self) -> int:
        """`over_commit_factor` in thousandths."""
        return int(Decimal(str(self.over_commit_factor)) * 1000)

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """The scheduler names of the pods to schedule: the own name first, then those of other profiles."""
        others = (profile.scheduler_name for profile in self.profiles if profile.scheduler_name)
        return tuple(dict.fromkeys((self.scheduler_name, *others)))


class Field(Struct, frozen=True):
    """One field: its path in YAML (`logging.level`), the attributes that lead to its value, and what it must be.

    A `section` is a mapping of other fields.
    """

    path: str
    attributes: tuple[str, ...]
    description: str
    reloaded: bool
    section: bool

    def value(self, config: Config) -> object:
        """Return the value in a configuration."""
        value: object = config
        for name in self.attributes:
            value = getattr(value, name)
        return value


@cache
def fields() -> tuple[Field, ...]:
    """Return all fields in the order of the schema, each section before its fields."""
    return tuple(_fields(msgspec.inspect.type_info(Config), "", ()))


def values() -> tuple[Field, ...]:
    """Return the fields that are no sections."""
    return tuple(field for field in fields() if not field.section)


def differing(before: Config, after: Config) -> tuple[Field, ...]:
    """Return the fields whose values differ between two configurations."""
    return tuple(field for field in values() if field.value(before) != field.value(after))


def _fields(kind: Type, lead: str, names: tuple[str, ...]) -> Iterator[Field]:
    if not isinstance(kind, StructType):
        return
    for field in kind.fields:
        assert isinstance(field.type, Metadata), f"{field.name} has no description"
        path, inner = lead + field.encode_name, (*names, field.name)
        description = str((field.type.extra_json_schema or {})["description"])
        section = isinstance(field.type.type, StructType)
        yield Field(path, inner, description, field.type.extra == RELOADED, section)
        yield from _fields(field.type.type, path + ".", inner)


def taken_over(running: Config, read: Config) -> Config:
    """Return the running configuration with the reloaded fields of the new configuration."""
    merged = msgspec.to_builtins(running)
    for field in values():
        if field.reloaded:
            *sections, name = field.path.split(".")
            target = merged
            for section in sections:
                target = target[section]
            target[name] = field.value(read)
    return msgspec.convert(merged, Config)
