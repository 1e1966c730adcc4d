"""Gangs whose Bindings are refused again and again: what was bound is rolled back each time, and no pod twice."""

from aischeduler.model.actions import Bind, Evict
from aischeduler.model.events import BindRefusal, BindRefused, GangSeen, PodGone
from aischeduler.model.gang import GangPhase
from tests.build import a_pod
from tests.engine.session import Session, binds, evictions
from tests.engine.test_gangs import nodes, shown
from tests.gangs import a_gang, gang_statuses, member, members

RETRIED_SECONDS = 300
"""After this time the Binding of a pod is tried again that the API server rejected."""


def refuse(session: Session, *names: str) -> None:
    """Have the API server reject the last Bindings of these pods for good."""
    on = {action.pod.name: action.node for action in session.said if isinstance(action, Bind)}
    session.tell(*(BindRefused(f"uid-{name}", on[name], BindRefusal.INVALID, "no") for name in names))


def half_at_the_second_try() -> Session:
    """Return a session in which both Bindings of a gang were rejected; five minutes later one of them succeeded."""
    pods = members("g", 2)
    session = Session(*nodes(2), *pods)
    session.tell(GangSeen(a_gang("g", 2)))
    session.decide()
    refuse(session, "g-0", "g-1")
    session.decide()
    assert binds(session.decide(seconds=RETRIED_SECONDS - 1)) == {}
    assert sorted(binds(session.decide(seconds=1))) == ["g-0", "g-1"]
    refuse(session, "g-1")
    shown(session, pods[0])
    session.decide()
    return session


def test_gang_that_is_half_after_its_second_try_has_a_minute_again_and_is_given_up_then() -> None:
    session = half_at_the_second_try()
    assert evictions(session.decide(seconds=59)) == {}
    assert evictions(session.decide(seconds=2)) == {"g-0": "GangNotWhole"}


def test_gang_that_was_given_up_waits_whole_until_its_pod_comes_again() -> None:
    session = half_at_the_second_try()
    session.decide(seconds=61)
    session.tell(PodGone("uid-g-0"))
    assert binds(session.decide(seconds=2 * RETRIED_SECONDS)) == {}
    status = gang_statuses(session.said)["g"]
    assert (status.phase, status.reason, status.placed) == (GangPhase.PENDING, "NotEnoughPods", 0)
    session.see(member(a_pod("again", cpu="2", created=1), "g"))
    assert sorted(binds(session.decide())) == ["again", "g-1"]


def test_each_pod_of_a_gang_that_is_given_up_twice_is_evicted_once() -> None:
    session = half_at_the_second_try()
    session.decide(seconds=61)
    session.tell(PodGone("uid-g-0"))
    again = member(a_pod("again", cpu="2", created=1), "g")
    session.see(again)
    session.decide()
    refuse(session, "g-1")
    shown(session, again)
    session.decide()
    session.decide(seconds=59)
    session.decide(seconds=2)
    session.decide(seconds=61)  # nothing is heard of the second eviction
    victims = [(action.victim.name, str(action.cause)) for action in session.said if isinstance(action, Evict)]
    assert victims == [("g-0", "GangNotWhole"), ("again", "GangNotWhole")]


def test_started_gang_is_kept_whose_new_pod_the_api_server_rejects() -> None:
    pods = members("g", 3)
    session = Session(*nodes(3), *pods)
    session.tell(GangSeen(a_gang("g", 3)))
    session.decide()
    shown(session, *pods)
    session.decide()
    session.tell(PodGone("uid-g-1"))
    session.see(member(a_pod("again", cpu="2", created=50), "g"))
    assert list(binds(session.decide())) == ["again"]
    refuse(session, "again")
    session.decide()
    assert evictions(session.decide(seconds=61)) == {}
    assert list(binds(session.decide(seconds=RETRIED_SECONDS))) == ["again"]
    refuse(session, "again")
    session.decide()
    assert evictions(session.decide(seconds=61)) == {}
