"""Gangs: pods that start together or not at all, however their users say so.

Invariants:
- A gang has one source and one name in a namespace. What a pod says of its gang, and what an object says of its pods,
  meet by this key alone.
- A malformed part makes the gang invalid, and `invalid` names it: its pods wait, and no other pod is affected.

Source: PodGroup of scheduling.x-k8s.io/v1alpha1 (Coscheduling), scheduling.volcano.sh/v1beta1 and scheduling.k8s.io.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

GANG_KEY: Final = "resource.aibee.cn/gang"
"""The label of a pod that names its gang; on a Job, a JobSet, or a pod template of these, the annotation "true"."""
GANG_MIN_KEY: Final = "resource.aibee.cn/gang-min"
"""The label with the least number of pods that start together."""
GANG_ROLE_KEY: Final = "resource.aibee.cn/gang-role"
"""The label with the role of a pod in its gang."""
GANG_ROLE_MIN_KEY: Final = "resource.aibee.cn/gang-role-min"
"""The label with the least number of pods of the role that start together."""
GANG_TIMEOUT_KEY: Final = "resource.aibee.cn/gang-timeout-seconds"
"""The annotation with the time that the gang waits for room; on the object of the group, or on the pods."""
GANG_SPAN_KEY: Final = "resource.aibee.cn/gang-span"
"""The annotation that lets the gang start in its home pool and in lenders at once."""
GANG_TOPOLOGY_KEY: Final = "resource.aibee.cn/gang-topology"
"""The annotation with the node labels whose values the pods share: "Required:LABEL,Preferred:LABEL", widest first."""
UNKNOWN_GANG_SECONDS: Final = 600
"""How long a gang may wait for its start whose object, which would say it, does not exist."""
GANG_SIZE_MAX: Final = 5_000
"""The largest minimum of a gang."""


class GangSource(StrEnum):
    """Where a gang is declared; where a pod names several gangs, the first of this list counts."""

    NATIVE = "PodGroup of scheduling.k8s.io"
    COSCHEDULING = "PodGroup of scheduling.x-k8s.io"
    VOLCANO = "PodGroup of scheduling.volcano.sh"
    LABELS = "labels"
    JOB_SET = "JobSet"
    JOB = "Job"
    WORKLOAD = "workload"
    """Pods of an elastic workload that start one by one; the name of the gang is Kind/name."""


class GangKey(Struct, frozen=True, order=True):
    """What identifies a gang."""

    source: GangSource
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.source})"


class TopologyLevel(Struct, frozen=True):
    """A node label: all pods start on nodes with one value of it, unless it is not `required`: on few."""

    label: str
    required: bool


class Gang(Struct, frozen=True):
    """A gang as its source says it. `min_member` 1 or less means that its pods are no gang.

    `timeout_seconds` is how long it may wait for room, 0 for ever. `created_seconds` is the creationTimestamp of its
    object in unix seconds, 0 where it has none.
    `roles` are (role, least number of its pods), sorted; `topology` is widest first. `started` says that its object
    shows that it has started before. `generation` counts the changes of the spec of its object.
    """

    key: GangKey
    min_member: int
    uid: str = ""
    generation: int = 0
    timeout_seconds: int = 0
    created_seconds: int = 0
    roles: tuple[tuple[str, int], ...] = ()
    topology: tuple[TopologyLevel, ...] = ()
    span: bool = False
    started: bool = False
    invalid: str = ""


class GangClaim(Struct, frozen=True):
    """What one pod says of its gang.

    `others` are further gangs that it names and that do not count. `role` is its role, `index` its rank in the gang or
    -1. `said` is the gang itself where the pod's labels say all of it; else the object of the key says it.
    """

    key: GangKey
    role: str = ""
    index: int = -1
    said: Gang | None = None
    others: tuple[GangKey, ...] = ()


class Lack(Struct, frozen=True):
    """Of a role, or of the whole unit where that is empty, so many pods exist and at least so many must."""

    role: str
    exist: int
    at_least: int


class GangPhase(StrEnum):
    """Where a gang stands."""

    PENDING = "Pending"
    """Fewer pods exist than start together, or its source is invalid."""
    SCHEDULING = "Scheduling"
    """Its pods wait for room."""
    SCHEDULED = "Scheduled"
    """At least the minimum is on nodes."""
    RUNNING = "Running"
    """At least the minimum has started to run."""
    FAILED = "Failed"
    """It did not start within its timeout; its pods wait until the gang or the cluster changes."""


class GangStatus(Struct, frozen=True):
    """The state of a gang that its object shows; `message` says why it does not start, `reason` in one word."""

    phase: GangPhase
    min_member: int
    members: int
    placed: int
    running: int
    reason: str = ""
    message: str = ""
