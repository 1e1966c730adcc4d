"""Gangs whose pods are in several queues, and of several service types."""

from aischeduler.model.gang import GangSource
from tests.engine.session import evictions
from tests.engine.test_tide import a_session, service, training
from tests.gangs import a_gang, member
from tests.tenants import a_card_node


def test_pod_that_joins_a_gang_evicts_no_pod_of_it() -> None:
    session = a_session()
    gang = a_gang("g", 1, GangSource.LABELS)
    session.see(a_card_node("n", "NVIDIA-H200", 4), member(training("trains", 4, node="n"), gang))
    session.see(member(service("serves", 4), gang))
    assert evictions(session.decide()) == {}
    session.see(service("other", 4))
    assert evictions(session.decide()) == {"trains": "QueueReclaimed"}
