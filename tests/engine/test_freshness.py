"""No pod is evicted before the data of its pool was refreshed."""

import pytest

from aischeduler.engine.freshness import FRESH_SECONDS
from aischeduler.engine.profile import default_profile
from aischeduler.model.actions import Action, Bind, Refresh
from aischeduler.model.events import Refreshed, RefreshFailed, Seen, gone
from aischeduler.model.pod import Pod
from aischeduler.model.pool import GroupRule, Pool, ReclaimPolicy
from aischeduler.model.selectors import label_selector
from aischeduler.model.tenant_queue import QueueState, TenantQueue, TenantSettings
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, evictions, nominations, reports
from tests.engine.test_unknown_pools import said
from tests.tenants import a_queue, in_queue


def refreshes(actions: list[Action]) -> list[str]:
    return [action.pool for action in actions if isinstance(action, Refresh)]


@pytest.fixture
def session() -> Session:
    """Return a full node of the default pool, and a pod of higher priority that waits for it."""
    low = a_pod("low", cpu="4", node="n", phase="Running")
    return Session(a_node("n", cpu="4"), low, a_pod("high", cpu="4", priority=100))


def test_no_pod_is_evicted_before_the_refresh(session: Session) -> None:
    actions = said(session)
    assert refreshes(actions) == ["default"]
    assert evictions(actions) == {}
    session.tell(Refreshed("default"))
    assert evictions(said(session)) == {"low": "Preempted"}


def test_room_that_the_refresh_shows_is_taken_instead_of_an_eviction(session: Session) -> None:
    said(session)
    session.tell(Seen(a_node("m", cpu="4")), Refreshed("default"))
    actions = said(session)
    assert evictions(actions) == {}
    assert binds(actions) == {"high": "m"}


def test_free_room_is_taken_while_the_refresh_is_under_way(session: Session) -> None:
    said(session)
    session.tell(gone(Pod, a_pod("low").uid))
    assert binds(said(session)) == {"high": "n"}
    session.tell(Refreshed("default"))
    assert said(session) == []


def test_attempt_that_waits_for_a_refresh_is_no_failed_one(session: Session) -> None:
    said(session)
    for _ in range(5):
        session.tell(RefreshFailed("default", "the API server is away"))
        said(session)
    session.tell(gone(Pod, a_pod("low").uid))
    (bind,) = [action for action in said(session) if isinstance(action, Bind)]
    assert bind.attempts == 1


def test_switch_that_the_refresh_shows_takes_effect(session: Session) -> None:
    said(session)
    session.tell(Seen(a_pool("default", disable_preemption=True)), Refreshed("default"))
    actions = said(session)
    assert evictions(actions) == {}
    assert "switched off for the pool default" in reports(actions)["high"]


def test_refresh_counts_only_for_a_while(session: Session) -> None:
    said(session)
    session.tell(Refreshed("default"))
    assert evictions(said(session)) != {}
    session.see(a_node("m", cpu="4"), a_pod("low-2", cpu="4", node="m", phase="Running"))
    said(session)
    session.tell(Refreshed(""))
    session.now += FRESH_SECONDS
    session.see(a_pod("high-2", cpu="4", priority=100))
    assert evictions(said(session)) == {"low-2": "Preempted"}
    session.see(a_node("o", cpu="4"), a_pod("low-3", cpu="4", node="o", phase="Running"))
    said(session)
    session.tell(Refreshed(""))
    session.now += 0.1
    session.see(a_pod("high-3", cpu="4", priority=100))
    actions = said(session)
    assert (refreshes(actions), evictions(actions)) == (["default"], {})


def test_many_pods_share_one_refresh() -> None:
    nodes = [a_node(f"n{i}", cpu="4") for i in range(5)]
    low = [a_pod(f"low{i}", cpu="4", node=f"n{i}", phase="Running") for i in range(5)]
    session = Session(*nodes, *low, *(a_pod(f"high{i}", cpu="4", priority=100) for i in range(5)))
    assert refreshes(said(session)) == ["default"]
    session.tell(Refreshed("default"))
    actions = said(session)
    assert len(evictions(actions)) == 5
    assert refreshes(actions) == []


def test_reason_names_why_the_refresh_failed_and_the_pod_requests_it_again(session: Session) -> None:
    said(session)
    session.tell(RefreshFailed("default", "the watch of pods is more than 2 s behind"))
    actions = said(session)
    assert refreshes(actions) == ["default"]
    assert evictions(actions) == {}
    assert reports(actions)["high"].endswith(
        "preemption: waits for up-to-date data about the pool before it evicts a pod: "
        "the watch of pods is more than 2 s behind."
    )


def test_loans_are_not_ended_before_a_refresh() -> None:
    lender = a_pool("lender", labels={"of": "lender"}, reclaim_policy=ReclaimPolicy.EVICT)
    guest = a_pod("guest", cpu="4", pool="home", node="n", phase="Running")
    session = Session(lender, a_pool("home"), a_node("n", cpu="4", labels={"of": "lender"}), guest)
    said(session)
    session.see(replace(lender, disable_sharing=True))
    actions = said(session)
    assert (refreshes(actions), evictions(actions)) == (["lender"], {})
    session.tell(Refreshed("lender"))
    assert evictions(said(session)) == {"guest": "LoanEnded"}


def test_refresh_names_the_nodes_of_the_pool() -> None:
    pool = a_pool("team", labels={"of": "team"})
    low = a_pod("low", cpu="4", pool="team", node="n", phase="Running")
    session = Session(pool, a_node("n", cpu="4", labels={"of": "team"}), a_node("other", cpu="4"), low)
    session.see(a_pod("high", cpu="4", pool="team", priority=100))
    (refresh,) = [action for action in said(session) if isinstance(action, Refresh)]
    assert (refresh.selector, refresh.nodes, refresh.namespaces) == (pool.selector, ("n",), False)


def test_refresh_reads_namespaces_where_a_group_has_rules_whichever_pod_asks_first() -> None:
    rules = (GroupRule("h", label_selector("s", {"team": "yes"}, ())),)
    low = a_pod("low", cpu="4", node="n", phase="Running")
    session = Session(a_pool("team", machine_groups=rules), a_node("n", cpu="4"), low)
    session.see(a_pod("plain", cpu="4", priority=100))
    (refresh,) = [action for action in said(session) if isinstance(action, Refresh)]
    assert refresh.namespaces


STAYS = label_selector("s", {"stays": "yes"}, ())


@pytest.mark.parametrize(
    ("queues", "settings", "namespaces", "tenants"),
    [
        ((), TenantSettings(non_preemptible=STAYS), False, False),
        ((a_queue("q"),), TenantSettings(), False, True),
        ((a_queue("q", allowed_namespaces=STAYS),), TenantSettings(), True, True),
        ((a_queue("q"),), TenantSettings(non_preemptible=STAYS), True, True),
    ],
)
def test_refresh_reads_queues_and_workloads_where_a_queue_is_and_namespaces_where_they_decide(
    queues: tuple[TenantQueue, ...], settings: TenantSettings, namespaces: bool, tenants: bool
) -> None:
    session = Session(profile=replace(default_profile(), tenants=settings))
    session.tell(*map(Seen, queues))
    session.see(a_node("n", cpu="4"), a_pod("low", cpu="4", node="n", phase="Running"))
    session.see(a_pod("high", cpu="4", priority=100))
    (refresh,) = [action for action in said(session) if isinstance(action, Refresh)]
    assert (refresh.namespaces, refresh.tenants) == (namespaces, tenants)


DRAINS = a_queue("q", state=QueueState.DRAINING, draining_since_seconds=1)


def test_order_of_a_queue_waits_for_the_refresh_and_may_be_taken_back_by_it() -> None:
    session = Session(a_node("n", cpu="4"), a_node("m", cpu="4"))
    session.now = 2.0
    session.tell(Seen(DRAINS), Seen(replace(DRAINS, name="kept")))
    session.see(in_queue(a_pod("goes", node="n", phase="Running"), "q"))
    session.see(in_queue(a_pod("stays", node="m", phase="Running"), "kept"))
    actions = said(session)
    assert (refreshes(actions), evictions(actions)) == (["default"], {})
    session.tell(RefreshFailed("default", "the API server is away"))
    assert refreshes(said(session)) == ["default"]
    session.tell(Seen(a_queue("kept")), Refreshed("default"))
    assert evictions(said(session)) == {"goes": "QueueDrained"}


def test_answer_for_a_pool_that_is_gone_changes_nothing() -> None:
    low = a_pod("low", cpu="4", pool="team", node="n", phase="Running")
    session = Session(a_pool("team", labels={"of": "team"}), a_node("n", cpu="4", labels={"of": "team"}), low)
    session.see(a_pod("high", cpu="4", pool="team", priority=100))
    assert refreshes(said(session)) == ["team"]
    session.tell(gone(Pool, "team"), Refreshed("team"), RefreshFailed("team", "gone"))
    assert evictions(said(session)) == {}


@pytest.fixture
def two_wait() -> Session:
    """Return two pods of one class, of which the first waits for a refresh to evict a pod that has taken the room."""
    top = a_pod("top", cpu="4", node="n", priority=200)
    high = [a_pod(name, cpu="4", priority=100) for name in ("first", "second")]
    session = Session(a_node("n", cpu="4"), top, *high)
    assert evictions(said(session)) == {}
    session.tell(gone(Pod, "uid-top"))
    session.see(a_pod("low", cpu="4", node="n"))
    assert refreshes(said(session)) == ["default"]
    return session


def test_next_pod_of_the_class_evicts_where_the_one_that_waits_for_the_refresh_has_left(two_wait: Session) -> None:
    two_wait.tell(gone(Pod, "uid-first"), Refreshed("default"))
    actions = said(two_wait)
    assert (evictions(actions), nominations(actions)) == ({"low": "Preempted"}, {"second": "n"})


def test_next_pod_of_the_class_evicts_where_the_one_that_waits_for_the_refresh_found_room(two_wait: Session) -> None:
    two_wait.see(a_node("m", cpu="4"))
    said(two_wait)
    two_wait.tell(Refreshed(""))
    assert binds(said(two_wait)) == {"first": "m"}
    two_wait.tell(Refreshed("default"))
    actions = said(two_wait)
    assert (evictions(actions), nominations(actions)) == ({"low": "Preempted"}, {"second": "n"})
