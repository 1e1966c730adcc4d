"""Who we are to the API server: certificate, token, and what a wrong one leads to."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane
from tests.objects import Json, node_object, pod_object
from tests.real.cluster import create_nodes, create_pods
from tests.real.daemon import Daemon
from tests.real.history import History

Start = Callable[[Path], Daemon]


@pytest.fixture
def start(control_plane: ControlPlane, pools_served: None) -> Iterator[Start]:
    """Start a scheduler with a kubeconfig; it ends with the test."""
    with ExitStack() as ends:

        def start(kubeconfig: Path) -> Daemon:
            daemon = ends.enter_context(Daemon(control_plane, kubeconfig))
            daemon.start()
            return daemon

        yield start


def sentence_about(document: Json, directory: Path) -> str:
    """Return the one sentence in which a command refuses to work with a kubeconfig."""
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


def test_token_file_and_context_are_followed(
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
    create_nodes(control_plane, [node_object("n")])
    shown = command("pools", "--kubeconfig", str(kubeconfig), "--context", "other")
    assert shown.returncode == 0, shown.stderr
    assert "default" in shown.stdout


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
    assert str(tmp_path / "nowhere") in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
