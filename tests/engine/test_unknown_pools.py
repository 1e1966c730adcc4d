"""A Pool that the watch has not shown may exist."""

import pytest

from aischeduler.engine.unknown_pools import LATE_SECONDS_MAX
from aischeduler.model.actions import Action, Bind, Evict, Refresh, ReportWaiting
from aischeduler.model.events import Refreshed, RefreshFailed, Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, reports, warnings


def said(session: Session) -> list[Action]:
    """Let all pools decide until none is ready, without answers; return the actions."""
    actions: list[Action] = []
    while pools := session.scheduler.ready(session.now):
        for pool in pools:
            actions += session.scheduler.decide(pool, session.now, 1)
    return actions


def reads(actions: list[Action]) -> int:
    """Return how often the Pools alone are to be read."""
    return sum(isinstance(action, Refresh) and not action.pool for action in actions)


def test_pod_of_an_unseen_pool_is_not_bound_and_evicts_no_pod_before_the_answer() -> None:
    running = a_pod("low", cpu="4", node="n", phase="Running")
    session = Session(a_node("n", cpu="4"), running, a_pod("high", cpu="4", pool="new", priority=100))
    actions = said(session)
    assert reads(actions) == 1
    assert [action for action in actions if isinstance(action, Evict)] == []
    assert binds(actions) == {}
    session.tell(Seen(a_pool("new", labels={"team": "new"})), Refreshed(""))
    assert [action for action in said(session) if isinstance(action, Evict)] == []
    session.see(a_node("m", cpu="4", labels={"team": "new"}))
    assert binds(said(session)) == {"high": "m"}


def test_pod_whose_pool_does_not_exist_belongs_to_the_default_pool_and_is_warned() -> None:
    session = Session(a_node("n", cpu="4"), a_pod("p", pool="typo"))
    assert warnings(said(session)) == []
    session.tell(Refreshed(""))
    actions = said(session)
    assert binds(actions) == {"p": "n"}
    assert warnings(actions) == [("p", "UnknownPool")]


@pytest.mark.parametrize("name", ["%s{0}{}", "A", "a_b", "-a", "a.", "a..b", "a/b", "..", "a b", "\u00e4", "a" * 254])
def test_pod_that_names_what_no_pool_can_be_called_is_tried_at_once_without_a_read_and_warned_once(name: str) -> None:
    session = Session(a_node("n", cpu="1"), a_pod("p", pool=name), a_pod("q", cpu="9", pool=name))
    actions = said(session)
    assert reads(actions) == 0
    assert binds(actions) == {"p": "n"}
    assert sorted(warnings(actions)) == [("p", "UnknownPool"), ("q", "UnknownPool")]
    session.now += 600.0
    session.see(a_node("m", cpu="9"))
    said(session)
    session.tell(Refreshed(""))
    actions = said(session)
    assert (reads(actions), binds(actions), warnings(actions)) == (0, {"q": "m"}, [])


def test_pod_that_names_what_no_pool_can_be_called_may_evict() -> None:
    low = a_pod("low", cpu="4", node="n", phase="Running")
    session = Session(a_node("n", cpu="4"), low, a_pod("high", cpu="4", pool="%s{0}{}", priority=100))
    said(session)
    session.tell(Refreshed("default"))
    assert [action.victim.name for action in said(session) if isinstance(action, Evict)] == ["low"]


@pytest.mark.parametrize("name", ["a", "0", "a-b.c-d", "a" * 253])
def test_pool_of_each_name_that_a_pool_can_have_is_read(name: str) -> None:
    assert reads(said(Session(a_node("n"), a_pod("p", pool=name)))) == 1


def test_a_pool_is_read_once_for_all_pods_that_waited_and_again_for_those_that_came_later() -> None:
    session = Session(a_node("n", cpu="64"), a_pod("a", pool="new"), a_pod("b", pool="new"))
    assert reads(session.scheduler.decide("default", 0.0, 10)) == 1
    session.see(a_pod("c", pool="new"))
    assert reads(said(session)) == 0
    session.tell(Refreshed(""))
    actions = said(session)
    assert sorted(binds(actions)) == ["a", "b"]
    assert reads(actions) == 1, "c may name a Pool that was created after the read"
    session.tell(Refreshed(""))
    assert sorted(binds(said(session))) == ["c"]


def test_answer_ignores_a_pod_that_was_deleted_or_names_another_pool_now() -> None:
    ended, moved = a_pod("gone", pool="new"), a_pod("moved", pool="new")
    session = Session(a_node("n"), a_pool("b", labels={"no": "node"}), ended, moved)
    assert reads(session.scheduler.decide("default", 0.0, 10)) == 1
    session.tell(gone(Pod, ended.uid), Seen(replace(moved, pool="b")), Refreshed(""))
    assert binds(said(session)) == {"moved": "n"}, "borrowed by b"


def test_reason_names_why_the_pool_cannot_be_read() -> None:
    session = Session(a_node("n"), a_pod("p", pool="new"))
    assert reports(said(session)) == {}
    session.tell(RefreshFailed("", "no answer within 30 s"))
    actions = said(session)
    assert [action for action in actions if isinstance(action, ReportWaiting)] != []
    assert reports(actions)["p"] == (
        'It is not known yet whether the Pool "new" exists. It could not be read: no answer within 30 s'
    )
    session.tell(Refreshed(""))
    assert binds(said(session)) == {"p": "n"}


def test_pods_of_a_deleted_pool_wait_until_a_read_confirms_it() -> None:
    session = Session(a_node("n"), a_pool("team", labels={"no": "node"}, disable_borrowing=True))
    session.see(a_pod("p", pool="team"))
    said(session)
    session.tell(gone(Pool, "team"))
    assert reads(said(session)) == 1
    session.tell(Refreshed(""))
    assert binds(said(session)) == {"p": "n"}


def test_pool_of_a_pod_that_waited_is_read_again_before_the_pod_is_bound() -> None:
    session = Session(a_pod("p", pool="late"))
    assert reads(said(session)) == 1
    session.tell(Refreshed(""))
    assert "no nodes available" in reports(said(session))["p"]
    session.now += 10.0
    session.see(a_node("n", labels={"team": "late"}))
    said(session)
    session.tell(Refreshed(""))
    actions = said(session)
    assert (reads(actions), binds(actions)) == (1, {}), "its Pool may exist now, and the watch may lag"
    session.tell(Seen(a_pool("late", labels={"team": "late"})), Refreshed(""))
    (bind,) = [action for action in said(session) if isinstance(action, Bind)]
    assert (bind.home_pool, bind.node) == ("late", "n")


def test_pod_of_a_missing_pool_keeps_its_claim() -> None:
    low = a_pod("low", cpu="4", node="n", phase="Running")
    session = Session(a_node("n", cpu="4"), low, a_pod("high", cpu="4", pool="typo", priority=100))
    said(session)
    session.tell(Refreshed(""))
    said(session)
    session.tell(Refreshed("default"))
    assert any(isinstance(action, Evict) for action in said(session))
    session.now += 30.0
    session.tell(gone(Pod, low.uid))
    assert binds(said(session)) == {"high": "n"}


def test_pod_of_a_missing_pool_evicts_however_slowly_the_server_answers() -> None:
    low = a_pod("low", cpu="4", node="n", phase="Running")
    session = Session(a_node("n", cpu="4"), low, a_pod("high", cpu="4", pool="typo", priority=100))
    assert reads(said(session)) == 1
    session.now += 2.0
    session.tell(Refreshed(""))
    assert any(isinstance(action, Refresh) for action in said(session))
    session.now += 2.0
    session.tell(Refreshed("default"))
    assert [action.victim.name for action in said(session) if isinstance(action, Evict)] == ["low"]


def test_pod_of_a_pool_that_went_before_the_answer_belongs_to_the_default_pool() -> None:
    session = Session(a_node("n"), a_pod("p", pool="new"))
    assert reads(said(session)) == 1
    session.tell(Seen(a_pool("new", labels={"team": "new"})), gone(Pool, "new"), Refreshed(""))
    actions = said(session)
    assert (reads(actions), binds(actions)) == (0, {"p": "n"})


def a_borrower_that_waits() -> Session:
    session = Session(a_pool("a", labels={"team": "a"}), a_pod("borrower", pool="a"))
    assert binds(said(session)) == {}
    return session


def test_new_node_that_no_pool_selects_is_not_lent_before_the_pools_were_listed() -> None:
    session = a_borrower_that_waits()
    session.see(a_node("x1", cpu="1", labels={"team": "x"}))
    actions = said(session)
    assert (reads(actions), binds(actions)) == (1, {})
    session.tell(Seen(a_pool("x", labels={"team": "x"})), Refreshed(""))
    session.see(a_pod("owner", pool="x"))
    assert binds(said(session)) == {"owner": "x1"}


def test_new_node_takes_no_pod_of_the_default_pool_before_the_pools_were_listed() -> None:
    session = Session(a_pod("waits"))
    said(session)
    session.see(a_node("x1", cpu="1", labels={"team": "x"}), a_pod("owner", pool="x"))
    assert binds(said(session)) == {}
    session.tell(Seen(a_pool("x", labels={"team": "x"})), Refreshed(""))
    assert binds(said(session)) == {"owner": "x1"}


def test_new_node_is_used_once_the_pools_are_listed() -> None:
    session = a_borrower_that_waits()
    session.see(a_node("n", cpu="2"))
    assert binds(said(session)) == {}
    session.tell(Refreshed(""))
    assert binds(said(session)) == {"borrower": "n"}


def test_node_that_comes_while_the_pools_are_listed_waits_for_the_next_list() -> None:
    session = a_borrower_that_waits()
    session.see(a_node("small", cpu="0"))
    assert reads(said(session)) == 1
    session.see(a_node("n", cpu="1"))
    assert reads(said(session)) == 0, "one list at a time"
    session.tell(Refreshed(""))
    actions = said(session)
    assert (reads(actions), binds(actions)) == (1, {})
    session.tell(Refreshed(""))
    assert binds(said(session)) == {"borrower": "n"}


def test_failed_list_of_pools_delays_a_new_node_for_seconds_only() -> None:
    session = a_borrower_that_waits()
    session.see(a_node("n", cpu="2"))
    assert binds(said(session)) == {}
    due = session.scheduler.next_wakeup()
    assert due is not None
    assert due <= LATE_SECONDS_MAX
    session.now = LATE_SECONDS_MAX
    assert binds(said(session)) == {"borrower": "n"}


def test_node_of_a_known_pool_and_a_known_node_wait_for_no_list() -> None:
    session = a_borrower_that_waits()
    session.see(a_node("a1", cpu="1", labels={"team": "a"}))
    assert binds(said(session)) == {"borrower": "a1"}
    session.see(a_node("late", cpu="1"))
    assert not session.scheduler.has_node("late")
    session.see(a_node("late", cpu="1", labels={"team": "a"}))
    assert session.scheduler.has_node("late"), "its pool is known now"
    session.see(a_node("a1", cpu="2"))
    assert session.scheduler.has_node("a1")


def test_new_node_that_is_deleted_before_the_answer_is_dropped_and_a_changed_one_is_added_as_it_is() -> None:
    session = a_borrower_that_waits()
    session.see(a_node("gone", cpu="8"), a_node("small", cpu="8"), a_node("small", cpu="1"), a_pod("second", pool="a"))
    said(session)
    session.tell(gone(Node, "gone"), Refreshed(""))
    assert list(binds(said(session)).values()) == ["small"]
    assert not session.scheduler.has_node("gone")


def test_refresh_adds_new_nodes_because_it_listed_the_pools() -> None:
    session = a_borrower_that_waits()
    session.see(a_node("n", cpu="1"))
    said(session)
    session.tell(Refreshed("default"))
    assert binds(said(session)) == {"borrower": "n"}


def test_standby_keeps_no_node_back_and_reads_no_pool() -> None:
    session = Session(a_pod("p", pool="x"))
    said(session)
    session.see(a_node("late"))
    session.scheduler.stand_by(0.0)
    assert session.scheduler.has_node("late")
    session.see(a_node("n"))
    assert session.scheduler.has_node("n")
    session.tell(gone(Pod, a_pod("p").uid))
    assert reads(said(session)) == 0
