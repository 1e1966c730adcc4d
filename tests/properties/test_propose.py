"""A proposal changes nothing: the state before it is the state after it, and a second one is the same."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import Phase

from aischeduler.engine import cycle, message_updates
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.propose import propose
from aischeduler.model.proposal import Proposal
from aischeduler.state.pod_records import PodRecord
from tests import seeds
from tests.engine_state import change, state
from tests.properties.playing import play
from tests.properties.test_engine import Engine, TakingBack
from tests.properties.test_units import PairedEngine

CHECKED = 3
"""One of so many proposals is checked: to write down the state takes a hundred times as long as to propose."""
KINDS = {"Place", "MakeRoom", "Borrow", "Wait", "Hold"}


class Checks:
    """Checks each proposal of an engine. What it finds is kept, because an exception would cost only the attempt."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.faults: list[str] = []

    def propose(self, cluster: Cluster, record: PodRecord, pool: str, now: float, **options: Any) -> Proposal:
        if self.kinds.total() % CHECKED:
            proposal = propose(cluster, record, pool, now, **options)
            self.kinds[type(proposal).__name__] += 1
            return proposal
        before = state(cluster)
        proposal = propose(cluster, record, pool, now, **options)
        changed = change(before, state(cluster))
        again = propose(cluster, record, pool, now, **options)
        if changed:
            self.faults.append(f"{proposal} changes {changed}")
        if again != proposal:
            self.faults.append(f"{again} follows {proposal}")
        self.kinds[type(proposal).__name__] += 1
        return proposal


@pytest.mark.whole
@pytest.mark.timeout(900)
def test_proposals_of_every_kind_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = Checks()
    for module in (cycle, message_updates):
        monkeypatch.setattr(module, "propose", checks.propose)
    for machine in (Engine, TakingBack, PairedEngine):
        play(machine, seeds.number(f"proposals of {machine.__name__}"), runs=5, phases=(Phase.generate,))
    assert checks.faults == []
    assert set(checks.kinds) == KINDS
