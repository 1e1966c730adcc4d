from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aischeduler.plugins.expected_waste import NO_ROOM, NO_SLOT, ExpectedRequests, FreeRoom, waste_growth
from aischeduler.state.recent_requests import RequestShape, WeightedShapes

MIB, GIB = 1 << 20, 1 << 30


class Place(NamedTuple):
    """What is free on one node."""

    gpus: tuple[int, ...]
    cpu_milli: int = 96_000
    memory_bytes: int = 384 * GIB


def asking(hundredths: int, cpu_milli: int = 0, *, gpus: int = 1, memory: int = 0) -> RequestShape:
    return RequestShape(gpus, hundredths, cpu_milli, memory)


def judged(places: Sequence[Place], shapes: WeightedShapes, asked: RequestShape) -> list[tuple[int, int]]:
    """Return growth and slot of each place."""
    slots = max((len(place.gpus) for place in places), default=0)
    gpu = [place.gpus + (-1,) * (slots - len(place.gpus)) for place in places]
    free = FreeRoom(
        np.array(gpu, dtype=np.int64).reshape(len(places), slots),
        np.array([place.cpu_milli for place in places], dtype=np.int64),
        np.array([place.memory_bytes for place in places], dtype=np.int64),
    )
    growth, slot = waste_growth(free, ExpectedRequests(shapes), asked)
    return list(zip(growth.tolist(), slot.tolist(), strict=True))


def waste(place: Place, shapes: WeightedShapes) -> int:
    """Return the waste of a place times the sum of weights, from its definition."""
    free = sum(max(gpu, 0) for gpu in place.gpus)
    total = 0
    for shape, weight in shapes:
        usable = [gpu for gpu in place.gpus if gpu >= shape.hundredths]
        hosts = (
            len(usable) >= shape.gpus
            and place.cpu_milli >= shape.cpu_milli
            and place.memory_bytes >= shape.memory_bytes
        )
        total += weight * (free - sum(usable) if hosts else free)
    gpu_sum = sum(weight * shape.gpus * shape.hundredths for shape, weight in shapes)
    cpu_sum = sum(weight * shape.cpu_milli for shape, weight in shapes)
    memory_sum = sum(weight * -(-shape.memory_bytes // MIB) for shape, weight in shapes)
    served = free
    if cpu_sum:
        served = min(served, max(place.cpu_milli, 0) * gpu_sum // cpu_sum)
    if memory_sum:
        served = min(served, max(place.memory_bytes, 0) // MIB * gpu_sum // memory_sum)
    return total + sum(weight for _, weight in shapes) * (free - served)


def slowly(place: Place, shapes: WeightedShapes, asked: RequestShape) -> tuple[int, int]:
    """Try every slot, one after another."""
    fitting = [slot for slot, gpu in enumerate(place.gpus) if gpu >= asked.hundredths]
    cpu, memory = place.cpu_milli - asked.cpu_milli, place.memory_bytes - asked.memory_bytes
    if (asked.gpus and len(fitting) < asked.gpus) or cpu < 0 or memory < 0:
        return NO_ROOM, NO_SLOT
    if asked.gpus == 1:
        sets = [[slot] for slot in fitting]
    else:
        sets = [sorted(fitting, key=lambda slot: (place.gpus[slot], slot))[: asked.gpus]]
    before, weights = waste(place, shapes), max(1, sum(weight for _, weight in shapes))
    ways = []
    for chosen in sets:
        gpus = tuple(gpu - asked.hundredths * (slot in chosen) for slot, gpu in enumerate(place.gpus))
        after = waste(Place(gpus, cpu, memory), shapes)
        single = asked.gpus == 1
        ways.append((after - before, place.gpus[chosen[0]] if single else 0, chosen[0] if single else NO_SLOT))
    growth, _, slot = min(ways)
    return growth * 10 // weights, slot


AMOUNTS = st.sampled_from((10, 25, 33, 50, 75, 100))
SHAPES = st.one_of(
    st.builds(RequestShape, st.just(1), AMOUNTS, st.integers(0, 20_000), st.integers(0, 30 * GIB)),
    st.builds(RequestShape, st.sampled_from((2, 4)), AMOUNTS, st.integers(0, 50_000), st.integers(0, 99 * GIB)),
)
ASKED = SHAPES | st.builds(RequestShape, st.just(0), st.just(0), st.integers(0, 30_000), st.integers(0, 30 * GIB))
PLACES = st.builds(
    Place,
    st.lists(st.sampled_from((-1, 0, 10, 30, 50, 67, 75, 100, 100)), max_size=6).map(tuple),
    st.integers(-5_000, 100_000),
    st.integers(-GIB, 200 * GIB),
)
WEIGHTED = st.dictionaries(SHAPES, st.integers(1, 900), max_size=5).map(lambda one: tuple(sorted(one.items())))


@settings(max_examples=400, deadline=None)
@given(st.lists(PLACES, max_size=5), WEIGHTED, ASKED)
def test_growth_and_slot_are_those_of_trying_every_slot(
    places: list[Place], shapes: WeightedShapes, asked: RequestShape
) -> None:
    assert judged(places, shapes, asked) == [slowly(place, shapes, asked) for place in places]


@settings(max_examples=100, deadline=None)
@given(PLACES, WEIGHTED, ASKED)
def test_a_growth_where_the_pod_fits_is_less_than_no_room(
    place: Place, shapes: WeightedShapes, asked: RequestShape
) -> None:
    ((growth, slot),) = judged([place], shapes, asked)
    assert growth < NO_ROOM or slot == NO_SLOT
    assert (slot >= 0) == (growth < NO_ROOM and asked.gpus == 1)


def test_a_pod_goes_to_the_gpu_that_it_fills() -> None:
    shapes = ((asking(50), 1), (asking(100), 1))
    places = [Place((100, 50)), Place((100, 100)), Place((70, 50))]
    assert judged(places, shapes, asking(50)) == [(-250, 1), (250, 0), (-250, 1)]


def test_of_equal_gpus_the_fullest_is_taken() -> None:
    assert judged([Place((100, 60, 50, 50))], ((asking(10), 1),), asking(50)) == [(0, 2)]


def test_a_rest_of_which_recent_requests_have_no_use_is_waste() -> None:
    assert judged([Place((100,))], ((asking(50), 3), (asking(100), 1)), asking(60)) == [(400, 0)]


def test_a_pod_that_takes_the_cpu_of_free_gpus_wastes_them() -> None:
    """At 8 CPUs per GPU, the 8 CPUs that are left serve one of two GPUs."""
    shapes = ((asking(100, 8_000), 1),)
    no_gpu = asking(0, 8_000, gpus=0)
    assert judged([Place((100, 100), 16_000), Place((100, 100), 24_000)], shapes, no_gpu) == [(1000, -1), (0, -1)]


def test_memory_counts_as_cpu_does() -> None:
    shapes = ((asking(100, memory=32 * GIB), 1),)
    no_gpu = asking(0, gpus=0, memory=32 * GIB)
    assert judged([Place((100, 100), memory_bytes=64 * GIB)], shapes, no_gpu) == [(1000, -1)]


def test_a_pod_without_gpus_wastes_nothing_of_a_node_without_gpus() -> None:
    no_gpu = asking(0, 8_000, gpus=0)
    assert judged([Place(()), Place((100,), 16_000)], ((asking(100, 8_000), 1),), no_gpu) == [(0, -1), (0, -1)]
    assert judged([Place(()), Place((100,), 8_000)], ((asking(100, 8_000), 1),), no_gpu) == [(0, -1), (2000, -1)]


def test_before_the_first_request_all_nodes_are_equal() -> None:
    assert judged([Place((100,)), Place((30, 100)), Place((20,))], (), asking(30)) == [(0, 0), (0, 0), (NO_ROOM, -1)]


@pytest.mark.parametrize("absent", [-1, 0])
def test_a_gpu_that_is_not_there_is_one_without_room(absent: int) -> None:
    shapes = ((asking(40, 1_000), 2), (asking(100, 9_000, gpus=2), 1))
    assert judged([Place((100, absent, 60))], shapes, asking(40)) == [slowly(Place((100, 0, 60)), shapes, asking(40))]


def test_a_terabyte_per_gpu_and_the_largest_weights_stay_exact() -> None:
    shapes = ((RequestShape(8, 100, 1_000_000, 64 << 40), 512), (RequestShape(1, 1, 1, 1), 512))
    place = Place((100,) * 16, 10_000_000, 640 << 40)
    asked = RequestShape(8, 100, 1_000_000, 64 << 40)
    assert judged([place], shapes, asked) == [slowly(place, shapes, asked)]
