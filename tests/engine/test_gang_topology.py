"""Gangs that start on nodes that are close to each other: one domain, few domains, ranks on neighbours."""

from aischeduler.model.events import Seen
from aischeduler.model.gang import TopologyLevel
from aischeduler.model.node import Node
from tests.build import a_node, a_pod
from tests.engine.session import Session, binds, evictions
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
