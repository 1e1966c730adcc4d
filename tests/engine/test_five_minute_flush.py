"""The five-minute flush counts exactly the pods whose wake-up was lost."""

from aischeduler.model.events import Seen, gone
from aischeduler.model.gang import GangSource
from aischeduler.model.pod import Pod
from aischeduler.state.scheduling_queue import NET_SECONDS
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, evictions, nominations
from tests.gangs import a_gang, members


def full(*, cpu: str) -> Session:
    """One node that one pod fills."""
    return Session(a_node("n", cpu=cpu), a_pod("big", cpu=cpu, node="n"))


def forget(session: Session, pod: Pod) -> None:
    """Park a new pod without a trial."""
    session.see(pod)
    queue = session.scheduler.cluster.queues["default"]
    record = queue.pop()
    assert record is not None
    queue.park(record, session.now)
    session.scheduler.closely = False  # or the watch would cry for it at once


def net_is_cast(session: Session, pool: str) -> None:
    """Flush the pods that are due, before any pod is tried."""
    session.now = NET_SECONDS
    session.scheduler.decide(pool, session.now, 0)


def test_pod_that_no_event_spoke_of_is_saved_by_the_net() -> None:
    session = Session(a_node("n", cpu="4"))
    session.decide()
    forget(session, a_pod("forgotten", cpu="1"))
    assert binds(session.decide(NET_SECONDS - 1)) == {}
    assert binds(session.decide(1)) == {"forgotten": "n"}
    assert session.scheduler.net_saves() == 1


def test_pod_whose_room_is_freed_after_the_net_caught_it_is_not_saved_by_it() -> None:
    session = full(cpu="2")
    session.see(a_pod("waits", cpu="2"))
    session.decide()
    net_is_cast(session, "default")
    session.tell(gone(Pod, "uid-big"))
    assert binds(session.decide()) == {"waits": "n"}
    assert session.scheduler.net_saves() == 0


def test_two_alike_whom_one_event_helps_while_the_net_holds_them_are_not_saved_by_it() -> None:
    session = full(cpu="2")
    session.see(a_pod("first", cpu="1", created=1), a_pod("second", cpu="1", created=2))
    session.decide()
    net_is_cast(session, "default")
    session.scheduler.decide("default", session.now, 1)
    session.tell(gone(Pod, "uid-big"))
    assert binds(session.decide()) == {"first": "n", "second": "n"}
    assert session.scheduler.net_saves() == 0


def test_pod_that_gets_what_is_left_of_room_offered_to_another_is_not_saved_by_the_net() -> None:
    session = full(cpu="2")
    session.see(a_pod("old", cpu="1"))
    session.decide()
    session.see(a_pod("urgent", cpu="2", priority=5, preempts=False))
    assert binds(session.decide(NET_SECONDS - 0.1)) == {}
    session.tell(gone(Pod, "uid-big"))
    session.see(a_pod("foreign", cpu="1", node="n", scheduler_name="other"))
    assert binds(session.decide(0.1)) == {"old": "n"}
    assert session.scheduler.net_saves() == 0


def test_borrower_whose_lenders_own_pod_has_just_gone_is_not_saved_by_the_net() -> None:
    session = Session(a_pool("a", labels={"pool": "a"}), a_pool("b", labels={"pool": "b"}))
    session.see(a_node("n", cpu="1", labels={"pool": "b"}), a_pod("own", cpu="1", pool="b"))
    session.see(a_pod("guest", cpu="1", pool="a"))
    assert binds(session.scheduler.decide("a", session.now, 1)) == {}
    session.now = NET_SECONDS
    session.tell(gone(Pod, "uid-own"))
    assert binds(session.decide()) == {"guest": "n"}
    assert session.scheduler.net_saves() == 0


def test_gang_one_of_whose_nodes_is_freed_after_the_net_caught_it_is_not_saved_by_it() -> None:
    session = full(cpu="2")
    session.see(a_node("free", cpu="2"), *members(a_gang("g", 2, GangSource.LABELS), 2))
    session.decide()
    net_is_cast(session, "default")
    session.tell(gone(Pod, "uid-big"))
    assert binds(session.decide()).keys() == {"g-0", "g-1"}
    assert session.scheduler.net_saves() == 0


def with_victim(*pods: Pod, cpu: str) -> Session:
    """Return a session in which half a gang, of 2 CPU, is evicted from the node at 61 s; these pods came at 0 s."""
    half, lost = members("g", 2)
    session = Session(a_node("n", cpu=cpu), half, replace(lost, spec=a_pod("large", cpu="64").spec))
    session.tell(Seen(a_gang("g", 2)))
    session.decide()
    session.see(replace(half, node_name="n"), *pods)
    session.decide()
    assert evictions(session.decide(61)) == {"g-0": "GangNotWhole"}
    return session


def test_pod_that_claims_room_of_a_pod_whose_eviction_is_not_shown_yet_is_not_saved_by_the_net() -> None:
    session = with_victim(a_pod("waits", cpu="2"), cpu="2")
    assert nominations(session.decide(NET_SECONDS - 61)) == {"waits": "n"}
    assert session.scheduler.net_saves() == 0


def test_pod_that_finds_free_room_beside_a_pod_whose_eviction_is_not_shown_yet_is_saved_by_the_net() -> None:
    session = with_victim(cpu="3")
    forget(session, a_pod("forgotten", cpu="1"))
    assert binds(session.decide(NET_SECONDS)) == {"forgotten": "n"}
    assert session.scheduler.net_saves() == 1
