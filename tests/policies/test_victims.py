"""Who may be evicted for a preemptor, and who goes first."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.policies.eviction_order import (
    HOME_MIN,
    PRIORITY_MIN,
    Preemptor,
    first_to_go,
    gone_for,
    may_evict,
    may_go,
    most_important_first,
    potential_victims,
    ranks_of,
    standing_of,
    started_of,
    weights_of,
)
from aischeduler.state.disruption_budgets import BudgetTable
from aischeduler.state.running_pods import RunningFacts, RunningPods, Slots, Spare
from tests.build import a_pod

PRIORITIES = st.sampled_from((PRIORITY_MIN, -1, 0, 1, 1000, 2**31 - 1))
FACTS = st.builds(
    RunningFacts,
    priority=PRIORITIES,
    borrower=st.booleans(),
    evictable=st.booleans(),
    leaving=st.booleans(),
    started_seconds=st.integers(0, 2),
)


def running_with(facts: list[RunningFacts]) -> tuple[RunningPods, Slots]:
    """Return running pods of these facts, with uids by number, and their slots in that order."""
    running = RunningPods()
    for number, one in enumerate(facts):
        running.add(f"p{number}", a_pod("p", cpu="1").spec, number, one)
    return running, np.array([running.slots_of([f"p{number}"])[0] for number in range(len(facts))], dtype=np.intp)


@given(st.lists(FACTS, max_size=8), PRIORITIES)
def test_those_may_go_who_borrow_or_are_of_lower_priority_and_are_neither_guarded_nor_leaving(
    facts: list[RunningFacts], priority: int
) -> None:
    running, slots = running_with(facts)
    pods, preemptor = running.table[slots], Preemptor(priority)
    may = [one.evictable and not one.leaving and (one.borrower or one.priority < priority) for one in facts]
    assert may_evict(preemptor, pods).tolist() == may
    assert gone_for(preemptor, pods).tolist() == [one.leaving or able for one, able in zip(facts, may, strict=True)]


@given(st.lists(FACTS, max_size=8))
def test_home_pods_are_more_important_than_borrowers_then_priority_start_and_uid_decide(
    facts: list[RunningFacts],
) -> None:
    running, slots = running_with(facts)

    def importance(number: int) -> tuple[bool, int, float, str]:
        one = facts[number]
        return (one.borrower, -one.priority, one.started_seconds or np.inf, f"p{number}")

    ordered = [f"p{number}" for number in sorted(range(len(facts)), key=importance)]
    assert running.uids_of(most_important_first(running, slots)) == ordered


@given(st.lists(FACTS, max_size=8))
def test_first_to_go_on_a_row_is_the_last_in_importance_of_those_that_may_go(facts: list[RunningFacts]) -> None:
    running = RunningPods()
    for number, one in enumerate(facts):
        running.add(f"p{number}", a_pod("p", cpu="1").spec, 3, one)
    slots = running.slots_on(np.array([3], dtype=np.intp))
    slots = slots[may_go(running.table[slots])]
    if not len(slots):
        assert first_to_go(running, running.pods_on(3)) is None
        return
    ranks, started = ranks_of(running.table[slots]), started_of(running.table[slots])
    lowest = int(ranks.min())
    expected = (int(most_important_first(running, slots)[-1]), lowest, int(started[ranks == lowest].max()))
    assert first_to_go(running, running.pods_on(3)) == expected


@given(st.lists(FACTS, max_size=8))
def test_as_a_cost_borrowers_count_alike_and_below_every_home_pod(facts: list[RunningFacts]) -> None:
    running, slots = running_with(facts)
    ranks = ranks_of(running.table[slots])
    for one, rank, weight in zip(facts, ranks.tolist(), weights_of(ranks).tolist(), strict=True):
        assert (rank, weight) == ((0, 0) if one.borrower else (HOME_MIN + weight, one.priority - PRIORITY_MIN))
    standing = standing_of(running.table[slots])
    assert (np.sign(np.subtract.outer(standing, standing)) * np.sign(np.subtract.outer(ranks, ranks)) >= 0).all()


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=8), st.integers(0, 2))
def test_no_pod_goes_where_a_kept_pod_of_its_unit_would_be_lost_with_it(
    pods: list[tuple[int, bool]], spare: int
) -> None:
    running, slots = running_with(
        [
            RunningFacts(0, borrower=False, evictable=not kept, leaving=False, started_seconds=1, unit=unit, kept=kept)
            for unit, kept in pods
        ]
    )
    for unit in (1, 2):
        running.set_spare(unit, Spare(spare))
    stay = {unit for unit, kept in pods if kept and unit and not spare}
    found = potential_victims(Preemptor(priority=1), running, slots, BudgetTable(lambda uid: a_pod(uid, uid=uid)))
    may = [not kept and unit not in stay for unit, kept in pods]
    assert np.isin(slots, found).tolist() == may
