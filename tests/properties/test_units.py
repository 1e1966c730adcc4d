"""Random days with pairs of pods: a pair starts whole or not at all, and is lost whole."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from aischeduler.engine.pod_counting import may_go
from aischeduler.engine.profile import Profile
from aischeduler.framework.plugin import UnitMembers
from aischeduler.model.actions import Action, Bind, Evict
from tests import seeds
from tests.build import a_pod
from tests.pairs import PAIR, SPARE, Pairs, pair_profile
from tests.properties.faults import BreakingWorld
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.test_engine import TakingBack
from tests.properties.test_exceptions import BreakingEngine, play_exceptions
from tests.properties.wishes import PODS_MAX, POOLS, SHAPES, Wishes
from tests.properties.world import World


class PairWorld(World):
    """A world in which some pods form pairs; each decision about one of them is checked at once."""

    def profile(self) -> Profile:
        return pair_profile()

    def _take(self, action: Action) -> None:
        super()._take(action)
        record = None
        if isinstance(action, Bind):
            record = self.scheduler.cluster.records.get(action.pod.uid)
        if record is not None and record.unit is not None:
            placed = [one for one in record.unit.members.values() if one.counted is not None]
            assert len(placed) > 1, f"{record.pod.uid} is bound without its partner"
        if isinstance(action, Evict):
            self._check_loss(action)

    def _check_loss(self, evict: Evict) -> None:
        cluster = self.scheduler.cluster
        record = cluster.records[evict.victim.uid]
        if record.unit is not None:
            staying = [one for one in record.unit.members.values() if one.counted is not None and may_go(cluster, one)]
            every = [one for one in record.unit.members.values() if one.counted is not None]
            gone = [one for one in every if cluster.leaving(one.pod.uid)]
            spare = Pairs().spare(UnitMembers((), tuple(one.pod for one in every)))
            assert spare is not None
            assert not staying or len(gone) <= spare.pods, (
                f"{evict.victim.uid} goes, and its pair stays on nodes for nothing"
            )


MEMBERS = st.fixed_dictionaries(
    {
        "shape": st.sampled_from([*range(6), *range(6), *range(len(SHAPES))]),
        "pool": st.sampled_from([*POOLS, *POOLS, ""]),
        "priority": st.sampled_from([0, 5, 10]),
        "preempts": st.sampled_from([True, True, True, False]),
        "spare": st.sampled_from([False, False, True]),
    }
)


class PairedEngine(TakingBack):
    """One engine with a policy of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PairWorld()
        self.pairs = 0

    @rule(wishes=MEMBERS, shape=st.sampled_from(range(6)), pods=st.sampled_from([1, 2, 2, 2, 3]))
    def a_pair_comes(self, wishes: Wishes, shape: int, pods: int) -> None:
        self.pairs += 1
        for turn in range(pods):
            self._member_comes(self.pairs, **{**wishes, "shape": wishes["shape"] if turn else shape})
        self.world.go_on()

    @rule(wishes=MEMBERS, pods=st.sampled_from([2, 2, 2, 3]))
    def a_pair_of_one_class_comes(self, wishes: Wishes, pods: int) -> None:
        self.pairs += 1
        for _ in range(pods):
            self._member_comes(self.pairs, **wishes)
        self.world.go_on()

    @rule(wishes=MEMBERS, back=st.sampled_from([0, 0, 0, 1, 2]))
    def a_pod_joins_a_pair(self, wishes: Wishes, back: int) -> None:
        self._member_comes(max(self.pairs - back, 0), **wishes)
        self.world.go_on()

    def _member_comes(self, pair: int, *, shape: int, pool: str, priority: int, preempts: bool, spare: bool) -> None:
        if len(self.world.pods) >= PODS_MAX:
            self._oldest_pod_ends()
        labels = {"app": "x", PAIR: f"pair-{pair}", **({SPARE: "yes"} if spare else {})}
        pod = a_pod(
            self.world.next_pod_name(),
            pool=pool,
            priority=priority,
            preempts=preempts,
            labels=labels,
            created=int(self.world.now),
            **SHAPES[shape],
        )
        self.world.put(pod)


def test_random_days_with_pairs_briefly() -> None:
    play(PairedEngine, seeds.number("pairs, briefly"), runs=5)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_with_pairs() -> None:
    play(PairedEngine, seeds.number("pairs"), runs=8)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_with_pairs_at_length(number: int) -> None:
    play(PairedEngine, seeds.number(f"pairs, at length {number}"), runs=200)


class BreakingPairWorld(BreakingWorld, PairWorld):
    """A world of pairs whose engine raises."""


class BreakingPairedEngine(BreakingEngine, PairedEngine):
    """One engine with a policy of pairs that raises at calls that the seed chooses."""

    def breaking_world(self) -> World:
        return BreakingPairWorld(self.injector)


def test_exception_costs_a_pair_one_attempt_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    play_exceptions(monkeypatch, 5, BreakingPairedEngine)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_exception_costs_a_pair_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    play_exceptions(monkeypatch, 4, BreakingPairedEngine, "exceptions of pairs")


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_exception_costs_a_pair_one_attempt_at_length(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    play_exceptions(monkeypatch, 100, BreakingPairedEngine, f"pairs, at length {number}")
