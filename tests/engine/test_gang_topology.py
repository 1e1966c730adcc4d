"""Gangs that start on nodes that are close to each other: one domain, few domains, ranks on neighbours."""

import pytest

from aischeduler.model.events import Seen, gone
from aischeduler.model.gang import TopologyLevel
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, errors, evictions, reports
from tests.gangs import a_gang, member, members

RACK = TopologyLevel("rack", required=True)
NEAR = TopologyLevel("rack", required=False)
ZONE = TopologyLevel("zone", required=True)


def racks(*counts: int, cpu: str = "2") -> list[Node]:
    """Return nodes of racks r0, r1, … with these numbers of nodes; two racks are a zone."""
    return [
        a_node(f"r{rack}-{number}", cpu=cpu, labels={"rack": f"r{rack}", "zone": f"z{rack // 2}"})
        for rack, count in enumerate(counts)
        for number in range(count)
    ]


def racks_of(found: dict[str, str]) -> list[str]:
    return sorted({node.partition("-")[0] for node in found.values()})


def a_session(*nodes: Node, levels: tuple[TopologyLevel, ...], pods: int, cpu: str = "2", priority: int = 0) -> Session:
    session = Session(*nodes, *members("g", pods, cpu=cpu, priority=priority))
    session.tell(Seen(a_gang("g", pods, topology=levels)))
    return session


def test_required_level_keeps_the_gang_in_one_rack() -> None:
    assert racks_of(binds(a_session(*racks(2, 3, 2), levels=(RACK,), pods=3).decide())) == ["r1"]


def test_gang_that_fits_in_no_single_rack_waits_where_the_level_is_required() -> None:
    session = a_session(*racks(2, 2), levels=(RACK,), pods=3)
    said = session.decide()
    assert binds(said) == {}
    assert reports(said)["g-0"].startswith("2 of the 3 pods that start together fit.")
    session.see(a_node("r1-9", cpu="2", labels={"rack": "r1", "zone": "z0"}))
    assert racks_of(binds(session.decide())) == ["r1"]


def test_node_without_the_required_label_takes_no_pod_of_the_gang() -> None:
    session = a_session(*racks(2), a_node("bare", cpu="64"), levels=(RACK,), pods=3)
    assert binds(session.decide()) == {}


def test_smallest_rack_that_is_large_enough_is_taken() -> None:
    assert racks_of(binds(a_session(*racks(5, 3, 4), levels=(RACK,), pods=3).decide())) == ["r1"]


def test_preferred_level_takes_the_fewest_racks() -> None:
    assert racks_of(binds(a_session(*racks(1, 3, 2, 1), levels=(NEAR,), pods=5).decide())) == ["r1", "r2"]


def test_preferred_level_takes_one_rack_where_one_is_enough() -> None:
    assert racks_of(binds(a_session(*racks(2, 2, 4), levels=(NEAR,), pods=4).decide())) == ["r2"]


def test_two_levels_stay_in_the_required_zone_and_in_few_racks_of_it() -> None:
    session = a_session(*racks(2, 2, 3, 2), levels=(ZONE, NEAR), pods=4)
    assert racks_of(binds(session.decide())) == ["r0", "r1"]
    one_rack = a_session(*racks(2, 2, 1, 4), levels=(ZONE, NEAR), pods=4)
    assert racks_of(binds(one_rack.decide())) == ["r3"]


def test_gang_takes_the_fewest_nodes_of_its_rack() -> None:
    session = a_session(*racks(2, cpu="4"), *racks(3, cpu="2")[2:], levels=(RACK,), pods=2)
    assert len(set(binds(session.decide()).values())) == 1


def test_ranks_follow_each_other_from_node_to_node() -> None:
    session = Session(*racks(3, cpu="4"))
    pods = [member(a_pod(f"g-{rank}", cpu="2"), "g", index=rank) for rank in (5, 3, 1, 0, 2, 4)]
    session.see(*pods)
    session.tell(Seen(a_gang("g", 6, topology=(RACK,))))
    found = binds(session.decide())
    assert [found[f"g-{rank}"] for rank in range(6)] == ["r0-0", "r0-0", "r0-1", "r0-1", "r0-2", "r0-2"]


def test_pod_that_comes_back_joins_the_rack_of_the_others() -> None:
    session = a_session(*racks(2, 4), levels=(RACK,), pods=2)
    first = binds(session.decide())
    assert racks_of(first) == ["r0"]
    session.tell(gone(Pod, "uid-g-1"))
    session.see(a_pod("other", cpu="2", node=first["g-1"]))
    session.see(member(a_pod("again", cpu="2"), "g"))
    assert binds(session.decide(seconds=1)) == {}
    session.tell(gone(Pod, "uid-other"))
    assert binds(session.decide(seconds=1)) == {"again": first["g-1"]}


def test_room_is_made_in_one_rack() -> None:
    session = a_session(*racks(2, 2), levels=(RACK,), pods=2, priority=5)
    session.see(*(a_pod(f"old-{node}", cpu="2", node=node) for node in ("r0-0", "r1-0", "r1-1")))
    session.see(a_pod("stays", cpu="2", node="r0-1", priority=9))
    assert sorted(evictions(session.decide())) == ["old-r1-0", "old-r1-1"]


def test_room_is_made_in_the_rack_where_the_least_work_is_lost() -> None:
    old = [
        a_pod(f"old-{node}", cpu="2", gpu=1, node=node, started=started)
        for node, started in (("r0-0", 10), ("r0-1", 10), ("r1-0", 90), ("r1-1", 90))
    ]
    nodes = [a_node(node.name, cpu="2", gpu=1, labels=node.labels) for node in racks(2, 2)]
    session = Session(*nodes, *old)
    session.now = 100
    pods = [member(a_pod(f"g-{turn}", cpu="2", gpu=1, priority=5, created=100), "g") for turn in range(2)]
    session.see(*pods)
    session.tell(Seen(a_gang("g", 2, topology=(RACK,))))
    assert sorted(evictions(session.decide())) == ["old-r1-0", "old-r1-1"]


def test_gang_whose_topology_is_dropped_is_tried_at_once() -> None:
    session = a_session(*racks(2, 2), levels=(RACK,), pods=3)
    assert binds(session.decide()) == {}
    session.tell(Seen(a_gang("g", 3)))
    assert len(binds(session.decide())) == 3


@pytest.mark.parametrize("levels", [(NEAR,), (RACK,), (ZONE, NEAR)], ids=["preferred", "required", "both"])
def test_gang_with_a_topology_waits_in_a_pool_without_nodes_until_there_are_some(
    levels: tuple[TopologyLevel, ...],
) -> None:
    session = Session(a_pool("empty", labels={"pool": "empty"}), *members("g", 2, pool="empty"))
    session.tell(Seen(a_gang("g", 2, topology=levels)))
    said = session.decide()
    assert errors(said) == []
    assert "no nodes available to schedule pods" in reports(said)["g-0"]
    labels = {"pool": "empty", "rack": "r0", "zone": "z0"}
    session.see(*(a_node(f"n{number}", cpu="2", labels=labels) for number in range(2)))
    assert sorted(binds(session.decide(10))) == ["g-0", "g-1"]
