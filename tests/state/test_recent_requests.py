from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.state.recent_requests import SHAPES_MAX, STEP, WEIGHT_MAX, RecentRequests, RequestShape, WeightedShapes


def shape(number: int, *, gpus: int = 1) -> RequestShape:
    return RequestShape(gpus, 50, number, 0)


def noted(numbers: list[int]) -> RecentRequests:
    recent = RecentRequests()
    for number in numbers:
        recent.note(shape(number))
    return recent


def weights(recent: RecentRequests) -> dict[int, int]:
    return {one.cpu_milli: weight for one, weight in recent.shapes()}


def recounted(numbers: list[int]) -> WeightedShapes:
    """Keep a plain list of pairs, looked through from end to end, and the last one that was to be seen."""
    pairs: list[list[int]] = []
    seen: list[list[int]] = []
    for count, number in enumerate(numbers, start=1):
        known = [pair for pair in pairs if pair[0] == number]
        if not known and len(pairs) == SHAPES_MAX:
            pairs.remove(min(pairs, key=lambda pair: (pair[1], pair[0])))
        if known:
            known[0][1] += 1
        else:
            pairs.append([number, 1])
        if sum(weight for _, weight in pairs) > WEIGHT_MAX:
            pairs = [[one, weight // 2] for one, weight in pairs if weight // 2]
        if count in (1, 2, 4, 8, 16, 32, 64, 128) or count % STEP == 0:
            seen = [list(pair) for pair in pairs]
    return tuple((shape(number), weight) for number, weight in sorted(seen))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 90), max_size=12), max_size=12), st.integers(1, 40))
def test_shapes_are_those_of_a_recount(parts: list[list[int]], times: int) -> None:
    numbers = [number for part in parts for number in part * times]
    recent = noted(numbers)
    assert recent.shapes() == recounted(numbers)
    assert len(recent._weights) <= SHAPES_MAX
    assert recent._sum == sum(recent._weights.values()) <= WEIGHT_MAX


def test_no_request_is_expected_before_the_first() -> None:
    assert RecentRequests().shapes() == ()


def test_the_first_request_is_expected_to_come_again() -> None:
    assert weights(noted([7])) == {7: 1}


def test_old_requests_fade() -> None:
    before = [1] * 1000
    assert weights(noted(before + [2] * 1048))[1] < weights(noted(before + [2] * 24))[1] // 2
    assert weights(noted(before + [2] * 20_000)) == {2: max(weights(noted([2] * 21_000)).values())}


def test_many_different_requests_take_bounded_memory_and_leave_the_common_ones() -> None:
    numbers = [0 if index % 2 else index for index in range(1, 8 * STEP + 1)]
    recent = noted(numbers)
    assert len(recent.shapes()) <= SHAPES_MAX
    assert weights(recent)[0] > WEIGHT_MAX // 4


def test_requests_without_gpus_are_not_counted() -> None:
    recent = RecentRequests()
    for _ in range(STEP):
        recent.note(shape(1, gpus=0))
    assert (recent.shapes(), recent.version) == ((), 0)


def test_the_version_changes_exactly_where_shapes_may() -> None:
    recent = RecentRequests()
    changed = []
    for count in range(1, 3 * STEP + 1):
        version, shapes = recent.version, recent.shapes()
        recent.note(shape(count % 5))
        assert recent.version != version or recent.shapes() is shapes
        changed += [count] * (recent.version != version)
    assert changed == [1, 2, 4, 8, 16, 32, 64, 128, STEP, 2 * STEP, 3 * STEP]
