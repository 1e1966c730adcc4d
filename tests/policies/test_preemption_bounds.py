"""A search of the rows with the lowest bounds returns the result of a search over all rows."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort
from aischeduler.model.selectors import label_selector
from aischeduler.policies.preemption import Candidate, VictimRequest, find_candidates
from aischeduler.policies.preemption_bounds import NO_VICTIM, ROWS_EXAMINED_MAX, BoundedSearch, EvictionCostBounds
from tests.build import a_node, a_request
from tests.policies.crowd import (
    HIGH,
    LARGE,
    LOW,
    MEDIUM,
    MID,
    SMALL,
    TOP,
    WHOLE,
    Crowd,
    Held,
    held,
    preemptor,
)
from tests.policies.test_preemption_reference import crowds


def node(name: str) -> Node:
    return a_node(name, cpu="500m", memory="500", pods=32)


def bounds_of(crowd: Crowd) -> EvictionCostBounds:
    bounds = EvictionCostBounds()
    bounds.catch_up(crowd.running, crowd.table)
    return bounds


def looked_up(crowd: Crowd, asked: VictimRequest, bounds: EvictionCostBounds | None = None) -> Candidate | None:
    bounds = bounds or bounds_of(crowd)
    search = BoundedSearch(asked, crowd.runner, crowd.running, crowd.budgets, bounds)
    return search.cheapest(crowd.rows)


def protected(allowed: int) -> DisruptionBudget:
    return DisruptionBudget("default", "web", "", label_selector("s", {"app": "web"}, ()), allowed, frozenset())


APP = (("app", "web"),)


@settings(max_examples=200, deadline=None)
@given(crowds())
def test_result_of_few_rows_is_the_choice_over_all_rows(
    world: tuple[list[Node], list[Held], list[DisruptionBudget], VictimRequest],
) -> None:
    nodes, pods, budgets, asked = world
    crowd = Crowd(nodes, pods, budgets)
    used = crowd.table.used.copy()
    expected = crowd.choose(asked)
    found = looked_up(crowd, asked)
    if isinstance(expected, Candidate) and not asked.spec.host_ports:
        assert found == expected, "all three rows are examined"
    else:
        assert found is None
    assert (crowd.table.used[: len(used)] == used).all()


@settings(max_examples=200, deadline=None)
@given(crowds())
def test_no_row_costs_less_than_its_bound(
    world: tuple[list[Node], list[Held], list[DisruptionBudget], VictimRequest],
) -> None:
    nodes, pods, budgets, asked = world
    crowd = Crowd(nodes, pods, budgets)
    costs = find_candidates(asked, crowd.runner, crowd.running, crowd.rows, crowd.budgets).costs
    bounds, ranks = bounds_of(crowd), crowd.table.ranks()
    for place in np.flatnonzero(costs.helped).tolist():
        row = int(costs.rows[place])
        assert bounds.of(row, int(ranks[row])) <= (*costs.columns[:, place].tolist(), int(ranks[row]))


@settings(max_examples=100, deadline=None)
@given(crowds(), st.lists(st.tuples(st.sampled_from(["gone", "leaving", "moved"]), st.integers(0, 99)), max_size=12))
def test_bounds_that_catch_up_equal_new_bounds(
    world: tuple[list[Node], list[Held], list[DisruptionBudget], VictimRequest], steps: list[tuple[str, int]]
) -> None:
    nodes, pods, budgets, asked = world
    crowd = Crowd(nodes, pods, budgets)
    bounds = bounds_of(crowd)
    for what, number in steps:
        there = sorted(crowd.pods)
        if not there:
            break
        one = crowd.pods[there[number % len(there)]]
        match what:
            case "gone":
                crowd.forget(one)
            case "leaving":
                crowd.leave(one)
            case "moved":
                crowd.move(one, nodes[number % len(nodes)].name)
        if number % 2:
            bounds.catch_up(crowd.running, crowd.table)
            assert looked_up(crowd, asked, bounds) == looked_up(crowd, asked)
    bounds.catch_up(crowd.running, crowd.table)
    fresh = bounds_of(crowd)
    for mine, anew in ((bounds.highest, fresh.highest), (bounds.youth, fresh.youth), (bounds.leaving, fresh.leaving)):
        assert np.array_equal(mine, anew)


def test_one_row_is_enough_where_its_least_important_pod_is_enough() -> None:
    names = [f"n{i}" for i in range(ROWS_EXAMINED_MAX + 2)]
    pods = [held(f"{name}-{i}", name, MEDIUM, LOW + i, started=9 - i) for name in names for i in (0, 1)]
    crowd = Crowd([node(name) for name in names], pods)
    assert looked_up(crowd, preemptor(MEDIUM, HIGH)) == Candidate(crowd.table.rows["n0"], ("n0-0",), 0)


def test_few_rows_do_not_decide_where_each_row_costs_more_than_its_bound() -> None:
    names = [f"n{i}" for i in range(ROWS_EXAMINED_MAX + 1)]
    pods = [held(f"{name}-{i}", name, MEDIUM, LOW, started=i) for name in names for i in (1, 2)]
    crowd = Crowd([node(name) for name in names], pods)
    assert looked_up(crowd, preemptor(WHOLE, HIGH)) is None
    assert isinstance(crowd.choose(preemptor(WHOLE, HIGH)), Candidate)


def test_search_goes_on_after_a_row_that_costs_more_than_its_bound() -> None:
    pods = [held("tiny", "n1", SMALL, LOW), held("large", "n1", LARGE, MID), held("whole", "n2", WHOLE, LOW + 1)]
    crowd = Crowd([node("n1"), node("n2")], pods)
    assert looked_up(crowd, preemptor(LARGE, HIGH)) == Candidate(crowd.table.rows["n2"], ("whole",), 0)


def test_the_least_important_pod_stays_where_a_budget_protects_it() -> None:
    pods = [held("low", "n1", MEDIUM, LOW, labels=APP), held("mid", "n1", MEDIUM, MID)]
    crowd = Crowd([node("n1")], pods, [protected(0)])
    assert looked_up(crowd, preemptor(LARGE, HIGH)) == Candidate(crowd.table.rows["n1"], ("mid",), 0)


def test_the_least_important_borrower_is_the_victim() -> None:
    loans = [held("old-low", "n1", MEDIUM, LOW, started=1, borrower=True), held("new", "n1", LARGE, TOP, borrower=True)]
    crowd = Crowd([node("n1")], loans)
    assert looked_up(crowd, preemptor(SMALL, LOW)) == Candidate(crowd.table.rows["n1"], ("old-low",), 0)


def test_of_equal_pods_the_last_by_uid_is_evicted() -> None:
    crowd = Crowd([node("n1")], [held(uid, "n1", MEDIUM, LOW, started=0) for uid in ("b", "a")])
    assert looked_up(crowd, preemptor(LARGE, HIGH)) == Candidate(crowd.table.rows["n1"], ("b",), 0)


def test_room_of_leaving_pods_is_found_first() -> None:
    pods = [held("cheap", "n1", WHOLE, LOW), held("going", "n2", WHOLE, HIGH, leaving=True)]
    crowd = Crowd([node("n1"), node("n2")], pods)
    assert looked_up(crowd, preemptor(WHOLE, MID)) == Candidate(crowd.table.rows["n2"], (), 0)


def test_pod_with_a_host_port_is_not_decided_by_amounts() -> None:
    port = HostPort("TCP", 80)
    crowd = Crowd([node("n1")], [held("web", "n1", WHOLE, LOW, host_ports=(port,))])
    assert looked_up(crowd, preemptor(SMALL, HIGH, host_ports=(port,))) is None
    assert looked_up(crowd, preemptor(SMALL, HIGH)) is not None


def test_row_without_an_evictable_pod_has_no_bound() -> None:
    crowd = Crowd([node("n1")], [held("stays", "n1", WHOLE, LOW, evictable=False)])
    assert bounds_of(crowd).highest[crowd.table.rows["n1"]] == NO_VICTIM
    assert looked_up(crowd, preemptor(a_request(cpu="1m"), HIGH)) is None
