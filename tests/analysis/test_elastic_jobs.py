"""The list of elastic jobs: their order, what each has received, and what keeps each from growing."""

from typing import Any

import pytest

from aischeduler.analysis.cluster_snapshot import loaded
from aischeduler.analysis.deciding import decide_all
from aischeduler.analysis.elastic_growth import Obstacle
from aischeduler.analysis.elastic_jobs import JobRow, JobState, elastic_jobs, job_row
from aischeduler.engine.profile import default_profile
from aischeduler.model.elastic import PriorityLevel, Problem
from aischeduler.model.event_reasons import EventReason
from tests.analysis.elastic_world import CORE_SECOND, HOUR, NOW, AJobSeen, a_snapshot
from tests.build import a_node, a_pod, a_pool
from tests.elastic import WINDOW
from tests.tenants import a_queue


def listed(*things: Any) -> tuple[JobRow, ...]:
    """Return the rows of an engine of its own, after a snapshot of these objects and jobs; the look leaves nothing."""
    scheduler = loaded(default_profile(), a_snapshot(*things))
    decide_all(scheduler, float(NOW))
    before = scheduler.digest(), repr(scheduler.cluster.elastic)
    rows = elastic_jobs(scheduler.cluster, float(NOW))
    assert elastic_jobs(scheduler.cluster, float(NOW)) == rows
    assert (scheduler.digest(), repr(scheduler.cluster.elastic)) == before
    return rows


def only(*things: Any) -> JobRow:
    (row,) = listed(*things)
    return row


def growth(*things: Any) -> tuple[Obstacle, str, str]:
    found = only(*things).growth
    return found.obstacle, found.why, found.remedy


def test_least_served_job_comes_first_and_shares_add_up() -> None:
    hour = HOUR * CORE_SECOND
    rows = listed(
        a_node("n", cpu="3"),
        AJobSeen("much", 1, 1, ["n"], service=2 * hour),
        AJobSeen("little", 1, 1, ["n"], service=hour),
        AJobSeen("important", 1, 1, ["n"], service=hour // 10, level=PriorityLevel.PRODUCTION),
    )
    assert [(row.place, row.name, row.level, row.service_core_seconds) for row in rows] == [
        (1, "important", "Production", HOUR // 10),
        (2, "little", "Normal", HOUR),
        (3, "much", "Normal", 2 * HOUR),
    ]
    assert [row.share_percent for row in rows] == [25.0, 25.0, 50.0]


def test_level_of_a_job_that_names_none_is_the_value_by_which_it_weighs() -> None:
    valued = AJobSeen("valued", 1, 1, ["n"], priority=100)
    valued.by_priority = True
    usual = AJobSeen("usual", 1, 1, ["n"])
    usual.by_priority = True
    rows = listed(a_node("n", cpu="4"), valued, usual)
    assert {row.name: row.level for row in rows} == {"valued": "100", "usual": "Normal"}


def test_job_at_its_maximum_runs_and_says_so() -> None:
    row = only(a_node("n"), AJobSeen("a", 1, 2, ["n", "n"]))
    assert (row.state, row.size, row.running, row.minimum, row.maximum) == (JobState.RUNNING, 2, 2, 1, 2)
    assert row.growth.obstacle is Obstacle.MAXIMUM
    assert row.growth.remedy == "Raise its maximum above 2."


def test_job_that_the_scheduler_is_about_to_grow_has_its_next_size() -> None:
    row = only(a_node("n", cpu="4"), AJobSeen("a", 1, 8, ["n", "n"]))
    assert (row.state, row.size, row.next_size, row.running) == (JobState.GROWING, 2, 4, 2)
    assert (row.growth.obstacle, row.growth.why) == (Obstacle.UNDER_WAY, "It grows from 2 to 4 instances now.")


def test_frozen_job_says_until_when_and_what_follows() -> None:
    row = only(a_node("n", cpu="4"), AJobSeen("a", 1, 8, ["n", "n"], resized_before=10))
    assert row.frozen_until_seconds == NOW + WINDOW - 10
    assert row.growth.obstacle is Obstacle.FROZEN
    assert row.growth.why.startswith("It is frozen until 2026-01-01T00:00:20Z:")
    assert row.growth.remedy == "Its window ends; there is room for it now."


def test_full_pool_names_the_nodes_and_what_has_to_be_free() -> None:
    assert growth(a_node("n", cpu="2"), a_node("m", cpu="1500m"), AJobSeen("a", 1, 8, ["n", "n", "m"])) == (
        Obstacle.ROOM,
        (
            "None of the 2 nodes of the pool default has room for one more instance (2 by NodeResourcesFit); "
            "m lacks 500m of 1 cpu."
        ),
        "500m more cpu free on m of the pool default.",
    )


def test_step_of_several_instances_counts_those_that_fit() -> None:
    _, why, _ = growth(a_node("n", cpu="4"), AJobSeen("a", 2, 8, ["n", "n"], allowed=(2, 8)))
    assert why.startswith("The one node of the pool default does not have room for its next step of 6 instances, of")
    assert "of which 2 fit" in why


def test_cordoned_node_is_named() -> None:
    job = AJobSeen("a", 1, 8, ["n"])
    obstacle, why, remedy = growth(a_node("n", cpu="1"), a_node("m", cpu="4", unschedulable=True), job)
    assert obstacle is Obstacle.ROOM
    assert "1 by NodeUnschedulable" in why
    assert remedy == "1 more cpu free on n of the pool default."


def test_waiting_pod_that_can_use_the_room_is_named() -> None:
    pool = a_pool("p", labels={"pool": "p"}, disable_preemption=True)
    waiting = a_pod("home", cpu="3", pool="p", created=5)
    job = AJobSeen("a", 1, 8, ["n", "n"], pool="p")
    obstacle, why, _ = growth(pool, a_node("n", cpu="4", labels={"pool": "p"}), job, waiting)
    assert (obstacle, why) == (Obstacle.WAITING_POD, "The pod default/home waits and can use the room.")


def test_room_that_goes_to_a_job_that_comes_first_names_it() -> None:
    first = AJobSeen("first", 1, 8, ["n"])
    second = AJobSeen("second", 1, 8, ["n"], service=10**18)
    rows = listed(a_node("n", cpu="3"), first, second)
    assert [(row.name, row.next_size) for row in rows] == [("first", 2), ("second", None)]
    assert rows[1].growth.obstacle is Obstacle.OTHER_JOB
    assert rows[1].growth.why == "The room goes to default/first (Job)."


def test_quota_that_is_used_up_is_told_in_its_own_words() -> None:
    job = AJobSeen("a", 1, 8, ["n", "n"], queue="team")
    obstacle, why, remedy = growth(a_node("n", cpu="8"), a_queue("team", cpu="2"), job)
    assert obstacle is Obstacle.QUOTA, why
    assert why.startswith("Queue team has insufficient CPU quota")
    assert remedy == "Raise this quota, or let pods of it end."


def test_job_whose_minimum_waits_says_since_when_and_why() -> None:
    row = only(a_node("n", cpu="1"), AJobSeen("a", 2, 8, [], waits=2))
    assert (row.state, row.waits_since_seconds, row.running) == (JobState.WAITING, NOW - HOUR, 0)
    assert row.growth.obstacle is Obstacle.MINIMUM
    assert "Insufficient cpu" in row.growth.why


def test_instances_of_the_last_step_that_wait_are_counted() -> None:
    row = only(a_node("n", cpu="2"), AJobSeen("a", 1, 8, ["n", "n"], waits=1))
    assert (row.state, row.size, row.running) == (JobState.GROWING, 3, 2)
    assert (row.growth.obstacle, row.growth.why) == (Obstacle.INSTANCES, "1 of its 3 instances have no node.")


@pytest.mark.parametrize(
    ("change", "state", "obstacle"),
    [
        ({"suspended": True}, JobState.SUSPENDED, Obstacle.SUSPENDED),
        ({"succeeded": 1}, JobState.FINISHING, Obstacle.FINISHING),
        (
            {"problem": Problem(EventReason.NOT_ELASTIC, "the HorizontalPodAutoscaler 'web' scales it")},
            JobState.NOT_ELASTIC,
            Obstacle.LEFT_ALONE,
        ),
    ],
)
def test_job_that_takes_no_part_has_no_place(change: dict[str, Any], state: JobState, obstacle: Obstacle) -> None:
    row = only(a_node("n"), *AJobSeen("a", 1, 2, ["n"]).seen(**change))
    assert (row.place, row.state, row.growth.obstacle) == (None, state, obstacle)
    if "problem" in change:
        assert row.growth.why == "the HorizontalPodAutoscaler 'web' scales it. It keeps its size."


def test_finished_job_is_left_out() -> None:
    assert listed(a_node("n"), *AJobSeen("a", 1, 2, []).seen(finished=True)) == ()


def test_job_is_found_by_kind_namespace_and_name() -> None:
    rows = listed(a_node("n"), a_pool("p"), AJobSeen("a", 1, 2, ["n"]))
    assert job_row(rows, ("JobSet", "Job"), "default", "a") is rows[0]
    assert job_row(rows, ("JobSet",), "default", "a") is None
