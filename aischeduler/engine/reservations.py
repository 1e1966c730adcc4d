"""What rules keep for placed pods, and the Bindings that they delay."""

from collections import OrderedDict
from dataclasses import dataclass, field

from msgspec import Struct

from aischeduler.engine.profile import Profile
from aischeduler.model.actions import Bind
from aischeduler.model.pod import Pod
from aischeduler.model.volumes import VolumeWrite
from aischeduler.state.timers import Timers


class VolumeWork(Struct):
    """The volumes for which a Binding waits since the time `since`.

    `versions` are those of the objects as they were written, None until then; `refused` says why they could not be.
    """

    decision: str
    writes: tuple[VolumeWrite, ...]
    since: float
    versions: tuple[str, ...] | None = None
    refused: str = ""


@dataclass(slots=True)
class BindingGroup:
    """The delayed Bindings of one decision that are sent together: pods of a unit that has not started, by uid.

    Those that are `awaited` are not permitted yet.
    """

    pods: dict[str, None] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)


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
    groups: dict[str, BindingGroup] = field(default_factory=dict)
    """The Bindings that are sent together, by their decision."""
    volumes: dict[str, VolumeWork] = field(default_factory=dict)
    """An assumed pod whose Binding waits for volumes -> what is known of them."""
    unsettled: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """An assumed pod -> when to read it if the watch has not shown it bound by then; in order of time."""
    ruled: bool = field(init=False)
    """Whether a rule of any profile reserves or permits."""

    def __post_init__(self) -> None:
        """Note whether there are rules at all."""
        every = (self.profile.plugins, *self.profile.others.values())
        self.ruled = any(plugins.reserves or plugins.permits for plugins in every)

    def reserve(self, pod: Pod, node: str) -> None:
        """Have the rules reserve for a pod."""
        self.kept[pod.uid] = (pod, node)
        for rule in self.profile.plugins_of(pod).reserves:
            rule.reserve(pod, node)

    def release(self, uid: str) -> None:
        """Drop the delayed Binding of a pod, and have the rules release what they reserved for it.

        Raises the first exception of a rule, once all have released.
        """
        self.end_delay(uid)
        kept = self.kept.pop(uid, None)
        if kept is None:
            return
        failed: list[Exception] = []
        for rule in reversed(self.profile.plugins_of(kept[0]).reserves):
            try:
                rule.release(*kept)
            except Exception as error:  # noqa: BLE001 - what one rule keeps must not keep the others from releasing
                failed.append(error)
        if failed:
            raise failed[0]

    def end_delay(self, uid: str) -> None:
        """Drop the delayed Binding of a pod, if it has one."""
        self.volumes.pop(uid, None)
        ended = self.delayed.pop(uid, None)
        if ended is None:
            return
        self.asked_at.drop(uid)
        decision = ended[0].decision
        group = self.groups.get(decision)
        if group is not None:
            group.pods.pop(uid, None)
            group.awaited.discard(uid)
            if not group.pods:
                del self.groups[decision]
