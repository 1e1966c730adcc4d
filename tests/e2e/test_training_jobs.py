"""TrainingJobs on a real API server with the real Job controller; the test places pods and writes sizes."""

import json
import re
from typing import Any

import pytest

from aischeduler.model.times import time_text
from tests.controlplane.commands import OPERATOR
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import ROOT, apply, condition, create_nodes, events, kubectl, nodes, wait_until
from tests.e2e.daemon import Daemon
from tests.e2e.operator_program import OperatorProgram, fail, pods_of
from tests.e2e.rights import granted, used
from tests.objects import Json, node_object
from tests.operator.documents import OURS
from tests.operator.training_world import KEY, PADDLE, paddle_job, training_job

PAGE = (ROOT / "docs" / "trainingjob.md").read_text()
LONG_AGO = 1_700_000_000.0
"""The unix time of resizes that freeze nothing any more."""
PADDLE_DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"trainingjobs.{PADDLE.partition('/')[0]}"},
    "spec": {
        "group": PADDLE.partition("/")[0],
        "scope": "Namespaced",
        "names": {"kind": "TrainingJob", "plural": "trainingjobs", "singular": "trainingjob"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ],
    },
}
"""A definition that keeps no status at all."""


def path(namespace: str, name: str = "train", api_version: str = OURS) -> str:
    return f"/apis/{api_version}/namespaces/{namespace}/trainingjobs/{name}"


class Stage:
    """One namespace with TrainingJobs; the test is scheduler and, for the ends of programs, kubelet."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    def status(self, api_version: str = OURS) -> Any:
        return self.plane.api("GET", path(self.namespace, api_version=api_version)).body.get("status", {})

    def job(self) -> Any:
        return self.plane.api("GET", f"/apis/batch/v1/namespaces/{self.namespace}/jobs/train-trainer").body

    def pods(self, role: str = "") -> dict[str, Json]:
        found = pods_of(self.plane, self.namespace, "train")
        return {name: pod for name, pod in found.items() if f"-{role}" in name}

    def bind(self) -> None:
        """Give every pod without a node one."""
        for name, pod in self.pods().items():
            if "nodeName" not in pod["spec"]:
                target = {"apiVersion": "v1", "kind": "Node", "name": "cpu-00"}
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
                self.plane.api("POST", f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding", body)

    def wait(self, **wanted: Any) -> None:
        """Bind pods until the status has these values."""

        def holds() -> bool:
            self.bind()
            status = self.status()
            return {name: status.get(name) for name in wanted} == wanted

        wait_until(holds, f"a status with {wanted}")

    def resize(self, size: int, why: str, at_seconds: float = LONG_AGO) -> None:
        """Write a size as the scheduler does: with its annotations, in one patch."""
        notes = {"size": str(size), "resized-at": time_text(at_seconds), "resize-reason": why}
        body = {
            "metadata": {"annotations": {KEY + name: text for name, text in notes.items()}},
            "spec": {"parallelism": size, "completions": size},
        }
        kubectl(
            self.plane, "patch", "job", "train-trainer", "-n", self.namespace, "--type=merge", "-p", json.dumps(body)
        )

    def end(self, pod: Json, phase: str, **status: Any) -> None:
        """Report that the program of a pod has ended, as its kubelet does."""
        metadata = pod["metadata"]
        body = {"metadata": {"uid": metadata["uid"]}, "status": {"phase": phase, **status}}
        self.plane.api("PATCH", f"/api/v1/namespaces/{self.namespace}/pods/{metadata['name']}/status", body)


@pytest.fixture
def stage(control_plane: ControlPlane, operator: OperatorProgram, kubelets: Part, namespace: str) -> Stage:
    """Return a namespace in a cluster with nodes, kubelets and the operator."""
    create_nodes(control_plane, nodes())
    return Stage(control_plane, namespace)


def table(stage: Stage) -> list[str]:
    """Return the row of `kubectl get tj`."""
    return kubectl(stage.plane, "get", "tj", "-n", stage.namespace).splitlines()[-1].split()


def test_example_of_the_page_grows_when_the_scheduler_writes_its_size(stage: Stage) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (shown,) = re.findall(r"^\$ kubectl get tj\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    kubectl(stage.plane, "apply", "-n", stage.namespace, "-f", "-", stdin=example)
    stage.wait(phase="running", trainersReady="2/2/2-8", frozen="")
    pods = stage.pods()
    assert {pod["metadata"]["labels"][f"{KEY}gang-min"] for pod in pods.values()} == {"4"}
    roles = sorted(pod["metadata"]["labels"][f"{KEY}gang-role"] for pod in pods.values())
    assert roles == ["master", "pserver", "trainer", "trainer"]
    assert {pod["metadata"]["annotations"][f"{KEY}pool"] for pod in pods.values()} == {"gpu-pool"}
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {"ai-scheduler"}
    terms = stage.job()["metadata"]["annotations"]
    assert (terms[f"{KEY}min-instances"], terms[f"{KEY}max-instances"]) == ("2", "8")
    stage.resize(4, "there is room")
    stage.wait(phase="running", trainersReady="4/4/2-8")
    assert table(stage)[:4] == shown.splitlines()[1].split()[:4]
    header = kubectl(stage.plane, "get", "tj", "-n", stage.namespace).splitlines()[0]
    assert header.split() == shown.splitlines()[0].split()
    (record,) = stage.status()["scaleRecords"]
    ended = record.pop("ended")
    assert record == {"time": time_text(LONG_AGO), "from": 2, "to": 4, "why": "there is room"}
    assert ended > record["time"]


def test_freezing_window_is_shown_and_a_shrink_ends_when_the_last_trainer_is_gone(stage: Stage) -> None:
    apply(stage.plane, training_job(least=1, most=4), namespace=stage.namespace)
    stage.wait(phase="running", trainersReady="1/1/1-4")
    stage.resize(4, "there is room")
    stage.wait(phase="running", trainersReady="4/4/1-4")
    frozen = table(stage)[4]
    assert 200 < int(frozen.removesuffix("s")) <= 300, "it counts from the end of the resize, which began long ago"
    stage.resize(2, "another job waits")
    stage.wait(phase="running", trainersReady="2/2/1-4")
    assert sorted(stage.pods("trainer-")) == sorted(
        name for name in stage.pods() if re.match(r"train-trainer-[01]-", name)
    )
    failed = next(one["failed"] for one in stage.status()["replicaStatuses"] if one["role"] == "trainer")
    assert (failed, [one["to"] for one in stage.status()["scaleRecords"]]) == (0, [4, 2])
    assert all(one["ended"] for one in stage.status()["scaleRecords"])


def test_success_of_the_trainers_ends_pservers_and_master(stage: Stage) -> None:
    apply(stage.plane, training_job(pservers=2), namespace=stage.namespace)
    stage.wait(phase="running")
    for pod in stage.pods("trainer-").values():
        stage.end(pod, "Succeeded")
    stage.wait(phase="succeeded")
    wait_until(lambda: stage.pods() == {}, "no pod left")
    done = next(one["succeeded"] for one in stage.status()["replicaStatuses"] if one["role"] == "trainer")
    assert (done, stage.job()["spec"]["parallelism"]) == (2, 2)
    assert condition({"status": stage.status()}, "Completed")["status"] == "True"


def test_evicted_trainer_is_no_failure_and_failed_ones_beyond_the_limit_end_the_job(stage: Stage) -> None:
    apply(stage.plane, training_job(backoffLimit=0), namespace=stage.namespace)
    stage.wait(phase="running")
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    evicted, *_ = stage.pods("trainer-").values()
    stage.end(evicted, "Failed", conditions=[target])
    wait_until(lambda: evicted["metadata"]["name"] not in _alive(stage), "the evicted trainer replaced")
    stage.wait(phase="running", trainersReady="2/2/2-4")
    failed, *_ = _alive(stage).values()
    stage.end(failed, "Failed")
    stage.wait(phase="failed")
    wait_until(lambda: _alive(stage) == {} and stage.pods("master-") == stage.pods("pserver-") == {}, "the others gone")
    assert "train" in events(stage.plane, stage.namespace, "TrainersFailed")


def _alive(stage: Stage) -> dict[str, Json]:
    """Return the trainers that have not ended."""
    return {name: pod for name, pod in stage.pods("trainer-").items() if pod["status"]["phase"] != "Failed"}


def test_deletion_midway_leaves_nothing_even_without_an_operator(stage: Stage, operator: OperatorProgram) -> None:
    apply(stage.plane, training_job(), namespace=stage.namespace)
    stage.wait(phase="running")
    stage.resize(4, "there is room")
    operator.kill()
    kubectl(stage.plane, "delete", "tj", "train", "-n", stage.namespace, "--timeout=10s")

    def left() -> list[str]:
        stage.bind()
        return kubectl(stage.plane, "get", "tj,jobs,pods,services", "-n", stage.namespace, "-o", "name").split()

    wait_until(lambda: left() == [], "nothing left", 120.0)


def test_killed_operator_goes_on_with_sizes_losses_and_the_end(stage: Stage, operator: OperatorProgram) -> None:
    apply(stage.plane, training_job(), namespace=stage.namespace)
    wait_until(lambda: "metadata" in stage.job() and "uid" in stage.job()["metadata"], "the Job")
    operator.kill()
    operator.start()
    stage.wait(phase="running", trainersReady="2/2/2-4")
    uids = {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()}
    operator.kill()
    stage.resize(4, "there is room")
    fail(stage.plane, stage.pods()["train-pserver-0"])
    operator.start()
    stage.wait(phase="running", trainersReady="4/4/2-4", restarts=1)
    assert [(one["from"], one["to"]) for one in stage.status()["scaleRecords"]] == [(2, 4)]
    kept = {name: pod["metadata"]["uid"] for name, pod in stage.pods().items() if name in uids}
    assert {name for name, uid in uids.items() if kept.get(name) != uid} == {"train-pserver-0"}
    operator.kill()
    for pod in stage.pods("trainer-").values():
        stage.end(pod, "Succeeded")
    operator.start()
    stage.wait(phase="succeeded")
    wait_until(lambda: stage.pods() == {}, "no pod left")


def test_job_of_paddlepaddle_runs_where_its_definition_keeps_no_status(stage: Stage) -> None:
    apply(stage.plane, PADDLE_DEFINITION)
    served = f"/apis/{PADDLE}/trainingjobs"
    wait_until(lambda: stage.plane.api("GET", served).status == 200, "the definition served")
    document = paddle_job()
    document["spec"]["trainer"] |= {"passes": 3, "resources": {"requests": {"cpu": "500m"}}}
    apply(stage.plane, document, namespace=stage.namespace)

    def phases() -> list[str]:
        stage.bind()
        return [pod["status"]["phase"] for pod in stage.pods().values()]

    wait_until(lambda: phases() == ["Running"] * 5, "the pods running")
    note = "spec.trainer.passes has no effect; the field is spec.passes"
    wait_until(lambda: events(stage.plane, stage.namespace, "MisplacedField") == {"train": note}, "an event")
    for pod in stage.pods("trainer-").values():
        stage.end(pod, "Succeeded")
    wait_until(lambda: stage.pods() == {}, "no pod left")
    kubectl(stage.plane, "delete", "crd", PADDLE_DEFINITION["metadata"]["name"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trainer": {"minInstances": 0, "resources": {}}}, "spec.trainer.minInstances"),
        ({"trainer": {"minInstances": -1, "resources": {}}}, "spec.trainer.minInstances"),
        ({"trainer": {"minInstances": 1, "maxInstances": 0, "resources": {}}}, "spec.trainer.maxInstances"),
        ({"trainer": {"minInstances": 1, "maxInstances": -2, "resources": {}}}, "spec.trainer.maxInstances"),
        ({"trainer": {"minInstances": 1, "maxInstances": 5_001, "resources": {}}}, "spec.trainer.maxInstances"),
        ({"trainer": {"minInstances": 1, "maxInstances": "two", "resources": {}}}, "spec.trainer.maxInstances"),
        ({"trainer": {"minInstances": 1, "allowedInstances": [0], "resources": {}}}, "allowedInstances[0]"),
        ({"trainer": {"minInstances": 1}}, "spec.trainer.resources"),
        ({"trainer": {"minInstances": 1, "resources": {"limits": {"memory": "2 Gi"}}}}, "resources.limits.memory"),
        ({"priorityLevel": "High"}, "spec.priorityLevel"),
        ({"trainer": {"minInstances": 1, "resources": {}, "passes": 1}}, 'unknown field "spec.trainer.passes"'),
    ],
)
def test_api_server_refuses_what_one_field_shows(
    control_plane: ControlPlane, pools_served: None, namespace: str, changes: Json, words: str
) -> None:
    document = training_job()
    document["spec"] |= changes
    document["metadata"]["namespace"] = namespace
    refused = control_plane.kubectl("create", "--validate=strict", "-f", "-", stdin=json.dumps(document))
    assert refused.returncode != 0
    assert words in refused.stderr


def test_contradiction_is_a_condition_and_an_event_and_makes_nothing(stage: Stage) -> None:
    apply(stage.plane, training_job(fault_tolerant=False), namespace=stage.namespace)
    sentence = "spec.trainer: maxInstances should be equal to minInstances when faultTolerant is disabled"
    wait_until(lambda: events(stage.plane, stage.namespace, "Invalid") == {"train": sentence}, "an event")
    assert condition({"status": stage.status()}, "Accepted")["status"] == "False"
    assert (stage.pods(), stage.job()["reason"]) == ({}, "NotFound")
    apply(stage.plane, training_job(), namespace=stage.namespace)
    stage.wait(phase="running")


def test_scheduler_starts_all_that_starts_together_or_nothing(
    control_plane: ControlPlane, operator: OperatorProgram, kubelets: Part, daemon: Daemon, namespace: str
) -> None:
    stage = Stage(control_plane, namespace)
    create_nodes(control_plane, [node_object("small", cpu="4")])
    daemon.start()
    apply(control_plane, training_job(least=2, most=3), namespace=namespace)
    words = "master has 0 of at least 1; pserver has 0 of at least 1; trainer has 0 of at least 2: "

    def scheduled() -> Json:
        return condition({"status": stage.status()}, "Scheduled")

    wait_until(lambda: scheduled().get("message", "").startswith(words), "the words of the scheduler")
    assert {pod["spec"].get("nodeName") for pod in stage.pods().values()} == {None}
    create_nodes(control_plane, [node_object("second", cpu="4")])
    wait_until(lambda: stage.status().get("trainers", {}).get("running", 0) >= 2, "the minimum running")
    wait_until(lambda: scheduled()["status"] == "True" and stage.status()["phase"] == "running", "the job running")


def test_operator_uses_the_rights_of_the_chart_for_training_jobs(stage: Stage, operator: OperatorProgram) -> None:
    since = stage.plane.audit_log.stat().st_size
    operator.kill()
    operator.start()
    apply(stage.plane, training_job(), namespace=stage.namespace)
    stage.wait(phase="running")
    apply(stage.plane, training_job(most=6), namespace=stage.namespace)
    stage.wait(phase="running", trainersReady="2/2/2-6")
    wait_until(
        lambda: stage.job()["metadata"]["annotations"][f"{KEY}max-instances"] == "6", "the terms written to the Job"
    )
    asked = list(used(stage.plane, OPERATOR, since))
    assert [(right, code) for right, code in asked if code in (401, 403)] == []
    rights = granted(operator.rules())
    assert {right for right, _ in asked} <= rights
    ours = {right for right in rights if right[0] == "batch" or (right[0] in OURS and "trainingjobs" in right[1])}
    assert ours - {right for right, _ in asked} == {("resource.aibee.cn", "trainingjobs", "patch")}, (
        "written only where a definition keeps no status"
    )
