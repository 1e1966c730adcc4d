"""Jobs and priorities: the work of the controllers and of admission."""

import json

import pytest

from aischeduler.kube.write.job_writes import job_path, resume_patch, suspend_patch
from aischeduler.kube.write.pod_writes import is_another_uid
from aischeduler.model.workload import SUSPENDED_ABORT, SUSPENDED_KEY, SUSPENDED_RESTART, JobRef
from tests.api_contract.world import JSON_PATCH, STRATEGIC_PATCH, Json, World, condition
from tests.gang_objects import indexed_job_object
from tests.objects import job_object, pod_object, priority_class_object

SUCCEEDED = {"status": {"phase": "Succeeded"}}
RUNNING = {"status": {"phase": "Running"}}
INDEX = "batch.kubernetes.io/job-completion-index"


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


def indexed_pods(world: World, job: str) -> list[Json]:
    """Return the pods of an Indexed Job that do not leave."""
    pods = world.listed("Pod", labelSelector=f"batch.kubernetes.io/job-name={job}").items
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def index_of(pod: Json) -> int:
    return int(pod["metadata"]["labels"][INDEX])


def indexes_of(world: World, job: str) -> dict[int, str]:
    """Return the uids of the pods of an Indexed Job that do not leave, by index."""
    return {index_of(pod): pod["metadata"]["uid"] for pod in indexed_pods(world, job)}


def run_indexed(world: World, pods: int, parallelism: int = 0) -> dict[int, str]:
    """Create an Indexed Job, have its pods run, and return their uids by index."""
    document = indexed_job_object("j", namespace=world.namespace, pods=pods, gang="")
    document["spec"]["parallelism"] = parallelism or pods
    world.create(document)
    run_pods(world, "j", parallelism or pods)
    return indexes_of(world, "j")


def succeed(world: World, *indexes: int) -> None:
    """Have the pods of these indexes succeed, and wait until the Job has counted them."""
    for pod in indexed_pods(world, "j"):
        if index_of(pod) in indexes:
            world.patch(world.url("Pod", pod["metadata"]["name"], "status"), SUCCEEDED, STRATEGIC_PATCH)
    world.until(lambda: world.get("Job", "j")["status"].get("succeeded") == len(indexes))


def test_indexed_job_that_shrinks_ends_its_highest_indexes_and_none_has_failed(world: World) -> None:
    before = run_indexed(world, 5)
    world.patch(world.url("Job", "j"), {"spec": {"parallelism": 2, "completions": 2}})
    world.until(lambda: len(indexes_of(world, "j")) == 2)
    assert indexes_of(world, "j") == {index: before[index] for index in (0, 1)}
    world.until(lambda: world.get("Job", "j")["status"].get("active") == 2)
    status = world.get("Job", "j")["status"]
    assert status.get("failed", 0) == 0
    assert not condition(world.get("Job", "j"), "Complete")


def test_indexed_job_that_grows_gets_the_next_indexes(world: World) -> None:
    before = run_indexed(world, 2)
    world.patch(world.url("Job", "j"), {"spec": {"parallelism": 4, "completions": 4}})
    world.until(lambda: sorted(indexes_of(world, "j")) == [0, 1, 2, 3])
    assert indexes_of(world, "j").items() >= before.items()


def test_index_above_the_completions_ends_although_fewer_pods_than_wanted_run(world: World) -> None:
    run_indexed(world, 4)
    succeed(world, 0, 1)
    world.patch(world.url("Job", "j"), {"spec": {"parallelism": 3, "completions": 3}})
    world.until(lambda: 3 not in indexes_of(world, "j"))
    assert 2 in indexes_of(world, "j")


def test_indexed_job_with_more_completions_than_pods_ends_the_newest_whatever_its_index(world: World) -> None:
    before = run_indexed(world, 10, parallelism=5)
    (second,) = [pod["metadata"]["name"] for pod in indexed_pods(world, "j") if index_of(pod) == 1]
    world.delete("Pod", second)
    world.until(lambda: len(now := indexes_of(world, "j")) == 5 and now[1] != before[1])
    run_pods(world, "j", 5)
    world.patch(world.url("Job", "j"), {"spec": {"parallelism": 4}})
    world.until(lambda: len(indexes_of(world, "j")) == 4)
    assert sorted(indexes_of(world, "j")) == [0, 2, 3, 4]


def test_indexed_job_that_shrinks_to_what_has_succeeded_is_complete(world: World) -> None:
    run_indexed(world, 4)
    succeed(world, 0, 1)
    world.patch(world.url("Job", "j"), {"spec": {"parallelism": 2, "completions": 2}})
    world.until(lambda: condition(world.get("Job", "j"), "Complete").get("status") == "True")
    world.until(lambda: not {2, 3} & set(indexes_of(world, "j")))
    assert world.get("Job", "j")["status"]["succeeded"] == 2


def test_indexed_job_forgets_what_succeeded_above_its_completions(world: World) -> None:
    run_indexed(world, 5)
    succeed(world, 3, 4)
    world.patch(world.url("Job", "j"), {"spec": {"parallelism": 3, "completions": 3}})
    world.until(lambda: not world.get("Job", "j")["status"].get("succeeded"))
    world.until(lambda: world.get("Job", "j")["status"].get("active") == 3)


@pytest.mark.parametrize("completions", [3, None], ids=["completions", "none"])
def test_job_of_parallelism_zero_has_no_pods_and_goes_on_when_it_grows(world: World, completions: int | None) -> None:
    document = job_object("j", namespace=world.namespace, completions=3, parallelism=3)
    if completions is None:
        del document["spec"]["completions"]
    world.create(document)
    until_pods(world, "j", 3)
    world.patch(world.url("Job", "j"), {"spec": {"parallelism": 0}})
    until_pods(world, "j", 0)
    world.patch(world.url("Job", "j"), {"spec": {"parallelism": 2}})
    until_pods(world, "j", 2)
    assert not condition(world.get("Job", "j"), "Complete")


def test_indexed_job_of_size_zero_is_complete(world: World) -> None:
    run_indexed(world, 2)
    world.patch(world.url("Job", "j"), {"spec": {"parallelism": 0, "completions": 0}})
    world.until(lambda: condition(world.get("Job", "j"), "Complete").get("status") == "True")
    until_pods(world, "j", 0)


def test_job_without_completions_makes_no_pod_once_one_has_succeeded(world: World) -> None:
    document = job_object("j", namespace=world.namespace, parallelism=3)
    del document["spec"]["completions"]
    world.create(document)
    first, second, third = run_pods(world, "j", 3)
    world.patch(world.url("Pod", first, "status"), SUCCEEDED, STRATEGIC_PATCH)
    world.until(lambda: world.get("Job", "j")["status"].get("succeeded") == 1)
    world.patch(world.url("Job", "j"), {"spec": {"parallelism": 5}})
    world.delete("Pod", second)
    world.until(lambda: world.get("Job", "j")["status"].get("failed") == 1)
    world.patch(world.url("Pod", third, "status"), SUCCEEDED, STRATEGIC_PATCH)
    world.until(lambda: condition(world.get("Job", "j"), "Complete").get("status") == "True")
    assert world.get("Job", "j")["status"]["succeeded"] == 2


@pytest.mark.parametrize(
    "change", [{"completions": 2}, {"completions": 2, "parallelism": 3}], ids=["completions", "unequal"]
)
def test_completions_of_an_indexed_job_change_only_to_its_parallelism(world: World, change: dict[str, int]) -> None:
    run_indexed(world, 4)
    answer = world.try_patch(world.url("Job", "j"), {"spec": change})
    assert (answer.status, answer.cause_fields) == (422, ["spec.completions"])


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
