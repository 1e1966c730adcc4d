"""Pods as a scheduler sees them: a small record each, and one shared `PodSpec` for all that are alike."""

from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from aischeduler.model.resources import PodRequest
from aischeduler.model.selectors import Labels, NodeSelectorTerm, PreferredSchedulingTerm
from aischeduler.model.unsupported_constraints import Constraint, PodAffinityTerm
from aischeduler.model.volumes import VolumeClaimUse

PENDING: Final = "Pending"
RUNNING: Final = "Running"
FINISHED: Final = frozenset(("Succeeded", "Failed"))

CRITICAL_PRIORITY: Final = 2_000_000_000
"""Pods of this priority or more keep the cluster itself running; they are never evicted."""


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; an empty key with Exists tolerates every taint, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port that a container takes on the node itself; `ip` 0.0.0.0 means every address."""

    protocol: str
    port: int
    ip: str = "0.0.0.0"  # noqa: S104 - Kubernetes' word for every address; nothing is bound here


@dataclass(frozen=True, slots=True)
class PodSpec:
    """The part of a pod that decides where it may run. Equal specs form one class.

    `key` identifies the spec: equal keys mean equal specs, so that classes are found without comparing fields.
    `required` is None where the pod requires nothing; an empty tuple matches no node.
    `invalid` is the reason why no node can ever be right (a malformed quantity), naming the field; else empty.
    `unsupported_constraints` are hard constraints that no rule looks at: they hold the pod, or it is warned of them.
    `anti_affinity` are the required terms about pods that must not be near it: on a node they hold others.
    """

    key: bytes
    request: PodRequest
    node_selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeSelectorTerm, ...] | None = None
    preferred: tuple[PreferredSchedulingTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    invalid: str = ""
    unsupported_constraints: tuple[Constraint, ...] = ()
    anti_affinity: tuple[PodAffinityTerm, ...] = ()


class Pod(Struct, frozen=True, gc=False):
    """One pod; a struct, because each word about a pod makes one, and a struct is made in a fifth of the time.

    `node_name` is empty until it is bound; `pool` is the home that it names, printable, or empty.

    `created_seconds` is its creationTimestamp and `started_seconds` its status.startTime, in unix seconds, 0 where
    absent; `gates` are the names of its scheduling gates. `preempts` is False for preemptionPolicy Never. `guarded`
    pods are of a DaemonSet or mirror a static pod: evicting one frees nothing. `nominated_node` is what its status
    says; `grace_seconds` how long a terminating pod may take; `volume_claims` are those that it uses.
    `said_to_wait` tells that the status of a pod without a node says so (PodScheduled is False), and since when.
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
    volume_claims: tuple[VolumeClaimUse, ...] = ()
    said_to_wait: bool = False

    @property
    def critical(self) -> bool:
        """A system-critical pod is never evicted."""
        return self.priority >= CRITICAL_PRIORITY

    @property
    def finished(self) -> bool:
        """A finished pod uses nothing and waits for nothing."""
        return self.phase in FINISHED
