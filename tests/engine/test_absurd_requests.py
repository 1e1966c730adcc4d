"""Pods may request anything: amounts that no machine has, and unknown resources."""

import pytest

from aischeduler.model.events import gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool_summary import PoolSummary
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, evictions, reports

INT64_MAX = 2**63 - 1
CARD = "example.com/card"
A, B = {"pool": "a"}, {"pool": "b"}
MADE_UP = 200
"""The number of unknown resources; a thousand would only make the test slower."""


def summary_of(session: Session, pool: str) -> PoolSummary:
    return next(summary for summary in session.scheduler.summary() if summary.name == pool)


def wants_card(name: str, *, pool: str = "", node: str = "", priority: int = 0) -> Pod:
    return a_pod(name, cpu="1", extended={CARD: "1"}, pool=pool, node=node, priority=priority)


@pytest.mark.parametrize(
    ("cpu", "memory"), [(str(INT64_MAX), "1Gi"), ("1", str(INT64_MAX)), (str(INT64_MAX), str(INT64_MAX))]
)
def test_enormous_amounts_are_summed_up_and_block_no_pod(cpu: str, memory: str) -> None:
    session = Session(a_pool("default"), a_node("n", cpu="4"))
    session.see(*(a_pod(name, cpu=cpu, memory=memory, priority=-1) for name in ("one", "two")))
    session.see(a_pod("small", cpu="1"))
    assert binds(session.decide()) == {"small": "n"}
    session.decide(2)
    asked = a_pod(cpu=cpu, memory=memory).spec.request.amounts
    told = summary_of(session, "default")
    assert told.pending_pods == 2
    assert {name: told.pending[name] for name in asked} == {name: 2 * amount for name, amount in asked.items()}


def test_requests_of_many_pods_are_summed_up_exactly() -> None:
    session = Session(a_pool("default"), a_node("n", memory="16Gi"))
    session.scheduler.often = False
    session.see(*(a_pod(f"p{number}", memory="8Pi") for number in range(1100)))
    assert binds(session.decide()) == {}
    session.scheduler.look()
    assert summary_of(session, "default").pending["memory"] == 1100 * 2**53


def test_resources_that_no_node_offers_leave_nothing_behind() -> None:
    session = Session(a_pool("a", labels=A), a_pool("b", labels=B), a_node("n", cpu="4", labels=B))
    nodes, names = session.scheduler.cluster.nodes, [f"example.com/x{number}" for number in range(MADE_UP)]
    session.scheduler.often = False
    columns = dict(nodes.columns)
    session.see(*(a_pod(f"p{i}", cpu="1", extended={name: "1"}, pool="a") for i, name in enumerate(names)))
    said = session.decide()
    assert binds(said) == {}
    session.scheduler.look()
    pending = summary_of(session, "a").pending
    assert {name: pending[name] for name in names} == dict.fromkeys(names, 1)
    session.tell(*(gone(Pod, f"uid-p{number}") for number in range(MADE_UP)))
    session.decide(15)
    session.scheduler.look()
    assert nodes.columns == columns
    assert len(nodes.used) == len(nodes.allocatable) == len(nodes.capacity) == len(columns) + 1


def test_reason_names_the_resource_that_no_node_offers() -> None:
    session = Session(a_pool("default"), a_node("n"), a_node("m"))
    session.see(a_pod("p", cpu="1", extended={CARD: "1", "example.com/other": "1"}), wants_card("q"))
    said = reports(session.decide())
    assert said["p"].startswith(f"0/2 nodes are available: 2 Insufficient {CARD}, 2 Insufficient example.com/other.")
    assert said["q"].startswith(f"0/2 nodes are available: 2 Insufficient {CARD}.")


def test_the_first_node_that_offers_a_resource_gets_the_pod_that_waits_for_it() -> None:
    session = Session(a_pool("a", labels=A), a_node("n", labels=A))
    session.see(a_pod("other", extended={"example.com/other": "1"}, pool="a"), wants_card("p", pool="a"))
    assert binds(session.decide()) == {}
    session.see(a_node("m", extended={CARD: "1"}, labels=A))
    assert binds(session.decide(15)) == {"p": "m"}


def test_a_node_that_begins_to_offer_a_resource_gets_the_pod_that_waits_for_it() -> None:
    session = Session(a_pool("a", labels=A), a_node("n", labels=A), wants_card("p", pool="a"))
    assert binds(session.decide()) == {}
    session.see(a_node("n", extended={CARD: "1"}, labels=A))
    assert binds(session.decide(15)) == {"p": "n"}


def test_a_pool_that_begins_to_offer_a_resource_lends_it_to_the_pod_that_waits_for_it() -> None:
    session = Session(a_pool("a", labels=A), a_pool("b", labels=B), a_node("n", labels=A), a_node("m", labels=B))
    session.see(wants_card("p", pool="a"))
    assert binds(session.decide()) == {}
    session.see(a_node("m", extended={CARD: "1"}, labels=B))
    assert binds(session.decide(15)) == {"p": "m"}


def test_pods_bound_by_others_count_before_and_after_a_node_offers_their_resource() -> None:
    session = Session(a_pool("a", labels=A), a_node("n", labels=A))
    session.see(wants_card("there", pool="a", node="n"), wants_card("p", pool="a"))
    assert binds(session.decide()) == {}
    assert summary_of(session, "a").used[CARD] == 1
    session.see(a_node("n", extended={CARD: "1"}, labels=A))
    assert binds(session.decide(15)) == {}
    session.tell(gone(Pod, "uid-there"))
    assert binds(session.decide(15)) == {"p": "n"}


def test_a_resource_that_a_node_began_to_offer_can_be_preempted() -> None:
    session = Session(a_pool("a", labels=A), a_node("n", labels=A), wants_card("low", pool="a"))
    assert binds(session.decide()) == {}
    session.see(a_node("n", extended={CARD: "1"}, labels=A))
    assert binds(session.decide(15)) == {"low": "n"}
    session.see(wants_card("high", pool="a", priority=9))
    assert evictions(session.decide()) == {"low": "Preempted"}


def test_a_resource_whose_last_node_is_gone_fits_nowhere_until_another_comes() -> None:
    session = Session(a_pool("a", labels=A), a_node("n", labels=A), a_node("m", extended={CARD: "1"}, labels=A))
    session.tell(gone(Node, "m"))
    session.see(wants_card("p", pool="a"))
    assert reports(session.decide())["p"].startswith(f"0/1 nodes are available: 1 Insufficient {CARD}.")
    session.see(a_node("m", extended={CARD: "1"}, labels=A))
    assert binds(session.decide(15)) == {"p": "m"}
