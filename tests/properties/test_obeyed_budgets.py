"""Random days where pods are evicted by the Eviction API: budgets and refusals cost no pod that need not go."""

import pytest

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.actions import Action, Evict
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.node import Node
from aischeduler.model.pod import PENDING, Pod
from aischeduler.model.pool import Pool
from tests import seeds
from tests.build import replace
from tests.checked_scheduler import CheckedScheduler
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.test_engine import TakingBack
from tests.properties.world import World


class ObeyingScheduler(CheckedScheduler):
    """A checked scheduler that evicts by the Eviction API."""

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        """Decide; no pod is evicted that a budget forbids, or together with one for whose eviction it should wait."""
        cluster = self._cluster
        allowed = {key: cluster.budgets.left(key) for key in self._budgets()}
        asked = {uid: one.beneficiary for uid, one in cluster.leaving_pods.asked.items() if self._risky(uid)}
        actions = super().decide(pool, now, limit)
        victims = [one for one in actions if isinstance(one, Evict)]
        for one in victims:
            covering = cluster.budgets.covering(one.victim)
            assert len(covering) < 2 or one.victim.phase == PENDING, f"{one.victim.name} has several budgets"
            if covering and one.victim.phase != PENDING:
                allowed[covering[0]] -= 1
                assert allowed[covering[0]] >= 0, f"{one.victim.name} goes although its budget is used up"
            owner = "" if one.beneficiary is None else one.beneficiary.uid
            assert not owner or owner not in asked.values(), f"{one.victim.name} is evicted before an answer"
        return actions

    def _budgets(self) -> list[tuple[str, str]]:
        groups = self._cluster.budgets._budgets
        return [(namespace, name) for namespace, budgets in groups.items() for name in budgets]

    def _risky(self, uid: str) -> bool:
        record = self._cluster.records[uid]
        return bool(record.refusals or self._cluster.budgets.covering(record.pod))


class ObeyingWorld(World):
    """A world whose engines obey budgets."""

    def profile(self) -> Profile:
        return replace(default_profile(), obeys_budgets=True)

    def put(self, thing: Pod | Node | Pool | DisruptionBudget) -> None:
        """Change an object; a pod on a node runs, because the budgets of a pending one do not count."""
        if isinstance(thing, Pod) and thing.node_name and thing.phase == PENDING:
            thing = replace(thing, phase="Running")
        super().put(thing)

    def _start(self) -> CheckedScheduler:
        self.runs += 1
        return ObeyingScheduler(self.profile(), f"run{self.runs}", often=self._often)


class ObeyingEngine(TakingBack):
    """One engine that obeys budgets."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ObeyingWorld()


def test_random_days_with_obeyed_budgets_briefly() -> None:
    play(ObeyingEngine, seeds.number("obeyed budgets, briefly"), runs=5)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_with_obeyed_budgets() -> None:
    play(ObeyingEngine, seeds.number("obeyed budgets"), runs=4)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_with_obeyed_budgets_at_length(number: int) -> None:
    play(ObeyingEngine, seeds.number(f"obeyed budgets, at length {number}"), runs=200)
