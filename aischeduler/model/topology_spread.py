"""The constraints of PodTopologySpread: how unevenly matching pods are spread over the domains of a node label."""

from dataclasses import dataclass
from typing import Final

from aischeduler.model.selectors import Labels, LabelSelector

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class PodSelector:
    """The pods of one namespace that a label selector matches."""

    namespace: str
    labels: LabelSelector

    def matches(self, namespace: str, labels: Labels) -> bool:
        """Return whether a pod of this namespace and these labels is selected."""
        return namespace == self.namespace and self.labels.matches(labels)


@dataclass(frozen=True, slots=True)
class TopologySpreadConstraint:
    """One constraint. The pod says beside it whether it requires it (`DoNotSchedule`) or prefers it (`ScheduleAnyway`).

    A domain is the set of nodes with one value of the label `topology_key`. A pod that requires it may run in a domain
    where the number of selected pods, with the pod itself where it is one (`selects_itself`), exceeds that of the
    emptiest domain by at most `max_skew`. With fewer domains than `min_domains` the emptiest counts as having none.
    `selector` is None where it selects no pod. Nodes that the pod's node affinity excludes are no part of a domain if
    `honors_affinity`, nor are nodes with taints that it does not tolerate if `honors_taints`.

    Source: PodTopologySpread in kube-scheduler.
    """

    topology_key: str
    max_skew: int
    selector: PodSelector | None
    selects_itself: bool = False
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False
