"""What elastic jobs promise, beside growth and shrinking: adoption, levels, waiting for long, and what is taken back.

The numbers are those of `docs/decisions/0027-elastic-jobs.md`.
"""

from typing import Any

import pytest

from aischeduler.engine.elastic import PASS_SECONDS
from aischeduler.engine.resizing import SHORT_SECONDS
from aischeduler.model.actions import Bind, Evict, Refresh, Resize, ResizeReason, Warn
from aischeduler.model.elastic import WEIGHTS, ElasticJob, ElasticTerms, PriorityLevel
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.events import RefreshFailed, Seen, gone
from aischeduler.model.gang import GangSource
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace
from aischeduler.model.workload import Workload
from tests.build import a_node, a_pod, a_pool, amounts, replace
from tests.elastic import WINDOW, AJob, Jobs, a_cluster, reasons
from tests.engine.session import Session, reports, warnings
from tests.gangs import a_gang, member
from tests.tenants import a_queue

REASON = ResizeReason
OFFLINE, PRODUCTION = WEIGHTS[PriorityLevel.OFFLINE], WEIGHTS[PriorityLevel.PRODUCTION]


def pools(*named: Any, **nodes: str) -> Session:
    """Return a session with these Pools, and one node in each: pool -> CPUs."""
    found = named or tuple(a_pool(name, labels={"pool": name}) for name in nodes)
    return Session(*found, *(a_node(name, cpu=cpu, labels={"pool": name}) for name, cpu in nodes.items()))


def test_job_never_has_more_instances_than_are_left_of_its_completions() -> None:
    jobs = a_cluster(AJob("a", 1, 60, ordered=False, completions=5))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 5}


def test_job_whose_rest_runs_already_is_not_resized() -> None:
    jobs = a_cluster(AJob("a", 1, 60, ordered=False, completions=5), count=1)
    jobs.run(2 * PASS_SECONDS)
    jobs.succeed("a")
    jobs.session.see(a_node("more", cpu="4"))
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 4}


def test_owner_takes_its_room_back_from_a_job_that_is_about_to_end_without_a_smaller_size() -> None:
    jobs = Jobs(pools(mine="1", theirs="4"), AJob("a", 1, 60, ordered=False, completions=5, pool="mine"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 5}
    jobs.session.see(a_pod("owner", cpu="2", pool="theirs"))
    jobs.run(2.0)
    assert jobs.sizes() == {"a": 5}
    assert [evict.resizes for evict in jobs.evicted] == [None] * len(jobs.evicted)
    assert jobs.nodes_of["uid-owner"] == "theirs"


def test_job_of_which_an_instance_succeeded_keeps_its_size() -> None:
    job = AJob("a", 1, 60)
    jobs = a_cluster(job, count=1)
    jobs.run(2 * PASS_SECONDS)
    job.succeeded, job.version = 1, job.version + 1
    jobs.session.tell(Seen(job.workload))
    jobs.session.see(a_node("more", cpu="4"), a_pod("home", cpu="4"), a_pod("home-2", cpu="1"))
    said = jobs.run(WINDOW + 2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 4}
    assert not jobs.evicted
    assert "home" in reports(said) or "home-2" in reports(said)


def test_master_and_servers_count_as_service_too() -> None:
    """Two jobs of which one has servers: over time the one without them gets more trainers."""
    jobs = a_cluster(AJob("plain", 1, 60), AJob("servers", 1, 60, servers=2), count=1, cpu="12")
    received = {"plain": 0, "servers": 0}
    for _ in range(1200):
        jobs.run(1.0)
        running = jobs.running()
        received = {name: received[name] + running[name] + 3 * (name == "servers") for name in received}
    assert 0.95 < received["plain"] / received["servers"] < 1.05


def test_all_steps_of_a_pass_are_one_resize() -> None:
    jobs = a_cluster(AJob("a", 1, 60), count=4)
    jobs.run(WINDOW - PASS_SECONDS)
    assert reasons(jobs) == [("a", 1, REASON.NOTED), ("a", 16, REASON.GROWN)]


def test_job_of_production_gives_nothing_to_another_job() -> None:
    jobs = a_cluster(AJob("a", 1, 60, weight=PRODUCTION))
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    jobs.add(AJob("b", 2, 4, weight=PRODUCTION))
    jobs.run(4 * WINDOW, step=2.5)
    assert (jobs.sizes()["a"], jobs.running()["b"]) == (8, 0)


@pytest.mark.parametrize(("priority", "size"), [(0, 8), (10, 7)])
def test_job_of_production_is_shrunk_for_pods_of_higher_priority_alone(priority: int, size: int) -> None:
    jobs = a_cluster(AJob("a", 1, 60, weight=PRODUCTION))
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_pod("home", cpu="1", priority=priority))
    jobs.run(2.0)
    assert jobs.sizes() == {"a": size}
    assert all(evict.resizes is not None for evict in jobs.evicted)


def test_owner_takes_its_room_back_from_production_by_a_smaller_size() -> None:
    jobs = Jobs(pools(mine="2", theirs="2"), AJob("a", 2, 60, weight=PRODUCTION, pool="mine"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 4}
    jobs.session.see(a_pod("owner", cpu="2", pool="theirs"))
    jobs.run(2.0)
    assert jobs.sizes() == {"a": 2}
    assert all(evict.resizes is not None for evict in jobs.evicted)


def test_minimum_of_a_higher_level_breaks_the_window_and_an_equal_one_waits() -> None:
    jobs = a_cluster(AJob("a", 1, 60, weight=OFFLINE, window=300.0))
    jobs.run(2 * PASS_SECONDS)
    jobs.add(AJob("equal", 2, 2, weight=OFFLINE))
    jobs.run(3 * PASS_SECONDS)
    assert jobs.running() == {"a": 8, "equal": 0}
    jobs.add(AJob("higher", 2, 2))
    jobs.run(3 * PASS_SECONDS)
    assert jobs.running()["higher"] == 2


@pytest.mark.parametrize("least", [1, 2])
def test_minimum_waits_again_after_its_node_is_gone(least: int) -> None:
    """Another job shrinks for it, though its size says that it runs; also where one instance is its minimum."""
    a, b = AJob("a", 1, 60), AJob("b", least, least, node_selector={"kind": "b"}, cpu="2")
    both = {"kind": "b"}
    jobs = Jobs(Session(a_node("n0", cpu="5", labels=both), a_node("n1", cpu="5", labels=both)), b)
    jobs.run(2 * PASS_SECONDS)
    jobs.add(a)
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    assert jobs.sizes()["a"] == 10 - 2 * least
    node = next(pod.node_name for pod in b.pods.values())
    jobs.session.tell(gone(type(a_node(node)), node))
    jobs.lose(node)
    jobs.run(WINDOW + 4 * PASS_SECONDS)
    assert jobs.running()["b"] == least
    assert not jobs.evicted


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
def test_no_other_elastic_job_starts_where_a_minimum_waits_for_long(kind: str) -> None:
    """Six free CPUs suffice for small ones, which come and come; after two windows they leave them to the large one."""
    session = Session(a_node("n", cpu="8"))
    old = [a_pod(f"old-{turn}", cpu="2") for turn in range(2)]
    session.see(*old)
    jobs = Jobs(session)
    jobs.run(1.0)
    jobs.add(AJob("large", 3, 3, cpu="2"))
    jobs.run(2 * WINDOW + 2 * PASS_SECONDS, step=2.5)
    jobs.add(AJob("small", 2, 2, cpu="2", kind=kind))
    jobs.session.see(a_pod("plain", cpu="1"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running() == {"large": 0, "small": 0}
    assert "kept for an elastic job that waits for long" in reports(session.said)["small-0"]
    assert "uid-plain" in jobs.nodes_of
    jobs.remove("large")
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running()["small"] == (1 if kind == "Deployment" else 0)  # a gang starts as a whole
    session.tell(gone(Pod, "uid-plain"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running() == {"small": 2}


def test_minimum_that_is_larger_than_its_pool_keeps_nothing() -> None:
    jobs = a_cluster(AJob("large", 9, 9, cpu="1"), count=2)
    jobs.run(3 * WINDOW, step=2.5)
    jobs.add(AJob("small", 2, 60))
    jobs.run(WINDOW)
    assert jobs.running() == {"large": 0, "small": 8}


def test_minimum_that_waits_for_long_starts_before_a_newer_one_that_does_too() -> None:
    session = Session(a_node("n", cpu="4"), a_pod("old", cpu="2", node="n", scheduler_name="other"))
    jobs = Jobs(session, AJob("first", 3, 3))
    jobs.run(10.0)
    jobs.add(AJob("second", 3, 3))
    jobs.run(3 * WINDOW, step=2.5)
    session.tell(gone(Pod, "uid-old"))
    jobs.run(2 * PASS_SECONDS)
    assert sum(jobs.running().values()) == 3


def test_namespace_may_restrict_the_levels_of_its_jobs() -> None:
    jobs = a_cluster(AJob("low", 1, 60, weight=100), AJob("normal", 1, 60, size=1))
    jobs.session.tell(Seen(Namespace("default", {}, (PriorityLevel.EXPERIMENT, PriorityLevel.OFFLINE))))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"low": 7, "normal": 1}
    (told,) = [action for action in jobs.session.said if isinstance(action, Warn)]
    assert (told.about.name, told.reason) == ("normal", EventReason.INVALID_ELASTIC)
    assert told.message == (
        "metadata.annotations[resource.aibee.cn/priority-level]: Normal is named, and the namespace default allows "
        "Experiment, Offline by resource.aibee.cn/priority-levels. It keeps its size."
    )
    jobs.session.tell(Seen(Namespace("default", {})))
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    assert jobs.sizes()["normal"] > 1


def test_job_that_names_no_level_weighs_by_the_priority_of_its_pods() -> None:
    """With 1,000 for the other one it gets five times the room; no value makes it Production, which never shrinks."""
    valued = AJob("valued", 1, 60, priority=5000)
    valued.by_priority = True
    jobs = a_cluster(valued, AJob("normal", 1, 60), count=3)
    jobs.run(WINDOW - PASS_SECONDS)
    assert jobs.sizes() == jobs.running() == {"valued": 10, "normal": 2}
    records = jobs.session.scheduler._cluster.elastic.by_key
    records["Job", "default", "valued"].weigh(2_000_000)
    assert not records["Job", "default", "valued"].job.terms.is_production


def test_instances_are_of_the_minimum_again_as_soon_as_others_are_asked_to_leave() -> None:
    """An owner takes back what the job has borrowed; before its pods are gone, the job takes lent room of its own."""
    session = pools(
        a_pool("mine", labels={"pool": "mine"}),
        a_pool("theirs", labels={"pool": "theirs"}),
        a_pool("other", labels={"pool": "other"}),
        mine="4",
        theirs="4",
    )
    borrower = a_pod("borrower", cpu="1", pool="other", node="lent", phase="Running")
    session.see(a_node("lent", cpu="1", labels={"pool": "mine"}), borrower)
    jobs = Jobs(session, AJob("a", 2, 8, pool="mine"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running() == {"a": 8}
    jobs.session.tell(gone(Node, "mine"))
    jobs.lose("mine")
    jobs.run(1.0)
    assert jobs.running() == {"a": 4}
    jobs.session.see(a_pod("owner", cpu="4", pool="theirs"))
    said = [action for _ in range(6) for action in jobs.session.decide()]
    asked = {action.victim.name for action in said if isinstance(action, Evict)}
    assert "borrower" in asked
    assert len(asked) == 5


def test_pass_binds_no_pod_itself() -> None:
    jobs = a_cluster(AJob("a", 1, 60))
    jobs.run(2 * PASS_SECONDS)
    assert {type(action) for action in jobs.session.said} >= {Bind, Resize}
    assert jobs.running() == {"a": 8}


def test_room_is_taken_for_others_only_after_a_refresh() -> None:
    jobs = a_cluster(AJob("a", 2, 60))
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    jobs.add(AJob("b", 2, 60))
    session, answer = jobs.session, jobs.session.tell
    session.tell = lambda *_: None  # type: ignore[method-assign] # no read is answered
    session.now += PASS_SECONDS
    said = session.decide()
    session.now += PASS_SECONDS
    said += session.decide()
    session.tell = answer  # type: ignore[method-assign]
    assert not [action for action in said if isinstance(action, Resize) and action.reason is REASON.SHRUNK]
    assert [action for action in session.said if isinstance(action, Refresh)]
    session.tell(RefreshFailed("default", "no answer"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running() == {"a": 4, "b": 4}


def test_room_for_growth_within_a_queue_counts_what_the_pass_gives() -> None:
    """Two queues below one: together they grow to the quota of that, and no instance waits for it."""
    session = Session(a_node("n", cpu="32"))
    queues = a_queue("top", cpu="6"), a_queue("q1", parent="top"), a_queue("q2", parent="top")
    session.tell(*map(Seen, queues))
    jobs = Jobs(session, AJob("a", 1, 60, queue="q1"), AJob("b", 1, 60, queue="q2"))
    jobs.run(WINDOW - PASS_SECONDS)
    assert jobs.sizes() == jobs.running() == {"a": 3, "b": 3}


def test_jobs_share_a_queue_that_is_full() -> None:
    session = Session(a_node("n", cpu="32"))
    session.tell(Seen(a_queue("q", cpu="8")))
    jobs = Jobs(session, AJob("a", 1, 60, queue="q"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 8}
    jobs.session.tell(Seen(a_queue("q", cpu="9")))
    jobs.add(AJob("b", 1, 60, queue="q"))
    jobs.run(10 * WINDOW, step=2.5)
    received = {"a": 0, "b": 0}
    for _ in range(600):
        jobs.run(1.0)
        received = {name: received[name] + count for name, count in jobs.running().items()}
    assert received["b"] > 0.8 * received["a"]


def test_growth_counts_the_limits_of_loans() -> None:
    lender = a_pool("theirs", labels={"pool": "theirs"}, lending_limit=amounts(cpu="3"))
    session = pools(a_pool("mine", labels={"pool": "mine"}), lender, mine="2", theirs="16")
    jobs = Jobs(session, AJob("a", 1, 60, pool="mine"), AJob("b", 1, 60, pool="mine"))
    jobs.run(WINDOW - PASS_SECONDS)
    assert sum(jobs.sizes().values()) == sum(jobs.running().values()) == 5


def test_job_that_runs_with_more_than_its_minimum_keeps_it_when_it_becomes_elastic() -> None:
    job = AJob("a", 2, 60, size=5)
    plain = replace(job.workload, elastic=None)
    session = Session(a_node("n", cpu="5"))
    session.tell(Seen(plain))
    pods = [replace(job.new_pod(index, 0.0), node_name="n", phase="Running") for index in range(5)]
    session.see(*pods)
    session.decide()
    jobs = Jobs(session)
    job.pods = dict(enumerate(pods))
    jobs.add(job)
    jobs.run(2 * PASS_SECONDS)
    assert reasons(jobs) == [("a", 5, REASON.NOTED)]


def test_first_growth_after_adoption_needs_no_window() -> None:
    jobs = a_cluster(AJob("a", 2, 60, size=10, window=3000.0))
    jobs.run(PASS_SECONDS)
    assert reasons(jobs) == [("a", 2, REASON.ADOPTED), ("a", 8, REASON.GROWN)]


def test_window_of_zero_lets_a_job_change_with_every_pass() -> None:
    jobs = a_cluster(AJob("a", 1, 60, window=0.0), count=1)
    jobs.run(PASS_SECONDS)
    jobs.session.see(a_node("more", cpu="4"))
    jobs.run(PASS_SECONDS + 1.0)
    assert jobs.sizes() == {"a": 8}


def test_job_takes_an_allowed_size_only_whole() -> None:
    jobs = a_cluster(AJob("a", 2, 8, allowed=(2, 4, 8)), count=1, cpu="7")
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 4}


def test_job_is_brought_to_an_allowed_size_by_an_edit() -> None:
    jobs = a_cluster(AJob("a", 2, 60))
    jobs.run(2 * PASS_SECONDS)
    jobs.edit("a", 2, 7, (2, 6))
    jobs.run(1.0)
    assert jobs.sizes() == {"a": 6}


def test_clamp_that_is_refused_or_lost_comes_again() -> None:
    jobs = a_cluster(AJob("a", 1, 60))
    jobs.run(2 * PASS_SECONDS)
    jobs.answers = ["lost", "conflict", "forbidden"]
    jobs.edit("a", 1, 3)
    jobs.run(100.0, step=2.5)
    assert jobs.sizes() == {"a": 3}


def growth_taken_back(window: float) -> Jobs:
    """Return two nodes with a job whose growth found no room, because others took it; these have gone since."""
    jobs = a_cluster(AJob("a", 1, 60, window=window), count=2)
    others = [a_pod(f"other-{n}", cpu="3", node=f"n{n}", scheduler_name="other") for n in range(2)]
    jobs.on_resize = lambda resize: jobs.session.see(*others) if resize.reason is REASON.GROWN else None
    jobs.run(SHORT_SECONDS + 2 * PASS_SECONDS)
    jobs.on_resize = lambda _: None
    assert jobs.sizes() == {"a": 2}
    jobs.session.tell(*(gone(Pod, pod.uid) for pod in others))
    return jobs


def test_growth_that_was_taken_back_comes_again_after_a_window() -> None:
    jobs = growth_taken_back(WINDOW)
    jobs.run(WINDOW - 2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 2}
    jobs.run(3 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 8}


def test_growth_that_was_taken_back_comes_again_once_a_node_comes() -> None:
    """Without a window it would come again after half a minute."""
    jobs = growth_taken_back(0.0)
    jobs.run(PASS_SECONDS)
    assert jobs.sizes() == {"a": 2}
    jobs.session.see(a_node("new", cpu="1"))
    jobs.run(PASS_SECONDS)
    assert jobs.sizes() == {"a": 9}


def test_suspended_job_keeps_its_size_and_comes_back_as_a_new_one() -> None:
    jobs = a_cluster(AJob("a", 1, 60), AJob("b", 1, 60))
    jobs.run(WINDOW)
    jobs.suspend("a", suspended=True)
    jobs.run(10 * WINDOW, step=2.5)
    assert jobs.sizes() == {"a": 4, "b": 8}
    jobs.suspend("a", suspended=False)
    jobs.run(4 * WINDOW, step=2.5)
    assert jobs.running()["a"] >= 1
    assert 2 <= jobs.sizes()["b"] <= 6, "it does not get all that it missed at once"


def test_job_that_is_made_suspended_is_adopted_when_it_is_resumed() -> None:
    job = AJob("a", 2, 60, size=30)
    job.suspended = True
    jobs = a_cluster(job)
    jobs.run(2 * WINDOW, step=2.5)
    assert not jobs.sent
    jobs.suspend("a", suspended=False)
    jobs.run(2 * PASS_SECONDS)
    assert reasons(jobs) == [("a", 8, REASON.ADOPTED)], "eight of the thirty ran at once"


def test_growth_takes_room_of_several_lenders_and_the_minimum_of_one() -> None:
    session = pools(mine="1", one="2", two="2")
    jobs = Jobs(session, AJob("a", 2, 60, pool="mine"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == jobs.running() == {"a": 5}
    assert {pod.node_name for pod in jobs.jobs["a"].pods.values()} == {"mine", "one", "two"}


def test_only_surplus_is_given_where_jobs_of_many_pools_wait() -> None:
    """An equal job gets its minimum by sizes: nobody is evicted."""
    session = pools(mine="4", theirs="4")
    jobs = Jobs(session, AJob("a", 2, 60, pool="mine"))
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    jobs.add(AJob("b", 2, 60, pool="mine"))
    said = jobs.run(3 * PASS_SECONDS)
    assert jobs.running()["b"] >= 2
    assert not [action for action in said if isinstance(action, Evict) and action.resizes is None]


def test_job_set_grows_by_instances_of_its_named_part() -> None:
    """Its driver is no instance, whether it runs or leaves."""
    session = Session(a_node("n", cpu="6"))
    job = ElasticJob(ElasticTerms(2, 60), 2, "1", ordered=True, part="worker", written_size=2)
    gang, made = a_gang("set", 2, GangSource.JOB_SET), list[Pod]()
    session.tell(Seen(gang), Seen(Workload("JobSet", "default", "set", "uid-set", elastic=job)))
    for part in ("driver", "worker"):
        session.tell(Seen(Workload("Job", "default", f"set-{part}-0", f"uid-{part}", owner="JobSet/set")))
    for part, count in (("driver", 1), ("worker", 2)):
        for index in range(count):
            pod = a_pod(f"{part}-{index}", cpu="1", node="n", phase="Running")
            made.append(replace(member(pod, gang, role=part, index=index), owner=f"Job/set-{part}-0"))
    session.see(*made)
    said = [action for _ in range(8) for action in session.decide(PASS_SECONDS)]
    sizes = [action for action in said if isinstance(action, Resize) and action.reason is REASON.GROWN]
    assert [(action.kind, action.part, action.instances) for action in sizes][:1] == [("JobSet", "worker", 5)]


def test_pods_of_a_deployment_go_themselves() -> None:
    """A smaller size would let its ReplicaSet choose which pods go."""
    session = Session(a_node("n", cpu="4"))
    job = ElasticJob(ElasticTerms(1, 60), 4, "1", written_size=4)
    session.tell(
        Seen(Workload("Deployment", "default", "web", "uid-web", elastic=job)),
        Seen(Workload("ReplicaSet", "default", "web-1", "uid-set", owner="Deployment/web")),
    )
    pods = [a_pod(f"web-1-{n}", cpu="1", node="n", phase="Running", started=1) for n in range(4)]
    session.see(*(replace(pod, owner="ReplicaSet/web-1") for pod in pods))
    session.decide()
    session.see(a_pod("high", cpu="1", priority=10))
    said = session.decide(1.0)
    assert [action.resizes for action in said if isinstance(action, Evict)] == [None]


def test_job_whose_instances_never_come_gives_room_to_another_one() -> None:
    """Its controller makes no more pods: after a while its resize counts as ended."""
    job = AJob("a", 1, 60)
    jobs = a_cluster(job)
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_node("more", cpu="4"))
    jobs._sync = lambda _: None  # type: ignore[method-assign, assignment]
    jobs.run(WINDOW + PASS_SECONDS)
    assert (jobs.sizes(), jobs.running()) == ({"a": 12}, {"a": 8})
    del jobs._sync
    jobs.session.see(a_pod("fills", cpu="4", node="more", scheduler_name="other"))
    other = AJob("b", 2, 60)
    jobs.jobs["b"] = other
    jobs._show(other)
    jobs._sync(other)
    jobs.run(310.0, step=2.5)
    assert jobs.running()["b"] >= 2


def test_instance_that_is_of_the_minimum_again_evicts_pods_of_lower_priority() -> None:
    """While the minimum ran it took free room only; now that instances are lost it is one of the minimum."""
    session = pools(mine="1", theirs="3")
    jobs = Jobs(session, AJob("a", 2, 60, pool="mine", priority=10))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 4}
    jobs.write("a", 6)
    session.see(a_node("more", cpu="1", labels={"pool": "mine"}, unschedulable=True))
    session.see(a_pod("low", cpu="1", pool="mine", node="more", phase="Running"))
    jobs.run(1.0)
    assert jobs.running() == {"a": 4}
    session.see(a_node("more", cpu="1", labels={"pool": "mine"}))
    jobs.run(1.0)
    assert not jobs.evicted
    session.tell(gone(type(a_node("theirs")), "theirs"))
    jobs.lose("theirs")
    jobs.run(1.0)
    assert [evict.victim.name for evict in jobs.evicted] == ["low"]
    assert jobs.running() == {"a": 2}


def test_pods_of_a_job_that_is_left_alone_evict_as_others_do() -> None:
    """A pod beyond the minimum takes back lent room again: its size is no longer ours."""
    session = pools(mine="2", theirs="2")
    jobs = Jobs(session, AJob("a", 2, 60, pool="mine", cpu="1"))
    session.see(a_pod("lent", cpu="2", pool="theirs"), a_pod("lent-2", cpu="2", pool="theirs"))
    jobs.run(2.0)
    for size in (3, 4):
        jobs.write("a", size)
        jobs.run(PASS_SECONDS)
    jobs.run(2.0)
    assert ("a", "NotElastic") in warnings(jobs.session.said)
