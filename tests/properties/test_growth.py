"""No table grows without bound: after many objects of all kinds came and went, what is kept is as large as before."""

from collections import Counter

import pytest

from tests import seeds
from tests.properties.churn import KINDS, Churn
from tests.sizes import LIMITS, sizes

SLACK = 64
"""By how many entries a table may be larger: tables widen in steps, and counters have more of a few fixed names."""
WIDENS = 4
"""How many times as large an array may be, which has room for the most rows, slots or resources at one time."""


def play(events: int, name: str) -> tuple[Counter[str], Counter[str]]:
    """Return the sizes after a tenth of the events and after all of them, each time without what comes and goes."""
    churn = Churn(seeds.random(name))
    churn.play(events // 10)
    churn.rest()
    before = sizes(churn.scheduler)
    churn.play(events - churn.events)
    churn.rest()
    after = sizes(churn.scheduler)
    assert {*churn.live} == {"pod", "node", *KINDS}
    assert not churn.scheduler.counters.internal_errors
    for path in sorted(after, key=lambda path: before[path] - after[path]):
        print(f"{path:45} {before[path]:8} {after[path]:8} {LIMITS.get(path, '')}")
    return before, after


def grown(before: Counter[str], after: Counter[str]) -> dict[str, tuple[int, int]]:
    """Return what is larger than a limit, or than before."""
    allowed = {path: LIMITS.get(path, WIDENS * before[path] + SLACK) for path in after}
    return {path: (before[path], after[path]) for path in after if after[path] > allowed[path]}


@pytest.mark.whole
def test_no_table_grows_over_thousands_of_events() -> None:
    assert grown(*play(20_000, "growth")) == {}


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_no_table_grows_over_a_million_events() -> None:
    assert grown(*play(1_000_000, "growth, at length")) == {}
