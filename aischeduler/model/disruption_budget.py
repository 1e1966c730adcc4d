"""PodDisruptionBudgets as a scheduler sees them."""

from dataclasses import dataclass

from aischeduler.model.pod import Pod
from aischeduler.model.selectors import LabelSelector


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """How many of the pods that `selector` matches may be evicted now, by the budget's own status.

    `selector` None, or one without requirements, protects nothing here: kube-scheduler skips such budgets too.
    `disrupted` are the names of pods whose eviction the budget has already counted.
    """

    namespace: str
    name: str
    uid: str = ""
    selector: LabelSelector | None = None
    disruptions_allowed: int = 0
    disrupted: frozenset[str] = frozenset()

    def covers(self, pod: Pod) -> bool:
        """Say whether evicting this pod would use up a disruption."""
        return (
            pod.namespace == self.namespace
            and self.selector is not None
            and bool(self.selector.requirements)
            and pod.name not in self.disrupted
            and self.selector.matches(pod.labels)
        )
