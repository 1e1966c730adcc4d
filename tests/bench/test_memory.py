"""Memory of many pods: in the core alone, in the daemon, and in the sandbox that serves them."""

import http.client
import json
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from aischeduler.kube.pool_crd import pool_crd
from tests.bench.board import show
from tests.bench.documents import as_sent, compact, real_node, real_pod
from tests.bench.processes import program, resident_bytes, wait_quiet, with_all_events
from tests.controlplane.many import Connect, create
from tests.objects import POOL_API, pool_object

pytestmark = pytest.mark.bench

ROOT = Path(__file__).resolve().parents[2]
PODS = 20_000
NODES = 1_000
ALL_BOUND_SECONDS = 300.0
POLL_SECONDS = 1.0
Row = list[str]


def row(name: str, before: int, after: int) -> Row:
    """Return a line of the table; a pod on the wire is what the growth is compared with."""
    connections = len(compact(real_pod(0, version=1)))
    each = (after - before) / PODS
    return [name, f"{before / 1e6:,.0f}", f"{after / 1e6:,.0f}", f"{each:,.0f}", f"{each / connections:.2f}"]


def in_process() -> Row:
    command = [sys.executable, "-m", "tests.bench.memory_of_pods", str(PODS), str(NODES)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    before, after, held = map(int, printed.split())
    assert held == PODS
    return row("reflector and engine alone, pods running", before, after)


def wait_for(path: Path, seconds: float = 30.0) -> str:
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.05)
    return path.read_text()


def sandbox_connect(kubeconfig: Path) -> Connect:
    address = urlsplit(wait_for(kubeconfig).partition("server: ")[2].split()[0])
    return partial(http.client.HTTPConnection, address.hostname or "", address.port, timeout=60)


def unbound(connect: Connect) -> int:
    """Return how many pods wait."""
    with closing(connect()) as server:
        server.request("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D&limit=1")
        page: dict[str, Any] = json.loads(server.getresponse().read())
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def against_the_sandbox(directory: Path) -> list[Row]:
    kubeconfig = directory / "kubeconfig"
    with program("sandbox", "--kubeconfig-out", str(kubeconfig), log=directory / "sandbox.log") as sandbox:
        connect = sandbox_connect(kubeconfig)
        create(connect, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", [pool_crd()])
        create(connect, f"/apis/{POOL_API}/pools", [pool_object("gpu-pool", labels={"gpu": "true"})])
        create(connect, "/api/v1/nodes", (as_sent(real_node(number, version=0)) for number in range(NODES)))
        usual = ("--kubeconfig", str(kubeconfig), "--no-leader-elect", "--http-address=none", "--log-level=warning")
        with program("run", *usual, *with_all_events(directory), log=directory / "daemon.log") as daemon:
            time.sleep(2 * POLL_SECONDS)
            wait_quiet(daemon)
            daemon_before, sandbox_before = resident_bytes(daemon), resident_bytes(sandbox)
            pods = (as_sent(real_pod(number, version=0)) for number in range(PODS))
            create(connect, "/api/v1/namespaces/default/pods", pods)
            deadline = time.monotonic() + ALL_BOUND_SECONDS
            while unbound(connect):
                assert time.monotonic() < deadline, f"{unbound(connect)} pods wait: {directory / 'daemon.log'}"
                time.sleep(POLL_SECONDS)
            wait_quiet(daemon, ALL_BOUND_SECONDS)
            return [
                row("daemon, all pods bound, events written", daemon_before, resident_bytes(daemon)),
                row("sandbox that serves them, with their events", sandbox_before, resident_bytes(sandbox)),
            ]


@pytest.mark.timeout(1200)
def test_memory_of_many_pods(tmp_path: Path) -> None:
    show(
        f"Memory of {PODS:,} pods on {NODES:,} nodes (resident set)",
        ["", "MB before", "MB after", "bytes a pod", "/ bytes of the pod as JSON"],
        [in_process(), *against_the_sandbox(tmp_path)],
    )
