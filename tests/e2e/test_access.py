"""Authentication at the API server: certificate, token, and the result of a wrong one."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import apply, create_nodes, create_pods, create_pools, kubectl, token_kubeconfig, wait_for_event
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import Json, node_object, pod_object, pool_object

Start = Callable[[Path], Daemon]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def start(control_plane: ControlPlane, pools_served: None) -> Iterator[Start]:
    """Yield a function that starts a scheduler with a kubeconfig; it ends with the test."""
    with ExitStack() as ends:

        def start(kubeconfig: Path) -> Daemon:
            daemon = ends.enter_context(Daemon(control_plane, kubeconfig))
            daemon.start()
            return daemon

        yield start


def sentence_about(document: Json, directory: Path) -> str:
    """Return the one sentence with which a command refuses a kubeconfig."""
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(json.dumps(document))
    shown = command("pools", "--kubeconfig", str(kubeconfig))
    assert shown.returncode == 1
    assert len(shown.stderr.strip().splitlines()) == 1
    return shown.stderr


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "aischeduler", *arguments]
    return subprocess.run(whole, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("way", ["certificate", "token"])
def test_scheduler_works_with_a_kubeconfig_of_either_kind(
    control_plane: ControlPlane, namespace: str, history: History, start: Start, way: str
) -> None:
    create_nodes(control_plane, [node_object("n")])
    daemon = start(control_plane.kubeconfig if way == "certificate" else control_plane.token_kubeconfig)
    create_pods(control_plane, namespace, [pod_object("p", namespace=namespace)])
    history.wait_until(lambda: history.bound(namespace) == {"p": "n"}, "the pod bound")
    assert daemon.stop() == 0


def test_token_file_and_context_are_used(
    control_plane: ControlPlane, namespace: str, history: History, pools_served: None, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(control_plane.token)
    document = json.loads(control_plane.token_kubeconfig.read_text())
    document["users"].append({"name": "by-file", "user": {"tokenFile": str(token)}})
    document["contexts"].append({"name": "other", "context": {"cluster": "loopback", "user": "by-file"}})
    document["users"][0]["user"] = {"token": "wrong"}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(document))
    create_pools(control_plane, pool_object("seen"))
    shown = command("pools", "--kubeconfig", str(kubeconfig), "--context", "other")
    assert shown.returncode == 0, shown.stderr
    assert "seen" in shown.stdout


def test_wrong_token_is_one_sentence(control_plane: ControlPlane, tmp_path: Path) -> None:
    document = json.loads(control_plane.token_kubeconfig.read_text())
    document["users"][0]["user"] = {"token": "wrong"}
    assert "Unauthorized" in sentence_about(document, tmp_path)


def test_certificate_of_an_unknown_authority_is_one_sentence(control_plane: ControlPlane, tmp_path: Path) -> None:
    document = json.loads(control_plane.token_kubeconfig.read_text())
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    assert "certificate verify failed" in sentence_about(document, tmp_path)


def test_missing_kubeconfig_is_one_sentence_that_names_it(control_plane: ControlPlane, tmp_path: Path) -> None:
    ran = command("run", "--kubeconfig", str(tmp_path / "nowhere"), "--no-leader-elect")
    assert ran.returncode == 1
    logged, said = ran.stderr.strip().splitlines()
    assert said == f"ai-scheduler: {tmp_path / 'nowhere'}: there is no such kubeconfig file"
    assert json.loads(logged)["reason"] == said.removeprefix("ai-scheduler: ")


def rights() -> list[Json]:
    """Return the rules that the documentation lists for the daemon."""
    section = (ROOT / "docs" / "security.md").read_text().partition("## Permissions of the scheduler")[2]
    table = section.partition("\nIn the namespace of the Lease")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ") and "`" in line]
    return [
        {
            "apiGroups": [group.strip(" `").replace("core", "")],
            "resources": re.findall(r"`([^`]+)`", resources),
            "verbs": re.findall(r"`([^`]+)`", verbs),
        }
        for group, resources, verbs, _ in rows
    ]


def account(control_plane: ControlPlane, namespace: str, role: str, directory: Path) -> Path:
    """Return the kubeconfig of a service account with exactly the permissions of this role."""
    subject = f"--serviceaccount={namespace}:default"
    kubectl(control_plane, "create", "clusterrolebinding", role, f"--clusterrole={role}", subject)
    control_plane.kubectl("create", "serviceaccount", "default", "-n", namespace)  # in kube-system it may exist
    return token_kubeconfig(control_plane, "default", namespace, directory)


def grant(control_plane: ControlPlane, name: str, rules: list[Json]) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    apply(control_plane, role | {"rules": rules})


def pools(control_plane: ControlPlane) -> dict[str, Json]:
    answer = control_plane.api("GET", "/apis/resource.aibee.cn/v1alpha1/pools")
    return {pool["metadata"]["name"]: pool.get("status", {}) for pool in answer.body["items"]}


@pytest.fixture
def role(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """Yield the name of a role that is deleted after the test."""
    yield f"scheduler-{namespace}"
    control_plane.kubectl("delete", "clusterrole,clusterrolebinding", f"scheduler-{namespace}", "--ignore-not-found")


def test_documented_permissions_are_enough_and_missing_ones_take_effect_once_granted(
    control_plane: ControlPlane, role: str, history: History, start: Start, tmp_path: Path
) -> None:
    namespace = role.removeprefix("scheduler-")
    reading = [rule for rule in rights() if {"list", "watch"} == set(rule["verbs"])]
    binding = [rule for rule in rights() if rule["resources"] == ["pods/binding"]]
    grant(control_plane, role, reading + binding)
    kubeconfig = account(control_plane, namespace, role, tmp_path)
    create_nodes(control_plane, [node_object("n", cpu="4"), node_object("m", cpu="4", labels={"side": "m"})])
    create_pools(control_plane, pool_object("masters", labels={"side": "m"}))
    daemon = start(kubeconfig)
    create_pods(control_plane, namespace, [pod_object("p", namespace=namespace)])
    create_pods(control_plane, namespace, [pod_object("big", namespace=namespace, cpu="64")])
    history.wait_until(lambda: history.bound(namespace) == {"p": "n"}, "the pod bound without the other rights")
    history.wait_until(lambda: len(refused(daemon)) >= 4, "every refusal in the log")
    assert refused(daemon) == {"event", "pod condition", "pool status", "new pool"}
    assert pools(control_plane) == {"masters": {}}
    grant(control_plane, role, rights())
    told = ("masters", "default")
    history.wait_until(lambda: all(pools(control_plane).get(name) for name in told), "the statuses", 60)
    create_pods(control_plane, namespace, [pod_object("vast", namespace=namespace, cpu="64")])
    assert "Insufficient cpu" in wait_for_event(control_plane, history, namespace, "FailedScheduling", "vast")
    assert daemon.stop() == 0


def refused(daemon: Daemon) -> set[str]:
    return {line["write"] for line in daemon.said("write refused")}
