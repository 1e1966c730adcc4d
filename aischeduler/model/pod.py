"""The part of a Pod that scheduling reads; pods with the same scheduling fields share one `PodSpec`."""

from typing import Final

from msgspec import Struct

from aischeduler.model.device import DeviceRequest, HeldDevices
from aischeduler.model.gang import GangClaim
from aischeduler.model.images import ImageId
from aischeduler.model.pod_affinity import NO_POD_AFFINITY, PodAffinity
from aischeduler.model.resources import PodRequest
from aischeduler.model.selectors import Labels, NodeSelectorTerm, PreferredSchedulingTerm
from aischeduler.model.topology_spread import DefaultSelector, TopologySpreadConstraint
from aischeduler.model.unsupported_constraints import Constraint
from aischeduler.model.volumes import PodVolumes, VolumeClaimUse
from aischeduler.model.workload import TenantTerms

PENDING: Final = "Pending"
RUNNING: Final = "Running"
FINISHED: Final = frozenset(("Succeeded", "Failed"))

CRITICAL_PRIORITY: Final = 2_000_000_000
"""Pods of this priority or higher are system-critical and never evicted."""


class Toleration(Struct, frozen=True):
    """A toleration; an empty key with Exists tolerates every taint, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class HostPort(Struct, frozen=True, order=True):
    """A port that a container takes on the node itself; `ip` 0.0.0.0 means every address."""

    protocol: str
    port: int
    ip: str = "0.0.0.0"  # noqa: S104 - Kubernetes' word for every address; nothing is bound here


class PodSpec(Struct, frozen=True):
    """The fields of a pod that decide where it may run. Pods with equal specs form one class.

    `key` identifies the spec: equal keys mean equal specs, so that classes are found without comparing fields.
    `required` is None where the pod requires no term; an empty tuple matches no node.
    `invalid` says why no node fits (a malformed quantity), with the field; else it is empty.
    `unscored` says why nodes that fit cannot be compared (a preferred term that cannot be read); else it is empty.
    `unsupported_constraints` are hard constraints that no plugin checks: the pod is held, or a warning is written.
    `topology_spread` are the spread constraints that the pod requires, and `spread_preferences` those that it prefers;
    a spec that has some is that of one namespace.
    `gpu_types` are the card types that the pod names, by their full names, the preferred first; without
    `gpu_type_required` other types will do too. `machine_group` is the group that it names, else empty.
    `images` are those of its containers, init containers and image volumes, sorted; `containers` is the number of both
    kinds of containers. `features` are those that a node must declare, sorted. `volumes` are those that decide where
    the pod may run, None where it has none.
    `namespace` and `labels` are those of the pods, as far as terms of affinity read them; None where no term was met.
    `default_selector` has the pods among which a pod without spread constraints is spread by default; None where no
    Service selects it, and no controller made it. Pods that differ in these three form classes of their own, and
    `origin` is the key without them; else it is empty.
    `devices` is what it asks of single devices, such as a share of a GPU; None where it asks for none.
    `profile` names the plugins that judge the pods; empty is those of the scheduler's own name. `marks` are the labels
    of the pods that plugins of the profile read, sorted. `read` is the spec that was read, where the profile has made
    another one of it.
    """

    key: bytes
    request: PodRequest
    node_selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeSelectorTerm, ...] | None = None
    preferred: tuple[PreferredSchedulingTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    invalid: str = ""
    unscored: str = ""
    unsupported_constraints: tuple[Constraint, ...] = ()
    pod_affinity: PodAffinity = NO_POD_AFFINITY
    topology_spread: tuple[TopologySpreadConstraint, ...] = ()
    spread_preferences: tuple[TopologySpreadConstraint, ...] = ()
    gpu_types: tuple[str, ...] = ()
    gpu_type_required: bool = True
    machine_group: str = ""
    images: tuple[ImageId, ...] = ()
    containers: int = 1
    features: tuple[str, ...] = ()
    volumes: PodVolumes | None = None
    namespace: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    default_selector: DefaultSelector | None = None
    origin: bytes = b""
    devices: DeviceRequest | None = None
    profile: str = ""
    marks: tuple[tuple[str, str], ...] = ()
    read: "PodSpec | None" = None

    @property
    def own_key(self) -> bytes:
        """The key of what the pod itself says: it does not change with the terms of other pods."""
        return self.origin or self.key

    def mark(self, key: str) -> str:
        """Return the value of a label of the pods that a plugin reads; empty where they have none."""
        return next((value for name, value in self.marks if name == key), "")


class Pod(Struct, frozen=True, gc=False):
    """One pod; a struct, because every event of a pod makes one, and a struct takes a fifth of the time to make.

    `node_name` is empty until the pod is bound; `pool` is the name of its home pool, printable, or empty.

    `created_seconds` is its creationTimestamp and `started_seconds` its status.startTime, in unix seconds, 0 where
    absent; `gates` are the names of its scheduling gates. `preempts` is False for preemptionPolicy Never. `guarded`
    pods belong to a DaemonSet or mirror a static pod: evicting one frees no room. `nominated_node` is the field of
    its status; `grace_seconds` is the grace period of a terminating pod.
    `said_to_wait` is True where the pod has no node and its condition PodScheduled is False. `gang` is what it says of
    its gang, None where it says nothing. `controller` is the controller that made it, as `ReplicaSet/web-7d4`, where it
    is of a kind whose pods are spread by default. `unready` is True on a node while its condition Ready is False.
    `terms` are what it says of its tenant, None where it says nothing. `owner` is the controller that made it, of
    whatever kind, as `Job/train`; empty where it has none. `placed_seconds` is when its condition PodScheduled became
    True, in unix seconds, 0 where it is not. `devices` are those that it has on its node, as it says itself; None where
    it says none. Without a node it cannot have any: they are empty where it says some. `kubelet_uid` is the uid under
    which its kubelet knows a mirror pod; else it is empty.
    """

    uid: str
    namespace: str
    name: str
    spec: PodSpec
    scheduler_name: str
    node_name: str = ""
    pool: str = ""
    priority: int = 0
    created_seconds: int = 0
    phase: str = PENDING
    terminating: bool = False
    gates: tuple[str, ...] = ()
    labels: Labels = {}
    preempts: bool = True
    guarded: bool = False
    started_seconds: int = 0
    nominated_node: str = ""
    grace_seconds: int = 0
    said_to_wait: bool = False
    gang: GangClaim | None = None
    controller: str = ""
    unready: bool = False
    terms: TenantTerms | None = None
    owner: str = ""
    placed_seconds: int = 0
    devices: HeldDevices | None = None
    kubelet_uid: str = ""

    @property
    def volume_claims(self) -> tuple[VolumeClaimUse, ...]:
        """The claims that the pod uses."""
        return self.spec.volumes.claims if self.spec.volumes is not None else ()

    @property
    def critical(self) -> bool:
        """Whether the pod is system-critical; such a pod is never evicted."""
        return self.priority >= CRITICAL_PRIORITY

    @property
    def finished(self) -> bool:
        """Whether the pod has Succeeded or Failed; such a pod uses nothing and does not wait."""
        return self.phase in FINISHED
