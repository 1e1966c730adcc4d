"""A unit finds nodes exactly where a search over all ways finds some."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.framework.plugin import PlacementRequest
from aischeduler.model.allocation import Allocation
from aischeduler.model.gang import TopologyLevel
from aischeduler.model.pod import HostPort, Pod
from aischeduler.model.pool import PlacementStrategy
from aischeduler.policies.unit_placement import (
    NotPlaced,
    UnitPlacement,
    UnitRequest,
    in_rank_order,
    place_unit,
    refusals_beside,
)
from aischeduler.state.pod_records import AssignedPod
from aischeduler.state.what_if import Trial
from tests.build import a_node, a_pod
from tests.policies.crowd import Crowd

NODES = st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["ssd", "hdd"])), min_size=1, max_size=4)
PODS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "", "ssd"])), min_size=2, max_size=4)


def a_unit(*pods: Pod, required: int, placement: PlacementStrategy = PlacementStrategy.SPREAD) -> UnitRequest:
    return UnitRequest(pods, tuple(PlacementRequest(pod.spec, placement) for pod in pods), required)


def fits(nodes: list[tuple[int, str]], pods: list[tuple[int, str]]) -> bool:
    """Return whether some way of placing all pods fits, tried one by one."""
    for way in product(range(len(nodes)), repeat=len(pods)):
        used = [0] * len(nodes)
        for node, (cpu, _) in zip(way, pods, strict=True):
            used[node] += cpu
        suits = all(not disk or nodes[node][1] == disk for node, (_, disk) in zip(way, pods, strict=True))
        if suits and all(taken <= cpu for taken, (cpu, _) in zip(used, nodes, strict=True)):
            return True
    return False


@given(nodes=NODES, pods=PODS, placement=st.sampled_from(PlacementStrategy))
def test_small_unit_is_placed_exactly_where_some_way_fits(
    nodes: list[tuple[int, str]], pods: list[tuple[int, str]], placement: PlacementStrategy
) -> None:
    crowd = Crowd((a_node(f"n{i}", cpu=str(cpu), labels={"disk": disk}) for i, (cpu, disk) in enumerate(nodes)), ())
    unit = a_unit(
        *(
            a_pod(f"p{i}", cpu=str(cpu), node_selector={"disk": disk} if disk else {})
            for i, (cpu, disk) in enumerate(pods)
        ),
        required=len(pods),
        placement=placement,
    )
    before = crowd.table.used.copy()
    found = place_unit(unit, crowd.runner, crowd.rows)
    assert (crowd.table.used == before).all()
    assert isinstance(found, UnitPlacement) == fits(nodes, pods)
    if isinstance(found, UnitPlacement):
        with Trial(crowd.table) as trial:
            for pod in found.pods:
                trial.place(pod)
            assert (crowd.table.used <= crowd.table.allocatable).all()
        assert [pod.pod for pod in found.pods] == list(unit.pods)


def test_pods_beyond_the_required_ones_are_placed_as_room_allows() -> None:
    crowd = Crowd([a_node("n", cpu="5")], ())
    pods = [a_pod(f"p{i}", cpu=cpu) for i, cpu in enumerate(("2", "2", "2", "1"))]
    found = place_unit(a_unit(*pods, required=2), crowd.runner, crowd.rows)
    assert isinstance(found, UnitPlacement)
    assert [pod.pod.name for pod in found.pods] == ["p0", "p1", "p3"]


def test_unit_that_does_not_fit_says_how_many_of_its_pods_do() -> None:
    crowd = Crowd([a_node("n", cpu="5")], ())
    pods = [a_pod(f"p{i}", cpu="2") for i in range(3)]
    found = place_unit(a_unit(*pods, required=3), crowd.runner, crowd.rows)
    assert isinstance(found, NotPlaced)
    assert [pod.pod.name for pod in found.pods] == ["p0", "p1"]


def test_total_of_a_unit_counts_its_required_pods() -> None:
    unit = a_unit(*(a_pod(f"p{i}", cpu="2", memory="1Gi") for i in range(3)), required=2)
    assert unit.total(()).request.taken == {"cpu": 4000, "memory": 2 * 2**30, "pods": 2}


@pytest.mark.parametrize("topology", [(), (TopologyLevel("rack", required=False),)], ids=["by name", "by rack"])
def test_what_was_chosen_on_a_row_goes_to_the_pod_that_gets_the_row(topology: tuple[TopologyLevel, ...]) -> None:
    crowd = Crowd((a_node(f"n{number}", cpu="1", labels={"rack": f"r{number % 2}"}) for number in range(4)), ())
    pods = tuple(a_pod(f"p{number}") for number in range(4))
    asks = tuple(PlacementRequest(pod.spec, PlacementStrategy.PACK) for pod in pods)
    unit = UnitRequest(pods, asks, 4, topology=topology)

    def chosen_on(row: int) -> Allocation:
        return Allocation(host_ports=(HostPort("TCP", row, ""),))

    rows = crowd.rows[[2, 0, 3, 1]].tolist()
    placed = tuple(AssignedPod(pod, pod.spec, row, chosen_on(row)) for pod, row in zip(pods, rows, strict=True))
    found = in_rank_order(unit, crowd.runner, placed)
    assert [one.pod for one in found] == list(pods)
    assert sorted(one.row for one in found) == sorted(rows)
    assert [one.allocation for one in found] == [chosen_on(one.row) for one in found]


def test_pods_that_differ_are_placed_in_another_order_where_the_first_does_not_do() -> None:
    crowd = Crowd([a_node("a", cpu="2", gpu=1), a_node("b", cpu="2")], ())
    unit = a_unit(a_pod("head", cpu="2"), a_pod("worker", cpu="1", gpu=1), required=2)
    found = place_unit(unit, crowd.runner, crowd.rows)
    assert isinstance(found, UnitPlacement)
    assert [crowd.table.names[pod.row] for pod in found.pods] == ["b", "a"]


def test_refusal_is_that_of_the_order_in_which_most_pods_fit() -> None:
    """In the order of the pods the head alone fits; with the workers first, they do, and the head does not."""
    crowd = Crowd([a_node("a", cpu="2", gpu=2)], ())
    unit = a_unit(a_pod("head", cpu="2"), *(a_pod(f"w{n}", cpu="1", gpu=1) for n in range(2)), required=3)
    found = place_unit(unit, crowd.runner, crowd.rows)
    assert isinstance(found, NotPlaced)
    assert ([pod.pod.name for pod in found.pods], found.short) == (["w0", "w1"], 0)
    reasons = refusals_beside(found, unit.asks[0].spec, crowd.runner, crowd.rows).message
    assert reasons == "0/1 nodes are available: 1 Insufficient cpu."
