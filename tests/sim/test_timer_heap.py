from functools import partial

from aischeduler.sim.timer_heap import TimerHeap


def test_things_happen_by_time_and_then_in_the_order_of_their_arrival() -> None:
    agenda, happened = TimerHeap(), list[str]()
    for time, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (3.0, "d")):
        agenda.put(time, partial(happened.append, name))
    assert agenda.next_time == 1.0
    assert agenda.run_due(2.0)
    assert happened == ["a", "b", "c"]
    assert agenda.next_time == 3.0


def test_nothing_due_is_nothing_done() -> None:
    agenda = TimerHeap()
    assert agenda.next_time is None
    assert not agenda.run_due(1.0)


def test_what_is_brought_about_now_waits_for_its_turn() -> None:
    agenda, happened = TimerHeap(), list[str]()
    agenda.put(1.0, lambda: agenda.put(1.0, lambda: happened.append("second")))
    agenda.run_due(1.0)
    assert happened == []
    agenda.run_due(1.0)
    assert happened == ["second"]
