"""Nodes that tell that they live: each writes its status every few minutes, as a kubelet does where nothing happens.

Run as `python -m tests.bench.heartbeats KUBECONFIG NODES PER_SECOND COUNT`; the nodes are those of `real_node`.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from aischeduler.daemon.service import loop_factory
from aischeduler.kube.pod_writes import STRATEGIC_PATCH, time_text
from tests.bench.arrivals import Write, send
from tests.bench.documents import NODE_CONDITIONS
from tests.bench.recorded import node_of
from tests.bench.spec import VoidRunError

ROOT = Path(__file__).resolve().parents[2]


def beat(kubeconfig: Path, nodes: int, per_second: float, seconds: float) -> int:
    """Let nodes write their status at a pace for so long; return how many were written.

    Raises VoidRunError where one is refused.
    """
    count = round(per_second * seconds)
    command = [sys.executable, "-m", "tests.bench.heartbeats", str(kubeconfig), *map(str, (nodes, per_second, count))]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if finished.returncode:
        raise VoidRunError(f"no status could be written: {finished.stderr.decode().strip().rpartition(chr(10))[2]}")
    return count


def statuses(nodes: int, count: int, unix_seconds: float) -> Iterator[Write]:
    """Yield so many statuses, of one node after the other; nothing in them has changed but the time."""
    at = time_text(unix_seconds, "seconds")
    body = msgspec.json.encode(
        {"status": {"conditions": [{"type": kind, "lastHeartbeatTime": at} for kind in NODE_CONDITIONS]}}
    )
    for number in range(count):
        path = f"/api/v1/nodes/{node_of(number, nodes)}/status"
        yield Write(b"PATCH", path.encode(), body, STRATEGIC_PATCH.encode())


def main(kubeconfig: str, nodes: int, per_second: float, count: int) -> None:
    writes = list(statuses(nodes, count, time.time()))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(send(kubeconfig, per_second, writes))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
