"""Gangs of different pods that start in one order of placing and not in another."""

import pytest

from aischeduler.model.events import Seen, gone
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, evictions, reports
from tests.gangs import a_gang, member


def head_and_worker(*, priority: int = 0) -> list[Pod]:
    """Return a gang whose first pod fits on every node, the second only on a node with a GPU."""
    pods = [a_pod("g-0-head", cpu="2", priority=priority), a_pod("g-1-worker", cpu="1", gpu=1, priority=priority)]
    return [member(pod, "g") for pod in pods]


def a_session(*, cpu_first: bool) -> Session:
    """Return a session with a node of two CPUs, and one with a GPU beside, in one order of their names or the other."""
    names = ("a-cpu", "b-gpu") if cpu_first else ("b-cpu", "a-gpu")
    session = Session(a_node(names[0], cpu="2"), a_node(names[1], cpu="2", gpu=1))
    session.tell(Seen(a_gang("g", 2)))
    return session


@pytest.mark.parametrize("cpu_first", [True, False])
@pytest.mark.parametrize("beside", ["a home pod", "a borrower"])
def test_head_leaves_the_gpu_to_the_worker_where_both_need_victims(beside: str, *, cpu_first: bool) -> None:
    session = a_session(cpu_first=cpu_first)
    session.see(a_pool("lent", labels={"pool": "lent"}))
    pool = "lent" if beside == "a borrower" else ""
    nodes = session.scheduler.cluster.nodes
    old = [a_pod(f"old-{name[2:]}", cpu="2", node=name, pool=pool, started=9) for name in sorted(nodes.rows)]
    session.see(*old)
    session.decide()
    session.see(*head_and_worker(priority=5))
    assert sorted(evictions(session.decide())) == ["old-cpu", "old-gpu"]
    session.tell(*(gone(Pod, pod.uid) for pod in old))
    assert {pod: node[2:] for pod, node in binds(session.decide(2)).items()} == {"g-0-head": "cpu", "g-1-worker": "gpu"}


def test_head_leaves_the_gpu_to_the_worker_where_only_its_own_node_has_a_victim() -> None:
    session = a_session(cpu_first=True)
    session.see(a_pod("old-cpu", cpu="2", node="a-cpu"))
    session.decide()
    session.see(*head_and_worker(priority=5))
    assert sorted(evictions(session.decide())) == ["old-cpu"]


def test_pods_of_growing_size_take_nodes_of_growing_size() -> None:
    """The first pod takes the largest node, and so on: the orders that begin with small pods all fail."""
    session = Session(*(a_node(f"n{size}", cpu=str(size)) for size in range(1, 9)))
    session.tell(Seen(a_gang("g", 8)))
    session.see(*(member(a_pod(f"g-{size}", cpu=str(size)), "g") for size in range(1, 9)))
    assert len(binds(session.decide())) == 8


def test_pods_of_growing_size_make_room_on_nodes_of_growing_size() -> None:
    session = Session(*(a_node(f"n{size}", cpu=str(size)) for size in range(1, 9)))
    old = [a_pod(f"old-{size}", cpu=str(size), node=f"n{size}") for size in range(1, 9)]
    session.see(*old)
    session.tell(Seen(a_gang("g", 8)))
    session.decide()
    session.see(*(member(a_pod(f"g-{size}", cpu=str(size), priority=5), "g") for size in range(1, 9)))
    assert len(evictions(session.decide())) == 8
    session.tell(*(gone(Pod, pod.uid) for pod in old))
    assert len(binds(session.decide(2))) == 8


def test_reason_of_a_gang_names_a_pod_that_fits_beside_those_before_it_in_no_order() -> None:
    session = Session(a_node("cpu", cpu="2"))
    session.tell(Seen(a_gang("g", 2)))
    session.see(*head_and_worker())
    text = "1 of the 2 pods that start together fit. The next, g-1-worker: 0/1 nodes are available: 1 Insufficient"
    assert reports(session.decide())["g-0-head"].startswith(text)
