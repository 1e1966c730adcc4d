"""Gangs that are said wrongly, that cannot start, or that change: a reason each, no blocked pool, nothing evicted."""

import pytest

from aischeduler.model.gang import (
    GANG_KEY,
    GANG_MIN_KEY,
    GANG_ROLE_MIN_KEY,
    GANG_SPAN_KEY,
    GANG_TIMEOUT_KEY,
    GANG_TOPOLOGY_KEY,
)
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

WHOLE = "must be a whole number from 1 to 5000"
UNKNOWN = "The PodGroup of scheduling.x-k8s.io ns/g, which the pod names, does not exist."


def others_start(stage: Stage, *nodes_left: str) -> None:
    """Check that a pod in no gang starts on one of these nodes while the gang waits, and that no pod was evicted."""
    stage.pod("other")
    assert places(stage, "other")[0] in nodes_left
    assert stage.victims() == []
    assert waiting(stage, "g-0")


# Minima.


def test_minimum_larger_than_the_group_holds_its_pods_and_no_other(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    group(stage, minimum=3)
    grouped(stage, "g-0", "g-1", priority=10)
    says(stage, "g-0", "waits for more pods: 2 of at least 3 exist")
    others_start(stage, "n1", "n2")


def test_minimum_larger_than_the_cluster_holds_its_pods_and_no_other(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    labelled(stage, "g", 3, priority=10)
    says(stage, "g-0", "2 of the 3 pods that start together fit")
    others_start(stage, "n1", "n2")


@pytest.mark.parametrize("minimum", [0, -1], ids=["zero", "negative"])
def test_group_of_coscheduling_with_an_impossible_minimum_waits_and_says_so(stage: Stage, minimum: int) -> None:
    nodes(stage, "n1", "n2")
    group(stage, minimum=minimum)
    grouped(stage, "g-0", "g-1")
    problem = f"PodGroup ns/g: spec.minMember: {WHOLE}, not {minimum}"
    says(stage, "g-0", f"The gang ns/g (PodGroup of scheduling.x-k8s.io) is not valid: {problem}")
    stage.until(lambda: stage.events("g", "InvalidSpec") == [problem])
    others_start(stage, "n1", "n2")
    stage.patch(GROUP, "g", {"spec": {"minMember": 1}})
    places(stage, "g-0")


def test_label_with_an_impossible_minimum_holds_its_pods_with_the_reason(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    minima = {"zero": "0", "many": "5001", "word": "two", "nothing": ""}
    for name, minimum in minima.items():
        stage.pod(name, labels={GANG_KEY: name, GANG_MIN_KEY: minimum})
    for name, minimum in minima.items():
        says(stage, name, f"the labels of gang ns/{name}: metadata.labels[{GANG_MIN_KEY}]: {WHOLE}, not '{minimum}'")
    stage.pod("g-0", labels={GANG_KEY: "g"})
    says(stage, "g-0", f"metadata.labels[{GANG_MIN_KEY}]: is missing")
    others_start(stage, "n1", "n2")
    assert waiting(stage, *minima)


def test_minimum_of_a_role_that_is_not_named_holds_its_pods(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    stage.pods("g-0", "g-1", labels=gang_labels("g") | {GANG_ROLE_MIN_KEY: "1"})
    stage.waits("g-0", f"is missing, and {GANG_ROLE_MIN_KEY} needs it")


def test_volcano_group_with_the_minimum_zero_is_no_gang(stage: Stage) -> None:
    nodes(stage, "n1")
    volcano_group(stage, minimum=0)
    volcano_pods(stage, "g-0", "g-1")
    places(stage, "g-0")
    stage.waits("g-1", "1 Insufficient cpu")


def test_volcano_group_with_a_negative_task_minimum_waits_and_says_so(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    volcano_group(stage, min_task_member={"worker": -1})
    volcano_pods(stage, "g-0", "g-1", role="worker")
    stage.waits("g-0", "spec.minTaskMember.worker: must be a whole number from 0 to 5000, not -1")
    stage.until(lambda: volcano_condition(stage, "Unschedulable").get("reason") == "Invalid")


def test_pods_that_say_different_minima_count_with_the_largest_and_an_event(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    stage.pod("a", labels=gang_labels("g", "2"))
    stage.pod("b", labels=gang_labels("g", "3"))
    said = "The pod names the minimum 2 for its gang ns/g (labels). The largest that a pod names counts, 3."
    stage.until(lambda: stage.events("a", "GangPodsDiffer") == [said])
    says(stage, "a", "2 of at least 3 exist")
    stage.pod("c", labels=gang_labels("g", "3"))
    start_together(stage, "a", "b", "c")


def test_annotation_that_cannot_be_read_holds_the_gang_and_is_named(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    group(stage, annotations={GANG_TIMEOUT_KEY: "soon"})
    grouped(stage, "g-0", "g-1")
    bad = [(GANG_TIMEOUT_KEY, "soon"), (GANG_SPAN_KEY, "maybe"), (GANG_TOPOLOGY_KEY, "rack")]
    mended: dict[str, None] = {}
    for key, text in [*bad, (GANG_TOPOLOGY_KEY, "Required:no label!")]:
        stage.patch(GROUP, "g", {"metadata": {"annotations": mended | {key: text}}})
        mended[key] = None
        says(stage, "g-0", f"is not valid: PodGroup ns/g: metadata.annotations[{key}]", text.removeprefix("Required:"))
    stage.patch(GROUP, "g", {"metadata": {"annotations": None}})
    start_together(stage, "g-0", "g-1")


def test_job_with_a_misspelt_annotation_waits_until_it_is_mended(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    job(stage, indexed_job_object("job", namespace=stage.own("ns"), gang="yes"))
    pods = pods_of_jobs(stage, 2)
    says(stage, pods[0], f"""Job ns/job: metadata.annotations[{GANG_KEY}]: must be "true" or "false", not 'yes'""")
    stage.until(lambda: len(stage.events("job", "InvalidSpec")) == 1)
    stage.patch("Job", "job", {"metadata": {"annotations": {GANG_KEY: "true"}}})
    start_together(stage, *pods)


def test_job_that_asks_no_longer_starts_pod_by_pod(stage: Stage) -> None:
    nodes(stage, "n1")
    job(stage, indexed_job_object("job", namespace=stage.own("ns")))
    stage.until(lambda: stage.jobs_nodes("job") == {"": 2})
    stage.stays(lambda: stage.bound("job") == 0)
    stage.patch("Job", "job", {"metadata": {"annotations": {GANG_KEY: None}}})
    stage.until(lambda: stage.jobs_nodes("job") == {"n1": 1, "": 1})


def test_job_set_that_starts_its_jobs_in_order_says_that_it_is_no_gang(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    stage.create(job_set_object(namespace=stage.own("ns"), jobs={"a": (1, 2)}, startup_order="InOrder"))
    document = indexed_job_object("set-a-0", namespace=stage.own("ns"), gang="")
    document["spec"]["template"]["metadata"] = {"labels": {"jobset.sigs.k8s.io/jobset-name": "set"}}
    job(stage, document)
    stage.waits(
        pods_of_jobs(stage, 2)[0], "JobSet ns/set: spec.startupPolicy: creates some pods after others have started"
    )


# Changes.


def test_minimum_that_is_lowered_while_the_gang_waits_lets_it_start(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    group(stage, minimum=3)
    grouped(stage, *members("g", 3))
    says(stage, "g-0", "2 of the 3 pods that start together fit")
    stage.patch(GROUP, "g", {"spec": {"minMember": 2}})
    start_together(stage, "g-0", "g-1")
    assert waiting(stage, "g-2")


def test_minimum_that_is_raised_while_the_gang_waits_holds_it(stage: Stage) -> None:
    nodes(stage, "n1")
    group(stage)
    grouped(stage, "g-0", "g-1")
    says(stage, "g-0", "1 of the 2 pods that start together fit")
    stage.patch(GROUP, "g", {"spec": {"minMember": 3}})
    stage.until(lambda: "2 of at least 3 exist" in stage.why("g-0"))
    nodes(stage, "n2", "n3")
    stage.stays(lambda: waiting(stage, "g-0", "g-1"))
    grouped(stage, "g-2")
    start_together(stage, *members("g", 3))


def runs_on(stage: Stage) -> None:
    """Check that both pods of the gang go on."""
    stage.stays(lambda: stage.phase("g-0") == stage.phase("g-1") == "Running" and stage.victims() == [])


def test_minimum_that_is_raised_after_the_start_shows_in_the_phase_and_evicts_no_pod(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    group(stage)
    grouped(stage, "g-0", "g-1")
    until_phase(stage, "Running")
    stage.patch(GROUP, "g", {"spec": {"minMember": 5}})
    until_phase(stage, "Scheduling")  # the minimum is not running
    runs_on(stage)


def test_minimum_that_is_made_impossible_after_the_start_gets_an_event_and_evicts_no_pod(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    group(stage)
    grouped(stage, "g-0", "g-1")
    until_phase(stage, "Running")
    stage.patch(GROUP, "g", {"spec": {"minMember": 0}})
    stage.until(lambda: stage.events("g", "InvalidSpec") == [f"PodGroup ns/g: spec.minMember: {WHOLE}, not 0"])
    runs_on(stage)


def test_minimum_that_is_lowered_after_the_start_makes_surplus_of_the_others(stage: Stage) -> None:
    nodes(stage, "n1", "n2", "n3")
    group(stage, minimum=3)
    grouped(stage, *members("g", 3))
    until_phase(stage, "Running")
    stage.patch(GROUP, "g", {"spec": {"minMember": 2}})
    stage.stays(lambda: stage.victims() == [])
    stage.pod("high", priority=10)
    places(stage, "high")
    assert len(stage.victims()) == 1


def test_group_that_does_not_exist_is_waited_for(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    grouped(stage, "g-0", "g-1")
    says(stage, "g-0", UNKNOWN)
    others_start(stage, "n1", "n2")
    nodes(stage, "n3")
    group(stage)
    start_together(stage, "g-0", "g-1")


def test_group_that_is_deleted_while_it_waits_is_waited_for_again(stage: Stage) -> None:
    nodes(stage, "n1")
    group(stage)
    grouped(stage, "g-0", "g-1")
    says(stage, "g-0", "1 of the 2 pods that start together fit")
    stage.delete(GROUP, "g")
    stage.until(lambda: stage.why("g-0") == UNKNOWN)
    nodes(stage, "n2")
    stage.stays(lambda: waiting(stage, "g-0", "g-1"))
    group(stage)
    start_together(stage, "g-0", "g-1")


def test_group_that_is_deleted_after_the_start_evicts_no_pod(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    group(stage)
    grouped(stage, "g-0", "g-1")
    until_phase(stage, "Running")
    stage.delete(GROUP, "g")
    runs_on(stage)
    stage.pod("high", priority=10)
    places(stage, "high")
    assert len(stage.victims()) == 1


def test_group_that_is_deleted_and_comes_back_larger_evicts_no_pod(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    volcano_group(stage)
    volcano_pods(stage, "g-0", "g-1")
    stage.runs("g-0", "g-1")
    stage.delete(VOLCANO, "g")
    volcano_group(stage, minimum=4)
    until_phase(stage, "Running", kind=VOLCANO)
    runs_on(stage)


# Pods.


def test_pod_that_names_several_gangs_gets_an_event_that_says_which_counts(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    group(stage, minimum=1)
    volcano_group(stage, "v", minimum=9)
    stage.pod("p", labels={POD_GROUP_LABEL: "g"} | gang_labels("l", "9"), annotations={VOLCANO_GROUP: "v"})
    places(stage, "p")
    named = "ns/v (PodGroup of scheduling.volcano.sh), ns/l (labels)"
    said = f"The pod names several gangs. ns/g (PodGroup of scheduling.x-k8s.io) counts, not {named}."
    stage.until(lambda: stage.events("p", "SeveralGangs") == [said])


def test_pods_of_one_gang_in_two_pools_wait_and_say_so(stage: Stage) -> None:
    nodes(stage, "a1", pool="a")
    nodes(stage, "b1", pool="b")
    stage.pools("a", "b")
    stage.pod("g-0", labels=gang_labels("g"), pool="a")
    stage.pod("g-1", labels=gang_labels("g"), pool="b")
    says(stage, "g-0", "have different home pools: a, b.")
    says(stage, "g-1", "have different home pools: a, b.")
    stage.pod("other", pool="a")
    stage.goes(other="a1")


def test_pod_beyond_the_minimum_in_another_pool_waits_for_the_start(stage: Stage) -> None:
    nodes(stage, "a1", pool="a")
    nodes(stage, "b1", pool="b")
    stage.pools("a", "b", disableBorrowing=True)
    stage.pod("g-0", labels=gang_labels("g"), pool="a")
    stage.pod("g-1", labels=gang_labels("g"), pool="a")
    stage.pod("g-2", labels=gang_labels("g"), pool="b")
    says(stage, "g-2", "Its home pool is not that of the unit")
    nodes(stage, "a2", pool="a")
    start_together(stage, "g-0", "g-1")
    stage.goes(g_2="b1")


@pytest.mark.parametrize("node", ["", "n1"], ids=["waits", "runs"])
def test_pod_of_another_scheduler_is_not_counted(stage: Stage, node: str) -> None:
    nodes(stage, "n1", "n2")
    stage.pod("foreign", labels=gang_labels("g"), scheduler_name="another", node=node)
    stage.pod("g-0", labels=gang_labels("g"))
    says(stage, "g-0", "1 of at least 2 exist")
    others_start(stage, "n1", "n2")


def test_gang_that_cannot_start_evicts_no_pod_of_lower_priority(stage: Stage) -> None:
    nodes(stage, "n1", "n2")
    stage.pods("low-0", "low-1")
    stage.runs("low-0", "low-1")
    group(stage, minimum=3)
    grouped(stage, "g-0", "g-1", priority=10)
    stage.waits("g-0", "2 of at least 3 exist")
    assert stage.victims() == []
