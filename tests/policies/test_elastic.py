"""The sizes of elastic jobs, on a cluster of nodes with one resource."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aischeduler.model.elastic import WEIGHTS, ElasticTerms, PriorityLevel
from aischeduler.policies.elastic import HORIZON_SECONDS_MIN, JobShare, Sizing, score, service

NORMAL, PRODUCTION = WEIGHTS[PriorityLevel.NORMAL], WEIGHTS[PriorityLevel.PRODUCTION]
EXPERIMENT = WEIGHTS[PriorityLevel.EXPERIMENT]


def a_job(name: str = "a", *, least: int = 1, most: int = 10, size: int = 1, **more: Any) -> JobShare:
    terms = ElasticTerms(
        least,
        most,
        more.pop("allowed", ()),
        more.pop("window", 30.0),
        more.pop("weight", NORMAL),
    )
    return JobShare(name, terms, size, more.pop("service", 0), more.pop("score", 1000), **more)


class Nodes:
    """Nodes with so many places each; an instance takes the places that its job says, on one node.

    The instances of a job are on nodes in order: the highest go first.
    """

    def __init__(self, places: list[int], jobs: list[JobShare], takes: Mapping[str, int] | None = None) -> None:
        self.free = list(places)
        self._takes, self._jobs = dict(takes or {}), {job.name: job for job in jobs}
        self.on: dict[str, list[int]] = {job.name: [] for job in jobs}
        self._kept: set[str] = set()
        self._old: set[str] = set()
        self._done: list[tuple[int, str, int]] = []
        for job in jobs:
            if not job.waits:
                assert self.grow(job.name, job.size), "the jobs that run fit"
        self._done.clear()

    def start(self, job: str) -> bool:
        return not (self._old - {job}) and self._grow(job, self._jobs[job].terms.min_instances)

    def keep(self, job: str, *, from_starts: bool) -> None:
        self._kept.add(job)
        self._old |= {job} if from_starts else set()

    def helps(self, job: str, other: str) -> bool:
        return True

    def grow(self, job: str, size: int) -> bool:
        return not (self._kept - {job}) and self._grow(job, size)

    def _grow(self, job: str, size: int) -> bool:
        mark, takes = self.mark(), self._takes.get(job, 1)
        while len(self.on[job]) < size:
            node = next((node for node, free in enumerate(self.free) if free >= takes), None)
            if node is None:
                self.return_to(mark)
                return False
            self._put(job, node)
        return True

    def shrink(self, job: str, size: int) -> None:
        while len(self.on[job]) > size:
            node = self.on[job].pop()
            self.free[node] += self._takes.get(job, 1)
            self._done.append((-1, job, node))

    def restore(self, job: str, size: int) -> bool:
        takes, gone, left = self._takes.get(job, 1), size - len(self.on[job]), list[int]()
        for sign, name, node in self._done:
            if name == job:
                left = [*left, node] if sign < 0 else left[:-1]
        left = left[-gone:]
        need = Counter(left)
        if any(self.free[node] < takes * count for node, count in need.items()):
            return False
        for node in reversed(left):
            self._put(job, node)
        return True

    def mark(self) -> int:
        return len(self._done)

    def return_to(self, mark: int) -> None:
        while len(self._done) > mark:
            sign, job, node = self._done.pop()
            takes = self._takes.get(job, 1)
            if sign > 0:
                self.on[job].remove(node)
                self.free[node] += takes
            else:
                self.on[job].append(node)
                self.free[node] -= takes

    def _put(self, job: str, node: int) -> None:
        self.on[job].append(node)
        self.free[node] -= self._takes.get(job, 1)
        self._done.append((1, job, node))


def sized(places: list[int], *jobs: JobShare, takes: Mapping[str, int] | None = None) -> dict[str, int]:
    room = Nodes(places, list(jobs), takes)
    sizing = Sizing(jobs)
    for _ in sizing.run(room):
        pass
    return sizing.sizes


def test_job_grows_to_its_maximum_while_the_cluster_is_free() -> None:
    assert sized([20], a_job(most=10)) == {"a": 10}


def test_free_room_is_shared_by_what_jobs_have_not_by_equal_increments() -> None:
    assert sized([64], a_job("a", most=60, size=2), a_job("b", most=60, size=42)) == {"a": 22}


def test_jobs_are_ranked_again_after_each_step() -> None:
    assert sized([12], a_job("a"), a_job("b"), a_job("c")) == {"a": 4, "b": 4, "c": 4}


def test_weight_of_the_level_decides_the_share() -> None:
    found = sized([11], a_job("a", weight=NORMAL), a_job("b", weight=100, most=10))
    assert found == {"a": 10}


def test_job_that_received_less_grows_first() -> None:
    behind = a_job("z", service=0, most=4)
    ahead = a_job("a", service=service(10_000, 900.0, NORMAL))
    assert sized([5], ahead, behind) == {"z": 4}


def test_frozen_job_keeps_its_size() -> None:
    assert sized([10], a_job("a", frozen=True), a_job("b", most=3)) == {"b": 3}


def test_job_whose_last_step_is_not_done_does_not_grow() -> None:
    assert sized([10], a_job(grows=False)) == {}


def test_growth_takes_allowed_sizes_whole() -> None:
    jobs = a_job("a", allowed=(1, 2, 4, 8)), a_job("b", most=3)
    assert sized([5], *jobs) == {"a": 2, "b": 3}
    assert sized([6], *jobs) == {"a": 4, "b": 2}


def test_growth_needs_a_node_that_has_room_not_the_sum_of_nodes() -> None:
    assert sized([3, 3, 3], a_job("a", most=9), takes={"a": 2}) == {"a": 3}


def test_waiting_minimum_that_fits_keeps_its_room_from_growth() -> None:
    assert sized([5], a_job("b", least=3, waits=True), a_job("a")) == {"a": 2}


def test_waiting_minimum_shrinks_the_most_served_by_what_it_needs_and_no_more() -> None:
    jobs = a_job("a", size=6), a_job("b", size=4), a_job("c", least=2, most=2, waits=True)
    assert sized([10], *jobs) == {"a": 4}


def test_job_that_starts_in_the_room_of_others_gets_its_share_by_the_same_resizes() -> None:
    assert sized([10], a_job("a", size=10), a_job("c", least=2, waits=True)) == {"a": 5}
    assert sized([10], a_job("a", size=5), a_job("b", size=5), a_job("c", waits=True)) == {"a": 4, "b": 3}


def test_job_that_comes_back_within_its_window_gets_no_more_than_its_size() -> None:
    assert sized([10], a_job("a", size=10), a_job("c", size=3, waits=True, frozen=True)) == {"a": 7}


def test_waiting_job_grows_in_no_pass_before_its_minimum_runs() -> None:
    assert sized([10], a_job("c", waits=True)) == {}
    assert "c" not in sized([10], a_job("a", size=10), a_job("c", waits=True))


def test_minimum_that_fits_in_no_way_shrinks_nobody() -> None:
    assert sized([3, 3], a_job("a", size=6), a_job("c", least=1, waits=True), takes={"c": 4}) == {}


def test_shrinking_gives_back_the_steps_that_did_not_help() -> None:
    # The instances of `a` are on nodes that are too small for `c`: only those of `b` make room.
    jobs = a_job("a", size=4), a_job("b", size=3), a_job("c", least=1, waits=True)
    assert sized([1, 1, 1, 1, 3], *jobs, takes={"c": 2}) == {"b": 1}


def test_no_job_is_shrunk_below_its_minimum() -> None:
    jobs = a_job("a", least=4, size=6), a_job("c", least=4, waits=True)
    assert sized([6], *jobs) == {}


def test_production_is_not_shrunk_for_another_job() -> None:
    assert sized([6], a_job("a", size=6, weight=PRODUCTION), a_job("c", waits=True, weight=PRODUCTION)) == {}


@pytest.mark.parametrize(("level", "shrinks"), [(NORMAL, False), (PRODUCTION, True)])
def test_window_is_broken_for_a_waiting_minimum_of_a_higher_level_alone(level: int, shrinks: bool) -> None:
    jobs = a_job("a", size=6, frozen=True), a_job("c", waits=True, weight=level)
    assert sized([6], *jobs) == ({"a": 5} if shrinks else {})


def test_more_served_minimum_waits() -> None:
    served = a_job("c", waits=True, service=service(10**6, 600.0, NORMAL))
    assert sized([6], a_job("a", size=6), served) == {}


def test_no_job_grows_where_an_aged_minimum_could_run() -> None:
    jobs = a_job("a", size=1), a_job("c", least=4, waits=True, aged=True, weight=EXPERIMENT, service=10**12)
    assert sized([4], *jobs) == {}


def test_most_served_gives_a_step_to_the_least_served_where_that_lowers_the_larger_key() -> None:
    assert sized([10], a_job("a", size=8), a_job("b", size=2)) == {"a": 5, "b": 5}
    assert sized([3], a_job("a", size=2), a_job("b", size=1)) == {}


def test_step_that_nobody_can_use_is_not_taken() -> None:
    assert sized([1] * 8 + [2], a_job("a", size=8), a_job("b", size=1), takes={"b": 2}) == {}


def test_score_weighs_gpu_over_cpu_over_memory() -> None:
    assert (score(0, 0, 100), score(1000, 0, 0), score(0, 2**30, 0)) == (100_000, 1000, 100)


jobs_of = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(0, 8),
        st.sampled_from([(), (1, 2, 4, 8), (3, 6)]),
        st.integers(0, 3),
        st.sampled_from([10, 100, 1000, 10_000]),
        st.booleans(),
        st.booleans(),
        st.integers(0, 10**9),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@given(jobs_of, st.lists(st.integers(1, 12), min_size=1, max_size=4), st.data())
def test_pass_ends_with_allowed_sizes_that_fit(drawn: list[Any], places: list[int], data: st.DataObject) -> None:
    jobs, room = list[JobShare](), Nodes(places, [])
    takes = {}
    for number, (least, more, allowed, above, weight, waits, frozen, served, aged) in enumerate(drawn):
        name, most = f"j{number}", least + more
        steps = tuple(sorted({least, *(size for size in allowed if least <= size <= most)})) if allowed else ()
        size = least
        for _ in range(above):
            size = ElasticTerms(least, most, steps).next_above(size) or size
        takes[name] = data.draw(st.integers(1, 3))
        job = a_job(
            name,
            least=least,
            most=most,
            size=least if waits else size,
            allowed=steps,
            weight=weight,
            service=served,
            score=1000 * takes[name],
            waits=waits,
            frozen=frozen,
            aged=aged and waits,
        )
        try:
            room = Nodes(places, [*jobs, job], takes)
        except AssertionError:
            job = replace(job, waits=True, size=least)
            room = Nodes(places, [*jobs, job], takes)
        jobs.append(job)
    sizing, steps_taken = Sizing(jobs), 0
    for _ in sizing.run(room):
        steps_taken += 1
    total = sum(job.terms.max_instances for job in jobs) + len(jobs)
    assert steps_taken <= 40 * total
    by_name = {job.name: job for job in jobs}
    for name, size in sizing.sizes.items():
        job = by_name[name]
        assert not job.waits
        assert job.terms.min_instances <= size <= job.terms.max_instances
        assert not job.terms.allowed or size in job.terms.allowed
        higher = any(other.waits and other.terms.weight > job.terms.weight for other in jobs)
        assert not job.frozen or (size < job.size and higher)
        assert size > job.size or not job.terms.is_production
        assert len(room.on[name]) == size
    assert all(free >= 0 for free in room.free)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_service_of_equal_jobs_becomes_equal(count: int) -> None:
    """Over an hour with a window of 30 s, two jobs differ by no more than one instance over one horizon of a key."""
    names, window = [f"j{number}" for number in range(count)], 30.0
    for places in range(count, 41):
        sizes, served, got = dict.fromkeys(names, 1), dict.fromkeys(names, 0), Counter[str]()
        for _ in range(int(3600 / window)):
            sizes |= sized([places], *(a_job(name, most=60, size=sizes[name], service=served[name]) for name in names))
            for name in names:
                got[name] += sizes[name]
                served[name] += service(sizes[name] * 1000, window, NORMAL)
        assert got.total() >= places * 119, "room stays empty"
        assert max(got.values()) - min(got.values()) <= HORIZON_SECONDS_MIN / window
        assert got.total() ** 2 >= 0.95 * count * sum(share**2 for share in got.values())
