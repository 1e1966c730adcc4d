"""Hard constraints of pods that no rule looks at, by kind and field.

Law: a constraint is what kube-scheduler keeps a pod waiting for; a wish is none.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from aischeduler.model.selectors import LabelSelector

REQUIRED_ANTI_AFFINITY: Final = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"


class ConstraintKind(StrEnum):
    """The kinds of constraints for which pods are held; a label of metrics."""

    POD_AFFINITY = "pod_affinity"
    POD_ANTI_AFFINITY = "pod_anti_affinity"
    TOPOLOGY_SPREAD = "topology_spread"
    RESOURCE_CLAIM = "resource_claim"
    VOLUME_CLAIM = "volume_claim"
    ANTI_AFFINITY_OF_OTHERS = "anti_affinity_of_others"
    """What a pod on a node requires of others."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A field of a pod that states a hard constraint; `field` is its path."""

    kind: ConstraintKind
    field: str


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A required anti-affinity term: no pod that it matches may be in the same domain of `topology_key`.

    It is about pods that `selector` matches, in the `namespaces` that it names and in those that the selector of
    namespaces matches; where it says neither, in the namespace of its pod. Without a `selector` it matches none.
    """

    topology_key: str
    selector: LabelSelector | None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
