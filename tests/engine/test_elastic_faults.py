"""The faults of the original autoscaler of TrainingJobs, each as a test of the right behaviour.

Tests without a file are here; P is tests/policies/test_elastic.py, E tests/engine/test_elastic.py, and R
tests/engine/test_elastic_readings.py.

- E1, it never ends with GPUs and a load below 1: `test_pass_with_gpus_ends`; P
  `test_pass_ends_with_allowed_sizes_that_fit`.
- E2, its order ignores the plan: P `test_jobs_are_ranked_again_after_each_step`.
- E3, growth adds idle CPUs: `test_jobs_that_grow_in_one_pass_share_the_room_that_there_is`.
- E4, it is blind to GPUs, taints, slots and selectors: `test_growth_counts_only_nodes_that_every_rule_allows`.
- E5, a tail without nodes stays, and no minimum fits: E `test_growth_that_finds_no_node_is_taken_back`;
  `test_job_shrinks_until_a_minimum_fits_on_one_node`.
- E6, one waiting job stops all growth, and one without pods shrinks all:
  `test_minimum_that_fits_nowhere_stops_no_growth`, `test_job_without_pods_makes_nobody_shrink`.
- E7, a step each five seconds while pods start: `test_job_keeps_its_size_while_its_instances_start`.
- E8, the size counts, not the pods: `test_instance_that_leaves_counts_until_it_is_gone`.
- E9, a job ends, goes or changes between read and write: the tests `..._in_the_middle_of_a_pass_...`, and
  `test_refused_size_is_decided_again`.
- E10, names of two namespaces collide: `test_jobs_of_one_name_in_two_namespaces_are_two_jobs`.
- E11, a lowered maximum counts late: E `test_job_whose_maximum_is_lowered_shrinks_at_once`; R
  `test_clamp_that_is_refused_or_lost_comes_again`.
- E12, who goes is left to chance: E `test_highest_indexes_go_and_all_above_one_that_goes`,
  `test_growth_borrows_and_gives_borrowed_instances_back_first`; `test_highest_ordinal_of_a_stateful_set_goes_first`.
- E13, a shrink counts as failures: E `test_home_pod_takes_surplus_by_a_smaller_size_and_evicts_nobody`; on the real Job
  controller tests/e2e/test_elastic_faults.py.
- E14, online pods wait for trainers: `test_home_pod_takes_surplus_without_a_pass`.
- E15, two controllers write: `test_size_says_the_version_that_it_was_decided_on`; tests/e2e/test_elastic_faults.py.
- E16, parts of a job start: `test_training_job_starts_with_master_and_servers_or_not_at_all`.
"""

from typing import Any

import pytest

from aischeduler.engine.elastic import PASS_SECONDS, read_job
from aischeduler.engine.elastic_pods import in_end_order
from aischeduler.model.actions import Evict, EvictionCause, Resize, ResizeReason, Warn
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.events import Refreshed, Seen, gone
from aischeduler.model.names import CLUSTER
from aischeduler.model.node import Node, Taint
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, a_pool, replace
from tests.elastic import CONFLICT, FORBIDDEN, FORBIDDEN_SECONDS, LOST, OK, WINDOW, AJob, Jobs, a_cluster, reasons
from tests.engine.session import Session, binds, errors, fail_once, reports

REASON = ResizeReason


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each decision do one step of a pass."""
    for limit in ("PODS_AT_ONCE", "STEPS_AT_ONCE"):
        monkeypatch.setattr(f"aischeduler.engine.elastic_passes.{limit}", 1)


def test_pass_with_gpus_ends() -> None:
    jobs = a_cluster(AJob("a", 1, 60, gpu=1), AJob("b", 1, 60, gpu=1), count=1, cpu="64", gpu=10)
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 5, "b": 5}


def test_jobs_that_grow_in_one_pass_share_the_room_that_there_is() -> None:
    jobs = a_cluster(AJob("a", 1, 60), AJob("b", 1, 60), AJob("c", 1, 60), count=3)
    jobs.run(WINDOW - PASS_SECONDS)
    assert jobs.sizes() == jobs.running() == {"a": 4, "b": 4, "c": 4}


def test_growth_counts_only_nodes_that_every_rule_allows() -> None:
    session = Session(
        a_node("fits", cpu="4", gpu=4, labels={"disk": "fast"}),
        a_node("without-gpus", cpu="64", labels={"disk": "fast"}),
        a_node("tainted", cpu="64", gpu=8, labels={"disk": "fast"}, taints=(Taint("key", "value", "NoSchedule"),)),
        a_node("cordoned", cpu="64", gpu=8, labels={"disk": "fast"}, unschedulable=True),
        a_node("without-slots", cpu="64", gpu=8, labels={"disk": "fast"}, pods=0),
        a_node("slow", cpu="64", gpu=8),
    )
    jobs = Jobs(session, AJob("a", 1, 60, gpu=1, node_selector={"disk": "fast"}))
    jobs.run(2 * PASS_SECONDS)
    assert (jobs.sizes(), jobs.running()) == ({"a": 4}, {"a": 4})


def test_job_shrinks_until_a_minimum_fits_on_one_node() -> None:
    """Four free CPUs in all are of no use to a pod that needs three on one node."""
    jobs = a_cluster(AJob("a", 2, 60), count=4)
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 16}
    jobs.add(AJob("b", 1, 1, cpu="3"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running()["b"] == 1
    assert not jobs.evicted


def test_minimum_that_fits_nowhere_stops_no_growth() -> None:
    jobs = a_cluster(AJob("a", 1, 60), AJob("large", 2, 4, cpu="64"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 8, "large": 2}


def test_job_without_pods_makes_nobody_shrink() -> None:
    jobs = a_cluster(AJob("a", 1, 60))
    jobs.run(WINDOW + 2 * PASS_SECONDS)
    jobs.session.tell(Seen(AJob("empty", 2, 4).workload))
    jobs.jobs["empty"] = AJob("empty", 2, 4)
    jobs.run(WINDOW)
    assert jobs.sizes()["a"] == 8


def test_job_keeps_its_size_while_its_instances_start() -> None:
    job = AJob("a", 1, 60, window=0.0)
    jobs = a_cluster(job, count=1)
    late = a_pod("late", cpu="2", node="n0", scheduler_name="other")
    jobs.on_resize = lambda resize: jobs.session.see(late) if resize.reason is REASON.GROWN else None
    jobs.run(PASS_SECONDS)
    assert (jobs.sizes(), jobs.running()) == ({"a": 4}, {"a": 2})
    jobs.session.see(a_node("more", cpu="1"))
    jobs.run(PASS_SECONDS)
    assert (jobs.sizes(), jobs.running()) == ({"a": 4}, {"a": 3})


def test_instance_that_leaves_counts_until_it_is_gone() -> None:
    job = AJob("a", 1, 4, window=0.0)
    jobs = a_cluster(job, count=1)
    jobs.run(2 * PASS_SECONDS)
    leaving = replace(job.pods[3], terminating=True)
    jobs.session.see(leaving)
    jobs.edit("a", 1, 60)
    jobs.session.see(a_node("more", cpu="4"))
    jobs.run(4 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 4}
    jobs.session.tell(gone(Pod, leaving.uid))
    del job.pods[3]
    jobs._sync(job)
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 8}


def steps_of(session: Session, count: int) -> list[Any]:
    """Decide so often for no pool."""
    return [action for _ in range(count) for action in session.scheduler.decide(CLUSTER, session.now, 1)]


def in_a_pass(jobs: Jobs, decisions: int) -> Session:
    """Let the next pass begin, and do some of it."""
    jobs.session.now += PASS_SECONDS
    assert not steps_of(jobs.session, decisions)
    return jobs.session


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("decisions", range(1, 6))
def test_job_that_is_gone_in_the_middle_of_a_pass_gets_no_size(decisions: int) -> None:
    jobs = a_cluster(AJob("a", 1, 60, window=0.0), AJob("b", 1, 60, window=0.0), count=1)
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_node("more", cpu="4"))
    session = in_a_pass(jobs, decisions)
    jobs.remove("b")
    said = steps_of(session, 30)
    assert {action.name for action in said if isinstance(action, Resize)} <= {"a"}
    assert not errors(said)
    jobs.run(5 * PASS_SECONDS)  # what was sent in between is lost
    assert jobs.sizes() == {"a": 8}


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("decisions", range(1, 6))
def test_job_that_changes_in_the_middle_of_a_pass_gets_no_size(decisions: int) -> None:
    job = AJob("a", 1, 60, window=0.0)
    jobs = a_cluster(job, count=1)
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_node("more", cpu="4"))
    session = in_a_pass(jobs, min(decisions, 3))
    jobs.edit("a", 1, 5)
    for action in steps_of(session, 30):
        assert not isinstance(action, Resize) or (action.version == str(job.version) and action.instances <= 5)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("decisions", range(1, 6))
def test_node_that_goes_in_the_middle_of_a_pass_ends_nothing(decisions: int) -> None:
    jobs = a_cluster(AJob("a", 1, 60, window=0.0), AJob("b", 2, 60, window=0.0), count=1)
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_node("more", cpu="4"))
    session = in_a_pass(jobs, decisions)
    session.tell(gone(type(a_node("more")), "more"))
    session.see(a_node("other", cpu="2"))
    assert not errors(steps_of(session, 30))
    jobs.run(WINDOW + 4 * PASS_SECONDS)
    assert sum(jobs.running().values()) == 6


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("decisions", range(1, 6))
def test_bug_in_the_middle_of_a_pass_does_not_end_the_passes(decisions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = a_cluster(AJob("a", 1, 60, window=0.0), AJob("b", 1, 60, window=0.0), count=1)
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_node("more", cpu="4"))
    session = in_a_pass(jobs, decisions)
    fail_once(monkeypatch, "elastic_room", "kind_of" if decisions > 2 else "in_end_order")
    fail_once(monkeypatch, "elastic_passes", "note_service")
    steps_of(session, 30)
    jobs.run(61.0 + 2 * PASS_SECONDS, step=2.5)
    assert sum(jobs.running().values()) == 8


def test_job_that_cannot_be_read_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = a_cluster(AJob("a", 1, 60), AJob("b", 1, 60))

    def failing(cluster: Any, record: Any, actions: Any) -> Any:
        if record.workload.name == "a":
            raise ValueError("a bug with this job")
        return read_job(cluster, record, actions)

    monkeypatch.setattr("aischeduler.engine.elastic_passes.read_job", failing)
    jobs.run(4 * PASS_SECONDS)
    assert jobs.sizes()["b"] == 7


def test_refused_size_is_decided_again() -> None:
    jobs = a_cluster(AJob("a", 2, 60, size=5))
    jobs.answers = [CONFLICT, FORBIDDEN]
    jobs.run(FORBIDDEN_SECONDS - PASS_SECONDS, step=2.5)
    assert len(jobs.sent) == 2
    jobs.run(4 * PASS_SECONDS)
    assert reasons(jobs)[:2] == [("a", 5, REASON.NOTED), ("a", 8, REASON.GROWN)]


@pytest.mark.parametrize("answer", [CONFLICT, LOST])
def test_growth_that_is_not_written_starts_no_window(answer: str) -> None:
    jobs = a_cluster(AJob("a", 2, 60, size=2, window=600.0))
    jobs.answers = [OK, answer]
    jobs.run(6 * PASS_SECONDS)
    assert [resize.instances for resize in jobs.sent] == [2, 8, 8]
    assert jobs.sizes() == jobs.running() == {"a": 8}


def test_event_tells_once_of_a_minimum_that_waits_each_time_that_it_does() -> None:
    jobs = a_cluster(AJob("a", 9, 60))

    def told() -> list[Warn]:
        return [action for action in jobs.session.said if isinstance(action, Warn)]

    jobs.run(PASS_SECONDS)
    assert told() == []
    jobs.run(4 * PASS_SECONDS)
    (found,) = told()
    assert (found.about.kind, found.about.name, found.reason) == ("Job", "a", EventReason.FAILED_SCHEDULING)
    assert found.message.startswith("Its minimum of 9 instances waits: 8 of the 9 pods that start together fit.")
    jobs.session.see(a_node("more", cpu="1"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running() == {"a": 9}
    jobs.session.tell(gone(Node, "n0"))
    jobs.lose("n0")
    jobs.run(4 * PASS_SECONDS)
    assert len(told()) == 2


def test_size_whose_answer_is_lost_is_sent_again() -> None:
    jobs = a_cluster(AJob("a", 2, 60, size=10, cpu="8"))
    jobs.answers = [LOST]
    jobs.run(4 * PASS_SECONDS)
    assert [(resize.instances, str(resize.reason)) for resize in jobs.sent] == [(2, REASON.ADOPTED)] * 2


def test_jobs_of_one_name_in_two_namespaces_are_two_jobs() -> None:
    session = Session(a_node("n", cpu="4"))
    a, other = AJob("a", 1, 4), AJob("a", 1, 4)
    elsewhere = replace(other.workload, namespace="elsewhere", uid="uid-other")
    session.tell(Seen(a.workload), Seen(elsewhere))
    session.now += PASS_SECONDS
    said = session.decide()
    assert [(action.namespace, action.uid) for action in said if isinstance(action, Resize)] == [
        ("default", "uid-a"),
        ("elsewhere", "uid-other"),
    ]


def test_highest_ordinal_of_a_stateful_set_goes_first() -> None:
    """Its pods are of no gang, and say their ordinal in their name: web-10 goes before web-9."""
    session = Session(a_node("n", cpu="64"))
    pods = [replace(a_pod(f"web-{index}"), owner="StatefulSet/web") for index in (9, 10, 1)]
    session.see(*pods)
    records = session.scheduler._cluster.records.values()
    assert [record.pod.name for record in in_end_order(records, ordered=True)] == ["web-10", "web-9", "web-1"]


def test_home_pod_takes_surplus_without_a_pass() -> None:
    jobs = a_cluster(AJob("a", 2, 60))
    jobs.run(2 * PASS_SECONDS)
    jobs.session.tell(Refreshed("default"))
    jobs.session.see(a_pod("home", cpu="1"))
    said = jobs.session.decide()
    assert [action.resizes is not None for action in said if isinstance(action, Evict)] == [True]


def test_home_pod_takes_surplus_of_a_deployment_and_its_size_is_lowered_for_it() -> None:
    """A ReplicaSet would end pods of its own choice: those that go are evicted, and those made anew are called off."""
    jobs = a_cluster(AJob("web", 2, 60, kind="Deployment", ordered=False))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == jobs.running() == {"web": 8}
    jobs.session.see(a_pod("home", cpu="2"))
    jobs.run(2 * PASS_SECONDS, step=1.0)
    assert "uid-home" in jobs.nodes_of
    assert jobs.sizes() == jobs.running() == {"web": 6}
    assert [action.cause for action in jobs.evicted] == [EvictionCause.SURPLUS_TAKEN] * 2
    assert reasons(jobs)[-1] == ("web", 6, REASON.RECLAIMED)


def test_home_pod_takes_nothing_of_the_minimum_of_a_deployment() -> None:
    jobs = a_cluster(AJob("web", 7, 60, kind="Deployment", ordered=False))
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_pod("home", cpu="2"))
    jobs.run(2 * WINDOW)
    assert "uid-home" not in jobs.nodes_of
    assert jobs.running() == {"web": 8}
    assert jobs.evicted == []


def test_home_pod_takes_the_highest_of_a_stateful_set_by_a_smaller_size() -> None:
    jobs = a_cluster(AJob("web", 2, 60, kind="StatefulSet"))
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_pod("home", cpu="2"))
    jobs.run(2 * PASS_SECONDS)
    assert "uid-home" in jobs.nodes_of
    assert all(action.resizes is not None for action in jobs.evicted)
    assert jobs.sizes() == jobs.running()
    assert jobs.sizes()["web"] in {4, 5, 6}
    assert sorted(jobs.jobs["web"].pods) == list(range(jobs.sizes()["web"]))


@pytest.mark.parametrize("retries", [-1, 6])
def test_job_without_indexes_loses_the_instance_on_the_node_alone_where_that_is_no_failure(retries: int) -> None:
    """Else those that are newer go with it, by a smaller size: the Job controller ends the newest."""
    nodes = (a_node(name, cpu="4", labels={"name": name}) for name in ("first", "second"))
    jobs = Jobs(Session(*nodes), AJob("a", 2, 60, ordered=False, retries=retries))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running() == {"a": 8}
    oldest = jobs.nodes_of[jobs.jobs["a"].pods[2].uid]
    jobs.session.see(a_pod("home", cpu="2", node_selector={"name": oldest}))
    jobs.run(2 * PASS_SECONDS, step=1.0)
    assert jobs.nodes_of["uid-home"] == oldest
    assert jobs.sizes() == jobs.running()
    alone = [action for action in jobs.evicted if action.resizes is None]
    if retries < 0:
        assert jobs.sizes() == {"a": 6}
        assert len(alone) in {0, 2}
    else:
        assert alone == []
        assert jobs.sizes()["a"] <= 6


def test_pods_of_a_stateful_set_start_one_by_one() -> None:
    """Its controller makes the next one only once the last one is ready."""
    jobs = a_cluster(AJob("web", 3, 60, kind="StatefulSet"))
    del jobs.jobs["web"].pods[2], jobs.jobs["web"].pods[1]
    jobs.session.tell(gone(Pod, "uid-web-1-2"), gone(Pod, "uid-web-2-3"))
    jobs.session.decide()
    assert [*binds(jobs.session.said)] == ["web-0"]


def test_home_pod_takes_no_more_surplus_than_it_needs_though_instances_wait() -> None:
    jobs = a_cluster(AJob("a", 2, 60))
    jobs.run(2 * PASS_SECONDS)
    waits = AJob("b", 1, 60, size=3)
    waits.written = 3
    jobs.add(waits)
    jobs.run(PASS_SECONDS)
    jobs.session.see(a_pod("home", cpu="1", created=int(jobs.session.now)))
    jobs.run(2.0)
    assert (jobs.sizes()["a"], jobs.nodes_of["uid-home"] in ("n0", "n1")) == (7, True)


def test_size_says_the_version_that_it_was_decided_on() -> None:
    job = AJob("a", 1, 60)
    jobs = a_cluster(job)
    versions = list[tuple[str, str]]()
    jobs.on_resize = lambda resize: versions.append((resize.version, str(job.version)))
    jobs.run(2 * PASS_SECONDS)
    assert versions
    assert all(said == there for said, there in versions)


def test_training_job_starts_with_master_and_servers_or_not_at_all() -> None:
    job = AJob("a", 2, 6, servers=1)
    jobs = a_cluster(job, count=1, cpu="3")
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running() == {"a": 0}
    jobs.session.see(a_node("more", cpu="3"))
    jobs.run(2 * PASS_SECONDS)
    assert jobs.running() == {"a": 4}
    assert all(pod.node_name for pod in job.others.values())
    assert binds(jobs.session.said)


def test_home_pod_waits_for_a_job_whose_size_is_its_minimum() -> None:
    jobs = a_cluster(AJob("a", 2, 6, servers=1), count=1)
    jobs.run(2 * PASS_SECONDS)
    jobs.session.see(a_pod("home", cpu="1"))
    assert "No preemption victims" in reports(jobs.run(2.0))["home"]
    assert jobs.sizes() == {"a": 2}


def test_training_job_gives_its_last_trainers_and_keeps_master_and_servers() -> None:
    job = AJob("a", 2, 6, servers=1)
    jobs = a_cluster(job, count=1, cpu="8")
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 6}
    jobs.session.see(a_pod("home", cpu="3"))
    jobs.run(2.0)
    assert jobs.sizes() == {"a": 3}
    assert sorted(job.pods) == [0, 1, 2]
    assert all(pod.node_name for pod in job.others.values())


def test_surplus_goes_alone_although_a_server_of_its_job_leaves_beside_it() -> None:
    job = AJob("a", 1, 6, servers=2)
    jobs = a_cluster(job, count=1, cpu="8")
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 5}
    jobs.session.see(replace(job.others["pserver-0"], terminating=True), a_pod("home", cpu="3"))
    jobs.run(2.0)
    assert jobs.sizes() == {"a": 3}
    assert sorted(evict.victim.name for evict in jobs.evicted) == ["a-3", "a-4"]
    assert {name for name, pod in job.others.items() if pod.node_name} == {"master-0", "pserver-0", "pserver-1"}


def test_labels_of_a_training_job_and_the_minimum_of_its_job_are_no_two_gangs() -> None:
    jobs = a_cluster(AJob("a", 2, 6, servers=1), count=1, cpu="8")
    jobs.run(2 * PASS_SECONDS)
    assert EventReason.SEVERAL_GANGS not in {action.reason for action in jobs.session.said if isinstance(action, Warn)}


def test_job_that_lacks_a_server_gives_all_its_surplus() -> None:
    job = AJob("a", 1, 6, servers=1)
    jobs = a_cluster(job, count=1, cpu="6")
    jobs.run(2 * PASS_SECONDS)
    assert jobs.sizes() == {"a": 4}
    job.pod = {"node_selector": {"disk": "fast"}}
    jobs.session.tell(gone(Pod, job.others.pop("pserver-0").uid))
    job.others["pserver-0"] = job.new_other("pserver", 0, jobs.session.now)
    jobs.session.see(job.others["pserver-0"], a_pod("home", cpu="4"))
    jobs.run(2.0)
    assert jobs.sizes() == {"a": 1}
    assert "uid-home" in jobs.nodes_of


def test_instances_that_a_written_size_ends_are_not_evicted() -> None:
    """A scheduler that starts sees the size that another one has written, and pods that are not ended yet."""
    job = AJob("a", 1, 6)
    jobs = a_cluster(job, count=1, cpu="6")
    jobs.run(2 * PASS_SECONDS)
    job.size = job.written = 3
    job.version += 1
    jobs.session.tell(Seen(job.workload))
    jobs.session.see(a_pod("home", cpu="2"))
    said = [action for action in jobs.session.decide() if isinstance(action, Evict)]
    assert {evict.victim.name for evict in said} == {"a-4", "a-5"}
    assert [evict.resizes.instances if evict.resizes is not None else None for evict in said] == [3, 3]


def test_pool_that_goes_in_the_middle_of_a_pass_ends_nothing() -> None:
    session = Session(a_pool("mine", labels={"pool": "mine"}), a_node("m", cpu="4", labels={"pool": "mine"}))
    jobs = Jobs(session, AJob("a", 1, 60, window=0.0, pool="mine"))
    jobs.run(2 * PASS_SECONDS)
    session.see(a_node("more", cpu="4", labels={"pool": "mine"}))
    in_a_pass(jobs, 0)
    session.scheduler.decide(CLUSTER, session.now, 1)
    session.tell(gone(type(a_pool("mine")), "mine"))
    assert not errors(steps_of(session, 10))
