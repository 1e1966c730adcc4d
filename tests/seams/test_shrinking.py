"""A job that shrinks is a plugin that says which of its pods are surplus: no line of the engine knows of it."""

from aischeduler.engine.profile import Profile, default_profile
from aischeduler.model.events import gone
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, replace
from tests.engine.session import Session, evictions
from tests.seams.shrinking import JOB, Shrinking


def profile(least: int) -> Profile:
    found = default_profile()
    return replace(found, plugins=replace(found.plugins, units=Shrinking(least)))


def of_job(number: int, node: str, priority: int = 10) -> Pod:
    labels = {JOB: "train"}
    return a_pod(
        f"job-{number}", cpu="2", labels=labels, created=number, started=number + 1, priority=priority, node=node
    )


def session_with(*, least: int, pods: int) -> Session:
    """Return a session with a job, one pod on each node, and another pod of low priority on the last node."""
    session = Session(*(a_node(f"n{number}", cpu="2") for number in range(pods + 1)), profile=profile(least))
    session.scheduler.oracle.is_surplus = lambda pod: pod.labels.get(JOB) == "train" and pod.created_seconds >= least
    session.see(*(of_job(number, f"n{number}") for number in range(pods)))
    session.see(a_pod("low", cpu="2", node=f"n{pods}"))
    session.decide()
    return session


def test_surplus_goes_before_a_home_pod_of_lower_priority_the_youngest_first() -> None:
    session = session_with(least=2, pods=4)
    session.see(a_pod("p", cpu="2", priority=5))
    assert evictions(session.decide()) == {"job-3": "SurplusTaken"}


def test_the_job_keeps_its_minimum_and_then_the_lowest_priority_goes() -> None:
    session = session_with(least=2, pods=3)
    session.see(a_pod("p", cpu="2", priority=5))
    assert evictions(session.decide()) == {"job-2": "SurplusTaken"}
    session.tell(gone(Pod, "uid-job-2"))
    session.decide()
    session.see(a_pod("q", cpu="2", priority=5))
    assert evictions(session.decide()) == {"low": "Preempted"}


def test_a_gang_that_needs_more_than_the_surplus_shrinks_the_job_first() -> None:
    session = session_with(least=1, pods=2)
    session.see(*(a_pod(f"g-{n}", cpu="2", priority=5, labels={JOB: "new"}, created=50 + n) for n in range(1)))
    session.see(a_pod("r", cpu="2", priority=4))
    assert set(evictions(session.decide())) == {"job-1", "low"}


def test_a_pod_is_surplus_no_longer_once_the_job_is_at_its_minimum() -> None:
    session = session_with(least=2, pods=3)
    session.tell(gone(Pod, "uid-job-0"))
    session.decide()
    session.see(a_pod("filler", cpu="2", priority=99), a_pod("p", cpu="2", priority=5))
    assert evictions(session.decide()) == {"low": "Preempted"}
