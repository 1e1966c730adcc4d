"""The chart on a real API server: install, upgrade, rollback and uninstall; the definitions stay."""

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chart.rendering import CHART, ROOT, Helm, Json, Values
from tests.chart.test_values import EVERYTHING_ON
from tests.controlplane.plane import ControlPlane
from tests.controlplane.ports import free_ports
from tests.e2e.cluster import install, wait_until
from tests.objects import pool_object
from tools.chart import DEVICE_CRD

NAMESPACE = "chart"
STANDARD = "pod-security.kubernetes.io/enforce"
DEVICES = "devices.scheduling.koordinator.sh"
OF_OPERATORS = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus Operator."""
Release = Callable[..., str]
"""Runs a helm command in a namespace and returns its output."""


def device_object(name: str, spec: Json) -> Json:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": name},
        "spec": spec,
    }


def kubectl(plane: ControlPlane, *arguments: str, stdin: str | None = None) -> str:
    ran = plane.kubectl(*arguments, stdin=stdin)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def undefine(plane: ControlPlane) -> None:
    definitions = ("pools.resource.aibee.cn", "queues.resource.aibee.cn", DEVICES)
    kubectl(plane, "delete", "crd", *definitions, "--ignore-not-found", "--wait")


@pytest.fixture(scope="module")
def strict_namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace with the Pod Security Standard `restricted`. At the end the CRD of Pools is installed again."""
    labelled = {"name": NAMESPACE, "labels": {STANDARD: "restricted"}}
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": labelled}
    kubectl(control_plane, "apply", "-f", "-", stdin=json.dumps(document))
    yield NAMESPACE
    kubectl(control_plane, "delete", "namespace", NAMESPACE, "--wait=false")
    undefine(control_plane)
    install(control_plane)


@pytest.fixture
def plane(control_plane: ControlPlane, strict_namespace: str) -> ControlPlane:
    """A control plane without the CRD of Pools."""
    undefine(control_plane)
    return control_plane


@pytest.fixture
def release(plane: ControlPlane, helm: Helm) -> Release:
    env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "HELM_CACHE_HOME": str(plane.directory)}

    def run(*arguments: str, namespace: str = NAMESPACE) -> str:
        command = [str(helm.program), *arguments, f"--namespace={namespace}"]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


@pytest.mark.parametrize("values", [{}, EVERYTHING_ON], ids=["defaults", "everything"])
def test_api_server_takes_every_object_and_warns_of_none(plane: ControlPlane, helm: Helm, values: Values) -> None:
    rendered = helm.render(values, f"--namespace={NAMESPACE}")
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "of-the-deployment", "namespace": NAMESPACE}}
    objects = [found for found in rendered.objects if found["kind"] not in OF_OPERATORS]
    listed = {"apiVersion": "v1", "kind": "List", "items": [*objects, pod | {"spec": rendered.pod()}]}
    said = kubectl(plane, "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(listed))
    assert "Warning" not in said
    assert said.count("(server dry run)") == len(objects) + 1


@pytest.mark.parametrize(
    ("folder", "deployment"), [("manifests", "ai-scheduler"), ("manifests/operator", "ai-scheduler-operator")]
)
def test_plain_manifests_are_applied_in_one_command(plane: ControlPlane, folder: str, deployment: str) -> None:
    said = kubectl(plane, "apply", "--dry-run=server", "--validate=strict", "-k", str(ROOT / folder))
    assert f"deployment.apps/{deployment} created (server dry run)" in said
    assert "Warning" not in said


def test_pools_outlive_the_release_and_the_next_one_takes_them_over(plane: ControlPlane, release: Release) -> None:
    def replicas() -> str:
        path = "jsonpath={.spec.replicas}/{.spec.template.spec.containers[0].ports[0].containerPort}"
        return kubectl(plane, "get", "deployment", "ai-scheduler", "-n", NAMESPACE, "-o", path)

    release("install", "ai-scheduler", str(CHART))
    assert replicas() == "2/8080"
    kubectl(plane, "wait", "--for=condition=Established", "crd/pools.resource.aibee.cn")
    kubectl(plane, "create", "-f", "-", stdin=json.dumps(pool_object("masters", labels={"side": "m"})))
    release("upgrade", "ai-scheduler", str(CHART), "--set=replicaCount=3", "--set=config.http.address=:9090")
    assert replicas() == "3/9090"
    release("rollback", "ai-scheduler", "1")
    assert replicas() == "2/8080"
    assert "kept due to the resource policy" in release("uninstall", "ai-scheduler")
    assert kubectl(plane, "get", "pools", "-o", "name").split() == ["pool.resource.aibee.cn/masters"]
    release("install", "ai-scheduler", str(CHART))
    assert kubectl(plane, "get", "pools", "-o", "name").split() == ["pool.resource.aibee.cn/masters"]
    release("uninstall", "ai-scheduler")


def test_definition_of_devices_is_left_alone_where_it_is_somebody_elses(plane: ControlPlane, release: Release) -> None:
    def spelled() -> bool:
        return "deviceType" in kubectl(plane, "get", "crd", DEVICES, "-o", "yaml")

    options = ("ai-scheduler", str(CHART), "--set=devices.installCRD=true")
    theirs = (CHART / "files" / DEVICE_CRD).read_text().replace("deviceType:", "ofAnotherOwner:")
    kubectl(plane, "create", "-f", "-", stdin=theirs)
    release("install", *options)
    release("upgrade", *options, "--set=replicaCount=3")
    assert not spelled()
    release("uninstall", "ai-scheduler")
    kubectl(plane, "delete", "crd", DEVICES, "--wait")
    release("install", *options)
    assert spelled()
    kubectl(plane, "wait", "--for=condition=Established", f"crd/{DEVICES}")
    release("upgrade", *options, "--set=replicaCount=3")
    spec = {"devices": [{"deviceType": "gpu", "resource": {"kubernetes.io/gpu-memory": "32GB"}}]}
    stored = plane.api("POST", "/apis/scheduling.koordinator.sh/v1alpha1/devices", device_object("node-1", spec))
    assert (stored.status, stored.body["spec"]) == (201, spec)
    assert "kept due to the resource policy" in release("uninstall", "ai-scheduler")
    release("install", *options)
    assert kubectl(plane, "get", "devices", "-o", "name").split() == ["device.scheduling.koordinator.sh/node-1"]
    release("uninstall", "ai-scheduler")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {},
            ["kubectl -n kube-system rollout status deployment/ai-scheduler", "schedulerName: ai-scheduler", "2 pods"],
        ),
        (
            {"replicaCount": 1, "config": {"schedulerName": "blue"}},
            ["schedulerName: blue", "1 pod.", "NOTE: replicaCount is 1. There is no standby"],
        ),
        ({"config": {"disablePreemption": True}}, ["NOTE: config.disablePreemption is true."]),
        ({"crds": {"keep": False}}, ["NOTE: crds.keep is false."]),
    ],
)
def test_notes_say_what_to_do_next_and_what_to_mind(
    release: Release, values: Values, words: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values))
    said = release(
        "install", "ai-scheduler", str(CHART), "--dry-run=server", f"--values={file}", namespace="kube-system"
    )
    notes = said.partition("NOTES:")[2]
    assert [word for word in words if word not in notes] == []
    assert notes.count("NOTE:") == sum("NOTE:" in word for word in words)


@pytest.fixture
def installed(plane: ControlPlane, release: Release) -> Iterator[ControlPlane]:
    """A control plane with a release as the documentation installs it."""
    release("install", "ai-scheduler", str(CHART), namespace="kube-system")
    kubectl(plane, "wait", "--for=condition=Established", "crd/pools.resource.aibee.cn")
    yield plane
    release("uninstall", "ai-scheduler", namespace="kube-system")


def test_questions_of_the_runbooks_about_rights_are_answered_by_the_release(installed: ControlPlane) -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text()
    questions = sorted(set(re.findall(r"^kubectl (auth can-i .*)$", text, re.MULTILINE)))
    answers = {question: installed.kubectl(*question.split()).stdout.strip() for question in questions}
    assert len(answers) >= 6
    assert [question for question in questions if answers[question] != "yes"] == [
        question for question in questions if "--subresource=eviction" in question
    ]


def test_command_of_helm_test_succeeds_with_the_rights_of_the_account(installed: ControlPlane, tmp_path: Path) -> None:
    token = kubectl(installed, "create", "token", "ai-scheduler", "--namespace=kube-system")
    document = json.loads(installed.token_kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token.strip()}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(document))
    command = [sys.executable, "-m", "aischeduler", "pools", "--kubeconfig", str(kubeconfig)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == "there are no Pools; ai-scheduler creates the pool default when it starts\n"


UNFAIR = ("--enable-priority-and-fairness", "--max-requests-inflight", "--max-mutating-requests-inflight")
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
EVENT = ("POST", "/apis/events.k8s.io/v1/namespaces/default/events")
LEASE = ("PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ai-scheduler")
BINDING = ("POST", "/api/v1/namespaces/default/pods/none/binding")
LIST = ("GET", "/api/v1/nodes")


class FairServer:
    """A second API server on the same etcd, with API Priority and Fairness enabled."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        (self._port,) = free_ports(1)
        words = Path(f"/proc/{plane.pid('kube-apiserver')}/cmdline").read_text().rstrip("\0").split("\0")
        kept = [word for word in words if word.partition("=")[0] not in (*UNFAIR, "--audit-log-path")]
        command = [*kept, f"--secure-port={self._port}", f"--audit-log-path={plane.directory / 'fair-audit.log'}"]
        self.part = plane.program("fair-apiserver", command, self._ready)

    def level(self, method: str, path: str, user: str) -> tuple[str, str]:
        """Return the names of the FlowSchema and the priority level of a request."""
        answer = self._ask(method, path, {"Impersonate-User": user})
        schema = answer.getheader("X-Kubernetes-PF-FlowSchema-UID", "")
        level = answer.getheader("X-Kubernetes-PF-PriorityLevel-UID", "")
        return self._name("flowschemas", schema), self._name("prioritylevelconfigurations", level)

    def _ready(self) -> bool:
        try:
            return self._ask("GET", "/readyz", {}).status == 200
        except OSError:  # it does not listen yet
            return False

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Return the response without its body."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=30, context=self._plane.tls)
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            connection.request(method, path, body="{}", headers={"Content-Type": content, **headers})
            return connection.getresponse()
        finally:
            connection.close()

    def _name(self, plural: str, uid: str) -> str:
        items = self._plane.api("GET", f"{FLOWS}/{plural}").body["items"]
        return next((one["metadata"]["name"] for one in items if one["metadata"]["uid"] == uid), "")


@pytest.fixture
def fair(plane: ControlPlane) -> Iterator[FairServer]:
    """The second API server; its own objects are deleted at the end."""
    server = FairServer(plane)
    server.part.start()
    yield server
    server.part.kill()
    kubectl(plane, "delete", "flowschemas,prioritylevelconfigurations", "--all")


Levels = dict[tuple[str, str], tuple[str, str]]
"""Method and path of a request -> FlowSchema and priority level."""
OF_THE_RELEASE: Levels = {
    LEASE: ("ai-scheduler-election", "leader-election"),
    EVENT: ("ai-scheduler-events", "workload-low"),
    BINDING: ("ai-scheduler", "workload-high"),
    LIST: ("ai-scheduler", "workload-high"),
}
OF_ANY_CLIENT: Levels = dict.fromkeys(OF_THE_RELEASE, ("service-accounts", "workload-low"))


@pytest.mark.parametrize(
    ("namespace", "options", "expected"),
    [
        ("kube-system", (), OF_THE_RELEASE),
        (NAMESPACE, (), OF_ANY_CLIENT),
        (NAMESPACE, ("--set=apiPriority=true",), OF_THE_RELEASE),
    ],
    ids=["in kube-system", "elsewhere", "elsewhere by choice"],
)
def test_events_wait_with_other_clients_where_bindings_and_the_lease_do_not(
    fair: FairServer, release: Release, namespace: str, options: tuple[str, ...], expected: Levels
) -> None:
    release("install", "ai-scheduler", str(CHART), "--set=crds.install=false", *options, namespace=namespace)
    account = f"system:serviceaccount:{namespace}:ai-scheduler"
    wait_until(
        lambda: {asked: fair.level(*asked, account) for asked in expected} == expected, "each request at its level"
    )
    release("uninstall", "ai-scheduler", namespace=namespace)
