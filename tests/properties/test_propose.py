"""A look leaves the whole state as it was, and what is kept of looks changes no answer, on days with every rule.

Gangs that span pools, rare cards, volumes, affinity and spread meet on these days.
"""

from typing import ClassVar

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from aischeduler.analysis.explain import explain
from aischeduler.analysis.what_if import question_of
from aischeduler.model.events import Seen
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import pod_affinity
from aischeduler.model.volumes import VolumeClaimUse
from aischeduler.state.pod_records import PodState
from tests import seeds
from tests.build import a_pod, spread
from tests.checked_scheduler import CheckedScheduler
from tests.gangs import a_gang, member
from tests.properties.looking import LOOKS, Looks
from tests.properties.playing import play
from tests.properties.test_cards import TYPES, CardEngine
from tests.properties.test_gangs import TOGETHER_OR_APART, GangEngine
from tests.properties.volume_world import CLAIMS, CLOUD, LOCAL, VOLUMES, VolumeWorld, using
from tests.properties.wishes import NODES, NUMBER, PODS_MAX, POOLS, SHAPES, TERMS, ShapeFields, Wishes

GENERATE = (Phase.generate,)
"""No shrinking: a run that fails has its seed, and the looks of other runs go on."""
KINDS = ("Place", "MakeRoom", "Borrow", "Wait", "Hold", "explain", "beside", "step")
"""What must occur beside a look of every kind: the proposals, and questions."""
ASKED = st.fixed_dictionaries(
    {
        "shape": st.sampled_from([0, 0, 1, 2, 4]),
        "pool": st.sampled_from([*POOLS, ""]),
        "priority": st.sampled_from([0, 5, 10]),
        "terms": st.sampled_from([None, None, *TOGETHER_OR_APART]),
        "spread_over": st.sampled_from([(), (), ("zone",)]),
        "types": st.sampled_from(TYPES),
        "claim": st.sampled_from(["", "", "shared", "own"]),
        "of": st.sampled_from([LOCAL.name, LOCAL.name, CLOUD.name]),
        "mode": st.sampled_from(["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]),
    }
)


class LookedAtWorld(VolumeWorld):
    """A world the looks of whose engines are checked."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        super().__init__()

    def _start(self) -> CheckedScheduler:
        scheduler = super()._start()
        self._looks.begin(scheduler.cluster)
        for one in (LOCAL, CLOUD):
            scheduler.observe(Seen(one), self.now)
        return scheduler


class LookingEngine(GangEngine, CardEngine):
    """One engine each of whose looks is checked; people ask it questions too."""

    looks: ClassVar[Looks]

    def __init__(self) -> None:
        super().__init__()
        self.looks.begin_day()
        self.world: LookedAtWorld = LookedAtWorld(self.looks)

    @rule(wishes=ASKED, pods=st.integers(1, 3), span=st.booleans(), labelled=st.booleans(), number=NUMBER)
    def pods_with_every_wish_come(self, wishes: Wishes, pods: int, *, span: bool, labelled: bool, number: int) -> None:
        self.made += 1
        source = GangSource.LABELS if labelled else GangSource.COSCHEDULING
        gang = a_gang(f"g{self.made}", pods, source, span=span) if pods > 1 else None
        if gang is not None and not labelled:
            self.world.put_gang(gang)
        for turn in range(pods):
            if len(self.world.pods) >= PODS_MAX:
                self._oldest_pod_ends()
            pod = self._wishing(turn if wishes["claim"] == "own" else 0, number, **wishes)
            self.world.put(member(pod, gang) if gang is not None else pod)
        self._go_on()

    def _wishing(
        self,
        turn: int,
        number: int,
        *,
        shape: int,
        pool: str,
        priority: int,
        terms: int | None,
        spread_over: tuple[str, ...],
        types: tuple[str, ...],
        claim: str,
        of: str,
        mode: str,
    ) -> Pod:
        fields: ShapeFields = {**SHAPES[shape]}
        if terms is not None:
            fields["pod_affinity"] = pod_affinity(**TERMS[terms])
        fields["topology_spread"] = tuple(spread(key, app="x") for key in spread_over)
        fields["gpu_types"] = types
        claims: tuple[VolumeClaimUse, ...] = ()
        if claim:
            name = CLAIMS[(number + turn) % len(CLAIMS)]
            self.world.put_claim(name, of, mode)
            claims = using(name)
        name, created = self.world.next_pod_name(), int(self.world.now)
        return a_pod(name, pool=pool, priority=priority, labels={"app": "x"}, created=created, claims=claims, **fields)

    @rule(name=st.sampled_from(VOLUMES), node=st.sampled_from([*NODES, ""]), size=st.sampled_from([4, 5, 9]))
    def a_volume_comes(self, name: str, node: str, size: int) -> None:
        self.world.put_volume(name, node, size)
        self._go_on()

    @rule(name=st.sampled_from([*VOLUMES, *CLAIMS]))
    def a_volume_or_a_claim_goes(self, name: str) -> None:
        if name in CLAIMS:
            self.world.end_claim(name)
        else:
            self.world.end_volume(name)
        self._go_on()

    @rule(refuses=st.booleans())
    def volumes_are_refused_or_not(self, refuses: bool) -> None:
        self.world.refuses = refuses

    @rule(number=NUMBER)
    def somebody_asks(self, number: int) -> None:
        cluster = self.world.scheduler.cluster
        records = [one for one in cluster.records.values() if cluster.ours(one.pod)]
        if not records:
            return
        record = records[number % len(records)]
        with self.looks.question("explain"):
            explain(cluster, record, cluster.now)
        if record.waits_as.state in (PodState.PARKED, PodState.NOMINATED):
            question = question_of(cluster, record, cluster.now)
            for pool in cluster.pools.names():
                with self.looks.question("beside"), question.beside(pool):
                    pass
        self._go_on()

    def _go_on(self) -> None:
        self.world.go_on()

    @invariant()
    def no_look_was_wrong(self) -> None:
        assert self.looks.faults == []

    def teardown(self) -> None:
        """Count what happened; what becomes of the pods is for other days."""
        self.note(self.world.said)


def play_looks(monkeypatch: pytest.MonkeyPatch, name: str, runs: int) -> Looks:
    """Play days each of whose looks is checked; a look of every kind must have occurred."""
    looks = LookingEngine.looks = Looks()
    looks.watch(monkeypatch)
    play(LookingEngine, seeds.number(name), runs, GENERATE)
    print(looks.done)
    assert looks.faults == []
    return looks


def test_looks_leave_nothing_behind_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    play_looks(monkeypatch, "looks, briefly", runs=2)


@pytest.mark.whole
@pytest.mark.timeout(900)
def test_looks_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = play_looks(monkeypatch, "looks", runs=6)
    assert {*KINDS, *(look.__name__ for look in LOOKS)} <= looks.done.keys()


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_looks_leave_nothing_behind_at_length(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    play_looks(monkeypatch, f"looks, at length {number}", runs=500)
