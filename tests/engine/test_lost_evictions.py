"""Evictions without an effect: the victim is read, and only the read ends the claim."""

from aischeduler.engine.evictions import UNHEARD_SECONDS
from aischeduler.model.actions import ReadPod
from aischeduler.model.events import EvictRefusal, EvictRefused, gone
from aischeduler.model.pod import Pod
from aischeduler.model.pool import ReclaimPolicy
from tests.build import a_node, a_pod, a_pool, replace
from tests.engine.session import Session, binds, evictions

A, B = {"pool": "a"}, {"pool": "b"}
GUEST = a_pod("guest", cpu="4", pool="b", node="n1", started=2)


def asked() -> Session:
    """Return pool a, whose pod `owner` has requested the eviction of `guest` on n1."""
    session = Session(a_pool("a", labels=A), a_pool("b", labels=B), a_node("n1", cpu="4", labels=A), GUEST)
    session.see(a_pod("owner", cpu="4", pool="a"))
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    return session


def reads(session: Session, seconds: float) -> list[tuple[str, str, bool]]:
    """Advance the clock; return the pods to read: name, node, and whether for their eviction."""
    return [
        (action.pod.name, action.node, action.evicted)
        for action in session.decide(seconds)
        if isinstance(action, ReadPod)
    ]


def lost(session: Session) -> None:
    session.tell(EvictRefused("uid-guest", EvictRefusal.LOST, "nothing was heard"))


def test_victim_whose_eviction_shows_no_effect_is_read_after_a_while_and_again() -> None:
    session = asked()
    assert reads(session, UNHEARD_SECONDS - 1) == []
    assert session.scheduler.next_wakeup() == UNHEARD_SECONDS
    assert reads(session, 1) == [("guest", "n1", True)]
    assert reads(session, UNHEARD_SECONDS - 1) == []
    assert reads(session, 1) == [("guest", "n1", True)]


def test_no_other_pod_is_evicted_while_the_eviction_may_still_take_effect() -> None:
    session = asked()
    session.see(a_node("n2", cpu="4", labels=A), a_pod("other", cpu="4", pool="b", node="n2", started=1))
    for _ in range(60):
        assert evictions(session.decide(60)) == {}


def test_owner_evicts_again_once_a_read_shows_that_the_victim_stays() -> None:
    session = asked()
    assert reads(session, UNHEARD_SECONDS) == [("guest", "n1", True)]
    lost(session)
    assert evictions(session.decide()) == {"guest": "Reclaimed"}
    session.tell(gone(Pod, "uid-guest"))
    assert binds(session.decide()) == {"owner": "n1"}


def test_owner_takes_room_that_came_meanwhile_when_its_eviction_was_lost() -> None:
    session = asked()
    session.see(a_node("n2", cpu="4", labels=A))
    assert binds(session.decide()) == {"owner": "n2"}
    assert session.scheduler.cluster.leaving("uid-guest"), "its eviction was requested again"
    lost(session)
    assert evictions(session.decide()) == {}
    assert not session.scheduler.cluster.leaving("uid-guest")


def test_read_that_shows_the_victim_terminating_or_gone_keeps_the_claim() -> None:
    session = asked()
    assert reads(session, UNHEARD_SECONDS) == [("guest", "n1", True)]
    session.see(a_pod("guest", cpu="4", pool="b", node="n1", started=2, terminating=True, grace=30))
    lost(session)  # older than the events
    assert evictions(session.decide(5)) == {}
    assert reads(session, UNHEARD_SECONDS) == []
    session.tell(gone(Pod, "uid-guest"))
    assert binds(session.decide()) == {"owner": "n1"}


def test_loan_is_ended_again_when_its_eviction_was_lost() -> None:
    session = Session(a_pool("a", labels=A), a_pool("b", labels=B), a_node("n1", cpu="4", labels=A), GUEST)
    session.decide()
    session.see(a_pool("a", labels=A, disable_sharing=True, reclaim_policy=ReclaimPolicy.EVICT))
    assert evictions(session.decide()) == {"guest": "LoanEnded"}
    assert reads(session, UNHEARD_SECONDS) == [("guest", "n1", True)]
    lost(session)
    assert evictions(session.decide()) == {"guest": "LoanEnded"}


def test_loan_that_takes_long_to_end_ends_no_other() -> None:
    session = asked()
    old = a_pod("old", cpu="2", pool="b", node="n2", started=1)
    new = a_pod("new", cpu="2", pool="b", node="n2", started=2, grace=30)
    session.tell(gone(Pod, "uid-owner"))
    session.see(a_node("n2", cpu="4", labels=A), old, new)
    session.tell(gone(Pod, "uid-guest"))
    session.see(a_pool("a", labels=A, lending_limit={"cpu": 2000}, reclaim_policy=ReclaimPolicy.EVICT))
    assert evictions(session.decide()) == {"new": "LoanEnded"}
    session.see(replace(new, terminating=True))
    assert evictions(session.decide(100.0)) == {}, "new leaves, though late"
    more = {"cpu": 2000, "memory": 1 << 40}
    session.see(a_pool("a", labels=A, lending_limit=more, reclaim_policy=ReclaimPolicy.EVICT))
    assert evictions(session.decide(1.0)) == {}
