"""The hard constraints of PodTopologySpread: how unevenly matching pods may be spread over the domains of a label."""

from dataclasses import dataclass

from aischeduler.model.selectors import Labels, LabelSelector


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
    """One constraint with `whenUnsatisfiable: DoNotSchedule`.

    A domain is the set of a pool's nodes with one value of the label `topology_key`. A pod may run in a domain where
    the number of selected pods, with the pod itself where it is one (`selects_itself`), exceeds that of the emptiest
    domain by at most `max_skew`. With fewer domains than `min_domains` the emptiest counts as having none.
    `selector` is None where it selects no pod. Nodes that the pod's node affinity excludes are no part of a domain if
    `honors_affinity`, nor are nodes with taints that it does not tolerate if `honors_taints`.

    Source: PodTopologySpread in kube-scheduler, whose domains are those of the cluster.
    """

    topology_key: str
    max_skew: int
    selector: PodSelector | None
    selects_itself: bool = False
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False
