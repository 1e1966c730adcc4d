"""What a leader of elastic jobs must know: what other programs write, and what the leader before has decided."""

from aischeduler.engine.elastic import NOTED_SECONDS, PASS_SECONDS
from aischeduler.model.actions import ResizeReason
from tests.build import a_node
from tests.elastic import LATE, WINDOW, AJob, a_cluster
from tests.engine.session import warnings

REASON = ResizeReason


def test_new_leader_knows_how_long_a_minimum_waits() -> None:
    jobs = a_cluster(AJob("a", 2, 60), count=1)
    jobs.run(PASS_SECONDS)
    jobs.add(AJob("large", 5, 5, weight=10))
    jobs.run(2 * WINDOW + 2 * PASS_SECONDS)
    jobs.restart(None, a_node("n0", cpu="4"))
    jobs.run(PASS_SECONDS)
    records = jobs.session.scheduler._cluster.elastic.by_key
    since = records["Job", "default", "large"].waits_since
    assert since is not None
    assert since <= jobs.session.now - 2 * WINDOW


def test_size_that_another_program_writes_counts_and_starts_the_window() -> None:
    jobs = a_cluster(AJob("a", 1, 60))
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    jobs.write("a", 3)
    jobs.run(WINDOW - PASS_SECONDS)
    assert jobs.sizes() == {"a": 3}
    assert jobs.resizes[-1].reason is REASON.WRITTEN_BY_ANOTHER
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 8}


def test_note_of_such_a_size_that_is_lost_is_no_second_write() -> None:
    jobs = a_cluster(AJob("a", 1, 60))
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    jobs.answers = ["lost", "forbidden"]
    jobs.write("a", 3)
    jobs.run(4 * WINDOW, step=2.5)
    assert jobs.sizes() == {"a": 8}


def test_new_leader_knows_the_write_of_another_program_and_the_window_that_it_began() -> None:
    jobs = a_cluster(AJob("a", 1, 60), count=1)
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    jobs.write("a", 3)
    jobs.run(PASS_SECONDS)
    jobs.restart(None, a_node("n0", cpu="4"))
    jobs.run(WINDOW / 2)
    assert jobs.sizes() == {"a": 3}
    jobs.write("a", 2)
    jobs.run(4 * WINDOW, step=2.5)
    assert ("a", "NotElastic") in warnings(jobs.session.said)
    assert jobs.sizes() == {"a": 2}


def test_job_that_another_program_sizes_is_resized_again_after_an_edit_of_its_terms() -> None:
    jobs = a_cluster(AJob("a", 1, 60))
    jobs.run(WINDOW)
    for size in (3, 4):
        jobs.write("a", size)
        jobs.run(PASS_SECONDS)
    assert ("a", "NotElastic") in warnings(jobs.session.said)
    jobs.run(4 * WINDOW, step=2.5)
    assert jobs.sizes() == {"a": 4}
    jobs.edit("a", 1, 50)
    jobs.run(4 * WINDOW, step=2.5)
    assert jobs.sizes() == {"a": 8}


def test_service_is_written_down_where_the_size_does_not_tell_it() -> None:
    job = AJob("a", 2, 8)
    jobs = a_cluster(job, count=1, cpu="1")
    jobs.run(4 * NOTED_SECONDS, step=2.5)
    noted = [resize for resize in jobs.resizes if resize.reason is REASON.NOTED]
    assert 2 <= len(noted) <= 4
    assert job.service == 0


def test_service_survives_a_change_of_the_leader() -> None:
    jobs = a_cluster(AJob("a", 1, 60), count=1)
    jobs.run(10 * WINDOW, step=2.5)
    received = jobs.session.scheduler._cluster.elastic.by_key["Job", "default", "a"].received
    jobs.restart(None, a_node("n0", cpu="4"))
    jobs.add(AJob("b", 1, 60))
    jobs.run(2 * PASS_SECONDS)
    after = jobs.session.scheduler._cluster.elastic.by_key["Job", "default", "a"].received
    assert received <= after <= 1.2 * received


def test_new_leader_keeps_the_window_of_a_job() -> None:
    jobs = a_cluster(AJob("a", 1, 60, window=100.0), count=1)
    jobs.session.now = 1000.0
    jobs.run(2 * PASS_SECONDS)
    jobs.restart(None, a_node("n0", cpu="4"), a_node("more", cpu="4"))
    jobs.run(50.0, step=2.5)
    assert jobs.sizes() == {"a": 4}
    jobs.run(50.0, step=2.5)
    assert jobs.sizes() == {"a": 8}


def test_size_that_is_shown_late_is_not_sent_again() -> None:
    jobs = a_cluster(AJob("a", 1, 60))
    jobs.answers = [LATE, LATE, LATE]
    jobs.run(6 * PASS_SECONDS)
    assert [resize.instances for resize in jobs.sent] == [1, 8]
    assert jobs.running() == {"a": 8}


def test_job_whose_service_is_noted_is_sent_no_other_size_with_it() -> None:
    job = AJob("a", 1, 8)
    jobs = a_cluster(job, count=1, cpu="2")
    jobs.run(40 * WINDOW, step=2.5)
    versions = [resize.version for resize in jobs.sent]
    assert len(versions) == len(set(versions))
