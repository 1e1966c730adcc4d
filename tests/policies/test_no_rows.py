"""Each policy answers for a pool without nodes."""

from collections.abc import Callable

import numpy as np
import pytest

from aischeduler.framework.plugin import PlacementRequest
from aischeduler.model.gang import TopologyLevel
from aischeduler.model.pool import PlacementStrategy
from aischeduler.policies.borrowing import (
    choose_lender,
    kept_from_borrowers,
    lenders_in_order,
    place_spanning,
    wanted_by_home_pods,
)
from aischeduler.policies.eviction_order import Preemptor
from aischeduler.policies.preemption import NoCandidate, VictimRequest, choose_victims
from aischeduler.policies.preemption_bounds import BoundedSearch, EvictionCostBounds
from aischeduler.policies.unit_placement import (
    NotPlaced,
    UnitRequest,
    close_parts,
    in_rank_order,
    place_unit,
    refusals_beside,
    rows_beside,
)
from aischeduler.policies.unit_preemption import choose_unit_victims
from aischeduler.policies.unit_topology import closeness, row_capacity
from aischeduler.policies.unit_victims import room_without
from aischeduler.state.label_index import Rows
from tests.build import a_node, a_pod, a_pool, replace, spread
from tests.engine.session import Session
from tests.policies.crowd import MEDIUM, Crowd, held

NOWHERE: Rows = np.zeros(0, dtype=np.intp)
LEVELS = {
    "no topology": (),
    "preferred": (TopologyLevel("rack", required=False),),
    "required": (TopologyLevel("rack", required=True),),
    "both": (TopologyLevel("zone", required=True), TopologyLevel("rack", required=False)),
}


def a_crowd() -> Crowd:
    return Crowd([a_node("n", cpu="4")], [held("old", "n", MEDIUM, 0)])


@pytest.fixture(params=[*LEVELS.values()], ids=[*LEVELS])
def unit(request: pytest.FixtureRequest) -> UnitRequest:
    pods = tuple(a_pod(f"p{number}", cpu=cpu) for number, cpu in enumerate(("1", "2")))
    asks = tuple(PlacementRequest(pod.spec, PlacementStrategy.PACK) for pod in pods)
    return UnitRequest(pods, asks, 2, topology=request.param)


def test_no_pod_of_a_unit_is_placed_on_no_row(unit: UnitRequest) -> None:
    crowd = a_crowd()
    found = place_unit(unit, crowd.runner, NOWHERE)
    assert found == NotPlaced((), 0)
    assert (
        refusals_beside(found, unit.asks[0].spec, crowd.runner, NOWHERE).message
        == "no nodes available to schedule pods"
    )


def test_no_row_has_victims_for_a_unit(unit: UnitRequest) -> None:
    crowd = a_crowd()
    found = choose_unit_victims(unit, crowd.runner, crowd.running, NOWHERE, crowd.budgets)
    assert isinstance(found, NoCandidate)
    assert room_without(NOWHERE, crowd.runner, crowd.running, NOWHERE).shape[1] == 0


def test_no_rows_are_close_to_each_other(unit: UnitRequest) -> None:
    crowd = a_crowd()
    room = crowd.table.allocatable[:, NOWHERE]
    close = closeness(unit.topology, unit.asks, crowd.runner, NOWHERE, room)
    assert close.sets() == []
    assert list(close.largest()) == []
    assert list(close.fewest(NOWHERE)) == []
    assert list(row_capacity(unit.asks, crowd.runner, NOWHERE, room)) == []
    assert list(rows_beside(replace(unit, beside=(("rack", "r0"),)), crowd.runner, NOWHERE)) == []
    assert in_rank_order(unit, crowd.runner, ()) == ()


def test_no_parts_are_close_to_each_other(unit: UnitRequest) -> None:
    crowd = a_crowd()
    for parts in close_parts(unit, crowd.runner, [NOWHERE, NOWHERE]):
        assert [list(part) for part in parts] == [[], []]


def test_no_row_has_victims_for_a_pod() -> None:
    crowd = a_crowd()
    ask = VictimRequest(a_pod("p", cpu="4").spec, Preemptor(10))
    assert isinstance(choose_victims(ask, crowd.runner, crowd.running, NOWHERE, crowd.budgets), NoCandidate)
    bounds = EvictionCostBounds()
    bounds.catch_up(crowd.running, crowd.table)
    search = BoundedSearch(ask, crowd.runner, crowd.running, crowd.budgets, bounds)
    assert search.cheapest(NOWHERE) is None


Answer = Callable[[Crowd, PlacementRequest], object]
ANSWERS: dict[str, tuple[Answer, object]] = {
    "best": (lambda crowd, ask: crowd.runner.best(ask, NOWHERE), None),
    "best_of_few": (lambda crowd, ask: crowd.runner.best_of_few(ask, NOWHERE), None),
    "ranked": (lambda crowd, ask: crowd.runner.ranked(ask, NOWHERE), []),
    "allowed": (lambda crowd, ask: list(crowd.runner.allowed(ask.spec, NOWHERE)), []),
    "fits": (lambda crowd, ask: list(crowd.runner.fits(ask.spec, NOWHERE)), []),
    "passes": (lambda crowd, ask: list(crowd.runner.passes(ask.spec, NOWHERE)), []),
    "could_run": (lambda crowd, ask: list(crowd.runner.could_run(ask.spec, NOWHERE)), []),
    "refused_for_now": (lambda crowd, ask: list(crowd.runner.refused_for_now(ask.spec, NOWHERE)), []),
    "diagnose": (lambda crowd, ask: crowd.runner.diagnose(ask, NOWHERE).reasons, {}),
    "refusals": (lambda crowd, ask: crowd.runner.refusals(ask.spec, NOWHERE).reasons, {}),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_plugins_answer_about_no_row(name: str) -> None:
    answer, expected = ANSWERS[name]
    crowd = a_crowd()
    pods = [
        a_pod("plain"),
        a_pod("spread", topology_spread=(spread("zone", app="x"),)),
        a_pod(node_selector={"d": "x"}),
    ]
    for pod in pods:
        crowd.table.pod_counts.use(pod.spec, crowd.runner.interest(pod.spec))
        for _ in range(2):  # the second time, results are kept
            assert answer(crowd, PlacementRequest(pod.spec, PlacementStrategy.SPREAD)) == expected


@pytest.mark.parametrize("empty", ["home", "lender", "both"])
def test_pools_without_nodes_lend_and_borrow(unit: UnitRequest, empty: str) -> None:
    pools = [a_pool(name, labels={"pool": name}) for name in ("home", "lender")]
    with_nodes = {"home": ["lender"], "lender": ["home"], "both": []}[empty]
    session = Session(*pools, *(a_node(name, cpu="1", labels={"pool": name}) for name in with_nodes))
    session.see(a_pod("own", cpu="2", pool="lender"))
    session.decide()
    cluster = session.scheduler.cluster
    context = cluster.borrowing
    rows = cluster.nodes.rows_of_pool(cluster.pools.id("lender"))
    assert kept_from_borrowers(cluster.nodes) is None
    assert len(wanted_by_home_pods(context, "lender", rows)) == len(rows)
    assert place_spanning(context, "home", unit) == ()
    assert lenders_in_order(context, "home", unit.asks[1]) == []
    assert choose_lender(context, "home", unit, ("home",)).refused
