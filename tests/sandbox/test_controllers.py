from typing import Any

import pytest

from aischeduler.sandbox.controllers.controller_manager import ControllerManager
from aischeduler.sandbox.controllers.kubelet import RUN_SECONDS, STOP_SECONDS, KubeletOptions
from tests.sandbox.cluster import PODS, Cluster, a_pod

JOBS = "/apis/batch/v1/namespaces/default/jobs"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
MERGE = "application/merge-patch+json"


class ControlledCluster(Cluster):
    """A cluster whose controllers run as time passes."""

    def __init__(self, kubelet: KubeletOptions | None = None) -> None:
        super().__init__()
        self.controllers = ControllerManager(self.server, kubelet)

    def run(self, seconds: float = 0.0) -> float | None:
        """Move the clock, and run one step at each due time."""
        end = self.now + seconds
        due = self.controllers.step(self.now)
        while due is not None and due <= end:
            self.now = max(self.now, due)
            due = self.controllers.step(self.now)
        self.now = end
        return due

    def phases(self) -> list[str]:
        return [pod["status"]["phase"] for pod in self.ok("GET", PODS)["items"]]

    def job(self, name: str) -> Any:
        return self.ok("GET", f"{JOBS}/{name}")

    def end_pods(self, phase: str) -> None:
        for name in self.names(f"{PODS}?fieldSelector=status.phase%3DPending"):
            self.ok("PATCH", f"{PODS}/{name}/status", {"status": {"phase": phase}}, MERGE)
        self.run()


def a_job(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Any:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "perl"}]}
    return {
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"annotations": annotations or {}}, "spec": pod}, **spec},
    }


def conditions(status: Any) -> dict[str, str]:
    return {
        condition["type"]: condition.get("reason", "")
        for condition in status.get("conditions", [])
        if condition["status"] == "True"
    }


def test_kubelet_starts_runs_and_ends_a_bound_pod() -> None:
    cluster = ControlledCluster(KubeletOptions(start_seconds=1))
    cluster.add_node("n1")
    pod = a_pod("p1", restartPolicy="Never")
    pod["metadata"]["annotations"] = {RUN_SECONDS: "5"}
    cluster.ok("POST", PODS, pod)
    cluster.run(10)
    assert cluster.phases() == ["Pending"]
    cluster.bind("p1", "n1")
    cluster.run(1)
    status = cluster.ok("GET", f"{PODS}/p1")["status"]
    assert (status["phase"], status["startTime"]) == ("Running", "2027-01-15T08:00:11Z")
    cluster.run(5)
    assert cluster.phases() == ["Succeeded"]


def test_kubelet_removes_a_deleted_pod_after_its_stop_time_or_grace() -> None:
    cluster = ControlledCluster(KubeletOptions(start_seconds=0, stop_seconds=3))
    cluster.add_node("n1")
    for name, grace in (("p1", 30), ("p2", 2)):
        cluster.add_pod(name, terminationGracePeriodSeconds=grace)
        cluster.bind(name, "n1")
    cluster.run()
    for name in ("p1", "p2"):
        cluster.ok("DELETE", f"{PODS}/{name}")
    cluster.run(2)
    assert cluster.names(PODS) == ["p1"]
    cluster.run(1)
    assert cluster.names(PODS) == []


def test_pod_that_does_not_stop_is_removed_at_the_end_of_its_grace_period() -> None:
    cluster = ControlledCluster(KubeletOptions(start_seconds=0, stop_seconds=1))
    cluster.add_node("n1")
    pod = a_pod("p1", terminationGracePeriodSeconds=60)
    pod["metadata"]["annotations"] = {STOP_SECONDS: "1000000"}
    cluster.ok("POST", PODS, pod)
    cluster.bind("p1", "n1")
    cluster.run()
    cluster.ok("DELETE", f"{PODS}/p1")
    cluster.run(59)
    assert cluster.names(PODS) == ["p1"]
    cluster.run(1)
    assert cluster.names(PODS) == []


def test_later_delete_with_less_grace_ends_a_pod_earlier() -> None:
    cluster = ControlledCluster(KubeletOptions(start_seconds=0, stop_seconds=100))
    cluster.add_node("n1")
    cluster.add_pod("p1", terminationGracePeriodSeconds=60)
    cluster.bind("p1", "n1")
    cluster.run()
    cluster.ok("DELETE", f"{PODS}/p1")
    cluster.run(10)
    cluster.ok("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": 5})
    cluster.run(4)
    assert cluster.names(PODS) == ["p1"]
    cluster.run(1)
    assert cluster.names(PODS) == []


def test_write_to_a_terminating_pod_does_not_keep_it() -> None:
    cluster = ControlledCluster(KubeletOptions(start_seconds=0, stop_seconds=10))
    cluster.add_node("n1")
    cluster.add_pod("p1")
    cluster.bind("p1", "n1")
    cluster.run()
    cluster.ok("DELETE", f"{PODS}/p1")
    cluster.run(9)
    cluster.ok("PATCH", f"{PODS}/p1/status", {"status": {"message": "going"}}, MERGE)
    cluster.run(1)
    assert cluster.names(PODS) == []


def test_pod_that_is_deleted_before_it_has_started_never_runs() -> None:
    cluster = ControlledCluster(KubeletOptions(start_seconds=5, stop_seconds=2))
    cluster.add_node("n1")
    cluster.add_pod("p1")
    cluster.bind("p1", "n1")
    cluster.run(4)
    cluster.ok("DELETE", f"{PODS}/p1")
    cluster.run(1)
    assert cluster.phases() == ["Pending"]
    cluster.run(1)
    assert cluster.names(PODS) == []


def test_pod_on_a_node_that_does_not_exist_stays_pending_and_is_collected() -> None:
    cluster = ControlledCluster(KubeletOptions(start_seconds=0))
    cluster.add_pod("p1")
    cluster.bind("p1", "ghost")
    cluster.run(39)
    assert cluster.phases() == ["Pending"]
    cluster.run(2)
    assert cluster.names(PODS) == []


def test_job_creates_pods_that_it_owns_and_counts_them() -> None:
    cluster = ControlledCluster()
    job = cluster.ok("POST", JOBS, a_job("j", {"a": "b"}, completions=3, parallelism=2))
    cluster.run()
    pods = cluster.ok("GET", PODS)["items"]
    assert len(pods) == 2
    owner = pods[0]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", job["metadata"]["uid"], True)
    assert pods[0]["metadata"]["annotations"] == {"a": "b"}
    assert pods[0]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    assert cluster.job("j")["status"]["active"] == 2
    cluster.end_pods("Succeeded")
    assert (cluster.job("j")["status"]["succeeded"], cluster.job("j")["status"]["active"]) == (2, 1)
    cluster.end_pods("Succeeded")
    status = cluster.job("j")["status"]
    assert (status["succeeded"], "active" in status) == (3, False)
    assert conditions(status) == {"Complete": "CompletionsReached"}
    assert status["completionTime"]


def test_lost_pod_is_replaced_after_a_wait_and_counts_as_failed() -> None:
    cluster = ControlledCluster()
    cluster.ok("POST", JOBS, a_job("j"))
    cluster.run()
    [name] = cluster.names(PODS)
    cluster.ok("DELETE", f"{PODS}/{name}")
    cluster.run()
    assert (cluster.names(PODS), cluster.job("j")["status"]["failed"]) == ([], 1)
    cluster.run(1)
    assert len(cluster.names(PODS)) == 1


def test_job_fails_beyond_its_backoff_limit() -> None:
    cluster = ControlledCluster()
    cluster.ok("POST", JOBS, a_job("j", backoffLimit=1))
    for _ in range(2):
        cluster.run(1)
        cluster.end_pods("Failed")
    cluster.run(1)
    status = cluster.job("j")["status"]
    assert conditions(status) == {"Failed": "BackoffLimitExceeded"}
    assert len(cluster.names(PODS)) == 2


def test_job_fails_at_its_deadline_and_its_pods_are_deleted() -> None:
    cluster = ControlledCluster()
    cluster.ok("POST", JOBS, a_job("j", activeDeadlineSeconds=60))
    cluster.run(59)
    assert len(cluster.names(PODS)) == 1
    cluster.run(1)
    assert conditions(cluster.job("j")["status"])["Failed"] == "DeadlineExceeded"
    assert cluster.names(PODS) == []


def test_indexed_job_gives_every_pod_its_index() -> None:
    cluster = ControlledCluster()
    cluster.ok("POST", JOBS, a_job("j", completions=3, parallelism=3, completionMode="Indexed"))
    cluster.run()
    pods = cluster.ok("GET", PODS)["items"]
    key = "batch.kubernetes.io/job-completion-index"
    assert [pod["metadata"]["annotations"][key] for pod in pods] == ["0", "1", "2"]
    assert [pod["metadata"]["generateName"] for pod in pods] == ["j-0-", "j-1-", "j-2-"]
    cluster.ok("PATCH", f"{PODS}/{pods[1]['metadata']['name']}/status", {"status": {"phase": "Failed"}}, MERGE)
    cluster.run(1)
    again = cluster.ok("GET", f"{PODS}?fieldSelector=status.phase%3DPending")["items"]
    assert [pod["metadata"]["labels"][key] for pod in again] == ["0", "1", "2"]
    cluster.end_pods("Succeeded")
    assert cluster.job("j")["status"]["succeeded"] == 3


def test_lower_parallelism_deletes_waiting_pods_first() -> None:
    cluster = ControlledCluster(KubeletOptions(start_seconds=0, stop_seconds=0))
    cluster.add_node("n1")
    cluster.ok("POST", JOBS, a_job("j", completions=3, parallelism=3))
    cluster.run()
    kept = cluster.names(PODS)[1]
    cluster.bind(kept, "n1")
    cluster.run()
    cluster.ok("PATCH", f"{JOBS}/j", {"spec": {"parallelism": 1}}, MERGE)
    cluster.run()
    assert cluster.names(PODS) == [kept]
    assert "failed" not in cluster.job("j")["status"], "a pod that the controller deletes has not failed"


def test_suspended_job_has_no_pods_until_it_is_resumed() -> None:
    cluster = ControlledCluster()
    cluster.ok("POST", JOBS, a_job("j", suspend=True))
    cluster.run()
    assert (cluster.names(PODS), conditions(cluster.job("j")["status"])) == ([], {"Suspended": "JobSuspended"})
    cluster.ok("PATCH", f"{JOBS}/j", {"spec": {"suspend": False}}, MERGE)
    cluster.run()
    assert len(cluster.names(PODS)) == 1


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_pods_of_a_deleted_job_are_deleted(propagation: str) -> None:
    cluster = ControlledCluster()
    cluster.ok("POST", JOBS, a_job("j", completions=2, parallelism=2))
    cluster.run()
    cluster.ok("DELETE", f"{JOBS}/j", {"propagationPolicy": propagation})
    cluster.run()
    assert (cluster.names(PODS), cluster.names(JOBS)) == ([], [])


def test_orphaned_pods_stay() -> None:
    cluster = ControlledCluster()
    cluster.ok("POST", JOBS, a_job("j"))
    cluster.run()
    cluster.ok("DELETE", f"{JOBS}/j", {"propagationPolicy": "Orphan"})
    cluster.run()
    [pod] = cluster.ok("GET", PODS)["items"]
    assert ("ownerReferences" in pod["metadata"], cluster.names(JOBS)) == (False, [])


@pytest.mark.parametrize(
    ("spec", "allowed"), [({"minAvailable": 2}, 1), ({"minAvailable": "50%"}, 1), ({"maxUnavailable": 2}, 2)]
)
def test_budget_counts_the_allowed_disruptions(spec: Any, allowed: int) -> None:
    cluster = ControlledCluster(KubeletOptions(start_seconds=0))
    cluster.add_node("n1")
    for number in range(3):
        cluster.add_pod(f"p{number}", {"app": "a"})
        cluster.bind(f"p{number}", "n1")
    cluster.ok(
        "POST", BUDGETS, {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, **spec}}
    )
    cluster.run()
    status = cluster.ok("GET", f"{BUDGETS}/b")["status"]
    assert (status["currentHealthy"], status["disruptionsAllowed"], status["observedGeneration"]) == (3, allowed, 1)


def test_content_of_a_deleted_namespace_is_deleted() -> None:
    cluster = ControlledCluster()
    cluster.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "far"}})
    cluster.ok("POST", "/api/v1/namespaces/far/pods", a_pod("p1"))
    cluster.ok("DELETE", "/api/v1/namespaces/far")
    assert cluster.ok("GET", "/api/v1/namespaces/far")["status"]["phase"] == "Terminating"
    assert cluster.refused("POST", "/api/v1/namespaces/far/pods", a_pod("p2"))["code"] == 403
    cluster.run()
    assert cluster.refused("GET", "/api/v1/namespaces/far")["code"] == 404
    assert cluster.names("/api/v1/pods") == []


def test_controllers_survive_a_restart_of_the_server() -> None:
    cluster = ControlledCluster()
    cluster.ok("POST", JOBS, a_job("j", completions=2, parallelism=2))
    cluster.run()
    cluster.server.restart()
    for name in cluster.names(PODS):
        cluster.ok("DELETE", f"{PODS}/{name}")
    cluster.server.restart()
    cluster.run(2)
    assert len(cluster.names(PODS)) == 2


def test_idle_controllers_have_no_step_due() -> None:
    cluster = ControlledCluster(KubeletOptions())
    cluster.ok("POST", JOBS, a_job("j"))
    assert cluster.run() is None
