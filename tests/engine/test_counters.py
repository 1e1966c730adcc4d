from aischeduler.engine.counters import Counters, Result
from aischeduler.model.actions import EvictionCause
from aischeduler.model.events import gone
from aischeduler.model.pool import Pool
from aischeduler.model.proposal import LenderRefusal
from tests.build import a_pod, a_pool
from tests.engine.session import Session


def test_a_pool_that_is_gone_has_no_counter() -> None:
    counters = Counters()
    for pool in ("a", "b"):
        counters.attempts[pool, Result.BOUND] += 1
        counters.borrow_attempts[pool] += 1
        counters.borrow_refusals[pool, LenderRefusal.NO_ROOM] += 1
        counters.evictions[pool, EvictionCause.RECLAIMED] += 1
        counters.net_saves[pool] += 1
    counters.forget("a")
    assert counters.attempts == {("b", Result.BOUND): 1}
    assert counters.borrow_attempts == {"b": 1}
    assert counters.borrow_refusals == {("b", LenderRefusal.NO_ROOM): 1}
    assert counters.evictions == {("b", EvictionCause.RECLAIMED): 1}
    assert counters.net_saves == {"b": 1}


def test_saves_of_the_five_minute_flush_are_never_dropped() -> None:
    session = Session(a_pool("a"))
    session.scheduler.counters.net_saves["a"] += 1
    session.tell(gone(Pool, "a"))
    session.see(a_pool("a"))
    session.scheduler.counters.net_saves["a"] += 1
    assert session.scheduler.net_saves() == 2


def test_every_pool_that_refuses_a_pod_counts_once_per_attempt_by_its_reason() -> None:
    closed = (a_pool(name, labels={"pool": name}, disable_sharing=True) for name in ("c", "d"))
    session = Session(a_pool("a", labels={"pool": "a"}), a_pool("b", labels={"pool": "b"}), *closed)
    session.see(a_pod("p", pool="a", cpu="1"), a_pod("q", pool="a", cpu="1"))
    session.decide()
    counted = session.scheduler.counters.borrow_refusals
    assert counted["a", LenderRefusal.NOT_SHARING] == 4
    assert counted["a", LenderRefusal.NO_ROOM] == 4  # b and the pool default
    assert counted["a", LenderRefusal.VISITED] == 0


def test_a_pool_that_may_not_borrow_counts_itself() -> None:
    session = Session(a_pool("a", labels={"pool": "a"}, disable_borrowing=True), a_pool("b", labels={"pool": "b"}))
    session.see(a_pod("p", pool="a", cpu="1"))
    session.decide()
    assert session.scheduler.counters.borrow_refusals == {("a", LenderRefusal.NOT_BORROWING): 1}
