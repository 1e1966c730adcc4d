"""Real kubectl against the sandbox over HTTP, with no extra flag."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from aischeduler.sandbox.controllers.kubelet import RUN_SECONDS, KubeletOptions
from tests.sandbox.kubectl import Kubectl, as_yaml, kubectl_on_sandbox

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    home = tmp_path_factory.mktemp("home")
    with kubectl_on_sandbox(home, KubeletOptions(start_seconds=0.0, stop_seconds=0.0)) as run:
        run.apply(GIZMO_CRD, *(a_node(f"node-{number}") for number in range(3)))
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


def a_gizmo(name: str, **spec: Any) -> Any:
    return {"apiVersion": "example.com/v1", "kind": "Gizmo", "metadata": {"name": name}, "spec": spec}


GIZMO_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "description": "What the gizmo is to be.",
            "properties": {
                "size": {"type": "integer", "minimum": 0, "default": 1, "description": "How many it has."},
                "color": {"type": "string", "enum": ["red", "blue"]},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
                    },
                },
            },
        },
        "status": {"type": "object", "properties": {"size": {"type": "integer"}, "selector": {"type": "string"}}},
    },
}
GIZMO_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gizmos.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "gizmos", "kind": "Gizmo", "shortNames": ["gz"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": GIZMO_SCHEMA},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
                },
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                ],
            }
        ],
    },
}


def test_version_and_discovery_show_what_is_served(kubectl: Kubectl) -> None:
    assert "Server Version: v1.36.3" in kubectl.ok("version")
    assert "batch/v1" in kubectl.ok("api-versions").splitlines()
    resources = kubectl.ok("api-resources", "--no-headers")
    assert [line.split() for line in resources.splitlines() if line.startswith("gizmos")] == [
        ["gizmos", "gz", "example.com/v1", "true", "Gizmo"]
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


def test_apply_takes_out_what_is_not_in_the_file_any_more(kubectl: Kubectl) -> None:
    job = a_job("trimmed", 1, mark="x")
    job["metadata"]["labels"] = {"keep": "1", "drop": "1"}
    kubectl.apply(job)
    job["metadata"]["labels"] = {"keep": "1"}
    kubectl.apply(job)
    assert kubectl.get("job", "trimmed")["metadata"]["labels"] == {"keep": "1"}


def test_server_side_apply_merges_and_takes_out(kubectl: Kubectl) -> None:
    first = a_gizmo("ssa", size=2, parts=[{"name": "a", "count": 1}, {"name": "b", "count": 1}])
    assert "serverside-applied" in kubectl.ok("apply", "--server-side", "-f", "-", stdin=as_yaml(first))
    kubectl.ok("patch", "gizmo", "ssa", "--type=merge", "-p", '{"spec":{"color":"red"}}')
    second = a_gizmo("ssa", parts=[{"name": "b", "count": 5}])
    kubectl.ok("apply", "--server-side", "-f", "-", stdin=as_yaml(second))
    assert kubectl.get("gizmo", "ssa")["spec"] == {"size": 1, "color": "red", "parts": [{"name": "b", "count": 5}]}


def test_get_shows_tables_wide_names_yaml_and_jsonpath(kubectl: Kubectl) -> None:
    kubectl.apply(a_pod("shown"))
    assert kubectl.ok("get", "pods", "shown").split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    wide = kubectl.ok("get", "pod", "shown", "-o", "wide").splitlines()
    assert wide[0].split()[5:] == ["IP", "NODE", "NOMINATED", "NODE", "READINESS", "GATES"]
    assert wide[1].split()[:4] == ["shown", "0/1", "Pending", "0"]
    assert kubectl.ok("get", "pods", "shown", "-o", "name") == "pod/shown\n"
    assert kubectl.ok("get", "pod", "shown", "-o", "jsonpath={.spec.schedulerName}") == "default-scheduler"
    assert "memory: 512Mi" in kubectl.ok("get", "pod", "shown", "-o", "yaml")
    assert kubectl.ok("get", "nodes", "--no-headers").split()[:3] == ["node-0", "Ready", "worker"]


def test_get_selects_by_labels_and_fields_in_all_namespaces(kubectl: Kubectl) -> None:
    kubectl.ok("create", "namespace", "far")
    kubectl.ok("create", "-n", "far", "-f", "-", stdin=as_yaml(a_pod("far-pod", nodeName="node-1")))
    assert kubectl.ok("get", "pods", "-A", "-l", "app in (far-pod,x)", "-o", "name") == "pod/far-pod\n"
    assert kubectl.ok("get", "pods", "-A", "--field-selector", "spec.nodeName=node-1", "-o", "name") == "pod/far-pod\n"
    refused = kubectl("get", "pods", "--field-selector", "spec.hostname=x")
    assert (refused.code, "field label not supported: spec.hostname" in refused.err) == (1, True)
    kubectl.ok("delete", "namespace", "far")
    assert kubectl("get", "namespace", "far").err == 'Error from server (NotFound): namespaces "far" not found\n'


def test_watch_shows_a_pod_come_and_go(kubectl: Kubectl) -> None:
    watch = kubectl.background("get", "pods", "-l", "app=watched", "-w", "--output-watch-events", "--no-headers")
    try:
        kubectl.apply(a_pod("watched"))
        kubectl.ok("delete", "pod", "watched")
        assert watch.stdout is not None
        seen = [watch.stdout.readline().split()[:2] for _ in range(3)]
    finally:
        watch.terminate()
        watch.communicate()
    assert seen == [["ADDED", "watched"], ["MODIFIED", "watched"], ["DELETED", "watched"]]


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
    assert "labels" not in kubectl.get("pod", "changed")["metadata"]


def test_nodes_are_tainted_cordoned_and_made_free_again(kubectl: Kubectl) -> None:
    kubectl.ok("taint", "node", "node-2", "team=a:NoSchedule")
    kubectl.ok("cordon", "node-2")
    assert "Ready,SchedulingDisabled" in kubectl.ok("get", "node", "node-2")
    spec = kubectl.get("node", "node-2")["spec"]
    assert spec["taints"] == [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    kubectl.ok("uncordon", "node-2")
    kubectl.ok("taint", "node", "node-2", "team-")
    assert kubectl.get("node", "node-2")["spec"] == {}
    assert "cpu:     4\n" in kubectl.ok("describe", "node", "node-2")


def test_drain_waits_for_the_disruption_budget(kubectl: Kubectl) -> None:
    kubectl.ok("create", "pdb", "one", "--selector=app=drained", "--min-available=1")
    kubectl.apply(a_pod("drained", nodeName="node-1"))
    kubectl.ok("wait", "--for=condition=Ready", "pod/drained", "--timeout=5s")
    refused = kubectl("drain", "node-1", "--force", "--timeout=1s")
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refused.err
    kubectl.ok("delete", "pdb", "one")
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


def test_custom_resource_has_columns_defaults_scale_status_and_explanations(kubectl: Kubectl) -> None:
    kubectl.apply(a_gizmo("one", color="blue"))
    assert kubectl.ok("get", "gz", "one", "-o", "wide").split() == ["NAME", "SIZE", "COLOR", "one", "1", "blue"]
    kubectl.ok("scale", "gizmo", "one", "--replicas=7")
    gizmo = kubectl.get("gizmo", "one")
    assert (gizmo["spec"]["size"], gizmo["metadata"]["generation"]) == (7, 2)
    kubectl.ok("patch", "gizmo", "one", "--subresource=status", "--type=merge", "-p", '{"status":{"size":7}}')
    gizmo = kubectl.get("gizmo", "one")
    assert (gizmo["status"], gizmo["metadata"]["generation"]) == ({"size": 7}, 2)
    assert "Size:   7" in kubectl.ok("describe", "gizmo", "one")
    explained = kubectl.ok("explain", "gizmo.spec.size")
    assert "FIELD: size <integer>" in explained
    assert "How many it has." in explained


def test_explain_knows_built_in_types(kubectl: Kubectl) -> None:
    assert "FIELD: tolerationSeconds <integer>" in kubectl.ok("explain", "pod.spec.tolerations.tolerationSeconds")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (a_pod("bad", nodeSelectr={"a": "b"}), 'strict decoding error: unknown field "spec.nodeSelectr"'),
        (
            a_pod("bad", priority="high"),
            "cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32",
        ),
        (a_pod("Bad"), 'metadata.name: Invalid value: "Bad": a lowercase RFC 1123 subdomain must consist of'),
        (a_pod("bad", overhead={"cpu": "1.5.3"}), "quantities must match the regular expression"),
        (
            a_gizmo("bad", size=-1),
            "spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0",
        ),
        (a_gizmo("bad", color="green"), 'spec.color: Unsupported value: "green": supported values: "red", "blue"'),
        (a_gizmo("bad", colour="red"), 'strict decoding error: unknown field "spec.colour"'),
    ],
)
def test_bad_objects_are_refused_with_the_field(kubectl: Kubectl, document: Any, words: str) -> None:
    refused = kubectl("apply", "-f", "-", stdin=as_yaml(document))
    assert refused.code == 1
    assert words in refused.err


def test_unknown_fields_are_warnings_where_the_user_asks_for_that(kubectl: Kubectl) -> None:
    pod = a_pod("warned", nodeSelectr={"a": "b"})
    said = kubectl("apply", "--validate=warn", "-f", "-", stdin=as_yaml(pod))
    assert (said.code, said.out) == (0, "pod/warned created\n")
    assert 'Warning: unknown field "spec.nodeSelectr"' in said.err


def test_dry_run_stores_nothing(kubectl: Kubectl) -> None:
    said = kubectl.ok("apply", "--dry-run=server", "-f", "-", stdin=as_yaml(a_pod("dry")))
    assert said == "pod/dry created (server dry run)\n"
    assert kubectl("get", "pod", "dry").code == 1


def test_generators_of_kubectl_create_work(kubectl: Kubectl) -> None:
    kubectl.ok("create", "priorityclass", "high", "--value=1000")
    assert kubectl.ok("get", "pc", "high", "--no-headers").split()[:2] == ["high", "1000"]
    kubectl.ok("create", "job", "made", "--image=busybox")
    kubectl.ok("run", "runner", "--image=busybox", "--restart=Never", "--labels=app=runner")
    assert kubectl.get("pod", "runner")["spec"]["priority"] == 0
    kubectl.ok("delete", "job/made", "pod/runner")


def test_deleted_definition_takes_its_objects_along(kubectl: Kubectl) -> None:
    crd = as_yaml(GIZMO_CRD).replace("gizmo", "widget").replace("Gizmo", "Widget").replace("gz", "wg")
    kubectl.ok("apply", "-f", "-", stdin=crd)
    kubectl.ok("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=5s")
    widget = as_yaml(a_gizmo("one", size=1)).replace("Gizmo", "Widget")
    kubectl.ok("apply", "-f", "-", stdin=widget)
    kubectl.ok("delete", "crd", "widgets.example.com")
    assert "the server could not find the requested resource" in kubectl("get", "widgets").err


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
