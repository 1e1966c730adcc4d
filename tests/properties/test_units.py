"""Random days with pairs of pods: a pair starts whole or not at all, and is lost whole."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from aischeduler.engine.profile import Profile
from aischeduler.model.actions import Action, Bind, Evict
from tests import seeds
from tests.build import a_pod
from tests.pairs import PAIR, SPARE, Pairs, pair_profile
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.test_engine import PODS, PODS_MAX, SHAPES, ShapeFields, TakingBack, Wishes
from tests.properties.world import World

PAIRS = ["one", "two", "three"]


class PairWorld(World):
    """A world in which some pods form pairs; each decision about one of them is checked at once."""

    def profile(self) -> Profile:
        return pair_profile()

    def _take(self, action: Action) -> None:
        super()._take(action)
        record = None
        if isinstance(action, Bind):
            record = self.scheduler._cluster.records.get(action.pod.uid)
        if record is not None and record.unit is not None:
            placed = [one for one in record.unit.members.values() if one.counted is not None]
            assert len(placed) > 1, f"{record.pod.uid} is bound without its partner"
        if isinstance(action, Evict):
            self._check_loss(action)

    def _check_loss(self, evict: Evict) -> None:
        cluster = self.scheduler._cluster
        record = cluster.records[evict.victim.uid]
        if record.unit is not None:
            staying = [one for one in record.unit.members.values() if one.counted is not None and cluster.may_go(one)]
            every = [one for one in record.unit.members.values() if one.counted is not None]
            gone = [one for one in every if cluster.leaving(one.pod.uid)]
            spare = Pairs().spare(tuple(one.pod for one in every))
            assert not staying or len(gone) <= spare, (
                f"{evict.victim.uid} goes, and its pair stays on nodes for nothing"
            )


class PairedEngine(TakingBack):
    """One engine with a policy of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PairWorld()

    @rule(wishes=PODS, pair=st.sampled_from(PAIRS), spare=st.booleans(), shape=st.sampled_from(range(len(SHAPES))))
    def pods_of_a_pair_come(self, wishes: Wishes, pair: str, spare: bool, shape: int) -> None:
        for turn in range(wishes["copies"]):
            if len(self.world.pods) >= PODS_MAX:
                self._oldest_pod_ends()
            fields: ShapeFields = {**SHAPES[wishes["shape"] if turn else shape]}
            pod = a_pod(
                self.world.next_pod_name(),
                pool=wishes["pool"],
                priority=wishes["priority"],
                preempts=wishes["preempts"],
                gates=wishes["gates"],
                namespace="default",
                labels={"app": wishes["app"], PAIR: pair, **({SPARE: "yes"} if spare else {})},
                created=int(self.world.now),
                **fields,
            )
            self.world.put(pod)
        self.world.go_on()


def test_random_days_with_pairs_briefly() -> None:
    play(PairedEngine, seeds.number("pairs, briefly"), runs=10)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_with_pairs() -> None:
    play(PairedEngine, seeds.number("pairs"), runs=100)
