"""No table grows without bound: after many objects of all kinds came and went, what is kept is as large as before."""

import pytest

from tests import seeds
from tests.properties.churn import KINDS, Churn
from tests.sizes import sizes

SLACK = 64
"""By how many entries a table may be larger: tables widen in steps, and counters have more of a few fixed names."""
WIDENS = 4
"""How many times as large an array may be, which has room for the most rows, slots or resources at one time."""


def grown(events: int, name: str) -> dict[str, tuple[int, int]]:
    """Return what is larger than its limit, or than before, once all of so many events have happened.

    Before is after a tenth of them. Both times everything is gone that comes and goes.
    """
    churn = Churn(seeds.random(name))
    churn.play(events // 10)
    churn.rest()
    before, _ = sizes(churn.scheduler)
    churn.play(events - churn.events)
    churn.rest()
    after, limits = sizes(churn.scheduler)
    assert {*churn.live} == {"pod", "node", *KINDS}
    assert not churn.scheduler.counters.internal_errors
    for path in sorted(after, key=lambda path: (before[path] - after[path], path)):
        print(f"{path:45} {before[path]:8} {after[path]:8} {limits.get(path, '')}")
    allowed = {path: limits.get(path, WIDENS * before[path] + SLACK) for path in after}
    return {path: (before[path], after[path]) for path in after if after[path] > allowed[path]}


@pytest.mark.whole
def test_no_table_grows_over_thousands_of_events() -> None:
    assert grown(6_000, "growth") == {}


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_no_table_grows_over_a_million_events() -> None:
    assert grown(1_000_000, "growth, at length") == {}
