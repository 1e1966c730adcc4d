"""Elastic jobs in the engine: adoption, growth, shrinking, and room that others take back."""

from aischeduler.engine.elastic import PASS_SECONDS
from aischeduler.engine.resizing import SHORT_SECONDS
from aischeduler.model.actions import ResizeReason
from tests.build import a_node, a_pod, a_pool
from tests.elastic import WINDOW, AJob, Jobs, a_cluster, reasons
from tests.engine.session import Session, reports

REASON = ResizeReason


def nodes(count: int, cpu: str = "4", **labels: str) -> list[object]:
    return [a_node(f"n{number}", cpu=cpu, labels=labels) for number in range(count)]


def test_adopted_job_gets_its_minimum_and_then_grows_to_what_fits_in_one_resize() -> None:
    jobs = a_cluster(AJob("a", 2, 60, size=10))
    jobs.run(2 * PASS_SECONDS)
    assert reasons(jobs) == [("a", 2, REASON.ADOPTED), ("a", 8, REASON.GROWN)]
    assert jobs.running() == {"a": 8}


def test_job_keeps_its_size_within_its_freezing_window() -> None:
    jobs = a_cluster(AJob("a", 1, 60), count=1)
    jobs.run(PASS_SECONDS)
    jobs.session.see(a_node("more", cpu="4"))
    jobs.run(WINDOW - 2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 4}
    jobs.run(3 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 8}


def test_instances_spread_fairly_over_jobs() -> None:
    jobs = a_cluster(AJob("a", 1, 60), AJob("b", 1, 60), count=3)
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 6, "b": 6}


def test_new_job_starts_with_its_minimum_although_another_has_all() -> None:
    jobs = a_cluster(AJob("a", 2, 60))
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 8}
    jobs.add(AJob("b", 2, 60))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running()["b"] >= 2
    assert not jobs.evicted
    received = {"a": 0, "b": 0}
    for _ in range(20 * int(WINDOW)):
        jobs.run(1.0)
        received = {name: received[name] + count for name, count in jobs.running().items()}
    assert 0.9 < received["a"] / received["b"] < 1.1


def test_home_pod_takes_surplus_by_a_smaller_size_and_evicts_nobody() -> None:
    jobs = a_cluster(AJob("a", 2, 60))
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_pod("home", cpu="2"))
    jobs.run(2.0)
    assert jobs.sizes() == {"a": 5}  # one of every two is on the node that gives the room
    assert jobs.resizes[-1].reason is REASON.RECLAIMED
    assert all(evict.resizes is not None for evict in jobs.evicted)


def test_home_pod_of_the_same_priority_takes_nothing_of_the_minimum() -> None:
    jobs = a_cluster(AJob("a", 8, 60))
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_pod("home", cpu="2"))
    said = jobs.run(2.0)
    assert jobs.sizes() == {"a": 8}
    assert "No preemption victims" in reports(said)["home"]


def test_highest_indexes_go_and_all_above_one_that_goes() -> None:
    jobs = a_cluster(AJob("a", 2, 60), count=1, cpu="8")
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_pod("home", cpu="3"))
    jobs.run(2.0)
    assert sorted(jobs.jobs["a"].pods) == [0, 1, 2, 3, 4]


def test_growth_takes_no_room_that_a_waiting_home_pod_can_use() -> None:
    job = AJob("a", 1, 60)
    jobs = a_cluster(job, count=1)
    jobs.session.see(a_pod("home", cpu="3"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 1}


def test_growth_borrows_and_gives_borrowed_instances_back_first() -> None:
    session = Session(
        a_pool("mine", labels={"pool": "mine"}),
        a_pool("theirs", labels={"pool": "theirs"}),
        a_node("m", cpu="4", labels={"pool": "mine"}),
        a_node("t", cpu="4", labels={"pool": "theirs"}),
    )
    jobs = Jobs(session, AJob("a", 2, 60, pool="mine"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 8}
    jobs.session.see(a_pod("owner", cpu="2", pool="theirs"))
    jobs.run(2.0)
    assert jobs.sizes() == {"a": 6}
    assert {pod.node_name for pod in jobs.jobs["a"].pods.values()} == {"m", "t"}


def test_growth_that_finds_no_node_is_taken_back() -> None:
    jobs = a_cluster(AJob("a", 1, 60), count=2)
    jobs.on_resize = lambda resize: jobs.session.see(*others) if resize.reason is REASON.GROWN else None
    others = [a_pod(f"other-{n}", cpu="3", node=f"n{n}", scheduler_name="other") for n in range(2)]
    jobs.run(PASS_SECONDS)
    assert (jobs.sizes(), jobs.running()) == ({"a": 8}, {"a": 2})
    jobs.run(SHORT_SECONDS + PASS_SECONDS)
    assert jobs.sizes() == {"a": 2}
    assert jobs.resizes[-1].reason is REASON.TAKEN_BACK


def test_job_whose_maximum_is_lowered_shrinks_at_once() -> None:
    job = AJob("a", 1, 60)
    jobs = a_cluster(job)
    jobs.run(2 * PASS_SECONDS)
    job.terms = AJob("a", 1, 3).terms
    job.version += 1
    jobs.add(job)
    jobs.run(1.0)
    assert jobs.sizes() == {"a": 3}


def test_second_foreign_write_leaves_the_job_alone() -> None:
    job = AJob("a", 1, 60)
    jobs = a_cluster(job)
    jobs.run(2 * PASS_SECONDS)
    for size in (3, 5):
        job.size, job.version = size, job.version + 1
        jobs.add(job)
        jobs.run(PASS_SECONDS)
    jobs.run(4 * WINDOW)
    assert jobs.sizes() == {"a": 5}
