from aischeduler.engine.counters import Counters, Result
from aischeduler.model.actions import EvictionCause
from aischeduler.model.events import PoolGone
from aischeduler.model.proposal import LenderRefusal
from tests.build import a_pool
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
    session.tell(PoolGone("a"))
    session.see(a_pool("a"))
    session.scheduler.counters.net_saves["a"] += 1
    assert session.scheduler.net_saves() == 2
