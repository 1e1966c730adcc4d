"""The experiments on elastic jobs: their figures, the bound, and the autoscaler that is written anew."""

from itertools import pairwise

import pytest

from aischeduler.model.actions import Evict
from tests.bench.cases import elastic
from tests.bench.cases.elastic_bound import most_trainers
from tests.bench.cases.elastic_engine import Engine
from tests.bench.cases.elastic_original import Fixed, Original
from tests.bench.cases.elastic_script import (
    Resized,
    Sample,
    Script,
    Story,
    at_time,
    back_seconds,
    case_1,
    case_2,
    jain,
    lost_seconds,
    most_in_window,
    pending_seconds,
    play,
    resizes_of,
    trainer_seconds,
)
from tests.bench.spec import OURS

JOB = "job-00"


def a_story(*resized: tuple[float, int, int]) -> Story:
    """Return a story of one job; `resized` are its resizes as time, size before and after."""
    return Story(Script(550.0, (0.0,), 2), resized=[Resized(at, JOB, before, after) for at, before, after in resized])


@pytest.mark.parametrize(("jobs", "service", "most"), [(1, 0, 60), (6, 0, 359), (20, 0, 265), (6, 400, 155)])
def test_bound_is_what_fits_perfectly_packed(jobs: int, service: int, most: int) -> None:
    assert most_trainers(jobs, service) == most


def test_jain_is_one_of_equal_values_and_a_share_where_few_have_all() -> None:
    assert (jain([3, 3, 3]), jain([4, 0, 0, 0]), jain([0, 0])) == (1.0, 0.25, 1.0)


def test_sizes_that_are_written_together_are_one_resize() -> None:
    story = a_story((10.0, 9, 8), (10.5, 8, 7), (20.0, 7, 9), (20.2, 9, 8))
    found = [(one.at, one.before, one.after) for one in resizes_of(story, JOB)]
    assert found == [(10.0, 9, 7), (20.0, 7, 9), (20.2, 9, 8)]
    assert most_in_window(story, 30.0, grown=False) == 3
    assert most_in_window(story, 30.0, grown=True) == 1


def test_resize_costs_its_trainers_thirty_seconds_or_until_the_next_one() -> None:
    assert lost_seconds(a_story((100.0, 2, 10), (110.0, 10, 4))) == 10 * 10 + 4 * 30


def test_service_is_back_when_all_its_pods_run() -> None:
    samples = [Sample(float(at), {}, serving, 0, 0) for at, serving in ((0, 0), (1, 4), (10, 4), (13, 5), (14, 6))]
    story = Story(Script(20.0, (), 0, ((0.0, 4), (10.0, 6))), samples)
    assert back_seconds(story) == [1.0, 4.0]


def test_seed_moves_each_event_by_up_to_a_second() -> None:
    for script in (case_1, case_2):
        for moved, planned in zip(script(7).jobs, script().jobs, strict=True):
            assert 0 < abs(moved - planned) <= 1


def test_autoscaler_keeps_pods_that_fit_nowhere_and_jobs_without_a_trainer() -> None:
    story = play(case_1(), Original(1))
    last = at_time(story, 500.0)
    assert any(count < 2 for count in last.trainers.values())
    assert at_time(story, 300.0).trainers == last.trainers
    assert jain([*last.trainers.values()]) < 0.5


def test_jobs_of_a_fixed_size_leave_the_later_ones_without_trainers() -> None:
    story = play(case_1(), Fixed(60, 1))
    assert sum(at_time(story, 500.0).trainers.values()) == pytest.approx(345, abs=8)
    assert sum(count == 0 for count in at_time(story, 500.0).trainers.values()) == 14


@pytest.fixture(scope="module")
def beside_a_service() -> tuple[Story, Engine]:
    """Return what comes of the jobs beside a service, and the engine at the end."""
    story, engine = elastic.play_side(2, OURS, 1)
    assert isinstance(engine, Engine)
    return story, engine


def test_service_of_the_engine_is_whole_soon_after_each_step_and_none_of_it_goes(
    beside_a_service: tuple[Story, Engine],
) -> None:
    story, engine = beside_a_service
    assert max(back_seconds(story)) <= 10
    assert not story.overfull
    victims = [action for _, action in engine.actions if isinstance(action, Evict) and action.resizes is None]
    assert victims == []


def test_job_of_the_engine_grows_once_in_its_window() -> None:
    story = play(case_1(), Engine(30.0))
    assert all(pending < 550 for pending in pending_seconds(story))
    assert sum(trainer_seconds(story).values()) > 0.9 * 147_319
    for job in trainer_seconds(story):
        grown = [one.at for one in story.resized if one.job == job and one.after > one.before]
        assert all(later - one >= 30 for one, later in pairwise(grown))


def test_every_figure_of_a_published_side_is_one_of_ours(beside_a_service: tuple[Story, Engine]) -> None:
    ours = elastic.measured(OURS, *beside_a_service, 1.0).figures
    assert {name for side in elastic.RAW[2].values() for name in side} <= set(ours)
