"""Jobs and priorities: the work of the controllers and of admission."""

import json

import pytest

from aischeduler.kube.write.eviction_writes import is_another_uid
from aischeduler.kube.write.job_writes import job_path, resume_patch, suspend_patch
from aischeduler.model.workload import SUSPENDED_ABORT, SUSPENDED_KEY, SUSPENDED_RESTART, JobRef
from tests.api_contract.world import JSON_PATCH, STRATEGIC_PATCH, World, condition
from tests.objects import job_object, pod_object, priority_class_object

SUCCEEDED = {"status": {"phase": "Succeeded"}}
RUNNING = {"status": {"phase": "Running"}}


def pods_of(world: World, job: str) -> list[str]:
    return world.names("Pod", labelSelector=f"batch.kubernetes.io/job-name={job}")


def until_pods(world: World, job: str, count: int) -> list[str]:
    world.until(lambda: len(pods_of(world, job)) == count)
    return pods_of(world, job)


def test_job_creates_as_many_pods_as_its_parallelism(world: World) -> None:
    made = world.create(job_object("j", namespace=world.namespace, completions=5, parallelism=3, pool="cpu-pool"))
    names = until_pods(world, "j", 3)
    pod = world.get("Pod", names[0])
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", "j", made["metadata"]["uid"])
    assert owner["controller"] is True
    assert pod["metadata"]["annotations"]["resource.aibee.cn/pool"] == "cpu-pool"
    assert pod["spec"]["schedulerName"] == "ai-scheduler"
    assert names[0].startswith("j-")
    world.until(lambda: world.get("Job", "j")["status"].get("active") == 3)


def test_job_replaces_a_deleted_pod(world: World) -> None:
    world.create(job_object("j", namespace=world.namespace, completions=1, parallelism=1))
    (first,) = until_pods(world, "j", 1)
    world.delete("Pod", first)
    world.until(lambda: pods_of(world, "j") not in ([], [first]))


def test_job_is_complete_when_its_pods_have_succeeded(world: World) -> None:
    world.create(job_object("j", namespace=world.namespace, completions=2, parallelism=2))
    for name in until_pods(world, "j", 2):
        world.patch(world.url("Pod", name, "status"), SUCCEEDED, STRATEGIC_PATCH)
    world.until(lambda: condition(world.get("Job", "j"), "Complete").get("status") == "True")
    status = world.get("Job", "j")["status"]
    assert status["succeeded"] == 2
    assert "completionTime" in status


def test_job_grows_with_its_parallelism(world: World) -> None:
    world.create(job_object("j", namespace=world.namespace, completions=4, parallelism=1))
    until_pods(world, "j", 1)
    world.patch(world.url("Job", "j"), {"spec": {"parallelism": 3}})
    assert len(until_pods(world, "j", 3)) == 3


def test_suspended_job_creates_no_pods_until_it_is_resumed(world: World) -> None:
    document = job_object("j", namespace=world.namespace, completions=2, parallelism=2)
    document["spec"]["suspend"] = True
    world.create(document)
    world.until(lambda: condition(world.get("Job", "j"), "Suspended").get("status") == "True")
    assert pods_of(world, "j") == []
    world.patch(world.url("Job", "j"), {"spec": {"suspend": False}})
    until_pods(world, "j", 2)


def run_pods(world: World, job: str, count: int) -> list[str]:
    """Wait for the pods of a Job, have them run, and return their names."""
    names = until_pods(world, job, count)
    for name in names:
        world.patch(world.url("Pod", name, "status"), RUNNING, STRATEGIC_PATCH)
    world.until(lambda: world.get("Job", job)["status"].get("active") == count)
    return names


def test_job_whose_pods_are_evicted_by_its_suspension_has_not_failed_and_runs_all_of_them_again(world: World) -> None:
    made = world.create(job_object("j", namespace=world.namespace, completions=8, parallelism=8))
    job = JobRef("Job", world.namespace, "j", made["metadata"]["uid"])
    first = run_pods(world, "j", 8)
    assert job_path(job) == world.url("Job", "j")
    suspended = world.patch(job_path(job), json.loads(suspend_patch(job)))
    assert suspended["metadata"]["annotations"][SUSPENDED_KEY] == SUSPENDED_RESTART
    until_pods(world, "j", 0)
    status = world.get("Job", "j")["status"]
    assert status.get("failed", 0) == 0
    assert not condition(world.get("Job", "j"), "Failed")
    resumed = world.patch(job_path(job), json.loads(resume_patch(job)), JSON_PATCH)
    assert SUSPENDED_KEY not in resumed["metadata"].get("annotations", {})
    assert set(run_pods(world, "j", 8)).isdisjoint(first)
    assert not condition(world.get("Job", "j"), "Failed")


def test_job_of_another_uid_is_not_suspended(world: World) -> None:
    world.create(job_object("j", namespace=world.namespace, completions=2, parallelism=2))
    change = suspend_patch(JobRef("Job", world.namespace, "j", "00000000-0000-0000-0000-000000000000"))
    answer = world.try_patch(world.url("Job", "j"), json.loads(change))
    assert answer.status in (409, 422)
    assert is_another_uid(answer.body["message"])
    assert not world.get("Job", "j")["spec"].get("suspend")


@pytest.mark.parametrize(
    ("annotations", "is_it"),
    [({}, True), ({SUSPENDED_KEY: SUSPENDED_ABORT}, True), ({SUSPENDED_KEY: SUSPENDED_RESTART}, False)],
    ids=["user", "abort", "uid"],
)
def test_job_that_the_scheduler_has_not_suspended_to_restart_it_is_not_resumed(
    world: World, annotations: dict[str, str], is_it: bool
) -> None:
    document = job_object("j", namespace=world.namespace, completions=2, parallelism=2)
    document["spec"]["suspend"] = True
    document["metadata"]["annotations"] = annotations
    uid = world.create(document)["metadata"]["uid"]
    job = JobRef("Job", world.namespace, "j", uid if is_it else "00000000-0000-0000-0000-000000000000")
    assert world.try_patch(job_path(job), json.loads(resume_patch(job)), JSON_PATCH).status == 422
    assert world.get("Job", "j")["spec"]["suspend"]


def test_pods_of_a_deleted_job_are_deleted(world: World) -> None:
    world.create(job_object("j", namespace=world.namespace, completions=2, parallelism=2))
    until_pods(world, "j", 2)
    world.delete("Job", "j", {"propagationPolicy": "Background"})
    assert until_pods(world, "j", 0) == []
    assert world.try_get("Job", "j").status == 404


def test_job_that_would_restart_its_pods_for_ever_is_refused(world: World) -> None:
    document = job_object("j", namespace=world.namespace)
    document["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    answer = world.try_create(document)
    assert (answer.status, answer.cause_fields) == (422, ["spec.template.spec.restartPolicy"])


def test_priority_class_gives_a_pod_its_priority(world: World) -> None:
    name = world.named("high")
    world.create(priority_class_object(name, value=1000))
    pod = world.create(pod_object("a", namespace=world.namespace, priority_class=name))
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (1000, "PreemptLowerPriority")


def test_priority_class_that_never_preempts_sets_the_policy_of_the_pod(world: World) -> None:
    name = world.named("polite")
    world.create(priority_class_object(name, value=5) | {"preemptionPolicy": "Never"})
    pod = world.create(pod_object("a", namespace=world.namespace, priority_class=name))
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (5, "Never")


@pytest.mark.parametrize(
    ("name", "value"), [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
)
def test_system_priority_classes_exist_from_the_start(world: World, name: str, value: int) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace, priority_class=name))
    assert pod["spec"]["priority"] == value


def test_unknown_priority_class_is_refused(world: World) -> None:
    answer = world.try_create(pod_object("a", namespace=world.namespace, priority_class="nope"))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == 'pods "a" is forbidden: no PriorityClass with name nope was found'


def test_priority_in_the_spec_of_a_new_pod_is_refused(world: World) -> None:
    document = pod_object("a", namespace=world.namespace)
    document["spec"]["priority"] = 1_000_000
    answer = world.try_create(document)
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert "the integer value of priority (1000000) must not be provided in pod spec" in answer.message


def test_value_of_a_priority_class_may_not_be_changed(world: World) -> None:
    name = world.named("high")
    world.create(priority_class_object(name, value=1000))
    answer = world.try_patch(world.url("PriorityClass", name), {"value": 2000})
    assert (answer.status, answer.cause_fields) == (422, ["value"])
