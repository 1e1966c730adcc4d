"""Nodes whose cards have no name yet, as before they are labelled: no entry of a queue names them."""

from aischeduler.model.gang import GangSource
from tests.build import a_node
from tests.engine.session import binds, reports
from tests.engine.test_tenant_queues import a_session
from tests.gangs import a_gang, member
from tests.tenants import a_card_node, a_card_pod, a_queue, in_queue


def test_pod_of_a_queue_that_names_cards_waits_until_the_node_says_which_it_has() -> None:
    session = a_session(a_queue(cards={"H200": 2}), a_node("n", gpu=8), in_queue(a_card_pod("p")), a_card_pod("free"))
    told = session.decide()
    assert binds(told) == {"free": "n"}
    assert reports(told)["p"].startswith("0/1 nodes are available: 1 node(s) had cards for which the pod has no quota")
    session.see(a_card_node("n", "NVIDIA-H200"))
    assert binds(session.decide()) == {"p": "n"}


def test_quota_that_is_not_used_up_opens_no_such_node_to_a_pod_or_to_the_surplus_of_a_gang() -> None:
    session = a_session(a_queue(cards={"H200": 8}), a_card_node("h", "NVIDIA-H200", 2), a_node("n", gpu=8))
    gang = a_gang("g", 1, GangSource.LABELS)
    session.see(in_queue(a_card_pod("p")), *(member(in_queue(a_card_pod(f"g-{turn}")), gang) for turn in range(2)))
    assert sorted(binds(session.decide()).values()) == ["h", "h"]
    session.see(in_queue(a_card_pod("q")))
    assert binds(session.decide()) == {}


def test_such_a_node_is_open_to_pods_without_cards_and_where_no_queue_names_cards() -> None:
    session = a_session(a_queue(cards={"H200": 0}), a_queue("other"), a_node("n", gpu=8))
    session.see(in_queue(a_card_pod("p", 0)), in_queue(a_card_pod("q"), "other"))
    assert binds(session.decide()) == {"p": "n", "q": "n"}
