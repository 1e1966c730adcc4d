"""The checks of the state find each breach, and nothing in a sound state."""

from collections import Counter
from collections.abc import Callable

import pytest

from aischeduler.engine.cluster import Cluster
from aischeduler.model.gang import GangSource
from aischeduler.model.names import PODS
from aischeduler.model.pod import HostPort
from aischeduler.state.ledger import LOAN
from aischeduler.state.node_table import UNOFFERED
from aischeduler.state.pod_records import PodState
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session
from tests.gangs import a_gang, members
from tests.invariants.state import check
from tests.invariants.stuck import stuck

A = {"pool": "a"}
PORT = HostPort("TCP", 80)


def a_busy_cluster() -> Session:
    """Return two pools with a loan, a claim with its victim, a parked pod, and a pod of another scheduler."""
    session = Session(
        a_pool("a", labels=A),
        a_node("n", cpu="4", labels=A),
        a_node("m", cpu="4", pods=2),
        a_pod("other", node="m", cpu="1", scheduler_name="default-scheduler"),
        a_pod("guest", cpu="3", node="n"),
    )
    session.see(a_pod("owner", cpu="4", pool="a"), a_pod("large", cpu="9", pool="a"))
    session.decide()
    assert check(session.scheduler.cluster) == ()
    assert stuck(session.scheduler.cluster) == ()
    return session


def names_of(session: Session) -> set[str]:
    return {violation.name for violation in check(session.scheduler.cluster)}


def a_lost_claim(cluster: Cluster) -> None:
    claim = cluster.claims.of("uid-owner")
    assert claim is not None
    cluster.claims.end(claim)


BREACHES: list[tuple[str, str, Callable[[Cluster], object]]] = [
    ("I1", "a waiting pod counts on a node", lambda c: setattr(c.records["uid-large"], "row", 0)),
    ("I2", "a node counts too much", lambda c: c.nodes.used.__setitem__((0, 0), 1)),
    ("I2", "a free row counts something", lambda c: c.nodes.used.__setitem__((0, 63), 1)),
    ("I2", "a node has a resource that no node offers", lambda c: c.nodes.allocatable.__setitem__((UNOFFERED, 0), 1)),
    ("I2", "scores count too little", lambda c: c.nodes.scored.__setitem__((0, 0), 0)),
    ("I2", "a node counts as one without memory", lambda c: c.nodes.sized.__setitem__(0, 1)),
    ("I2", "a node is larger than the balance score counts", lambda c: c.nodes.twice.__setitem__((0, 0), 1.0)),
    ("I2", "a port is taken by no pod", lambda c: c.nodes.ports.add(PORT, 0)),
    ("I3", "a queue forgets a pod", lambda c: c.queues["a"]._records.pop("uid-large")),
    ("I3", "a queue counts a pod twice", lambda c: setattr(c.queues["a"], "_usable", 7)),
    ("I3", "a pod has another home", lambda c: setattr(c.records["uid-large"], "home", "default")),
    ("I3", "a class fits nowhere", lambda c: c.queues["a"]._demand._amounts.__setitem__((0, UNOFFERED), 1)),
    ("I4", "deferred work is left for no pool", lambda c: c.deferred.review([""])),
    ("I4", "pods are to be woken in no pool", lambda c: c.deferred.agenda("gone")),
    ("I4", "a node is in the wrong pool", lambda c: c.nodes.pool.__setitem__(c.nodes.rows["n"], 0)),
    ("I5", "a loan is counted twice", lambda c: c.ledger._sums.update({(LOAN, "a", "default"): Counter({PODS: 1})})),
    ("I5", "a borrower counts as a home pod", lambda c: c.running.table["borrower"].fill(False)),
    ("I5", "a pod is not found by its pool", lambda c: c.naming.clear()),
    ("claims", "a pod is nominated without a claim", a_lost_claim),
]


@pytest.mark.parametrize(("name", "what", "breach"), BREACHES, ids=[what for _, what, _ in BREACHES])
def test_violation_is_found(name: str, what: str, breach: Callable[[Cluster], object]) -> None:
    session = a_busy_cluster()
    breach(session.scheduler.cluster)
    assert name in names_of(session)


def test_pod_with_a_lost_wake_up_is_found() -> None:
    session = a_busy_cluster()
    cluster = session.scheduler.cluster
    cluster.nodes.allocatable[0, cluster.nodes.rows["n"]] = 20_000  # as if the wake-up had been lost
    assert {(lost.uid, lost.state) for lost in stuck(cluster)} >= {("uid-large", PodState.PARKED)}


def test_gang_that_may_evict_is_stuck_once_no_row_that_it_needs_is_about_to_be_offered() -> None:
    c = a_pool("c", labels={"pool": "c"})
    session = Session(c, a_node("own", cpu="2"), a_node("theirs", cpu="2", labels={"pool": "c"}))
    session.see(a_pod("p", cpu="2"), a_pod("q", cpu="2", pool="c"))
    session.decide()
    session.see(*members(a_gang("g", 2, GangSource.LABELS), 2, priority=5))
    session.decide()
    session.see(replace(c, invalid="spec: broken"))  # the row falls to the pool of the gang: a pod on each row may go
    cluster = session.scheduler.cluster
    assert stuck(cluster) == ()
    cluster.deferred.agendas.clear()
    assert [(lost.uid, lost.by) for lost in stuck(cluster)] == [("uid-g-0", "a refresh before it preempts")]
