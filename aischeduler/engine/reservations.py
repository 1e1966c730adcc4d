"""What rules keep for placed pods, and the Bindings that they delay."""

from dataclasses import dataclass, field

from aischeduler.engine.profile import Profile
from aischeduler.model.actions import Bind
from aischeduler.model.pod import Pod
from aischeduler.state.timers import Timers


@dataclass(slots=True)
class Reservations:
    """The reservations and the delayed Bindings, by uid of the pod."""

    profile: Profile
    kept: dict[str, tuple[Pod, str]] = field(default_factory=dict)
    """A placed pod for which rules reserved -> the pod and its node."""
    delayed: dict[str, tuple[Bind, float]] = field(default_factory=dict)
    """An assumed pod whose Binding rules delay -> its Bind, and since when."""
    asked_at: Timers = field(default_factory=Timers)
    """When rules are asked again about delayed Bindings."""

    def reserve(self, pod: Pod, node: str) -> None:
        """Have the rules reserve for a pod."""
        self.kept[pod.uid] = (pod, node)
        for rule in self.profile.plugins_of(pod).reserves:
            rule.reserve(pod, node)

    def release(self, uid: str) -> None:
        """Drop the delayed Binding of a pod, and have the rules release what they reserved for it."""
        self.end_delay(uid)
        kept = self.kept.pop(uid, None)
        if kept is not None:
            for rule in reversed(self.profile.plugins_of(kept[0]).reserves):
                rule.release(*kept)

    def end_delay(self, uid: str) -> None:
        """Drop the delayed Binding of a pod, if it has one."""
        if self.delayed.pop(uid, None) is not None:
            self.asked_at.drop(uid)
