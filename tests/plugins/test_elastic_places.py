"""ElasticPlaces: the score of a row by the places of instances that a pod takes, and what a pool does with it."""

from collections.abc import Mapping
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.model.pod import Pod
from aischeduler.model.pool import PlacementStrategy
from aischeduler.plugins.elastic_places import ALIKE, POINTS, SCORE_MAX, ElasticPlaces
from aischeduler.state.node_table import InstanceSize, NodeTable
from tests.build import a_node, a_pod
from tests.plugins.table import a_table, scores

PACK = PlacementStrategy.PACK


def a_size(cpu: int, memory_gib: int = 0, gpu: int = 0) -> InstanceSize:
    amounts = {"cpu": 1000 * cpu, "memory": memory_gib << 30, "nvidia.com/gpu": gpu, "pods": 1}
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def with_free(*cpus: int, sizes: Mapping[int, tuple[InstanceSize, ...]]) -> NodeTable:
    """Return nodes of one pool, number 0, with so many cores each."""
    table = a_table(*(a_node(f"n{number:02d}", cpu=str(cpu), memory="64Gi") for number, cpu in enumerate(cpus)))
    table.pool[:] = 0
    table.expect(sizes)
    return table


def scored(pod: Pod, *cpus: int, sizes: tuple[InstanceSize, ...], placement: PlacementStrategy = PACK) -> list[int]:
    return scores(ElasticPlaces(), pod, with_free(*cpus, sizes={0: sizes}), placement)


def a_server(cpu: int = 4) -> Pod:
    return a_pod("server", cpu=str(cpu), memory="0")


def test_row_is_scored_by_the_fewest_places_each_of_one_to_four_pods() -> None:
    # Of 17 cores, three places: two are gone with three pods of 4; of 13, 9 and 5 it is fewer each, or one at once.
    assert scored(a_server(), 17, 13, 9, 5, sizes=(a_size(5),)) == [92, 94, 100, 88]


def test_third_pod_goes_where_it_takes_no_place_and_the_fourth_elsewhere() -> None:
    assert scored(a_server(), 9, 8, sizes=(a_size(5),)) == [100, 94]
    assert scored(a_server(), 5, 17, sizes=(a_size(5),)) == [88, 92]


def test_pod_that_fits_beside_all_instances_takes_no_place() -> None:
    assert scored(a_server(1), 16, 6, 5, 1, sizes=(a_size(5),)) == [100, 100, 97, 100]


def test_of_several_sizes_the_mean_counts() -> None:
    assert scored(a_server(8), 8, 12, sizes=(a_size(8), a_size(4))) == [82, 82]
    assert scored(a_server(8), 8, 16, sizes=(a_size(8), a_size(16))) == [94, 91]


def test_resource_that_is_scarce_decides_where_places_are() -> None:
    table = with_free(32, 32, sizes={0: (a_size(1, memory_gib=32),)})
    assert scores(ElasticPlaces(), a_pod(cpu="16", memory="0"), table, PACK) == [100, 100]
    assert scores(ElasticPlaces(), a_pod(cpu="1", memory="33Gi"), table, PACK) == [76, 76]


def test_rows_of_other_pools_are_equal() -> None:
    table = with_free(17, 5, 17, sizes={0: (a_size(5),)})
    table.pool[table.row("n02")] = 1
    assert scores(ElasticPlaces(), a_server(), table, PACK) == [92, 88, 100]


@pytest.mark.parametrize("placement", [PlacementStrategy.SPREAD, PlacementStrategy.FRAGMENTATION])
def test_pools_that_do_not_pack_are_scored_alike(placement: PlacementStrategy) -> None:
    assert scored(a_server(), 17, 5, sizes=(a_size(5),), placement=placement) == [0, 0]


def test_no_score_without_elastic_jobs() -> None:
    assert scores(ElasticPlaces(), a_server(), with_free(17, 5, sizes={}), PACK) == [0, 0]


@given(
    st.integers(1, 9),
    st.lists(st.integers(1, 12), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(0, 40), min_size=1, max_size=6),
)
def test_score_is_that_of_counting_places_one_by_one(cpu: int, instances: list[int], rows: list[int]) -> None:
    def expected(free: int) -> int:
        counts = [number for number in range(1, ALIKE + 1) if number * cpu <= free]
        points = [
            sum((free // size - (free - number * cpu) // size) * (POINTS // number) for size in instances)
            for number in counts
        ]
        least = min((floor(Fraction(sum_, len(instances))) for sum_ in points), default=SCORE_MAX)
        return max(SCORE_MAX - least, 0)

    found = scored(a_server(cpu), *rows, sizes=tuple(a_size(size) for size in instances))
    assert found == [expected(free) for free in rows]
