"""A job that shrinks, as a plugin: the pods beyond its minimum are surplus, the youngest first."""

from aischeduler.framework.plugin import Formed, Incomplete, UnitMembers
from aischeduler.model.gang import Gang
from aischeduler.model.pod import Pod
from aischeduler.state.running_pods import Spare
from aischeduler.state.units import GangTable

JOB = "job"
"""The label of a pod that names its job."""


class Shrinking:
    """The policy of units: each job needs `least` pods, and starts with any of them."""

    name = "Shrinking"

    def __init__(self, least: int) -> None:
        self._least = least

    def unit_of(self, pod: Pod) -> str:
        job = pod.labels.get(JOB, "")
        return f"job/{pod.namespace}/{job}" if job else ""

    def gang_of(self, pods: tuple[Pod, ...], gangs: GangTable) -> Gang | None:
        return None

    def form(self, members: UnitMembers) -> Formed | Incomplete:
        waiting = tuple(sorted(members.waiting, key=_age))
        return Formed(waiting, max(0, self._least - len(members.placed)))

    def spare(self, members: UnitMembers) -> Spare | None:
        beyond = max(0, len(members.placed) - self._least)
        youngest = sorted(members.placed, key=_age)[len(members.placed) - beyond :]
        return Spare(beyond, surplus=frozenset(pod.uid for pod in youngest))


def _age(pod: Pod) -> tuple[int, str]:
    return (pod.created_seconds, pod.uid)
