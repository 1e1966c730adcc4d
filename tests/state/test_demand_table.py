import numpy as np

from aischeduler.model.resources import PodRequest
from aischeduler.state.demand_table import SLOTS_FIRST, DemandTable
from aischeduler.state.node_table import COLUMNS_MIN, NodeTable
from tests.build import a_node, a_request, a_spec

CARD = {"example.com/card": "1"}


def room_of(nodes: NodeTable, request: PodRequest) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    room = np.zeros(len(nodes.used), dtype=np.int64)
    for resource, amount in request.taken.items():
        if resource in nodes.columns:
            room[nodes.columns[resource]] = amount
    return room


def test_classes_that_fit_into_the_room_are_found_at_once() -> None:
    nodes = NodeTable()
    demand = DemandTable(nodes)
    requests = [a_request(cpu=f"{cpu}", memory="1Gi") for cpu in range(1, 2 * SLOTS_FIRST)]
    slots = [demand.put(a_spec(request=request)) for request in requests]
    demand.drop(slots[0])
    assert np.flatnonzero(demand.fitting(room_of(nodes, requests[4]))).tolist() == sorted(slots[1:5])


def test_a_class_fits_nowhere_until_a_node_offers_what_it_requests() -> None:
    nodes = NodeTable()
    demand = DemandTable(nodes)
    request = a_request(cpu="1", memory="1Gi", extended=CARD)
    slot, gone = demand.put(a_spec(request=request)), demand.put(a_spec(request=request, node_selector={"zone": "z"}))
    demand.drop(gone)
    assert not demand.fitting(room_of(nodes, request)).any()
    nodes.see(a_node("n", extended={"example.com/other": "8"}))
    assert not demand.fitting(room_of(nodes, request)).any()
    nodes.see(a_node("n", extended=CARD))
    assert np.flatnonzero(demand.fitting(room_of(nodes, request))).tolist() == [slot]
    assert demand.request(slot).tolist() == room_of(nodes, request).tolist()


def test_classes_are_found_by_the_same_room_after_columns_were_dropped() -> None:
    nodes = NodeTable()
    demand = DemandTable(nodes)
    for number in range(COLUMNS_MIN // 2):
        nodes.see(a_node("n", extended={f"example.com/unique-{number}": "1"}))
    nodes.see(a_node("cards", extended=CARD))
    first, last = a_request(cpu="1", extended=CARD), a_request(cpu="2", extended={"example.com/unique-0": "1"})
    slots = [demand.put(a_spec(request=request)) for request in (first, last)]
    column = nodes.columns["example.com/card"]
    for number in range(COLUMNS_MIN // 2, 2 * COLUMNS_MIN):
        nodes.see(a_node("n", extended={f"example.com/unique-{number}": "1"}))
    assert nodes.columns["example.com/card"] < column
    assert np.flatnonzero(demand.fitting(room_of(nodes, first))).tolist() == slots[:1]
    assert np.flatnonzero(demand.fitting(room_of(nodes, last))).tolist() == []
    nodes.see(a_node("n", cpu="8", extended={"example.com/unique-0": "1"}))
    assert np.flatnonzero(demand.fitting(room_of(nodes, last))).tolist() == slots[1:]


def test_unit_is_refused_for_no_resource_that_only_one_of_its_pods_requests_with_or_without_a_column() -> None:
    nodes = NodeTable()
    demand = DemandTable(nodes)
    head, worker = a_request(cpu="2", memory="1Gi"), a_request(cpu="1", memory="2Gi", extended=CARD)
    smallest = a_request(cpu="1", memory="1Gi")
    slot = demand.put(a_spec(request=head), a_spec(request=worker))
    alike = demand.put(a_spec(request=worker), a_spec(request=a_request(cpu="2", memory="2Gi", extended=CARD)))
    assert np.flatnonzero(demand.fitting(room_of(nodes, smallest))).tolist() == [slot]
    nodes.see(a_node("n", extended=CARD))
    assert np.flatnonzero(demand.fitting(room_of(nodes, smallest))).tolist() == [slot]
    assert sorted(np.flatnonzero(demand.fitting(room_of(nodes, worker))).tolist()) == sorted([slot, alike])
    assert demand.request(alike)[nodes.columns["example.com/card"]] == 1
