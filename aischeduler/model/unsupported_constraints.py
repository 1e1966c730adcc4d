"""Hard constraints of pods that no plugin checks, by kind and field.

Invariant: kube-scheduler keeps a pod waiting for each of these; a preference is no constraint.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aischeduler.model.selectors import LabelSelector

REQUIRED_ANTI_AFFINITY: Final = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"


class ConstraintKind(StrEnum):
    """The kind of a constraint that holds pods; a label of metrics."""

    POD_AFFINITY = "pod_affinity"
    POD_ANTI_AFFINITY = "pod_anti_affinity"
    RESOURCE_CLAIM = "resource_claim"
    VOLUME_CLAIM = "volume_claim"
    ANTI_AFFINITY_OF_OTHERS = "anti_affinity_of_others"
    """The required anti-affinity of a pod on a node."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A field of a pod with a hard constraint; `field` is its path."""

    kind: ConstraintKind
    field: str


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A required anti-affinity term: no pod that it matches may be in the same domain of `topology_key`.

    It matches the pods of `selector` in `namespaces` and in the namespaces that `namespace_selector` matches; without
    both, in the namespace of its own pod. Without a `selector` it matches no pod.
    """

    topology_key: str
    selector: LabelSelector | None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
