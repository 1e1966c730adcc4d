"""The constraints of PodTopologySpread: how unevenly matching pods are spread over the domains of a node label."""

from typing import Final

from msgspec import Struct

from aischeduler.model.selectors import Labels, LabelSelector

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"


class PodSelector(Struct, frozen=True, cache_hash=True):
    """The pods of one namespace that a label selector matches."""

    namespace: str
    labels: LabelSelector

    def matches(self, namespace: str, labels: Labels) -> bool:
        """Return whether a pod of this namespace and these labels is selected."""
        return namespace == self.namespace and self.labels.matches(labels)


class TopologySpreadConstraint(Struct, frozen=True):
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


class DefaultSelector(Struct, frozen=True):
    """The pods of the Services that select a pod and of its controller: those among which it is spread by default."""

    pods: PodSelector
    selects_itself: bool


class DefaultConstraint(Struct, frozen=True):
    """A constraint of the pods that have none themselves, but a `DefaultSelector`; `hard` ones are required.

    The other fields are those of `TopologySpreadConstraint`.

    Source: defaultConstraints in kube-scheduler's PodTopologySpreadArgs.
    """

    topology_key: str
    max_skew: int
    hard: bool = False
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False

    def of(self, selector: DefaultSelector) -> TopologySpreadConstraint:
        """Return the constraint of the pods that have this selector."""
        return TopologySpreadConstraint(
            self.topology_key,
            self.max_skew,
            selector.pods,
            selector.selects_itself,
            self.min_domains,
            self.honors_affinity,
            self.honors_taints,
        )


SYSTEM_DEFAULTS: Final = (DefaultConstraint(HOSTNAME, 3), DefaultConstraint(ZONE, 5))
"""The constraints of kube-scheduler's `defaultingType: System`."""
