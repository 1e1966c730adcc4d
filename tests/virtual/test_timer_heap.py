from functools import partial

from tests.virtual.timer_heap import TimerHeap


def test_timers_run_by_time_and_then_in_the_order_in_which_they_were_added() -> None:
    timers, ran = TimerHeap(), list[str]()
    for time, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (3.0, "d")):
        timers.put(time, partial(ran.append, name))
    assert timers.next_time == 1.0
    assert timers.run_due(2.0)
    assert ran == ["a", "b", "c"]
    assert timers.next_time == 3.0


def test_without_a_due_timer_nothing_runs() -> None:
    timers = TimerHeap()
    assert timers.next_time is None
    assert not timers.run_due(1.0)


def test_timer_that_a_timer_adds_runs_at_the_next_call() -> None:
    timers, ran = TimerHeap(), list[str]()
    timers.put(1.0, lambda: timers.put(1.0, lambda: ran.append("second")))
    timers.run_due(1.0)
    assert ran == []
    timers.run_due(1.0)
    assert ran == ["second"]
