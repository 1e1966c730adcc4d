"""The part of a PodDisruptionBudget that scheduling reads."""

from msgspec import Struct

from aischeduler.model.pod import Pod
from aischeduler.model.selectors import LabelSelector


class DisruptionBudget(Struct, frozen=True):
    """A PodDisruptionBudget: its status allows this many evictions of the pods that `selector` matches.

    `selector` None, or without requirements, protects no pod: kube-scheduler skips such budgets too.
    `disrupted` are the names of the pods whose eviction the status already counts. With `unhealthy_go` the Eviction API
    evicts pods that are not ready whatever the status allows.
    """

    namespace: str
    name: str
    uid: str = ""
    selector: LabelSelector | None = None
    disruptions_allowed: int = 0
    disrupted: frozenset[str] = frozenset()
    unhealthy_go: bool = False

    def covers(self, pod: Pod) -> bool:
        """Return whether evicting this pod uses up a disruption of the budget."""
        return (
            pod.namespace == self.namespace
            and self.selector is not None
            and bool(self.selector.requirements)
            and pod.name not in self.disrupted
            and self.selector.matches(pod.labels)
        )
