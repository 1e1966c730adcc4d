"""Real kubectl against the sandbox over HTTP, with no extra flag."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from aischeduler.kube.crds import pool_crd
from aischeduler.sandbox.controllers.kubelet import RUN_SECONDS, KubeletOptions
from tests.crds import columns_of_pools
from tests.objects import pool_object
from tests.sandbox.kubectl import Kubectl, as_yaml, kubectl_on_sandbox

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    home = tmp_path_factory.mktemp("home")
    with kubectl_on_sandbox(home, KubeletOptions(start_seconds=0.0, stop_seconds=0.0)) as run:
        run.apply(pool_crd(), *(a_node(f"node-{number}") for number in range(3)))
        yield run


def a_node(name: str) -> Any:
    amounts = {"cpu": "4000m", "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "node-role.kubernetes.io/worker": ""}},
        "status": {"capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def a_pod(name: str, **spec: Any) -> Any:
    container = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "1000m", "memory": "0.5Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], **spec},
    }


def a_job(name: str, completions: int, **annotations: str) -> Any:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "perl"}], "nodeName": "node-0"}
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"completions": completions, "parallelism": completions, "backoffLimit": 3, "template": template},
    }


def test_version_and_discovery_show_what_is_served(kubectl: Kubectl) -> None:
    assert "Server Version: v1.36.3" in kubectl.ok("version")
    assert "batch/v1" in kubectl.ok("api-versions").splitlines()
    resources = kubectl.ok("api-resources", "--no-headers")
    assert [line.split() for line in resources.splitlines() if line.startswith("pools")] == [
        ["pools", "resource.aibee.cn/v1alpha1", "false", "Pool"]
    ]
    assert kubectl.ok("get", "--raw", "/readyz") == "ok"


def test_apply_creates_then_finds_nothing_to_change_then_changes(kubectl: Kubectl) -> None:
    pod = a_pod("applied")
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "512Mi"}}
    assert kubectl.apply(pod) == "pod/applied created\n"
    assert kubectl.apply(pod) == "pod/applied unchanged\n"
    pod["metadata"]["labels"] = {"app": "other"}
    assert kubectl.apply(pod) == "pod/applied configured\n"
    assert kubectl.get("pod", "applied")["metadata"]["labels"] == {"app": "other"}


def test_apply_removes_fields_that_left_the_file(kubectl: Kubectl) -> None:
    job = a_job("trimmed", 1, mark="x")
    job["metadata"]["labels"] = {"keep": "1", "drop": "1"}
    kubectl.apply(job)
    job["metadata"]["labels"] = {"keep": "1"}
    kubectl.apply(job)
    assert kubectl.get("job", "trimmed")["metadata"]["labels"] == {"keep": "1"}


def test_get_shows_tables_wide_names_yaml_and_jsonpath(kubectl: Kubectl) -> None:
    kubectl.apply(a_pod("shown"))
    assert kubectl.ok("get", "pods", "shown").split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    wide = kubectl.ok("get", "pod", "shown", "-o", "wide").splitlines()
    assert wide[0].split()[5:] == ["IP", "NODE", "NOMINATED", "NODE"]
    assert wide[1].split()[:4] == ["shown", "0/1", "Pending", "0"]
    assert kubectl.ok("get", "pods", "shown", "-o", "name") == "pod/shown\n"
    assert kubectl.ok("get", "pod", "shown", "-o", "jsonpath={.spec.schedulerName}") == "default-scheduler"
    assert "memory: 512Mi" in kubectl.ok("get", "pod", "shown", "-o", "yaml")
    assert kubectl.ok("get", "nodes", "--no-headers").split()[:3] == ["node-0", "Ready", "worker"]


def test_get_selects_by_labels_and_fields_in_all_namespaces(kubectl: Kubectl) -> None:
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "far"}})
    kubectl.ok("create", "-n", "far", "-f", "-", stdin=as_yaml(a_pod("far-pod", nodeName="node-1")))
    assert kubectl.ok("get", "pods", "-A", "-l", "app in (far-pod,x)", "-o", "name") == "pod/far-pod\n"
    assert kubectl.ok("get", "pods", "-A", "--field-selector", "spec.nodeName=node-1", "-o", "name") == "pod/far-pod\n"
    refused = kubectl("get", "pods", "--field-selector", "spec.hostname=x")
    assert (refused.code, "field label not supported: spec.hostname" in refused.err) == (1, True)
    kubectl.ok("delete", "namespace", "far")
    assert kubectl("get", "namespace", "far").err == 'Error from server (NotFound): namespaces "far" not found\n'


def test_watch_shows_a_pod_come_and_go(kubectl: Kubectl) -> None:
    there_before = a_pod("earlier")
    there_before["metadata"]["labels"] = {"app": "watched"}
    kubectl.apply(there_before)
    watch = kubectl.background("get", "pods", "-l", "app=watched", "-w", "--output-watch-events", "--no-headers")
    try:
        assert watch.stdout is not None
        seen = [watch.stdout.readline().split()[:2]]  # the list is read: the watch shows all that follows
        kubectl.apply(a_pod("watched"))
        kubectl.ok("delete", "pod", "watched")
        seen += [watch.stdout.readline().split()[:2] for _ in range(3)]
    finally:
        watch.terminate()
        watch.communicate()
    assert seen == [["ADDED", "earlier"], ["ADDED", "watched"], ["MODIFIED", "watched"], ["DELETED", "watched"]]


def test_label_annotate_patch_edit_and_replace_change_an_object(kubectl: Kubectl) -> None:
    kubectl.apply(a_pod("changed"))
    kubectl.ok("label", "pod", "changed", "a=b")
    kubectl.ok("annotate", "pod", "changed", "c=d")
    kubectl.ok("patch", "pod", "changed", "-p", '{"metadata":{"labels":{"e":"f"}}}')
    kubectl.ok("patch", "pod", "changed", "--type=json", "-p", '[{"op":"remove","path":"/metadata/labels/app"}]')
    kubectl.ok("edit", "pod", "changed", env={"KUBE_EDITOR": "sed -i s/busybox:1/busybox:2/"})
    pod = kubectl.get("pod", "changed")
    assert pod["metadata"]["labels"] == {"a": "b", "e": "f"}
    assert pod["metadata"]["annotations"]["c"] == "d"
    assert pod["spec"]["containers"][0]["image"] == "busybox:2"
    pod["metadata"]["labels"] = {"g": "h"}
    kubectl.ok("replace", "-f", "-", stdin=as_yaml(pod))
    stale = kubectl("replace", "-f", "-", stdin=as_yaml(pod))
    assert "the object has been modified; please apply your changes to the latest version" in stale.err
    kubectl.ok("label", "pod", "changed", "g-")
    assert not kubectl.get("pod", "changed")["metadata"].get("labels")


def test_nodes_are_tainted_cordoned_and_uncordoned(kubectl: Kubectl) -> None:
    kubectl.ok("taint", "node", "node-2", "team=a:NoSchedule")
    kubectl.ok("cordon", "node-2")
    assert "Ready,SchedulingDisabled" in kubectl.ok("get", "node", "node-2")
    spec = kubectl.get("node", "node-2")["spec"]
    assert spec["taints"] == [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    kubectl.ok("uncordon", "node-2")
    kubectl.ok("taint", "node", "node-2", "team-")
    assert kubectl.get("node", "node-2")["spec"] == {}
    assert "cpu:     4\n" in kubectl.ok("describe", "node", "node-2")


def test_drain_evicts_the_pods_of_a_node(kubectl: Kubectl) -> None:
    kubectl.apply(a_pod("drained", nodeName="node-1"))
    kubectl.ok("wait", "--for=condition=Ready", "pod/drained", "--timeout=5s")
    assert "node/node-1 drained" in kubectl.ok("drain", "node-1", "--force", "--timeout=10s")
    assert kubectl("get", "pod", "drained").code == 1
    kubectl.ok("uncordon", "node-1")


def test_job_runs_to_its_end_and_describe_shows_its_events(kubectl: Kubectl) -> None:
    kubectl.apply(a_job("counted", 3, **{RUN_SECONDS: "0.1"}))
    kubectl.ok("wait", "--for=condition=Complete", "job/counted", "--timeout=10s")
    assert kubectl.ok("get", "job", "counted", "--no-headers").split()[:3] == ["counted", "Complete", "3/3"]
    said = kubectl.ok("describe", "job", "counted")
    assert "3 Succeeded" in said
    assert said.count("SuccessfulCreate") == 3
    pods = kubectl.ok("get", "pods", "-l", "job-name=counted", "--no-headers").splitlines()
    assert [line.split()[2] for line in pods] == ["Completed"] * 3
    kubectl.ok("delete", "job", "counted")
    kubectl.ok("wait", "--for=delete", "pod", "-l", "job-name=counted", "--timeout=5s")


def test_describe_pod_shows_events_of_the_newer_api(kubectl: Kubectl) -> None:
    kubectl.apply(a_pod("described"))
    pod = kubectl.get("pod", "described")
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "described.1", "namespace": "default"},
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "described",
            "uid": pod["metadata"]["uid"],
        },
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "note": "0/3 nodes are available: 3 Insufficient cpu.",
        "reportingController": "ai-scheduler",
        "reportingInstance": "ai-scheduler-0",
    }
    kubectl.ok("create", "-f", "-", stdin=as_yaml(event))
    said = kubectl.ok("describe", "pod", "described")
    assert "FailedScheduling" in said
    assert "0/3 nodes are available: 3 Insufficient cpu." in said
    assert "pod/described" in kubectl.ok("get", "events", "--field-selector", "reason=FailedScheduling")
    assert "FailedScheduling" in kubectl.ok("events", "--for", "pod/described")


def test_pools_have_columns_and_wide_has_more(kubectl: Kubectl) -> None:
    kubectl.apply(pool_object("gpu", labels={"gpu": "true"}, makeRoom="BorrowThenPreempt"))
    heads, row = kubectl.ok("get", "pool").splitlines()
    assert heads.split() == ["NAME", *(name.upper() for name in columns_of_pools(0))]
    assert row.split()[0] == "gpu"
    wide, row = kubectl.ok("get", "pools", "-o", "wide").splitlines()
    assert wide.split() == [*heads.split(), *(name.upper() for name in columns_of_pools(1))]
    assert "BorrowThenPreempt" in row
    shown = kubectl.ok("get", "pool", "gpu", "-o", "custom-columns=NAME:.metadata.name,ROOM:.spec.makeRoom")
    assert shown.split() == ["NAME", "ROOM", "gpu", "BorrowThenPreempt"]
    kubectl.ok("delete", "pool", "gpu")


def test_pools_are_explained(kubectl: Kubectl) -> None:
    said = " ".join(kubectl.ok("explain", "pool.spec.lendingLimit").split())
    assert "The most that pods of other pools may ask for" in said


def test_pool_is_applied_edited_patched_and_described(kubectl: Kubectl) -> None:
    pool = pool_object("limits", lendingLimit={"cpu": 8, "memory": "64Gi"})
    kubectl.apply(pool)
    assert kubectl.apply(pool).endswith("unchanged\n")
    kubectl.apply(pool_object("limits", lendingLimit={"cpu": "8500m"}, borrowingPools=["gpu"]))
    spec = kubectl.get("pool", "limits")["spec"]
    assert (spec["lendingLimit"], spec["borrowingPools"]) == ({"cpu": "8500m"}, ["gpu"])
    kubectl.ok("edit", "pool", "limits", env={"KUBE_EDITOR": "sed -i s/OnDemand/Evict/"})
    kubectl.ok("patch", "pool", "limits", "--type=merge", "-p", '{"spec":{"disableSharing":true}}')
    assert "Reclaim Policy:  Evict" in kubectl.ok("describe", "pool", "limits")
    said = kubectl("apply", "-f", "-", stdin=as_yaml(pool_object("limits", lendingLimits={})))
    assert (said.code, 'unknown field "spec.lendingLimits"' in said.err) == (1, True)
    kubectl.ok("delete", "pool", "limits")


def test_server_side_apply_is_refused_with_one_sentence(kubectl: Kubectl) -> None:
    said = kubectl("apply", "--server-side", "-f", "-", stdin=as_yaml(pool_object("ssa")))
    assert said.code == 1
    assert "the sandbox has no server-side apply: use kubectl apply without --server-side" in said.err


def test_wait_for_pod_deletion_sees_the_grace_period(kubectl: Kubectl) -> None:
    kubectl.apply(a_pod("graceful", nodeName="node-0"))
    kubectl.ok("wait", "--for=jsonpath={.status.phase}=Running", "pod/graceful", "--timeout=5s")
    deleting = subprocess.run(
        [kubectl.program, "delete", "pod", "graceful"],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
        env=kubectl.environment,
    )
    assert 'pod "graceful" deleted' in deleting.stdout
    assert kubectl("get", "pod", "graceful").code == 1
