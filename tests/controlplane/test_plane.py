"""The control plane of the tests: it starts, serves, and survives kills, pauses and restarts."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.binaries import BUILD_SCRIPT
from tests.controlplane.part import Part, PartError
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.controlplane.warden import Warden
from tests.objects import job_object, node_object, pod_object

DEFAULT = re.findall(r"k8s.io/kubernetes (v[0-9.]+)", (BUILD_SCRIPT.parent / "kubernetes" / "go.mod").read_text())[0]
RELEASE = os.environ.get("KUBERNETES_VERSION") or DEFAULT
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    yield control_plane
    control_plane.heal()
    sweep(control_plane)


def wait_until(holds: Callable[[], bool], within_seconds: float = 20.0) -> None:
    deadline = time.monotonic() + within_seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def pods(plane: ControlPlane) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = plane.api("GET", PODS).body["items"]
    return items


def test_client_and_server_report_the_chosen_release(plane: ControlPlane) -> None:
    answered = json.loads(plane.kubectl("version", "-o", "json").stdout)
    versions = {part: answered[f"{part}Version"]["gitVersion"] for part in ("client", "server")}
    if "KUBEBUILDER_ASSETS" in os.environ:
        assert not any(version.startswith("v0.") for version in versions.values()), versions
    else:
        assert versions == {"client": RELEASE, "server": RELEASE}
        numbers = answered["serverVersion"]["major"], answered["serverVersion"]["minor"]
        assert list(numbers) == RELEASE.removeprefix("v").split(".")[:2]


def test_every_part_listens_on_loopback_alone(plane: ControlPlane) -> None:
    assert plane.url.startswith("https://127.0.0.1:")
    for port in (plane.ports.etcd_client, plane.ports.etcd_peer, plane.ports.api_server, plane.ports.controllers):
        with socket.socket() as other:
            other.bind(("127.0.0.2", port))  # fails if a part listens on all addresses


def test_node_made_through_the_api_stays_untainted(plane: ControlPlane) -> None:
    made = plane.kubectl("create", "-f", "-", stdin=json.dumps(node_object("n1", cpu="8")))
    assert made.returncode == 0, made.stderr
    found = plane.api("GET", "/api/v1/nodes/n1").body
    assert "taints" not in found["spec"]
    assert found["status"]["allocatable"]["cpu"] == "8"


def test_job_applied_by_kubectl_gets_its_pods_from_the_controller(plane: ControlPlane) -> None:
    applied = plane.kubectl("apply", "-f", "-", stdin=json.dumps(job_object("work", completions=3, parallelism=3)))
    assert applied.returncode == 0, applied.stderr
    wait_until(lambda: len(pods(plane)) == 3)
    assert {item["metadata"]["labels"]["job-name"] for item in pods(plane)} == {"work"}


def test_sweep_empties_the_cluster(plane: ControlPlane) -> None:
    plane.api("POST", "/api/v1/nodes", node_object("n1", cpu="8"))
    plane.api("POST", "/apis/batch/v1/namespaces/default/jobs", job_object("work", completions=5, parallelism=5))
    wait_until(lambda: len(pods(plane)) == 5)
    sweep(plane)
    left = [plane.api("GET", path).body["items"] for path in (PODS, "/apis/batch/v1/jobs", "/api/v1/nodes")]
    assert left == [[], [], []]


def test_bearer_token_is_an_administrator_and_another_is_unauthorized(plane: ControlPlane, tmp_path: Path) -> None:
    asked = plane.kubectl("auth", "can-i", "*", "*", kubeconfig=plane.token_kubeconfig)
    assert asked.stdout.strip() == "yes"
    forged = tmp_path / "forged.kubeconfig"
    forged.write_text(plane.token_kubeconfig.read_text().replace(plane.token, "0" * len(plane.token)))
    refused = plane.kubectl("get", "pods", kubeconfig=forged)
    assert refused.returncode != 0
    assert "must be logged in" in refused.stderr


def test_killed_api_server_comes_back_on_its_port_with_its_data(plane: ControlPlane) -> None:
    plane.api("POST", PODS, pod_object("survivor"))
    uid = plane.api("GET", f"{PODS}/survivor").body["metadata"]["uid"]
    plane.kill("kube-apiserver")
    assert not plane.running("kube-apiserver")
    with pytest.raises(ConnectionRefusedError):
        plane.api("GET", PODS)
    plane.restart("kube-apiserver")
    assert plane.api("GET", f"{PODS}/survivor").body["metadata"]["uid"] == uid


def test_killed_etcd_comes_back_with_its_data(plane: ControlPlane) -> None:
    plane.api("POST", PODS, pod_object("survivor"))
    plane.restart("etcd")
    wait_until(lambda: plane.api("GET", f"{PODS}/survivor").status == 200)


def test_paused_api_server_accepts_and_answers_only_when_resumed(plane: ControlPlane) -> None:
    plane.pause("kube-apiserver")
    with socket.create_connection(("127.0.0.1", plane.ports.api_server), timeout=5.0) as connection:
        connection.settimeout(0.3)
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)
        plane.resume("kube-apiserver")
        connection.settimeout(10.0)
        assert connection.recv(1) != b""


def test_every_thread_of_a_paused_part_stands_still(plane: ControlPlane) -> None:
    tasks = Path(f"/proc/{plane.pid('kube-apiserver')}/task")
    for _ in range(20):
        plane.pause("kube-apiserver")
        states = {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()}
        plane.resume("kube-apiserver")
        assert states == {"T"}


def test_stopped_controllers_make_no_pods_until_they_are_back(plane: ControlPlane) -> None:
    plane.stop("kube-controller-manager")
    plane.api("POST", "/apis/batch/v1/namespaces/default/jobs", job_object("work", completions=2, parallelism=2))
    time.sleep(0.3)
    assert pods(plane) == []
    plane.restart("kube-controller-manager")
    wait_until(lambda: len(pods(plane)) == 2)


def test_heal_brings_back_what_a_test_left_broken(plane: ControlPlane) -> None:
    plane.kill("kube-controller-manager")
    plane.pause("kube-apiserver")
    plane.heal()
    assert plane.running("kube-controller-manager")
    assert plane.api("GET", "/readyz").status == 200


def test_peer_binds_the_pods_that_name_it(plane: ControlPlane) -> None:
    plane.api("POST", "/api/v1/nodes", node_object("n1", cpu="8"))
    plane.start_kube_scheduler()
    plane.api("POST", PODS, pod_object("theirs", scheduler_name="default-scheduler"))
    plane.api("POST", PODS, pod_object("ours", scheduler_name="nobody"))
    wait_until(lambda: plane.api("GET", f"{PODS}/theirs").body["spec"].get("nodeName") == "n1")
    assert "nodeName" not in plane.api("GET", f"{PODS}/ours").body["spec"]


def test_part_that_cannot_start_is_an_error_with_its_last_log_lines(plane: ControlPlane, tmp_path: Path) -> None:
    warden = Warden()
    command = [str(plane.binaries.kube_apiserver), "--no-such-flag"]
    part = Part("kube-apiserver", command, tmp_path / "log", lambda: False, warden)
    with pytest.raises(PartError, match=r"ended before it was ready(.|\n)*unknown flag: --no-such-flag"):
        part.start()
    part.kill()
    warden.close()


def test_part_that_ended_before_it_is_paused_keeps_its_exit_status(tmp_path: Path) -> None:
    warden = Warden()
    part = Part("short", ["sh", "-c", "exit 7"], tmp_path / "log", lambda: True, warden)
    part.launch()
    wait_until(lambda: not alive(part.pid))
    part.pause()
    assert part.end_status() == 7
    part.kill()
    warden.close()


def test_parts_end_when_the_tests_are_killed(tmp_path: Path) -> None:
    child = (
        "import pathlib, sys, time\n"
        "from tests.controlplane.part import Part\n"
        "from tests.controlplane.warden import Warden\n"
        "part = Part('sleep', ['sleep', '300'], pathlib.Path(sys.argv[1]), lambda: True, Warden())\n"
        "part.start()\n"
        "print(part.pid, flush=True)\n"
        "time.sleep(300)\n"
    )
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", child, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        tests.kill()
    wait_until(lambda: not alive(pid), within_seconds=5.0)


def alive(pid: int) -> bool:
    """Return whether the process has ended; a zombie has."""
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
