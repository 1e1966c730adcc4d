"""A unit policy for tests: two pods that name the same pair start together or not at all."""

from dataclasses import replace

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.framework.plugin import Formed, Incomplete
from aischeduler.model.pod import Pod

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

    def form(self, waiting: tuple[Pod, ...], placed: tuple[Pod, ...]) -> Formed | Incomplete:
        missing = 2 - len(placed)
        if missing > len(waiting):
            return Incomplete(f"waits for {missing - len(waiting)} more pod of its pair")
        return Formed(waiting, max(missing, 0))

    def spare(self, placed: tuple[Pod, ...]) -> int:
        return max(len(placed) - 2, 0) + any(SPARE in pod.labels for pod in placed)


def pair_profile(*, preemption: bool = True) -> Profile:
    """Return the default profile with the policy of pairs."""
    profile = default_profile(preemption=preemption)
    return replace(profile, plugins=replace(profile.plugins, units=Pairs()))
