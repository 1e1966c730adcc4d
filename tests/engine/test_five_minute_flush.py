"""The five-minute flush counts exactly the pods whose wake-up was lost."""

from aischeduler.model.events import PodGone
from aischeduler.state.scheduling_queue import NET_SECONDS
from tests.build import a_node, a_pod, a_pool
from tests.engine.session import Session, binds


def full(*, cpu: str) -> Session:
    """One node that one pod fills."""
    return Session(a_node("n", cpu=cpu), a_pod("big", cpu=cpu, node="n"))


def net_is_cast(session: Session, pool: str) -> None:
    """Flush the pods that are due, before any pod is tried."""
    session.now = NET_SECONDS
    session.scheduler.decide(pool, session.now, 0)


def test_pod_that_no_event_spoke_of_is_saved_by_the_net() -> None:
    session = Session(a_node("n", cpu="4"))
    session.decide()
    session.see(a_pod("forgotten", cpu="1"))
    queue = session.scheduler._cluster.queues["default"]
    record = queue.pop()
    assert record is not None
    queue.park(record, session.now)
    session.scheduler.closely = False  # or the watch would cry for it at once
    assert binds(session.decide(NET_SECONDS - 1)) == {}
    assert binds(session.decide(1)) == {"forgotten": "n"}
    assert session.scheduler.net_saves() == 1


def test_pod_whose_room_is_freed_after_the_net_caught_it_is_not_saved_by_it() -> None:
    session = full(cpu="2")
    session.see(a_pod("waits", cpu="2"))
    session.decide()
    net_is_cast(session, "default")
    session.tell(PodGone("uid-big"))
    assert binds(session.decide()) == {"waits": "n"}
    assert session.scheduler.net_saves() == 0


def test_two_alike_whom_one_event_helps_while_the_net_holds_them_are_not_saved_by_it() -> None:
    session = full(cpu="2")
    session.see(a_pod("first", cpu="1", created=1), a_pod("second", cpu="1", created=2))
    session.decide()
    net_is_cast(session, "default")
    session.scheduler.decide("default", session.now, 1)
    session.tell(PodGone("uid-big"))
    assert binds(session.decide()) == {"first": "n", "second": "n"}
    assert session.scheduler.net_saves() == 0


def test_pod_that_gets_what_is_left_of_room_offered_to_another_is_not_saved_by_the_net() -> None:
    session = full(cpu="2")
    session.see(a_pod("old", cpu="1"))
    session.decide()
    session.see(a_pod("urgent", cpu="2", priority=5, preempts=False))
    assert binds(session.decide(NET_SECONDS - 0.1)) == {}
    session.tell(PodGone("uid-big"))
    session.see(a_pod("foreign", cpu="1", node="n", scheduler_name="other"))
    assert binds(session.decide(0.1)) == {"old": "n"}
    assert session.scheduler.net_saves() == 0


def test_borrower_whose_lenders_own_pod_has_just_gone_is_not_saved_by_the_net() -> None:
    session = Session(a_pool("a", labels={"pool": "a"}), a_pool("b", labels={"pool": "b"}))
    session.see(a_node("n", cpu="1", labels={"pool": "b"}), a_pod("own", cpu="1", pool="b"))
    session.see(a_pod("guest", cpu="1", pool="a"))
    assert binds(session.scheduler.decide("a", session.now, 1)) == {}
    session.now = NET_SECONDS
    session.tell(PodGone("uid-own"))
    assert binds(session.decide()) == {"guest": "n"}
    assert session.scheduler.net_saves() == 0
