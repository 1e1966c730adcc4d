"""The journal of a scheduler on a real API server, replayed in another process."""

import os
import subprocess
import sys
from pathlib import Path

from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import GPU_NODES, GPU_POOL, NODE_GPUS, backlog, create_pods, create_priority
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import pod_object


def replay(path: Path, hash_seed: int) -> subprocess.CompletedProcess[str]:
    """Return what the command says of a journal."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-m", "aischeduler", "replay", str(path)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_journal_of_a_daemon_with_evictions_gives_the_same_actions_in_other_processes(
    control_plane: ControlPlane, cluster: None, kubelets: Part, history: History, namespace: str, tmp_path: Path
) -> None:
    create_priority(control_plane, f"high-{namespace}", 1000)
    urgent = [
        pod_object(
            f"urgent-{n}", namespace=namespace, memory="64Mi", gpu=1, pool=GPU_POOL, priority_class=f"high-{namespace}"
        )
        for n in range(5)
    ]
    waiting = [pod for pod in backlog(namespace) if pod["metadata"]["name"].startswith("gpu")]
    with Daemon(control_plane, None, "--journal", str(tmp_path)) as daemon:
        daemon.start()
        create_pods(control_plane, namespace, waiting)
        history.wait_for_bound(namespace, len(waiting))
        create_pods(control_plane, namespace, urgent)
        names = {pod["metadata"]["name"] for pod in urgent}
        history.wait_until(lambda: names <= set(history.bound(namespace)), "the urgent pods are bound")
        (path,) = tmp_path.glob("journal-*.jsonl")
        assert daemon.said("writing a journal")[0]["file"] == str(path)
        assert daemon.stop() == 0
    lines = path.read_bytes().splitlines()
    assert sum(line.count(b'["Bind"') for line in lines) >= len(waiting) == GPU_NODES * NODE_GPUS
    assert sum(line.count(b'["Evict"') for line in lines) == len(urgent)
    for hash_seed in (0, 1, 4711):
        answer = replay(path, hash_seed)
        assert (answer.returncode, answer.stdout) == (0, f"{len(lines) - 1} calls: no difference.\n"), answer
    first = next(i for i, line in enumerate(lines) if b'["Bind"' in line)
    lines[first] = lines[first].replace(b'["Bind","', b'["Bind","x', 1)
    path.write_bytes(b"\n".join(lines) + b"\n")
    answer = replay(path, 0)
    assert answer.returncode == 1
    assert answer.stdout.startswith(f"Line {first + 1}: the call at ")
