"""Gangs start whole or not at all: who says it, who is counted, who comes first, and who is late."""

import pytest

from aischeduler.model.gang import GANG_KEY, GANG_TIMEOUT_KEY
from aischeduler.sandbox.controllers.kubelet import RUN_SECONDS
from tests.gang_objects import POD_GROUP_LABEL, VOLCANO_GROUP, gang_labels, indexed_job_object, job_set_object
from tests.scenarios.gangs import (
    GROUP,
    VOLCANO,
    group,
    grouped,
    job,
    labelled,
    members,
    nodes,
    phase,
    places,
    pods_of_jobs,
    says,
    start_together,
    until_phase,
    volcano_condition,
    volcano_group,
    volcano_pods,
    waiting,
)
from tests.scenarios.stage import Stage

WAYS = {
    "two labels": {"labels": gang_labels("g")},
    "PodGroup of Coscheduling": {"labels": {POD_GROUP_LABEL: "g"}},
    "PodGroup of Volcano": {"annotations": {VOLCANO_GROUP: "g"}},
    "PodGroup of Volcano by its older annotation": {"annotations": {"scheduling.volcano.sh/group-name": "g"}},
}
ONE_FITS = "1 of the 2 pods that start together fit. The next, g-1: 0/1 nodes are available: 1 Insufficient cpu."


@pytest.mark.parametrize("way", WAYS)
def test_pods_that_say_so_wait_together_and_start_in_one_decision(stage: Stage, way: str) -> None:
    nodes(stage, "n1")
    group(stage)
    volcano_group(stage)
    stage.pods("g-0", "g-1", **WAYS[way])
    says(stage, "g-0", ONE_FITS)
    assert waiting(stage, "g-1")
    nodes(stage, "n2")
    start_together(stage, "g-0", "g-1")


@pytest.mark.parametrize("on", ["the Job", "its pod template"])
def test_pods_of_an_annotated_job_start_together(stage: Stage, on: str) -> None:
    nodes(stage, "n1")
    notes = {} if on == "the Job" else {GANG_KEY: "true"}
    gang = "true" if on == "the Job" else ""
    document = indexed_job_object("job", namespace=stage.own("ns"), gang=gang, template_annotations=notes)
    job(stage, document)
    stage.until(lambda: stage.jobs_nodes("job") == {"": 2})
    stage.stays(lambda: stage.bound("job") == 0)
    nodes(stage, "n2")
    stage.until(lambda: stage.jobs_nodes("job") == {"n1": 1, "n2": 1})
    start_together(stage, *pods_of_jobs(stage, 2))


def test_annotation_false_of_a_job_counts_more_than_that_of_its_pod_template(stage: Stage) -> None:
    nodes(stage, "n1")
    notes = {GANG_KEY: "true"}
    job(stage, indexed_job_object("job", namespace=stage.own("ns"), gang="false", template_annotations=notes))
    stage.until(lambda: stage.jobs_nodes("job") == {"n1": 1, "": 1})


def test_job_of_more_completions_than_pods_at_once_starts_together_and_goes_on_pod_by_pod(stage: Stage) -> None:
    nodes(stage, "n1")
    document = indexed_job_object("job", namespace=stage.own("ns"), template_annotations={RUN_SECONDS: "0.1"})
    document["spec"]["completions"] = 3
    job(stage, document)
    stage.until(lambda: stage.jobs_nodes("job") == {"": 2})
    stage.stays(lambda: stage.bound("job") == 0)
    nodes(stage, "n2")
    stage.until(lambda: stage.get("Job", "job").get("status", {}).get("succeeded") == 3)


def test_all_pods_of_the_jobs_of_an_annotated_job_set_start_together(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    stage.create(job_set_object(namespace=stage.own("ns"), jobs={"driver": (1, 1), "workers": (1, 2)}))
    for name, count in (("driver", 1), ("workers", 2)):  # as the controller of JobSets creates them
        document = indexed_job_object(f"set-{name}-0", namespace=stage.own("ns"), pods=count, gang="")
        labels = {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/replicatedjob-name": name}
        document["spec"]["template"]["metadata"] = {"labels": labels}
        job(stage, document)
    pods = pods_of_jobs(stage, 3)
    stage.until(lambda: any("2 of the 3 pods that start together fit" in stage.why(pod) for pod in pods))
    assert waiting(stage, *pods)
    nodes(stage, "n3")
    start_together(stage, *pods)


# Who is counted.


def test_first_pods_wait_until_the_minimum_exists(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    group(stage, minimum=3)
    grouped(stage, "g-0", "g-1")
    says(stage, "g-0", "The gang ns/g (PodGroup of scheduling.x-k8s.io) waits for more pods: 2 of at least 3 exist.")
    until_phase(stage, "Pending")
    grouped(stage, "g-2")
    start_together(stage, *members("g", 3))


def test_pod_with_a_scheduling_gate_is_not_counted_until_it_is_removed(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    stage.pod("g-0", labels=gang_labels("g"))
    stage.pod("g-1", labels=gang_labels("g"), gates=("stage.example/later",))
    says(stage, "g-0", "1 of at least 2 exist")
    stage.patch("Pod", "g-1", {"spec": {"schedulingGates": None}})
    start_together(stage, "g-0", "g-1")


def test_pod_that_is_deleted_while_it_waits_is_counted_no_longer(stage: Stage) -> None:
    nodes(stage, "n1")
    labelled(stage, "g", 2)
    says(stage, "g-0", ONE_FITS)
    stage.delete("Pod", "g-1")
    nodes(stage, "n2")
    stage.waits("g-0", "1 of at least 2 exist")


def test_gangs_of_one_name_in_two_namespaces_are_two(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    stage.namespace("other")
    stage.pod("mine", labels=gang_labels("g"))
    stage.pod("theirs", namespace="other", labels=gang_labels("g"))
    says(stage, "mine", "The gang ns/g (labels) waits for more pods: 1 of at least 2 exist.")
    stage.waits("theirs", "The gang other/g (labels) waits for more pods: 1 of at least 2 exist.")
    assert waiting(stage, "mine")


def test_gang_of_labels_and_pod_group_of_one_name_are_two(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    group(stage)
    stage.pod("labelled", labels=gang_labels("g"))
    grouped(stage, "grouped")
    says(stage, "labelled", "(labels) waits for more pods: 1 of at least 2 exist")
    stage.waits("grouped", "(PodGroup of scheduling.x-k8s.io) waits for more pods: 1 of at least 2 exist")
    assert waiting(stage, "labelled")


def test_pods_of_a_group_with_the_minimum_one_start_each_for_itself(stage: Stage) -> None:
    nodes(stage, "n1")
    group(stage, minimum=1)
    grouped(stage, "g-0", "g-1")
    stage.goes(g_0="n1")
    stage.waits("g-1", "0/1 nodes are available: 1 Insufficient cpu.")


def test_pods_beyond_the_minimum_start_as_room_allows(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    labelled(stage, "g", 4, minimum="2")
    assert sorted(places(stage, *members("g", 3))) == ["n1", "n2", "n3"]
    says(stage, "g-3", "0/3 nodes are available: 3 Insufficient cpu.")
    nodes(stage, "n4")
    stage.goes(g_3="n4")


def test_pod_on_a_node_counts_for_the_others(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    labels = gang_labels("g")
    stage.pod("g-0", labels=labels, node="n1")
    stage.pod("g-1", labels=labels)
    stage.goes(g_1="n2")


def test_pod_that_was_killed_comes_back_alone(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    labelled(stage, "g", 2)
    stage.runs("g-0", "g-1")
    node = stage.node_of("g-1")
    stage.delete("Pod", "g-1")
    stage.goes_away("g-1")
    stage.pod("g-1", labels=gang_labels("g"))
    stage.goes(g_1=node)
    assert stage.victims() == []


def test_pod_that_comes_back_waits_for_no_other_that_was_killed(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    labelled(stage, "g", 3)
    stage.runs(*members("g", 3))
    for pod in ("g-1", "g-2"):
        stage.delete("Pod", pod)
        stage.goes_away(pod)
    stage.pod("g-1", labels=gang_labels("g", "3"))
    places(stage, "g-1")
    assert stage.victims() == []


def test_gang_that_lost_a_pod_goes_on_while_the_successor_has_no_room(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    labelled(stage, "g", 2)
    stage.runs("g-0", "g-1")
    stage.taint(stage.node_of("g-1"))
    stage.delete("Pod", "g-1")
    stage.goes_away("g-1")
    stage.pod("g-1", labels=gang_labels("g"))
    stage.waits("g-1", "1 Insufficient cpu", "1 node(s) had untolerated taint")
    assert stage.phase("g-0") == "Running"
    assert stage.victims() == []


def test_new_scheduler_starts_the_rest_of_a_gang_and_evicts_no_pod(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    stage.taint("n2")
    group(stage)
    stage.pod("g-0", labels={POD_GROUP_LABEL: "g"}, node="n1")
    grouped(stage, "g-1")
    stage.until(lambda: "1 Insufficient cpu" in stage.why("g-1"))
    stage.restart_scheduler()
    stage.untaint("n2")
    stage.goes(g_1="n2")
    until_phase(stage, "Running")
    assert stage.victims() == []


def test_gang_of_which_a_pod_has_finished_goes_on(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    stage.pod("g-0", labels=gang_labels("g"), annotations={RUN_SECONDS: "0.1"})
    stage.pod("g-1", labels=gang_labels("g"))
    stage.until(lambda: stage.phase("g-0") == "Succeeded")
    stage.stays(lambda: stage.phase("g-1") == "Running" and stage.victims() == [])


def test_each_task_of_a_volcano_group_reaches_its_minimum_first(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    volcano_group(stage, minimum=3, min_task_member={"driver": 1, "worker": 2})
    volcano_pods(stage, "driver-0", "driver-1", role="driver")
    volcano_pods(stage, "worker-0", role="worker")
    says(stage, "driver-0", "waits for more pods: the role worker has 1 of at least 2.")
    volcano_pods(stage, "worker-1", role="worker")
    start_together(stage, "driver-0", "worker-0", "worker-1")
    stage.waits("driver-1", "3 Insufficient cpu")


def test_each_role_of_labels_reaches_its_minimum_first(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    actors = gang_labels("g", "3", role="actor", role_minimum="1")
    learners = gang_labels("g", "3", role="learner", role_minimum="2")
    stage.pods("actor-0", "actor-1", labels=actors)
    stage.pod("learner-0", labels=learners)
    says(stage, "actor-0", "waits for more pods: the role learner has 1 of at least 2.")
    stage.pod("learner-1", labels=learners)
    start_together(stage, "actor-0", "learner-0", "learner-1")
    assert waiting(stage, "actor-1")


# Who comes first.


def test_gang_of_the_higher_priority_starts_first(stage: Stage) -> None:
    nodes(stage, "n1")
    labelled(stage, "low", 2)
    labelled(stage, "high", 2, priority=10)
    says(stage, "low-0", "1 of the 2 pods")
    says(stage, "high-0", "1 of the 2 pods")
    nodes(stage, "n2")
    start_together(stage, "high-0", "high-1")
    assert waiting(stage, "low-0", "low-1")


def test_gang_of_the_older_group_starts_first_whichever_pods_came_first(stage: Stage) -> None:
    nodes(stage, "n1")
    group(stage, "old")
    stage.let_pass(1.1)  # the age is in seconds
    group(stage, "young")
    grouped(stage, "young-0", "young-1", group="young")
    says(stage, "young-0", "1 of the 2 pods")
    grouped(stage, "old-0", "old-1", group="old")
    says(stage, "old-0", "1 of the 2 pods")
    nodes(stage, "n2")
    start_together(stage, "old-0", "old-1")
    assert waiting(stage, "young-0", "young-1")


def test_pods_of_one_gang_share_its_highest_priority_with_an_event_for_the_others(stage: Stage) -> None:
    nodes(stage, "n1")
    labelled(stage, "other", 2, priority=5)
    stage.pod("g-0", labels=gang_labels("g"))
    stage.pod("g-1", labels=gang_labels("g"), priority=10)
    said = "The pod has the priority 0. Its gang ns/g (labels) counts with its highest, 10."
    stage.until(lambda: stage.events("g-0", "GangPodsDiffer") == [said])
    says(stage, "other-0", "1 of the 2 pods")
    nodes(stage, "n2")
    start_together(stage, "g-0", "g-1")
    assert waiting(stage, "other-0", "other-1")


def test_two_gangs_whose_pods_come_in_turns_never_block_each_other(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3", "n4")
    for turn in range(3):
        stage.pod(f"a-{turn}", labels=gang_labels("a", "3"))
        stage.pod(f"b-{turn}", labels=gang_labels("b", "3"))
    start_together(stage, *members("a", 3))
    says(stage, "b-0", "1 of the 3 pods that start together fit")
    assert waiting(stage, *members("b", 3))
    for pod in members("a", 3):
        stage.delete("Pod", pod)
    start_together(stage, *members("b", 3))


def test_gang_that_waits_holds_no_room(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    labelled(stage, "g", 3, priority=10)
    says(stage, "g-0", "2 of the 3 pods that start together fit")
    stage.pods("single-0", "single-1")
    assert sorted(places(stage, "single-0", "single-1")) == ["n1", "n2"]


def test_gang_that_fits_starts_behind_an_impossible_one_of_higher_priority(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    labelled(stage, "big", 3, priority=10)
    says(stage, "big-0", "2 of the 3 pods that start together fit")
    labelled(stage, "small", 2)
    start_together(stage, "small-0", "small-1")


# Status and timeout.


def test_group_of_coscheduling_shows_its_phase_and_its_running_pods(stage: Stage) -> None:
    nodes(stage, "n1")
    group(stage)
    grouped(stage, "g-0", "g-1")
    until_phase(stage, "Pending")
    assert stage.events("g", "Scheduled") == []
    nodes(stage, "n2")
    until_phase(stage, "Running")
    stage.until(lambda: stage.get(GROUP, "g")["status"].get("running") == 2)
    said = "2 of 2 pods are on nodes, and 2 start together"
    stage.until(lambda: stage.events("g", "Scheduled") == [said])


def test_group_of_volcano_shows_its_phase_and_why_it_waits(stage: Stage) -> None:
    nodes(stage, "n1")
    volcano_group(stage)
    volcano_pods(stage, "g-0")
    stage.until(lambda: volcano_condition(stage, "Unschedulable").get("reason") == "NotEnoughPods")
    volcano_pods(stage, "g-1")
    stage.until(lambda: ONE_FITS in volcano_condition(stage, "Unschedulable").get("message", ""))
    assert phase(stage, kind=VOLCANO) == "Inqueue"
    nodes(stage, "n2")
    until_phase(stage, "Running", kind=VOLCANO)
    stage.until(lambda: volcano_condition(stage, "Unschedulable")["status"] == "False")
    assert volcano_condition(stage, "Scheduled")["status"] == "True"


def test_late_group_fails_with_an_event_and_starts_once_there_is_room(stage: Stage) -> None:
    nodes(stage, "n1")
    group(stage, timeout_seconds=1)
    grouped(stage, "g-0", "g-1")
    until_phase(stage, "Failed")
    late = f"The gang ns/g (PodGroup of scheduling.x-k8s.io) did not start within 1 s. {ONE_FITS}"
    says(stage, "g-0", late)
    stage.until(lambda: any(late in note for note in stage.events("g", "FailedScheduling")))
    nodes(stage, "n2")
    start_together(stage, "g-0", "g-1")
    until_phase(stage, "Running")


def test_late_gang_of_labels_says_so_at_its_pods(stage: Stage) -> None:
    nodes(stage, "n1")
    labelled(stage, "g", 2, annotations={GANG_TIMEOUT_KEY: "1"})
    stage.waits("g-0", "The gang ns/g (labels) did not start within 1 s.")


def test_gang_whose_pods_are_missing_is_late_too(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    group(stage, timeout_seconds=1)
    grouped(stage, "g-0")
    until_phase(stage, "Failed")
    stage.waits("g-0", "did not start within 1 s. ", "1 of at least 2 exist")


def test_new_pod_gives_a_late_gang_its_time_again(stage: Stage) -> None:
    nodes(stage, "n1")
    group(stage, timeout_seconds=1)
    grouped(stage, "g-0", "g-1")
    stage.until(lambda: any(note.startswith("0 of 2 pods") for note in stage.events("g", "FailedScheduling")))
    grouped(stage, "g-2")
    stage.until(lambda: any(note.startswith("0 of 3 pods") for note in stage.events("g", "FailedScheduling")))
