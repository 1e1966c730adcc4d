from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.state.timers import HEAP_SHARE, HEAP_SPARE, Timers

KEYS = st.sampled_from("abcd")
TIMES = st.integers(0, 9).map(float)
STEPS = st.one_of(st.tuples(KEYS, TIMES), st.tuples(KEYS, st.none()), TIMES)


def test_due_keys_come_in_the_order_of_time_then_of_keys() -> None:
    timers = Timers()
    for key, at in (("c", 2.0), ("b", 1.0), ("a", 1.0), ("d", 9.0)):
        timers.set(key, at)
    assert timers.next() == 1.0
    assert timers.pop_due(2.0) == ["a", "b", "c"]
    assert timers.names() == ("d",)


def test_keys_that_are_set_again_and_again_take_no_memory() -> None:
    timers = Timers()
    for moved in range(10_000):
        timers.set("stays", 300.0)
        timers.set("moves", float(moved))
    assert len(timers._heap) <= HEAP_SHARE * len(timers) + HEAP_SPARE
    assert timers.pop_due(1e9) == ["stays", "moves"]


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=300))
def test_timers_equal_a_plain_dictionary_after_any_history(steps: list[tuple[str, float | None] | float]) -> None:
    timers, expected = Timers(), dict[str, float]()
    for step in steps:
        match step:
            case (key, None):
                assert timers.drop(key) == (expected.pop(key, None) is not None)
            case (key, float(at)):
                timers.set(key, at)
                expected[key] = at
            case float(now):
                due = sorted((at, key) for key, at in expected.items() if at <= now)
                assert timers.pop_due(now) == [key for _, key in due]
                for _, key in due:
                    del expected[key]
        assert timers.next() == min(expected.values(), default=None)
        assert {key for key in "abcd" if key in timers} == set(expected)
    assert timers.names() == tuple(sorted(expected))
