"""Pods that wait are tried once what their queues forbade is allowed, whoever else of their queues waits."""

import pytest

from aischeduler.model.events import Seen, gone
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import binds, evictions
from tests.engine.test_tenant_queues import a_session
from tests.engine.test_tide import BATCH, ONLINE, on, service
from tests.tenants import a_card_node, a_card_pod, a_queue, in_queue

X = {"example.com/x": "1"}


def test_pod_behind_one_that_fits_nowhere_starts() -> None:
    session = a_session(a_queue(cpu="2"), a_node("n", cpu="4"), in_queue(a_pod("runs", cpu="2")))
    session.decide()
    session.see(in_queue(a_pod("nowhere", cpu="1", gpu=1, priority=5)), in_queue(a_pod("next", cpu="2")))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-runs"))
    assert binds(session.decide(1.0)) == {"next": "n"}


def test_pod_behind_one_whose_victim_still_leaves_starts_in_the_rest_of_the_quota() -> None:
    session = a_session(a_queue(cpu="3"), a_node("n", cpu="4"), a_node("x", cpu="4", extended=X))
    session.see(in_queue(a_pod("low", extended=X)), in_queue(a_pod("runs", cpu="2")))
    session.decide()
    session.see(in_queue(a_pod("high", extended=X, priority=5)), in_queue(a_pod("next")))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-runs"))
    told = session.decide(1.0)
    assert (set(evictions(told)), set(binds(told))) == ({"low"}, {"next"})


def test_pod_behind_one_that_is_parked_for_one_of_its_cards_starts() -> None:
    session = a_session(a_queue(cards={"H200": 1, "A100": 1}))
    session.see(a_card_node("h", "NVIDIA-H200", 1), a_card_node("a", "NVIDIA-A100", 1), in_queue(a_card_pod("runs")))
    assert binds(session.decide()) == {"runs": "a"}
    session.see(in_queue(a_card_pod("huge", cpu="99", priority=5), cards="H200|A100"))
    session.see(in_queue(a_card_pod("next"), cards="A100"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-runs"))
    assert binds(session.decide(1.0)) == {"next": "a"}


def test_pod_behind_one_that_leaves_before_its_turn_starts() -> None:
    session = a_session(a_queue(cpu="2"), a_node("n", cpu="4"), in_queue(a_pod("runs", cpu="2")))
    session.decide()
    session.see(in_queue(a_pod("first", cpu="1", priority=5)), in_queue(a_pod("next", cpu="2")))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-runs"))
    session.scheduler.decide("default", session.now, 0)
    session.tell(gone(Pod, "uid-first"))
    assert binds(session.decide(1.0)) == {"next": "n"}


def test_pod_behind_one_whose_queue_leaves_its_parent_starts() -> None:
    session = a_session(a_queue("root", cpu="2"), a_queue("part", parent="root"), a_node("n", cpu="4"))
    session.see(*(in_queue(a_pod(f"runs-in-{queue}"), queue) for queue in ("root", "part")))
    session.decide()
    session.see(in_queue(a_pod("first", gpu=1, priority=5), "part"), in_queue(a_pod("next"), "root"))
    assert binds(session.decide()) == {}
    session.tell(Seen(a_queue("part")))
    assert binds(session.decide(1.0)) == {"next": "n"}


def test_parked_pod_whose_quota_was_full_when_room_came_starts_once_it_frees() -> None:
    session = a_session(a_queue(cpu="2"), a_node("n", cpu="2"), a_pod("other", cpu="2", node="n"))
    session.see(in_queue(a_pod("waits", cpu="2")))
    assert binds(session.decide()) == {}
    session.see(a_node("far", cpu="2", labels={"far": "yes"}), in_queue(a_pod("runs", node="far")))
    session.tell(gone(Pod, "uid-other"))
    assert binds(session.decide()) == {}
    session.see(in_queue(a_pod("runs", node="far"), ""))
    assert binds(session.decide(1.0)) == {"waits": "n"}


def test_pod_that_is_parked_for_one_of_its_cards_starts_behind_a_held_pod_of_another_pool() -> None:
    pools = [a_pool(name, labels={"pool": name}, disable_borrowing=True) for name in ("full", "idle", "other")]
    session = a_session(a_queue(cards={"H200": 1, "A100": 1}), *pools)
    session.see(*(a_card_node(f"{pool}-a", "A100", 1, labels={"pool": pool}) for pool in ("idle", "other")))
    session.see(a_card_node("h", "H200", 1, labels={"pool": "idle"}), a_card_pod("full", pool="idle", node="h"))
    session.see(in_queue(a_card_pod("runs", pool="other")))
    session.decide()
    session.see(in_queue(a_card_pod("first", pool="full", priority=5), cards="A100"))
    session.see(in_queue(a_card_pod("next", pool="idle"), cards="H200|A100"))
    assert binds(session.decide()) == {}
    session.tell(gone(Pod, "uid-runs"))
    assert binds(session.decide(1.0)) == {"next": "idle-a"}


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("lends", [False, True])
def test_parked_pod_whose_cards_had_no_quota_when_room_came_starts_once_that_frees(
    *, leaves: bool, lends: bool
) -> None:
    pools = [
        a_pool(name, labels={"pool": name}, disable_sharing=name == "other") for name in ("home", "lender", "other")
    ]
    session, where = a_session(a_queue(cards={"H200": 1, "A100": 1}), *pools), "lender" if lends else "home"
    session.see(a_card_node("h", "H200", 1, labels={"pool": where}), a_card_pod("old", pool=where, node="h"))
    session.see(
        *(a_card_node(name, card, 1, labels={"pool": "other"}) for name, card in (("far", "H200"), ("a", "A100")))
    )
    session.see(*(in_queue(a_card_pod(name, pool="home", priority=9)) for name in ("first", "next")))
    assert binds(session.decide()) == {}
    session.see(runs := in_queue(a_card_pod("runs", pool="other", node="far")))
    session.tell(gone(Pod, "uid-old"))
    assert binds(session.decide()) == {}
    if leaves:
        session.tell(gone(Pod, "uid-first"))
        assert binds(session.decide()) == {}
    session.see(replace(runs, terms=None))
    assert binds(session.decide(1.0)) == {"next" if leaves else "first": "h"}


@pytest.mark.parametrize("first", ["goes", "starts elsewhere"])
def test_held_pod_behind_a_parked_one_like_it_starts_once_that_no_longer_waits(first: str) -> None:
    session = a_session(a_queue(cards={"H200": 1, "A100": 1}), *(a_pool(name, labels={"pool": name}) for name in "abc"))
    for name, card, pool in (("h", "H200", "a"), ("far", "A100", "b"), ("near", "A100", "c")):
        session.see(a_card_node(name, card, 1, labels={"pool": pool}))
    session.see(
        in_queue(a_card_pod("old-h", pool="a", node="h")), in_queue(a_card_pod("old-far", pool="b", node="far"))
    )
    session.see(a_card_pod("other", priority=9, pool="c", node="near"))
    waiting = {"first": "c", "between": "b", "next": "c"}
    session.see(*(in_queue(a_card_pod(name, pool=pool)) for name, pool in waiting.items()))
    assert binds(session.decide()) == {}
    session.see(a_card_pod("new-far", priority=9, pool="b"))
    session.tell(gone(Pod, "uid-old-far"))
    assert binds(session.decide(1.0)) == {"new-far": "far"}
    session.tell(gone(Pod, "uid-first" if first == "goes" else "uid-old-h"))
    assert binds(session.decide(1.0)) == ({} if first == "goes" else {"first": "h"})
    session.tell(gone(Pod, "uid-other"))
    assert binds(session.decide(1.0)) == {"next": "near"}


def test_service_that_waits_takes_the_room_of_a_pod_that_turns_into_training() -> None:
    session = a_session(ONLINE, BATCH, a_card_node("n", "NVIDIA-H200"))
    session.see(on(in_queue(a_card_pod("v", 8), "batch"), "n"), service("web", 8, priority=-1))
    assert evictions(session.decide()) == {}
    session.see(on(in_queue(a_card_pod("v", 8), "batch", service="training"), "n"))
    assert evictions(session.decide()) == {"v": "QueueReclaimed"}
