"""The reasons of waiting pods stay true: after a while they equal those of a new engine."""

from aischeduler.engine.deferred_work import REST_SECONDS, UNREST_SECONDS_MAX
from aischeduler.engine.message_updates import REWORDED_AT_ONCE
from aischeduler.model.events import EvictRefusal, EvictRefused, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds, evictions, reports

A, B = {"pool": "a"}, {"pool": "b"}


def test_reason_no_longer_names_a_limit_that_is_free_again() -> None:
    session = Session(a_pool("a", labels=A, borrowing_limit={"cpu": 1000}), a_pool("b", labels=B))
    session.see(a_node("n", cpu="1", labels=B), a_pod("loan", cpu="1", pool="a", node="n"))
    session.see(a_pod("p", cpu="1", pool="a"))
    assert "borrowing limit of cpu" in reports(session.decide())["p"]
    session.see(a_pod("own", cpu="1", pool="b", node="n"))
    session.tell(gone(Pod, "uid-loan"))
    session.decide()
    assert "borrowing: no node fits: b, default" in reports(session.decide(REST_SECONDS))["p"]


def test_reason_no_longer_names_room_that_the_lender_has_taken_itself() -> None:
    lender = a_pool("b", labels=B, disable_borrowing=True, disable_preemption=True)
    session = Session(a_pool("a", labels=A), lender, a_node("n", cpu="4", labels=B))
    session.see(a_pod("in-the-way", cpu="1", node="n", scheduler_name="other"), a_pod("own", cpu="4", pool="b"))
    session.see(a_pod("p", cpu="2", pool="a"))
    assert "own pods wait for that room: b" in reports(session.decide())["p"]
    session.tell(gone(Pod, "uid-in-the-way"))
    session.decide()
    assert "borrowing: no node fits: b, default" in reports(session.decide(REST_SECONDS))["p"]


def test_reason_follows_a_pool_that_comes_and_goes() -> None:
    session = Session(
        a_pool("a", labels=A), a_pool("b", labels=B, disable_sharing=True), a_node("n", cpu="4", labels=B)
    )
    session.see(a_pod("p", cpu="9", pool="a"))
    assert "not sharing: b" in reports(session.decide())["p"]
    session.tell(gone(Pool, "b"))
    assert reports(session.decide())["p"].endswith("borrowing: no node fits: default.")
    session.see(a_pool("b", labels=B))
    assert reports(session.decide())["p"].endswith("borrowing: no node fits: b, default.")


def test_reason_no_longer_counts_nodes_that_the_pool_has_lost() -> None:
    session = Session(a_pool("a", labels=A, disable_borrowing=True), a_node("n", cpu="1", labels=A))
    session.see(a_pod("p", cpu="2", pool="a"))
    assert "0/1 nodes are available" in reports(session.decide())["p"]
    session.see(a_node("n", cpu="1", labels=B))
    session.decide()
    assert "no nodes available to schedule pods" in reports(session.decide(REST_SECONDS))["p"]


def test_reason_equals_that_of_a_new_engine_and_classes_are_updated_in_turn() -> None:
    pools = (a_pool("a", labels=A, borrowing_limit={"cpu": 1000}), a_pool("b", labels=B))
    node = a_node("n", cpu="1", labels=B)
    own = a_pod("own", cpu="1", pool="b", node="n")
    waiting = [a_pod(f"p{n}", cpu=f"{1 + n}", pool="a", created=n) for n in range(2 * REWORDED_AT_ONCE + 1)]
    session = Session(*pools, node, a_pod("loan", cpu="1", pool="a", node="n"), *waiting)
    before = reports(session.decide())
    session.see(own)
    session.tell(gone(Pod, "uid-loan"))
    session.decide()
    session.decide(REST_SECONDS)
    new = Session(*pools, node, own, *waiting)
    told = reports(new.decide())
    assert [session.scheduler.why(pod.uid) for pod in waiting] == [told[pod.name] for pod in waiting]
    assert told["p0"] != before["p0"]


def test_pods_that_the_api_server_refused_to_evict_are_counted_in_the_reason() -> None:
    session = Session(a_pool("default", disable_sharing=True), a_node("n", cpu="1"))
    session.see(a_pod("stays", cpu="1", node="n", started=1), a_pod("p", cpu="1", priority=9))
    assert evictions(session.decide()) == {"stays": "Preempted"}
    session.tell(EvictRefused("uid-stays", EvictRefusal.FORBIDDEN, "no rights"))
    assert "The API server refused to evict 1 pod just now." in reports(session.decide(1))["p"]


def test_pods_of_each_priority_get_the_reason_of_their_priority() -> None:
    session = Session(a_pool("a", labels=A), a_pool("b", labels=B, disable_sharing=True))
    session.see(a_pod("high", cpu="9", pool="a", priority=9), a_pod("low", cpu="9", pool="a", priority=1))
    session.decide()
    session.see(a_pool("b", labels=B))
    told = reports(session.decide())
    assert all(told[name].endswith("borrowing: no node fits: b, default.") for name in ("high", "low"))


def test_pods_of_the_class_of_a_pod_that_was_tried_get_their_new_reason_later() -> None:
    session = Session(
        a_pool("a", labels=A), a_pool("b", labels=B, disable_sharing=True), a_node("n", cpu="1", labels=B)
    )
    waiting = [a_pod(f"p{n}", cpu="1", pool="a", created=n) for n in range(3)]
    session.see(*waiting)
    session.decide()
    session.see(a_pool("b", labels=B))
    assert binds(session.decide()) == {"p0": "n"}
    later = reports(session.decide(REST_SECONDS))
    assert later == {"p2": "no nodes available to schedule pods. borrowing: no node fits: b, default."}
    assert session.scheduler.why("uid-p1") == later["p2"]


def test_reasons_are_updated_although_changes_never_pause() -> None:
    session = Session(a_pool("a", labels=A), a_node("n", cpu="1", labels=A))
    session.see(a_pod("own", cpu="1", pool="a", node="n"), a_pod("p", cpu="1", gpu=1, pool="a"))
    assert "1 Insufficient cpu, 1 Insufficient nvidia.com/gpu" in reports(session.decide())["p"]
    session.tell(gone(Pod, "uid-own"))
    told_after: list[float] = []
    for seconds in range(1, int(UNREST_SECONDS_MAX) + 1):
        session.see(a_pod(f"other{seconds}", cpu="9", pool="a"))
        if "p" in reports(session.decide(1.0)):
            told_after.append(seconds)
    assert told_after == [UNREST_SECONDS_MAX]
    assert "0/1 nodes are available: 1 Insufficient nvidia.com/gpu." in session.scheduler.why("uid-p")


def test_other_numbers_alone_do_not_update_a_reason() -> None:
    session = Session(a_node("n1", cpu="1"), a_node("n2", cpu="1"), a_node("n3", cpu="1", unschedulable=True))
    session.see(a_pod("p", cpu="2"))
    assert "1 node(s) were unschedulable, 2 Insufficient cpu" in reports(session.decide())["p"]
    session.decide(REST_SECONDS)  # the nodes came just now, which updates the reason
    session.see(a_node("n2", cpu="1", unschedulable=True))
    session.decide()
    assert reports(session.decide(REST_SECONDS)) == {}
    session.see(a_node("n3", cpu="1"), a_node("n2", cpu="1"))
    session.decide()
    assert "0/3 nodes are available: 3 Insufficient cpu" in reports(session.decide(REST_SECONDS))["p"]


def test_reading_which_pools_are_ready_changes_no_later_report() -> None:
    def report_seconds(*, read_often: bool) -> float:
        session = Session(a_pool("a", labels=A, borrowing_limit={"cpu": 1000}), a_pool("b", labels=B))
        session.see(a_node("n", cpu="1", labels=B), a_pod("loan", cpu="1", pool="a", node="n"))
        session.see(a_pod("p", cpu="1", pool="a"))
        session.decide()
        session.see(a_pod("own", cpu="1", pool="b", node="n"))
        session.tell(gone(Pod, "uid-loan"))
        session.now += 3
        if read_often:
            session.scheduler.ready(session.now)
        while not reports(session.decide(0.5)):
            pass
        return session.now

    assert report_seconds(read_often=True) == report_seconds(read_often=False)


def test_update_is_due_by_the_last_event_without_a_further_call() -> None:
    session = Session(a_node("n"), a_node("m"))
    session.decide(UNREST_SECONDS_MAX)
    engine, now = session.scheduler, 2 * UNREST_SECONDS_MAX
    engine.observe(gone(Node, "n"), now)
    assert engine.cluster.deferred.unrest.until is None, "nothing is compared per event"
    engine.next_wakeup()
    assert engine.cluster.deferred.unrest.until == now + REST_SECONDS


def test_changes_count_from_their_own_time_however_often_the_engine_is_asked() -> None:
    due, now = [], 2 * UNREST_SECONDS_MAX
    for asked in (False, True):
        session = Session(a_node("n"), a_node("m"))
        session.decide(UNREST_SECONDS_MAX)
        engine = session.scheduler
        for name, seconds in (("n", 0.0), ("m", UNREST_SECONDS_MAX - 1)):
            engine.observe(gone(Node, name), now + seconds)
            if asked:
                engine.next_wakeup()
        engine.next_wakeup()
        due.append(engine.cluster.deferred.unrest.until)
    assert due == [now + UNREST_SECONDS_MAX] * 2
