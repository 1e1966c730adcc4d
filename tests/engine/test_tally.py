from aischeduler.engine.tally import Result, Tally
from aischeduler.model.actions import EvictionCause
from aischeduler.model.events import PoolGone
from aischeduler.model.proposal import LenderRefusal
from tests.build import a_pool
from tests.engine.session import Session


def test_a_pool_that_is_gone_has_no_counter() -> None:
    tally = Tally()
    for pool in ("a", "b"):
        tally.attempts[pool, Result.BOUND] += 1
        tally.borrow_attempts[pool] += 1
        tally.borrow_refusals[pool, LenderRefusal.NO_ROOM] += 1
        tally.evictions[pool, EvictionCause.RECLAIMED] += 1
        tally.net_saves[pool] += 1
    tally.forget("a")
    assert tally.attempts == {("b", Result.BOUND): 1}
    assert tally.borrow_attempts == {"b": 1}
    assert tally.borrow_refusals == {("b", LenderRefusal.NO_ROOM): 1}
    assert tally.evictions == {("b", EvictionCause.RECLAIMED): 1}
    assert tally.net_saves == {"b": 1}


def test_saves_of_the_five_minute_flush_are_never_dropped() -> None:
    session = Session(a_pool("a"))
    session.scheduler.tally.net_saves["a"] += 1
    session.tell(PoolGone("a"))
    session.see(a_pool("a"))
    session.scheduler.tally.net_saves["a"] += 1
    assert session.scheduler.net_saves() == 2
