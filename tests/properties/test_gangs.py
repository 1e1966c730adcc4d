"""Random days with gangs: none is left on nodes below its minimum, and none waits that fits.

What fits is found by trying all nodes for all pods, which is possible for a few pods on a few nodes.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule
from msgspec.structs import astuple

from aischeduler.engine.pod_counting import may_go
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Bind, Evict
from aischeduler.model.events import BindRefusal, Event, Seen, gone
from aischeduler.model.gang import Gang, GangKey, GangSource, TopologyLevel
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import pod_affinity
from tests import seeds
from tests.affinity_oracle import Reference
from tests.build import a_pod
from tests.gangs import a_gang, member
from tests.properties.faults import BreakingWorld
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.test_engine import TakingBack, clauses
from tests.properties.test_exceptions import BreakingEngine, play_exceptions
from tests.properties.wishes import PODS_MAX, POOLS, SHAPES, TERMS, ShapeFields, Wishes
from tests.properties.world import World

PLAIN = range(6)
"""The shapes whose fit amounts alone decide, but for affinity."""
LATE = re.compile(r"^The gang .* did not start within \d+ s\. ")
ZONE = TopologyLevel("zone", required=True)
FINISHED_SECONDS = 66.0
"""How long a gang may be half where nothing fails: a minute, and a step of the calm."""
FINISHED_AFTER_FAULTS_SECONDS = 200.0
"""The same after the faults stop: an eviction that was lost before is noticed first."""
TOGETHER_OR_APART = (0, 2)
"""The affinity of some gangs: their pods keep apart by host, or come together in a zone."""
GANGS = st.fixed_dictionaries(
    {
        "shape": st.sampled_from(PLAIN),
        "pool": st.sampled_from([*POOLS, *POOLS, ""]),
        "priority": st.sampled_from([0, 5, 10]),
        "pods": st.sampled_from([2, 2, 3, 4]),
        "extra": st.sampled_from([-1, 0, 0, 0, 1]),
        "labelled": st.booleans(),
        "span": st.sampled_from([False, False, True]),
        "close": st.sampled_from([False, False, False, True]),
        "timeout": st.sampled_from([0, 0, 30]),
        "terms": st.sampled_from([None, None, None, None, None, None, *TOGETHER_OR_APART]),
    }
)


class GangWorld(World):
    """A world with gangs, which follows for itself which of them were whole."""

    def __init__(self, *, often: bool = False) -> None:
        self.gangs: dict[GangKey, Gang] = {}
        self.whole: set[GangKey] = set()
        """The gangs that were whole, and of which a pod is still on a node, or sent to one."""
        self._decided: dict[GangKey, int] = {}
        """The gangs of which pods are on their way to nodes -> the minimum by which these were sent."""
        self._ended: Counter[GangKey] = Counter()
        """How many pods of each gang ended on nodes, or on their way there, while others of it are there."""
        self._anew = False
        """Whether the scheduler is new and has not decided yet."""
        self._half_until: dict[GangKey, float] = {}
        """The gangs that are half in the calm -> when they must be whole or given up."""
        self._faults_last_until = 0.0
        super().__init__(often=often)

    def put_gang(self, gang: Gang) -> None:
        """Create or change the object of a gang."""
        self.gangs[gang.key] = gang
        self._happens(Seen(gang))

    def end_gang(self, key: GangKey) -> None:
        """Delete the object of a gang."""
        if self.gangs.pop(key, None) is not None:
            self._happens(gone(Gang, *astuple(key)))

    def gang_of(self, pod: Pod) -> Gang | None:
        """Return the gang of a pod as it is declared now."""
        return None if pod.gang is None else pod.gang.said or self.gangs.get(pod.gang.key)

    def members(self, pods: Mapping[str, Pod] | None = None) -> dict[GangKey, list[Pod]]:
        """Return the pods of each gang, by uid; among `pods`, where they are given."""
        found: dict[GangKey, list[Pod]] = {}
        for _, pod in sorted((self.pods if pods is None else pods).items()):
            if pod.gang is not None:
                found.setdefault(pod.gang.key, []).append(pod)
        return found

    def _everything(self) -> list[Event]:
        return [*(Seen(gang) for _, gang in sorted(self.gangs.items())), *super()._everything()]

    def _happens(self, event: Event) -> None:
        super()._happens(event)
        if isinstance(event, Seen) and isinstance(event.object, Pod):
            self._follow()

    def _follow(self) -> None:
        sent = {bind.pod.uid for bind in self.binds}
        for key, pods in self.members().items():
            on_nodes = [pod for pod in pods if pod.node_name]
            arrived, gang = sent.isdisjoint(pod.uid for pod in pods), self.gang_of(pods[0])
            least = [self._decided[key]] if key in self._decided else []
            least += [gang.min_member] if gang is not None else []
            if not on_nodes and arrived:
                self.whole.discard(key)
                del self._ended[key]
            elif least and len(on_nodes) + self._ended[key] >= min(least):
                self.whole.add(key)
            if arrived:
                self._decided.pop(key, None)

    def end_pod(self, uid: str, *, finished: bool = False) -> None:
        pod = self.pods[uid]
        there = pod.node_name or any(bind.pod.uid == uid for bind in self.binds)
        if pod.gang is not None and there and not pod.terminating:
            self._ended[pod.gang.key] += 1
        super().end_pod(uid, finished=finished)

    def conclude(self, number: int, wish: BindRefusal | None) -> None:
        super().conclude(number, wish)
        self._follow()

    def restart_scheduler(self) -> None:
        self._decided.clear()  # a new scheduler does not know it
        super().restart_scheduler()
        self._anew = True

    def decide(self, limit: int = 1, rounds: int = 1) -> int:
        if self._anew and self.scheduler.ready(self.now):
            self._anew = False
            self._note_unknown()
        return super().decide(limit, rounds)

    def _note_unknown(self) -> None:
        """Note the gangs with pods on nodes: a new scheduler does not know whether they were whole."""
        members = self.members(self.scheduler.oracle._pods)
        self.whole.update(key for key, pods in members.items() if any(pod.node_name for pod in pods))

    def _take(self, action: Action) -> None:
        super()._take(action)
        if isinstance(action, Bind) and action.pod.gang is not None:
            unit = self.scheduler.cluster.records[action.pod.uid].unit
            assert unit is not None
            placed = sum(one.counted is not None and not self._leaves(one.pod) for one in unit.members.values())
            least = unit.gang.min_member if unit.gang is not None else 0
            self._decided[action.pod.gang.key] = least
            assert unit.started or placed >= least, f"{action.pod.uid} is bound as one of {placed} of {least}"
        if isinstance(action, Evict) and action.victim.gang is not None:
            self._check_loss(action)

    def _leaves(self, pod: Pod) -> bool:
        return pod.terminating or pod.uid in self.scheduler.cluster.leaving_pods.asked

    def _check_loss(self, evict: Evict) -> None:
        cluster = self.scheduler.cluster
        unit = cluster.records[evict.victim.uid].unit
        assert unit is not None
        every = [one for one in unit.members.values() if one.counted is not None]
        staying = [one for one in every if may_go(cluster, one)]
        gone = [one for one in every if cluster.leaving(one.pod.uid)]
        spare = cluster.running.spare_of(unit.number).pods
        assert not staying or len(gone) <= spare, f"{evict.victim.uid} goes, and its gang stays on nodes for nothing"

    # At rest.

    def half(self) -> dict[GangKey, str]:
        """Return the gangs of which some pods are on nodes, and never enough of them, with how many."""
        found: dict[GangKey, str] = {}
        for key, pods in self.members().items():
            gang = self.gang_of(pods[0])
            on_nodes = sum(bool(pod.node_name) and not pod.terminating for pod in pods)
            if gang is not None and 0 < on_nodes < gang.min_member and key not in self.whole:
                found[key] = f"{on_nodes} of {gang.min_member}"
        return found

    def calm_down(self, seconds: float) -> None:
        self._faults_last_until = self.now + FINISHED_AFTER_FAULTS_SECONDS
        super().calm_down(seconds)

    def settle(self) -> None:
        """Let every part act until nothing changes; no gang is half for longer than it may be."""
        super().settle()
        half = self.half()
        until = max(self.now + FINISHED_SECONDS, self._faults_last_until)
        self._half_until = {key: self._half_until.get(key, until) for key in half}
        late = [f"{key}: {half[key]}" for key, until in self._half_until.items() if self.now > until]
        assert late == []

    def in_vain(self) -> list[str]:
        """Return the gangs that wait although their pods fit into free room of their home pool."""
        found = [pods for pods in self.members().values() if self._would_fit(pods)]
        return [f"{pod.name}: {self.scheduler.why(pod.uid)}" for pods in found for pod in pods]

    def _would_fit(self, pods: list[Pod]) -> bool:
        waiting, gang = [pod for pod in pods if not pod.node_name], self.gang_of(pods[0])
        if gang is None or gang.invalid or gang.min_member < 2 or len(waiting) != len(pods):
            return False
        homes = {pod.pool if pod.pool in self.pools else "default" for pod in waiting}
        welcome = all(self.scheduler.oracle._welcome(pod) for pod in waiting)
        odd = not welcome or any(pod.gates or pod.terminating for pod in waiting)
        if len(homes) != 1 or len(waiting) < gang.min_member or odd:
            return False
        scheduler, (home,) = self.scheduler.cluster, homes
        nodes = [
            node
            for _, node in sorted(self.nodes.items())
            if scheduler.pool_of(scheduler.nodes.rows[node.name]) == home and not node.taints and not node.unschedulable
        ]
        order = sorted(waiting, key=lambda pod: (pod.created_seconds, pod.uid))[: gang.min_member]
        zones = {node.labels.get("zone") for node in nodes} - {None} if gang.topology else {None}
        return any(
            self._packs(
                {node.name: self._room(node) for node in nodes if zone in (None, node.labels.get("zone"))},
                order,
                [(pod, pod.node_name) for pod in self.pods.values() if pod.node_name],
                self._reference(),
            )
            for zone in zones
        )

    def _reference(self) -> Reference:
        return Reference({name: node.labels for name, node in self.nodes.items()}, self.namespaces)

    def _room(self, node: Node) -> dict[str, int]:
        """Return what is free on a node beside its pods and the room that others claim."""
        room, cluster = dict(node.allocatable), self.scheduler.cluster
        for pod in self.pods.values():
            if pod.node_name == node.name:
                _take_off(room, pod)
        for claim in cluster.claims.on_row(cluster.nodes.rows[node.name]):
            for one in claim.on(cluster.nodes.rows[node.name]):
                _take_off(room, one.assigned.pod)
        return room

    def _packs(
        self,
        rooms: dict[str, dict[str, int]],
        pods: list[Pod],
        placed: list[tuple[Pod, str]],
        reference: Reference,
    ) -> bool:
        """Return whether all pods fit into these rooms beside those that are placed, by trying all."""
        if not pods:
            return True
        asked, verdicts = pods[0].spec.request.taken, reference.verdicts(pods[0], placed)
        for node, room in rooms.items():
            there = None if verdicts[node] else self._on_node(pods[0], node, room, placed)
            if there is not None:
                left = {**room, **{resource: room.get(resource, 0) - amount for resource, amount in asked.items()}}
                if self._packs({**rooms, node: left}, pods[1:], [*placed, (there, node)], reference):
                    return True
        return False

    def _on_node(self, pod: Pod, node: str, room: dict[str, int], placed: list[tuple[Pod, str]]) -> Pod | None:
        """Return a pod as it would be on a node with this room, beside those that are placed; None if it cannot be."""
        return pod if all(room.get(resource, 0) >= n for resource, n in pod.spec.request.taken.items()) else None


def _take_off(room: dict[str, int], pod: Pod) -> None:
    for resource, amount in pod.spec.request.taken.items():
        room[resource] = room.get(resource, 0) - amount


class GangEngine(TakingBack):
    """One engine in a world of gangs."""

    def __init__(self) -> None:
        super().__init__()
        self.world: GangWorld = GangWorld()
        self.made = 0

    @rule(wishes=GANGS)
    def a_gang_comes(self, wishes: Wishes) -> None:
        self._gang_comes(**wishes)
        self.world.go_on()

    @rule(wishes=GANGS)
    def another_gang_comes(self, wishes: Wishes) -> None:
        self._gang_comes(**wishes)
        self.world.go_on()

    def _gang_comes(
        self,
        *,
        shape: int,
        pool: str,
        priority: int,
        pods: int,
        extra: int,
        labelled: bool,
        span: bool,
        close: bool,
        timeout: int,
        terms: int | None,
    ) -> None:
        self.made += 1
        source = GangSource.LABELS if labelled else GangSource.COSCHEDULING
        topology = (ZONE,) if close else ()
        gang = a_gang(f"g{self.made}", pods, source, span=span, topology=topology, timeout=timeout)
        if not labelled:
            self.world.put_gang(gang)
        for _ in range(pods + extra):
            self._member_comes(gang, shape, pool, priority, terms)

    def _member_comes(self, gang: Gang, shape: int, pool: str, priority: int, terms: int | None = None) -> None:
        if len(self.world.pods) >= PODS_MAX:
            self._oldest_pod_ends()
        name, created = self.world.next_pod_name(), int(self.world.now)
        fields: ShapeFields = {**SHAPES[shape]}
        if terms is not None:
            fields["pod_affinity"] = pod_affinity(**TERMS[terms])
        pod = a_pod(name, pool=pool, priority=priority, labels={"app": "x"}, created=created, **fields)
        self.world.put(member(pod, gang))

    @rule(number=st.integers(0, 30), shape=st.sampled_from(PLAIN), priority=st.sampled_from([0, 5, 10]))
    def a_pod_joins_a_gang(self, number: int, shape: int, priority: int) -> None:
        gangs = [(gang, pods[0]) for pods in self._gangs() if (gang := self.world.gang_of(pods[0])) is not None]
        if gangs:
            gang, first = gangs[number % len(gangs)]
            self._member_comes(gang, shape, first.pool, priority)
        self.world.go_on()

    @rule(number=st.integers(0, 30), least=st.sampled_from([0, 1, 2, 3, 5]))
    def the_object_of_a_gang_changes_or_goes(self, number: int, least: int) -> None:
        keys = sorted(self.world.gangs)
        if keys:
            key = keys[number % len(keys)]
            if least:
                self.world.put_gang(a_gang(key.name, least, key.source))
            else:
                self.world.end_gang(key)
        self.world.go_on()

    def _gangs(self) -> Iterator[list[Pod]]:
        yield from self.world.members().values()

    def unconfirmed(self, fresh: Scheduler) -> list[tuple[str, str, str]]:
        """Compare the reasons of gangs whose lead is the same, without the sentence that a gang is late.

        A new engine does not know since when a gang waits, and which of its pods came first.
        """
        records = fresh.cluster.records
        return [
            (uid, why, tried)
            for uid, why, tried in super().unconfirmed(fresh)
            if clauses(LATE.sub("", why)) != clauses(LATE.sub("", tried))
            and (records[uid].unit is None or records[uid].leads is not None)
        ]

    def teardown(self) -> None:
        super().teardown()
        self.world.calm_down(200.0)
        in_vain = self.world.in_vain()
        assert in_vain == []
        if self.world.half():  # a refused Binding was tried again just now
            self.world.calm_down(FINISHED_SECONDS + 6.0)


def test_random_days_with_gangs_briefly() -> None:
    play(GangEngine, seeds.number("gangs, briefly"), runs=5)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_with_gangs() -> None:
    play(GangEngine, seeds.number("gangs"), runs=8)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_with_gangs_at_length(number: int) -> None:
    play(GangEngine, seeds.number(f"gangs, at length {number}"), runs=200)


class BreakingGangWorld(BreakingWorld, GangWorld):
    """A world of gangs whose engine raises."""


class BreakingGangEngine(BreakingEngine, GangEngine):
    """One engine in a world of gangs that raises at calls that the seed chooses."""

    def breaking_world(self) -> World:
        return BreakingGangWorld(self.injector)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_exception_costs_a_gang_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    play_exceptions(monkeypatch, 5, BreakingGangEngine)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_exception_costs_a_gang_one_attempt_at_length(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    play_exceptions(monkeypatch, 50, BreakingGangEngine, f"gangs, at length {number}")
