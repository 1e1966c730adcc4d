"""A unit policy for tests: two pods that name the same pair start together or not at all."""

from msgspec.structs import replace

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.framework.plugin import Formed, Incomplete, UnitMembers
from aischeduler.model.pod import Pod
from aischeduler.state.running_pods import Spare
from aischeduler.state.units import GangTable

PAIR = "pair"
"""The label whose value is the name of the pair."""
SPARE = "spare"
"""A label: the pair is of use with one pod."""


class Pairs:
    """All or nothing of two pods."""

    name = "Pairs"

    def unit_of(self, pod: Pod) -> str:
        pair = pod.labels.get(PAIR, "")
        return f"{pod.namespace}/{pair}" if pair else ""

    def gang_of(self, pods: tuple[Pod, ...], gangs: GangTable) -> None:
        return None

    def form(self, members: UnitMembers) -> Formed | Incomplete:
        missing = 2 - len(members.placed)
        if missing > len(members.waiting):
            return Incomplete(f"waits for {missing - len(members.waiting)} more pod of its pair")
        return Formed(members.waiting, max(missing, 0))

    def spare(self, members: UnitMembers) -> Spare | None:
        placed = members.placed
        return Spare(max(len(placed) - 2, 0) + any(SPARE in pod.labels for pod in placed))


def pair_profile(*, preemption: bool = True) -> Profile:
    """Return the default profile with the policy of pairs."""
    profile = default_profile(preemption=preemption)
    return replace(profile, plugins=replace(profile.plugins, units=Pairs()))
