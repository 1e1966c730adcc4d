"""Single passes over a BatchProcess on the API server in a dictionary."""

import asyncio
from typing import Any

import pytest

from aischeduler.operator.conditions import condition_of
from aischeduler.operator.owner import Json, Settings
from aischeduler.operator.reconcile import Reconciler
from tests.operator.documents import BRAINPP, batch_process, brainpp_example, path_of, role
from tests.operator.fake_cluster import PODS, SERVICES, FakeCluster

PATH = path_of()


class World:
    """One BatchProcess, its cluster, and a clock."""

    def __init__(self, document: Json, cluster: FakeCluster | None = None) -> None:
        self.cluster = cluster or FakeCluster()
        self.path = path_of(api_version=document["apiVersion"])
        self.seconds = 1_000.0
        self.reconciler = Reconciler(self.cluster, Settings(default_image="base:1"), now=lambda: self.seconds)
        self.cluster.apply(self.path, document)

    def passes(self, times: int = 3) -> float | None:
        again = None
        for _ in range(times):
            again = asyncio.run(self.reconciler.look(self.path))
        return again

    @property
    def status(self) -> Any:
        return self.cluster.objects[self.path]["status"]

    def condition(self, kind: str) -> Any:
        return condition_of(self.cluster.objects[self.path], kind)

    def names(self) -> list[str]:
        return sorted(self.cluster.pods())

    def all_in(self, phase: str) -> None:
        for name in self.names():
            self.cluster.set_phase(name, phase)


def two_roles(**more: Any) -> Json:
    return batch_process(role(2, 1, name="master"), role(2, 1, name="worker"), minimum=3, **more)


def test_pods_say_all_that_the_scheduler_needs_of_their_gang() -> None:
    world = World(two_roles(timeout=30))
    world.passes()
    metadata = world.cluster.pods()["train-worker-1"]["metadata"]
    assert metadata["labels"] == {
        "app.kubernetes.io/managed-by": "ai-scheduler-operator",
        "apps.kubernetes.io/pod-index": "3",
        "resource.aibee.cn/gang": "train",
        "resource.aibee.cn/gang-min": "3",
        "resource.aibee.cn/gang-role": "worker",
        "resource.aibee.cn/gang-role-min": "1",
        "resource.aibee.cn/role-index": "1",
    }
    assert metadata["annotations"]["resource.aibee.cn/gang-timeout-seconds"] == "30"
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("BatchProcess", "train", True)
    assert "blockOwnerDeletion" not in owner


def test_pods_know_their_rank_role_and_peers_through_the_headless_service() -> None:
    world = World(two_roles())
    world.passes()
    spec = world.cluster.pods()["train-worker-0"]["spec"]
    variables = {one["name"]: one["value"] for one in spec["containers"][0]["env"]}
    assert variables == {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "ROLE": "worker",
        "ROLE_RANK": "0",
        "ROLE_SIZE": "2",
        "MASTER_ADDR": "train-master-0.train",
        "MASTER_PORT": "23456",
        "PEERS": "train-master-0.train,train-master-1.train,train-worker-0.train,train-worker-1.train",
    }
    assert (spec["hostname"], spec["subdomain"]) == ("train-worker-0", "train")
    service = world.cluster.objects[f"{SERVICES}/train"]["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    pod_labels = world.cluster.pods()["train-worker-0"]["metadata"]["labels"]
    assert service["selector"].items() <= pod_labels.items()


def test_variable_of_the_process_goes_before_that_of_the_operator() -> None:
    world = World(batch_process(role(1, None, env=[{"name": "MASTER_PORT", "value": "1"}])))
    world.passes()
    env = world.cluster.pods()["train-process-0-0"]["spec"]["containers"][0]["env"]
    assert [one["value"] for one in env if one["name"] == "MASTER_PORT"] == ["1"]


def test_peers_too_long_for_a_variable_are_left_out() -> None:
    world = World(batch_process(role(1_000, None)))
    world.passes()
    env = world.cluster.pods()["train-process-0-999"]["spec"]["containers"][0]["env"]
    assert "PEERS" not in {one["name"] for one in env}
    assert {"name": "WORLD_SIZE", "value": "1000"} in env


def test_fields_of_pods_and_the_name_of_the_scheduler_arrive() -> None:
    document = batch_process(role(1, None, volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}]))
    document["spec"] |= {"nodeSelector": {"gpu": "a"}, "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
    world = World(document)
    world.passes()
    spec = world.cluster.pods()["train-process-0-0"]["spec"]
    assert spec["nodeSelector"] == {"gpu": "a"}
    assert spec["volumes"] == document["spec"]["volumes"]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}]
    assert (spec["schedulerName"], spec["restartPolicy"]) == ("ai-scheduler", "Never")


def test_phase_is_running_when_the_minimum_of_the_whole_and_of_each_role_runs() -> None:
    world = World(two_roles())
    world.passes()
    assert (world.status["phase"], world.status["ready"]) == ("Pending", "0/4")
    for name in ("train-master-0", "train-master-1"):
        world.cluster.set_phase(name, "Running")
    world.passes()
    assert (world.status["phase"], world.condition("Scheduled")["status"]) == ("Pending", "False")
    assert "worker has 0 of at least 1" in world.condition("Scheduled")["message"]
    world.cluster.set_phase("train-worker-0", "Running")
    world.passes()
    assert (world.status["phase"], world.status["ready"]) == ("Running", "3/4")
    assert world.condition("Scheduled")["status"] == "True"
    counts = [{name: one[name] for name in ("name", "running", "pending")} for one in world.status["roles"]]
    assert counts == [
        {"name": "master", "running": 2, "pending": 0},
        {"name": "worker", "running": 1, "pending": 1},
    ]


def test_reason_of_the_scheduler_is_shown_while_pods_wait() -> None:
    world = World(two_roles())
    world.passes()
    unplaced = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient cpu."}
    world.cluster.set_phase("train-master-0", "Pending", conditions=[unplaced])
    world.passes()
    assert world.condition("Scheduled")["message"].endswith(": 0/3 nodes are available: 3 Insufficient cpu.")
    assert world.cluster.event_reasons() == []
    world.seconds += 10
    world.passes()
    assert (world.condition("Scheduled")["reason"], world.cluster.event_reasons()) == ("WaitsForRoom", ["WaitsForRoom"])


def test_batch_process_succeeds_when_all_pods_have_and_keeps_them() -> None:
    world = World(two_roles())
    world.passes()
    world.all_in("Succeeded")
    world.passes()
    assert (world.status["phase"], world.condition("Completed")["status"]) == ("Succeeded", "True")
    assert len(world.names()) == 4
    for name in world.names():
        world.cluster.lose(name)
    world.passes()
    assert (world.names(), world.status["phase"]) == ([], "Succeeded")
    assert world.cluster.event_reasons() == ["Succeeded"]


def test_pod_that_succeeded_and_was_deleted_is_not_made_again() -> None:
    world = World(two_roles())
    world.passes()
    world.cluster.set_phase("train-master-0", "Succeeded")
    world.passes()
    world.cluster.lose("train-master-0")
    world.passes()
    assert world.names() == ["train-master-1", "train-worker-0", "train-worker-1"]


def test_failed_pod_is_replaced_under_its_name_and_counted() -> None:
    world = World(two_roles())
    world.passes()
    world.cluster.set_phase("train-worker-1", "Failed")
    world.passes()
    pod = world.cluster.pods()["train-worker-1"]
    assert pod["metadata"]["annotations"]["resource.aibee.cn/attempt"] == "2"
    assert pod.get("status", {}).get("phase") is None
    assert world.status["restarts"] == 1
    assert world.cluster.event_reasons() == ["Restarted"]


def test_crashed_program_is_replaced_after_a_growing_delay_and_an_evicted_pod_at_once() -> None:
    world = World(two_roles())
    world.passes()
    ended = {"terminated": {"exitCode": 1, "finishedAt": "1970-01-01T00:16:40Z"}}
    world.cluster.set_phase("train-worker-0", "Failed", containerStatuses=[{"state": ended}])
    world.cluster.set_phase("train-worker-1", "Failed", containerStatuses=[{"state": ended}], reason="Evicted")
    assert world.passes() == 10.0
    attempts = {n: p["metadata"]["annotations"]["resource.aibee.cn/attempt"] for n, p in world.cluster.pods().items()}
    assert (attempts["train-worker-0"], attempts["train-worker-1"]) == ("1", "2")
    world.seconds += 10
    world.passes()
    world.cluster.set_phase("train-worker-0", "Failed", containerStatuses=[{"state": ended}])
    world.seconds = 1_000.0
    assert world.passes() == 20.0


def test_losses_beyond_the_limit_fail_the_whole_and_end_what_runs() -> None:
    world = World(two_roles(limit=1))
    world.passes()
    world.all_in("Running")
    world.cluster.lose("train-master-0")
    world.passes()
    ended = {"terminated": {"exitCode": 3, "finishedAt": "1970-01-01T00:00:00Z"}}
    world.cluster.set_phase("train-worker-1", "Failed", containerStatuses=[{"state": ended}])
    world.passes()
    world.cluster.stop()
    world.passes()
    assert world.status["phase"] == "Failed"
    failed = world.condition("Failed")
    assert (failed["reason"], failed["message"]) == (
        "BackoffLimitExceeded",
        "pod 1 of worker is lost: exit status 3, and 1 of 1 restarts are used",
    )
    assert world.names() == ["train-worker-1"]


def test_more_losses_at_once_than_the_limit_restart_none() -> None:
    world = World(two_roles(limit=1))
    world.passes()
    world.cluster.lose("train-master-0")
    world.cluster.lose("train-worker-0")
    world.passes()
    assert (world.status["phase"], world.status["restarts"]) == ("Failed", 0)


def test_smaller_spec_loses_the_highest_indices_and_a_larger_one_gets_them_back_without_a_restart() -> None:
    world = World(batch_process(role(4, None)))
    world.passes()
    world.cluster.apply(PATH, batch_process(role(2, None)))
    world.passes()
    assert world.names() == ["train-process-0-0", "train-process-0-1"]
    world.cluster.apply(PATH, batch_process(role(3, None)))
    world.passes()
    assert world.names() == ["train-process-0-0", "train-process-0-1", "train-process-0-2"]
    assert (world.status["restarts"], world.status["observedGeneration"]) == (0, 3)


def test_refused_edit_leaves_what_runs_and_the_next_one_goes_on() -> None:
    world = World(two_roles())
    world.passes()
    world.all_in("Running")
    world.passes()
    world.cluster.apply(PATH, batch_process(role(2, 3, name="master"), role(2, 1, name="worker")))
    world.passes()
    refused = world.condition("Accepted")
    assert (refused["status"], refused["reason"]) == ("False", "Invalid")
    assert refused["message"].startswith("spec.simpleProcesses[0].minAvailable is 3")
    assert (world.status["phase"], len(world.names())) == ("Running", 4)
    assert world.cluster.event_reasons() == ["Invalid"]
    world.cluster.apply(PATH, two_roles())
    world.passes()
    assert world.condition("Accepted")["status"] == "True"


def test_refused_spec_makes_nothing() -> None:
    document = brainpp_example()
    document["metadata"] |= {"name": "train", "namespace": "team"}
    world = World(document)
    world.reconciler = Reconciler(world.cluster, Settings(), now=lambda: 1_000.0)
    world.passes()
    assert world.cluster.created == [path for path in world.cluster.created if "/events/" in path]
    assert world.condition("Accepted")["message"].startswith("spec.simpleProcesses[0].image is missing")
    assert world.status["phase"] == "Pending"


@pytest.mark.parametrize("path", [f"{SERVICES}/train", f"{PODS}/train-master-0"])
def test_name_that_another_owner_has_is_told_and_taken_when_it_is_free(path: str) -> None:
    world = World(two_roles())
    world.cluster.objects[path] = {"kind": "X", "metadata": {"name": "x", "uid": "other"}}
    assert world.passes() == 5.0
    assert world.condition("Accepted")["reason"] == "NameTaken"
    assert path.rpartition("/")[2] in world.condition("Accepted")["message"]
    assert world.cluster.event_reasons() == ["NameTaken"]
    del world.cluster.objects[path]
    world.passes()
    assert (world.condition("Accepted")["status"], len(world.names())) == ("True", 4)


def test_pod_that_the_api_server_refuses_is_told_and_few_are_tried() -> None:
    world = World(batch_process(role(500, None)))
    world.cluster.refuses = "exceeded quota: gpus"
    assert world.passes() == 60.0
    refused = world.condition("Accepted")
    assert (refused["reason"], refused["message"]) == ("PodRefused", "exceeded quota: gpus")
    world.cluster.refuses = ""
    world.passes()
    assert (world.condition("Accepted")["status"], len(world.names())) == ("True", 500)


def test_status_of_a_definition_that_drops_it_is_kept_in_an_annotation() -> None:
    world = World(two_roles(api_version=BRAINPP, limit=1), FakeCluster(keeps_status=False))
    world.passes()
    for _ in range(3):
        if "train-master-0" in world.names():
            world.cluster.lose("train-master-0")
        world.passes()
    assert world.names() == []
    assert [path for path in world.cluster.created if path.endswith("master-0")] == [f"{PODS}/train-master-0"] * 2
    assert world.cluster.event_reasons().count("BackoffLimitExceeded") == 1


def test_batch_process_that_is_being_deleted_gets_no_pod() -> None:
    world = World(two_roles())
    world.cluster.objects[PATH]["metadata"]["deletionTimestamp"] = "now"
    assert world.passes() is None
    assert world.cluster.created == []


def test_newer_version_stops_a_pass_before_it_does_anything() -> None:
    world = World(two_roles())
    world.cluster.conflicts = 1
    assert world.passes(1) == 0.0
    assert world.cluster.created == []
    world.passes()
    assert len(world.names()) == 4


async def test_absent_batch_process_is_no_error() -> None:
    world = World(two_roles())
    assert await world.reconciler.look(path_of("other")) is None
