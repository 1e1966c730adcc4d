"""The judge of gangs on two schedulers, and the days that it judges, without a server."""

from collections.abc import Callable
from random import Random  # noqa: TID251 - a type; the generator comes from the seed

import pytest

from tests.e2e.gang_cases import (
    Cluster,
    Gang,
    a_cluster,
    crowded_day,
    equal_pods_day,
    just_fits,
    left_of,
    next_gang,
    spare_day,
)
from tests.e2e.gang_stage import OURS, SIDES, THEIRS, Outcome
from tests.e2e.gang_verdicts import (
    FOLLOWS,
    IN_PIECES,
    NOT_FOUND,
    Tally,
    beside_room,
    by_queue_order,
    cause_of,
    in_part,
    left_over,
    passed_over,
)
from tests.packing_oracle import Amounts, fits
from tests.seeds import random

TWO_NODES = Cluster(nodes=((4, 0), (4, 0)), running=((0, (1, 0)),))


def a_gang(name: str, cpu: int, size: int, *, minimum: int = 0, priority: int = 0) -> Gang:
    return Gang(name, ((cpu, 0),) * size, minimum or size, priority)


def test_gang_with_fewer_pods_on_nodes_than_start_together_is_in_part() -> None:
    gang = a_gang("g", 1, 4, minimum=3)
    assert in_part([Outcome(gang, {0: 0, 1: 0})]) == ["g"]
    assert in_part([Outcome(gang, {0: 0, 1: 0, 3: 1})]) == in_part([Outcome(gang)]) == []
    assert not Outcome(gang, {0: 0}, refused=True).judged


def test_gang_that_waits_beside_room_for_it_is_found() -> None:
    waiting = Outcome(a_gang("waits", 2, 3), refused=True)
    assert beside_room(TWO_NODES, [waiting]) == [waiting.gang]
    before = Outcome(a_gang("before", 2, 1), {0: 1})
    assert left_over(TWO_NODES, [before, waiting]) == [(3, 0), (2, 0)]
    assert beside_room(TWO_NODES, [before, waiting]) == []


def test_gang_that_fitted_at_its_turn_was_passed_over_although_no_room_is_left() -> None:
    high, low = a_gang("high", 3, 2, priority=5), a_gang("low", 3, 2, priority=1)
    found = [Outcome(low, {0: 0, 1: 1}), Outcome(high, refused=True)]
    assert passed_over(TWO_NODES, found) == [high]
    assert beside_room(TWO_NODES, found) == []
    assert passed_over(TWO_NODES, [Outcome(low, refused=True), Outcome(high, {0: 0, 1: 1})]) == []


def test_cause_of_a_difference_is_the_way_not_found_else_an_earlier_gang_else_its_nodes() -> None:
    first, last = a_gang("first", 2, 2, priority=2), a_gang("last", 3, 1, priority=1)
    packed = [Outcome(first, {0: 1, 1: 1}), Outcome(last, {0: 0})]
    spread = [Outcome(first, {0: 0, 1: 1}), Outcome(last, refused=True)]
    assert cause_of(last, THEIRS, TWO_NODES, {OURS: packed, THEIRS: spread}) == IN_PIECES
    missed = [Outcome(first, refused=True), Outcome(last, {0: 1})]
    assert cause_of(first, THEIRS, TWO_NODES, {OURS: packed, THEIRS: missed}) == NOT_FOUND
    assert cause_of(last, OURS, TWO_NODES, {OURS: spread, THEIRS: missed}) == FOLLOWS


def test_queue_order_gives_room_to_the_surplus_of_the_first_before_the_next() -> None:
    first, second = a_gang("first", 1, 9, minimum=2, priority=2), a_gang("second", 1, 1, priority=1)
    assert by_queue_order(TWO_NODES, [second, first]) == {"first": 7, "second": 0}
    too_large = a_gang("too-large", 1, 9, minimum=8, priority=3)
    assert by_queue_order(TWO_NODES, [second, too_large]) == {"too-large": 0, "second": 1}


def test_tally_counts_gangs_and_lists_each_difference_with_its_cause() -> None:
    gang, tally = a_gang("g", 1, 2), Tally()
    tally.note("a day", {OURS: [Outcome(gang, {0: 0, 1: 0})], THEIRS: [Outcome(gang, refused=True)]})
    tally.differs("a day", gang, THEIRS, IN_PIECES)
    assert str(tally).splitlines()[1:] == [
        "a day: 1 gangs compared, 0 equal, of which 0 started",
        f"1 differ: it waits on the side theirs: {IN_PIECES}",
        f"a day: {gang} waits on the side theirs: {IN_PIECES}",
    ]
    assert list(SIDES) == [OURS, THEIRS]


def put_anywhere(free: list[Amounts], gangs: list[Gang], name: str) -> bool:
    """Put all pods in random order on random nodes where they fit; return whether all found one."""
    chance, left = random(f"anywhere: {name}"), list(free)
    pods = [pod for gang in gangs for pod in gang.pods]
    chance.shuffle(pods)
    for pod in pods:
        suiting = [number for number, room in enumerate(left) if fits([room], [pod])]
        if not suiting:
            return False
        left = left_of(left, [(chance.choice(suiting), pod)])
    return True


def test_gangs_of_a_spare_day_fit_wherever_pods_are_put() -> None:
    for number in range(300):
        cluster, gangs = spare_day(random(f"spare {number}"))
        assert len(gangs) >= 2
        assert put_anywhere(cluster.free(), gangs, str(number)), (cluster, gangs)


@pytest.mark.parametrize("day", [equal_pods_day, crowded_day])
def test_gangs_of_a_full_day_do_not_all_fit_and_have_different_priorities(
    day: Callable[[Random], tuple[Cluster, list[Gang]]],
) -> None:
    for number in range(100):
        cluster, gangs = day(random(f"full {number}"))
        assert not put_anywhere(cluster.free(), gangs, str(number))
        assert len({gang.priority for gang in gangs}) == len(gangs)


def test_some_next_gangs_take_all_room_of_their_shape_and_some_lack_room_for_one_pod() -> None:
    just, lacking, tight = 0, 0, 0
    for number in range(200):
        chance = random(f"next {number}")
        free = a_cluster(chance).free()
        gang = next_gang(chance, "g", free)
        one_more = fits(free, [*gang.required, gang.pods[0]])
        just += gang.alike and fits(free, gang.required) and not one_more
        lacking += gang.alike and not fits(free, gang.required) and fits(free, gang.required[1:])
        tight += not gang.alike and just_fits(free, gang.pods)
    assert min(just, lacking, tight) >= 10, (just, lacking, tight)
