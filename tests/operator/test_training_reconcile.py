"""Single passes over a TrainingJob: phases, counts, sizes that others write, ends, refusals and edits."""

import asyncio

import pytest

from aischeduler.operator.owner import Json
from tests.operator.fake_cluster import EVENTS, PODS, SERVICES, FakeCluster
from tests.operator.training_world import JOBS, KEY, PADDLE, TrainingWorld, paddle_job, training_job

EXIT_1: Json = {"terminated": {"exitCode": 1, "finishedAt": "1970-01-01T00:16:40Z"}}


def counts(world: TrainingWorld) -> dict[str, tuple[int, ...]]:
    """Return running, pending, succeeded and failed of each role."""
    states = ("running", "pending", "succeeded", "failed")
    return {one["role"]: tuple(one[state] for state in states) for one in world.status["replicaStatuses"]}


def told(world: TrainingWorld) -> list[tuple[str, str]]:
    """Return reason and note of each Event, in order."""
    return [(one["reason"], one["note"]) for path, one in world.cluster.objects.items() if path.startswith(EVENTS)]


def test_phase_is_creating_until_all_that_starts_together_runs() -> None:
    world = TrainingWorld(training_job())
    world.passes()
    world.control()
    assert (world.status["phase"], world.status["trainersReady"]) == ("creating", "0/2/2-4")
    assert world.condition("Scheduled")["message"].startswith("master has 0 of at least 1; pserver has 0")
    for name in world.names():
        world.passes()
        assert world.status["phase"] == "creating"
        world.cluster.set_phase(name, "Running")
    world.passes()
    assert (world.status["phase"], world.status["trainersReady"]) == ("running", "2/2/2-4")
    assert world.status["trainers"] == {"running": 2, "wanted": 2, "min": 2, "max": 4}
    assert world.condition("Scheduled")["status"] == "True"
    assert counts(world) == {"master": (1, 0, 0, 0), "pserver": (1, 0, 0, 0), "trainer": (2, 0, 0, 0)}
    assert (world.status["level"], world.status["observedGeneration"]) == ("Normal", 1)


def test_reason_of_the_scheduler_is_shown_while_trainers_wait() -> None:
    world = TrainingWorld(training_job())
    world.passes()
    world.control()
    waits = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient cpu."}
    world.cluster.set_phase("train-trainer-0", "Pending", conditions=[waits])
    assert world.passes() == 10.0
    assert world.condition("Scheduled")["message"].endswith(": 0/3 nodes are available: 3 Insufficient cpu.")
    assert told(world) == [], "the pods that start together come one by one"
    world.seconds += 10
    assert world.passes() is None
    said = world.condition("Scheduled")
    assert (said["status"], said["reason"]) == ("False", "WaitsForRoom")
    world.seconds += 1
    waits["message"] = "0/3 nodes are available: 3 Insufficient memory."
    world.cluster.set_phase("train-trainer-0", "Pending", conditions=[waits])
    world.passes()
    assert world.condition("Scheduled")["message"].endswith(waits["message"])
    assert told(world) == [("WaitsForRoom", said["message"])], "once, however its words change"


def test_growth_is_scaling_until_the_last_new_trainer_runs() -> None:
    world = TrainingWorld(training_job()).started()
    world.resize(4)
    world.passes()
    assert (world.status["phase"], world.status["trainersReady"]) == ("scaling", "2/4/2-4")
    world.control()
    world.cluster.set_phase("train-trainer-2", "Running")
    world.passes()
    assert (world.status["phase"], world.status["trainersReady"]) == ("scaling", "3/4/2-4")
    world.cluster.set_phase("train-trainer-3", "Running")
    world.passes()
    assert (world.status["phase"], world.status["trainersReady"]) == ("running", "4/4/2-4")


def test_shrinking_is_scaling_until_the_last_trainer_is_gone() -> None:
    world = TrainingWorld(training_job()).started()
    world.resize(4)
    world.control()
    world.run_all()
    world.passes()
    world.resize(2, "another job waits")
    world.passes()
    assert (world.status["phase"], world.status["trainersReady"]) == ("scaling", "4/2/2-4")
    world.control()
    world.passes()
    assert (world.status["phase"], world.status["trainersReady"]) == ("scaling", "2/2/2-4")
    world.cluster.stop()
    world.passes()
    assert world.status["phase"] == "running"


def test_trainer_that_is_lost_later_is_no_scaling() -> None:
    world = TrainingWorld(training_job()).started()
    world.resize(4)
    world.control()
    world.run_all()
    world.passes()
    world.cluster.lose("train-trainer-3")
    world.passes()
    assert (world.status["phase"], world.status["trainersReady"]) == ("running", "3/4/2-4")
    world.cluster.lose("train-trainer-2")
    world.cluster.lose("train-trainer-1")
    world.passes()
    assert (world.status["phase"], world.status["trainersReady"]) == ("creating", "1/4/2-4")


def test_scale_records_say_when_what_and_why_and_are_told() -> None:
    world = TrainingWorld(training_job()).started()
    assert world.status["scaleRecords"] == []
    world.resize(4, "there is room for more")
    world.seconds += 7
    world.passes()
    world.seconds += 100
    world.resize(3, "another job waits")
    world.passes()
    assert world.status["scaleRecords"] == [
        {"time": "1970-01-01T00:16:40Z", "from": 2, "to": 4, "why": "there is room for more"},
        {"time": "1970-01-01T00:18:27Z", "from": 4, "to": 3, "why": "another job waits"},
    ]
    notes = [one["note"] for one in world.cluster.objects.values() if one.get("reason") == "Scaled"]
    assert notes == ["2 to 4 trainers: there is room for more", "4 to 3 trainers: another job waits"]
    world.seconds += 5
    world.control()
    world.cluster.stop()
    world.run_all()
    world.passes()
    assert world.status["scaleRecords"][-1]["ended"]
    assert [one["note"] for one in world.cluster.objects.values() if one.get("reason") == "Scaled"] == notes


def test_size_of_another_writer_is_recorded_as_such() -> None:
    world = TrainingWorld(training_job()).started()
    world.resize(3)
    world.passes()
    world.seconds += 50
    world.resize(4, ours=False)
    world.passes()
    assert world.status["scaleRecords"][-1] == {
        "time": "1970-01-01T00:17:30Z",
        "from": 3,
        "to": 4,
        "why": "the size was written by another writer than the scheduler",
    }


def test_growth_that_is_taken_back_has_the_time_at_which_that_is_seen() -> None:
    world = TrainingWorld(training_job()).started()
    world.seconds += 0.5
    world.resize(4)
    world.job["metadata"]["annotations"][f"{KEY}resized-at"] = "1970-01-01T00:16:40.500000Z"
    world.passes()
    world.seconds += 30
    world.job["spec"] |= {"parallelism": 3, "completions": 3}
    world.job["metadata"]["annotations"] |= {f"{KEY}size": "3", f"{KEY}resize-reason": "no room was found"}
    world.passes()
    assert [(one["time"], one["why"]) for one in world.status["scaleRecords"]] == [
        ("1970-01-01T00:16:40Z", "there is room"),
        ("1970-01-01T00:17:10Z", "no room was found"),
    ]


def test_status_keeps_the_last_20_scale_records() -> None:
    world = TrainingWorld(training_job()).started()
    for step in range(25):
        world.seconds += 1
        world.resize(3 + step % 2, f"step {step}")
        world.passes(1)
    assert [one["why"] for one in world.status["scaleRecords"]] == [f"step {step}" for step in range(5, 25)]


def test_seconds_that_are_left_of_the_window_change_in_steps_and_end() -> None:
    world = TrainingWorld(training_job(freezingWindow="40s")).started()
    assert (world.status["frozen"], world.status.get("frozenUntil")) == ("", None)
    world.resize(4)
    world.passes(2)
    assert (world.status["phase"], world.status["frozen"], world.status.get("frozenUntil")) == ("scaling", "40s", None)
    world.seconds += 100
    world.control()
    world.run_all()
    shown = []
    for _ in range(20):
        again = world.passes(2)
        shown.append((world.seconds - 1_100, world.status["frozen"]))
        if again is None:
            break
        assert again <= 15.0
        world.seconds += again
    assert shown == [(0, "40s"), (10, "30s"), (25, "15s"), (40, "")]
    assert "frozenUntil" not in world.status


def test_end_of_the_window_is_shown_and_a_window_of_zero_freezes_nothing() -> None:
    world = TrainingWorld(training_job()).started()
    world.resize(4)
    world.passes()
    world.control()
    world.run_all()
    world.passes()
    assert (world.status["frozenUntil"], world.status["frozen"]) == ("1970-01-01T00:21:40Z", "300s")
    none = TrainingWorld(training_job(freezingWindow="0s")).started()
    none.resize(4)
    none.passes()
    assert (none.status["frozen"], none.status.get("frozenUntil")) == ("", None)


def test_operator_never_writes_the_size() -> None:
    world = TrainingWorld(training_job()).started()
    world.resize(4)
    world.passes()
    world.edit(training_job(least=3, most=8))
    world.passes()
    assert (world.job["spec"]["parallelism"], world.job["spec"]["completions"]) == (4, 4)


def test_edit_of_the_terms_changes_these_annotations_alone() -> None:
    world = TrainingWorld(training_job(trainer={"allowedInstances": [4]})).started()
    world.resize(4)
    before = dict(world.job["metadata"]["annotations"])
    world.edit(training_job(least=3, most=8, freezingWindow="1m", priorityLevel="Production"))
    world.passes()
    changed = {f"{KEY}min-instances": "3", f"{KEY}max-instances": "8", f"{KEY}freezing-window": "1m"}
    expected = {**before, **changed, f"{KEY}priority-level": "Production"}
    del expected[f"{KEY}allowed-instances"]
    assert world.job["metadata"]["annotations"] == expected
    assert world.status["trainersReady"] == "2/4/3-8"


def test_job_that_becomes_elastic_gets_terms_and_one_that_ends_to_be_keeps_equal_ones() -> None:
    world = TrainingWorld(training_job(most=2)).started()
    assert world.job["metadata"].get("annotations", {}) == {}
    world.edit(training_job(most=6))
    world.passes()
    assert world.job["metadata"]["annotations"][f"{KEY}max-instances"] == "6"
    world.edit(training_job(least=3, most=3))
    world.passes()
    found = world.job["metadata"]["annotations"]
    assert (found[f"{KEY}min-instances"], found[f"{KEY}max-instances"]) == ("3", "3")


@pytest.mark.parametrize(
    ("edit", "fields"),
    [
        (training_job(least=1), "spec.trainer.minInstances"),
        (training_job(pservers=3), "spec.pserver.minInstances"),
        (training_job(most=2, fault_tolerant=False), "spec.faultTolerant"),
        (training_job(least=1, pservers=2), "spec.pserver.minInstances, spec.trainer.minInstances"),
    ],
)
def test_edit_of_what_started_together_has_no_effect_and_is_told_once(edit: Json, fields: str) -> None:
    world = TrainingWorld(training_job()).started()
    names, labels = world.names(), world.pod("train-pserver-0")["metadata"]["labels"]
    world.edit(edit)
    world.passes()
    world.cluster.lose("train-pserver-0")
    world.passes()
    assert world.names() == names
    assert world.pod("train-pserver-0")["metadata"]["labels"] == labels
    assert world.job["metadata"]["annotations"][f"{KEY}min-instances"] == "2"
    restarted = "Restarted", "1 lost pod was made again, 1 in all"
    why = "the pods that run were started together without it. Delete the TrainingJob and create it again for that"
    assert told(world) == [("EditIgnored", f"the edit of {fields} has no effect: {why}"), restarted]


def test_edit_that_has_no_effect_names_fields_as_paddlepaddle_does() -> None:
    world = TrainingWorld(paddle_job()).started()
    edited = paddle_job()
    edited["spec"]["trainer"]["min-instance"] = 1
    world.edit(edited)
    world.passes()
    ((reason, note),) = told(world)
    assert (reason, note.partition(" has ")[0]) == ("EditIgnored", "the edit of spec.trainer.min-instance")


def test_edit_of_a_finished_job_has_no_effect_and_that_is_told_once() -> None:
    world = TrainingWorld(training_job()).started()
    world.end_job("Complete", succeeded=2)
    world.passes()
    world.edit(training_job(least=1, most=6))
    world.passes()
    ended = "the edit has no effect: the job has ended, and never starts again"
    note = f"{ended}. Delete the TrainingJob and create it again for that"
    assert told(world) == [("Succeeded", "all trainers succeeded"), ("EditIgnored", note)]
    assert (world.status["phase"], world.job["spec"]["parallelism"]) == ("succeeded", 2)


def test_size_of_a_job_that_is_not_elastic_stays_and_that_is_told() -> None:
    world = TrainingWorld(training_job(most=2)).started()
    world.edit(training_job(least=3, most=3))
    world.passes()
    assert world.job["spec"]["parallelism"] == 2
    assert world.job["metadata"].get("annotations", {}) == {}
    assert world.cluster.event_reasons() == ["EditIgnored"]


def test_success_ends_pservers_and_master_and_cleans_finished_pods() -> None:
    world = TrainingWorld(training_job()).started()
    for name in ("train-trainer-0", "train-trainer-1"):
        world.cluster.set_phase(name, "Succeeded")
    world.end_job("Complete", succeeded=2)
    world.passes()
    world.cluster.stop()
    world.passes()
    assert (world.status["phase"], world.condition("Completed")["reason"]) == ("succeeded", "Succeeded")
    assert (world.names(), world.job["spec"]["parallelism"]) == ([], 2)
    assert counts(world)["trainer"] == (0, 0, 2, 0)
    assert world.cluster.event_reasons() == ["Succeeded"]


def test_lost_trainers_beyond_the_limit_fail_the_job_and_end_master_and_pservers() -> None:
    world = TrainingWorld(training_job(backoffLimit=1)).started()
    world.cluster.set_phase("train-trainer-0", "Failed")
    world.end_job("Failed", "Job has reached the specified backoff limit", failed=2)
    world.passes()
    world.cluster.stop()
    world.passes()
    assert world.status["phase"] == "failed"
    assert world.condition("Failed")["message"] == "Job has reached the specified backoff limit"
    assert world.names() == ["train-trainer-0", "train-trainer-1"]
    assert world.cluster.event_reasons() == ["TrainersFailed"]


@pytest.mark.parametrize(
    ("policy", "after_success", "after_failure"),
    [("Always", 0, 0), ("Never", 3, 3), ("OnCompletion", 0, 3), ("OnFailure", 3, 0)],
)
def test_finished_pods_go_as_the_policy_says(policy: str, after_success: int, after_failure: int) -> None:
    for kind, left in (("Complete", after_success), ("Failed", after_failure)):
        world = TrainingWorld(training_job(cleanPodPolicy=policy)).started()
        for name in ("train-trainer-0", "train-trainer-1", "train-pserver-0"):
            world.cluster.set_phase(name, "Failed" if kind == "Failed" else "Succeeded")
        world.end_job(kind)
        world.passes()
        world.cluster.stop()
        world.passes()
        assert len(world.names()) == left


def test_finished_job_never_starts_again() -> None:
    world = TrainingWorld(training_job()).started()
    world.resize(4)
    world.end_job("Complete", succeeded=2)
    world.passes()
    assert world.status["frozen"] == ""
    terms = dict(world.job["metadata"]["annotations"])
    world.edit(training_job(most=8))
    world.end_job("Failed")
    world.passes()
    assert (world.status["phase"], world.job["metadata"]["annotations"]) == ("succeeded", terms)
    world.end_job("Complete", succeeded=2)
    world.passes()
    del world.cluster.objects[world.job_path]
    made = len(world.cluster.created)
    world.edit(training_job(most=9))
    world.passes()
    assert (len(world.cluster.created), world.status["phase"]) == (made, "succeeded")
    assert counts(world)["trainer"] == (0, 0, 2, 0)


def test_lost_master_and_pservers_are_made_again_without_a_limit() -> None:
    world = TrainingWorld(training_job()).started()
    for attempt in range(2, 12):
        world.cluster.set_phase("train-pserver-0", "Failed")
        world.cluster.lose("train-master-0")
        world.passes()
        assert world.pod("train-pserver-0")["metadata"]["annotations"][f"{KEY}attempt"] == str(attempt)
    world.run_all()
    world.passes()
    assert (world.status["phase"], world.status["restarts"]) == ("running", 20)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_pserver_whose_program_ends_comes_back_after_a_growing_delay(phase: str) -> None:
    world = TrainingWorld(training_job()).started()
    world.cluster.set_phase("train-pserver-0", phase, containerStatuses=[{"state": EXIT_1}])
    assert world.passes() == 10.0
    assert world.status["phase"] == "creating"
    world.seconds += 10
    world.passes()
    world.cluster.set_phase("train-pserver-0", phase, containerStatuses=[{"state": EXIT_1}])
    world.seconds = 1_000.0
    assert world.passes() == 20.0


def test_refused_spec_makes_nothing_and_the_mended_one_is_carried_out() -> None:
    world = TrainingWorld(training_job(least=5))
    world.passes()
    accepted = world.condition("Accepted")
    assert (accepted["status"], accepted["reason"], world.status["phase"]) == ("False", "Invalid", "creating")
    assert (
        accepted["message"]
        == "spec.trainer.minInstances is 5, more than maxInstances, which is 4: lower it, or raise that"
    )
    assert (world.cluster.event_reasons(), world.names()) == (["Invalid"], [])
    assert [path for path in world.cluster.created if "/events/" not in path] == []
    world.edit(training_job())
    world.started()
    assert (world.condition("Accepted")["status"], world.status["phase"]) == ("True", "running")


def test_refusal_for_another_field_is_told_again() -> None:
    world = TrainingWorld(training_job(least=5))
    world.passes()
    world.seconds += 1
    world.edit(training_job(least=5))
    world.passes()
    world.edit(training_job(freezingWindow="soon"))
    world.passes()
    assert [(reason, note.partition(" ")[0]) for reason, note in told(world)] == [
        ("Invalid", "spec.trainer.minInstances"),
        ("Invalid", "spec.freezingWindow:"),
    ]


def test_refusals_are_told_once_where_no_status_is_kept() -> None:
    refused = paddle_job(fault_tolerant=False)
    world = TrainingWorld(refused, FakeCluster(keeps_status=False))
    for seconds in range(9):
        world.seconds += seconds
        world.look()
    assert world.cluster.event_reasons() == ["Invalid"]
    world.edit(paddle_job())
    world.cluster.refuses = "exceeded quota: pods"
    for _ in range(9):
        world.seconds += 60
        world.look()
    assert world.cluster.event_reasons() == ["Invalid", "PodRefused"]
    world.edit(refused)
    world.seconds += 1
    world.passes()
    assert world.cluster.event_reasons() == ["Invalid", "PodRefused", "Invalid"]


def test_refused_edit_leaves_what_runs() -> None:
    world = TrainingWorld(training_job()).started()
    names = world.names()
    world.edit(training_job(fault_tolerant=False))
    world.passes()
    assert (world.names(), world.status["phase"]) == (names, "running")
    assert world.condition("Accepted")["reason"] == "Invalid"


def test_what_has_no_effect_is_told_once_for_each_edit() -> None:
    document = paddle_job()
    document["spec"]["trainer"]["passes"] = 3
    world = TrainingWorld(document)
    assert document["apiVersion"] == PADDLE
    world.passes(1)
    world.seconds += 1
    world.started()
    assert (world.status["phase"], world.cluster.event_reasons()) == ("running", ["MisplacedField"])
    world.seconds += 1
    world.edit(document)
    world.passes()
    assert world.cluster.event_reasons() == ["MisplacedField"] * 2


@pytest.mark.parametrize(
    "path", [f"{SERVICES}/train", f"{JOBS}/train-trainer", f"{PODS}/train-master-0", f"{PODS}/train-pserver-0"]
)
def test_name_that_another_owner_has_is_told_and_taken_when_it_is_free(path: str) -> None:
    world = TrainingWorld(training_job())
    world.cluster.objects[path] = {"kind": "X", "metadata": {"name": "x", "uid": "other"}, "spec": {}}
    assert world.passes() == 5.0
    assert world.condition("Accepted")["reason"] == "NameTaken"
    assert f" {path.rpartition('/')[2]} exists and belongs" in world.condition("Accepted")["message"]
    assert world.cluster.event_reasons() == ["NameTaken"]
    del world.cluster.objects[path]
    world.started()
    assert (world.condition("Accepted")["status"], world.status["phase"]) == ("True", "running")


@pytest.mark.parametrize("path", [f"{SERVICES}/train", f"{JOBS}/train-trainer"])
def test_foreign_service_or_job_stops_everything_else(path: str) -> None:
    world = TrainingWorld(training_job())
    world.cluster.objects[path] = {"kind": "X", "metadata": {"name": "x", "uid": "other"}, "spec": {}}
    world.passes()
    assert [made for made in world.cluster.created if "/events/" not in made] == []
    assert world.cluster.objects[path]["metadata"]["uid"] == "other"


def test_pod_that_the_api_server_refuses_is_told() -> None:
    world = TrainingWorld(training_job())
    world.cluster.refuses = "exceeded quota: gpus"
    assert world.passes() == 60.0
    accepted = world.condition("Accepted")
    assert (accepted["reason"], accepted["message"]) == ("PodRefused", "exceeded quota: gpus")
    world.cluster.refuses = ""
    world.started()
    assert (world.condition("Accepted")["status"], world.status["phase"]) == ("True", "running")


def test_job_that_is_being_deleted_gets_nothing() -> None:
    world = TrainingWorld(training_job())
    world.cluster.objects[world.path]["metadata"]["deletionTimestamp"] = "now"
    assert world.passes() is None
    assert world.cluster.created == []


def test_lost_job_is_made_again_at_its_minimum() -> None:
    world = TrainingWorld(training_job()).started()
    world.resize(4)
    world.passes()
    del world.cluster.objects[world.job_path]
    world.passes()
    assert (world.job["spec"]["parallelism"], world.status["trainers"]["wanted"]) == (2, 2)
    assert [one["to"] for one in world.status["scaleRecords"]] == [4]


def test_two_of_one_name_in_two_namespaces_do_not_meet() -> None:
    world = TrainingWorld(training_job()).started()
    other = training_job()
    other["metadata"]["namespace"] = "other"
    path = world.path.replace("/team/", "/other/")
    world.cluster.apply(path, other)
    for _ in range(3):
        asyncio.run(world.reconciler.look(path))
    made = [one for one in world.cluster.created if "/events/" not in one]
    assert sorted(one.replace("/other/", "/team/") for one in made if "/other/" in one) == sorted(
        one for one in made if "/team/" in one
    )
    assert world.condition("Accepted")["status"] == "True"
    assert world.cluster.objects[path]["status"]["trainersReady"] == "0/2/2-4"


def test_status_of_a_definition_that_drops_it_is_kept_in_an_annotation() -> None:
    world = TrainingWorld(paddle_job(), FakeCluster(keeps_status=False))
    world.passes()
    world.control()
    world.run_all()
    world.cluster.lose("train-pserver-1")
    world.passes()
    assert world.pod("train-pserver-1")["metadata"]["annotations"][f"{KEY}attempt"] == "2"
    world.end_job("Complete", succeeded=2)
    world.passes()
    world.cluster.stop()
    del world.cluster.objects[world.job_path]
    world.passes()
    assert world.names() == ["train-trainer-0", "train-trainer-1"], "pods of the Job, which its controller ends"
    assert f"{KEY}record" in world.cluster.objects[world.path]["metadata"]["annotations"]
