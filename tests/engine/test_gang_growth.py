"""Gangs that change pod by pod: the work grows with the number of pods, not with its square."""

from collections.abc import Iterable

import pytest

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.framework.plugin import Formed, Incomplete, UnitMembers
from aischeduler.model.actions import Action, Bind, ReportWaiting
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.gang import Gang, GangSource
from aischeduler.model.pod import RUNNING, Pod
from aischeduler.plugins.gangs import Gangs
from aischeduler.state.running_pods import Spare
from aischeduler.state.units import GangTable
from tests.build import a_node, a_pod, replace
from tests.checked_scheduler import answers
from tests.gangs import a_gang, member

SIZE = 1000
EACH = 20
"""The most often that a pod may be read, or told of, while its gang changes once for each of its pods."""


class CountedGangs(Gangs):
    """The policy of gangs; `read` counts the pods that it was given."""

    def __init__(self) -> None:
        self.read = 0

    def gang_of(self, pods: tuple[Pod, ...], gangs: GangTable) -> Gang | None:
        self.read += len(pods)
        return super().gang_of(pods, gangs)

    def form(self, members: UnitMembers) -> Formed | Incomplete:
        self.read += len(members.waiting) + len(members.placed)
        return super().form(members)

    def spare(self, members: UnitMembers) -> Spare | None:
        self.read += len(members.placed)
        return super().spare(members)


class Stream:
    """A scheduler that gets one event in a millisecond, and decides after each; nothing is checked."""

    def __init__(self, *events: Event) -> None:
        self.policy = CountedGangs()
        profile = default_profile()
        counted: Profile = replace(profile, plugins=replace(profile.plugins, units=self.policy))
        self.scheduler = Scheduler(counted, "run")
        self.now = 0.0
        self.said: list[Action] = []
        for event in events:
            self.scheduler.observe(event, self.now)
        self.decide()

    def decide(self, seconds: float = 0.0) -> None:
        """Advance the clock, and decide until no pool is ready."""
        self.now += seconds
        while pools := self.scheduler.ready(self.now):
            for pool in pools:
                actions = self.scheduler.decide(pool, self.now, 64)
                self.said += actions
                for event in answers(actions):
                    self.scheduler.observe(event, self.now)

    def cost(self, events: Iterable[Event]) -> float:
        """Let these events come one by one; return how often a pod was read, and told of, per event."""
        read, said, coming = self.policy.read, len(self.said), list(events)
        for event in coming:
            self.scheduler.observe(event, self.now)
            self.decide(0.001)
        return (self.policy.read - read + len(self.said) - said) / len(coming)

    @property
    def bound(self) -> dict[str, str]:
        """The nodes to which pods were sent, by uid."""
        return {action.pod.uid: action.node for action in self.said if isinstance(action, Bind)}


def pods_of(gang: Gang | str, *, size: int = SIZE, cpu: str = "1") -> list[Pod]:
    return [member(a_pod(f"g-{turn}", cpu=cpu, memory="1Mi"), gang) for turn in range(size)]


def room(cpu: int) -> Seen:
    return Seen(a_node("n", cpu=str(cpu), pods=2 * SIZE))


@pytest.fixture
def sent() -> tuple[Stream, list[Pod]]:
    """Return a gang whose pods were all sent to a node in one decision."""
    pods = pods_of("g")
    stream = Stream(room(SIZE), Seen(a_gang("g", SIZE)), *map(Seen, pods))
    assert len(stream.bound) == SIZE
    return stream, pods


def on_nodes(pods: list[Pod], **more: object) -> list[Seen]:
    return [Seen(replace(pod, node_name="n", **more)) for pod in pods]


@pytest.mark.parametrize("by_labels", [False, True])
def test_gang_that_gathers_reads_each_pod_a_few_times_and_starts_with_its_last_pod(*, by_labels: bool) -> None:
    gang = a_gang("g", SIZE, GangSource.LABELS) if by_labels else a_gang("g", SIZE)
    pods = pods_of(gang if by_labels else "g")
    stream = Stream(room(SIZE), Seen(a_gang("g", SIZE)))
    assert stream.cost(map(Seen, pods)) < EACH
    assert len(stream.bound) == SIZE
    told = [action for action in stream.said if isinstance(action, ReportWaiting)]
    assert len(told) < EACH * SIZE


def test_gang_with_roles_starts_with_the_last_pod_of_the_role_that_lacks_one() -> None:
    gang = a_gang("g", 100, GangSource.LABELS, roles=(("actor", 98), ("learner", 2)))
    pods = [replace(pod, gang=replace(pod.gang, role="actor")) for pod in pods_of(gang, size=200)]
    learners = [replace(pod, gang=replace(pod.gang, role="learner")) for pod in (pods[10], pods[-1])]
    stream = Stream(room(SIZE))
    assert stream.cost(map(Seen, [*pods[:10], learners[0], *pods[11:-1]])) < EACH
    assert stream.bound == {}
    stream.cost([Seen(learners[1])])
    assert len(stream.bound) == 200


def test_reason_of_a_gathering_gang_follows_its_size_after_a_while() -> None:
    stream = Stream(Seen(a_gang("g", 200)), *map(Seen, pods_of("g", size=100)))
    stream.cost(map(Seen, pods_of("g", size=150)[100:]))
    stream.decide(seconds=1)
    assert "150 of at least 200 exist" in stream.scheduler.why("uid-g-0")
    assert "150 of at least 200 exist" in stream.scheduler.why("uid-g-149")


def test_pods_beyond_the_minimum_of_a_gang_that_waits_for_room_are_read_a_few_times() -> None:
    pods = pods_of("g", size=2 * SIZE)
    stream = Stream(room(10), Seen(a_gang("g", SIZE)), *map(Seen, pods[:SIZE]))
    assert stream.cost(map(Seen, pods[SIZE:])) < EACH


def test_gang_whose_bindings_are_shown_one_by_one_reads_each_pod_a_few_times(sent: tuple[Stream, list[Pod]]) -> None:
    stream, pods = sent
    assert stream.cost(on_nodes(pods)) < EACH


def test_gang_whose_pods_begin_to_run_one_by_one_reads_each_pod_a_few_times(sent: tuple[Stream, list[Pod]]) -> None:
    stream, pods = sent
    for event in on_nodes(pods):
        stream.scheduler.observe(event, stream.now)
    stream.decide()
    assert stream.cost(on_nodes(pods, phase=RUNNING, started_seconds=5)) < EACH


@pytest.mark.parametrize("started", [True, False])
def test_gang_whose_pods_leave_their_node_one_by_one_reads_each_pod_a_few_times(
    sent: tuple[Stream, list[Pod]], *, started: bool
) -> None:
    stream, pods = sent
    shown = pods if started else pods[:-1]
    for event in on_nodes(shown):
        stream.scheduler.observe(event, stream.now)
    stream.decide()
    assert stream.cost(gone(Pod, pod.uid) for pod in shown) < EACH


def test_waiting_gang_whose_pods_are_deleted_one_by_one_reads_each_pod_a_few_times() -> None:
    pods = pods_of("g")
    stream = Stream(room(10), Seen(a_gang("g", SIZE // 2)), *map(Seen, pods))
    assert stream.cost(gone(Pod, pod.uid) for pod in pods) < EACH


def test_gang_that_loses_a_waiting_pod_is_tried_again_within_seconds() -> None:
    pods = pods_of("g")
    stream = Stream(room(10), Seen(a_gang("g", SIZE // 2)), *map(Seen, pods))
    stream.cost([gone(Pod, pods[0].uid), room(SIZE)])
    stream.decide(seconds=3)
    assert len(stream.bound) == SIZE - 1
