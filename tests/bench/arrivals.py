"""Creates pods from a process of its own, at a rate or as fast as the API server accepts them.

Run as `python -m tests.bench.arrivals KUBECONFIG PATH PER_SECOND` with one pod per line, as JSON, on standard input.
The program prints the name of each pod and the time of its POST, in seconds of the monotonic clock.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aischeduler.daemon.service import loop_factory
from aischeduler.kube.access.server import connect
from aischeduler.kube.http.connection_pool import ConnectionPool
from tests.bench.spec import VoidRunError

ROOT = Path(__file__).resolve().parents[2]
IN_FLIGHT = 32
FLAT_OUT = 0.0


def arrive(kubeconfig: Path, namespace: str, documents: Sequence[bytes], per_second: float) -> dict[str, float]:
    """Create the pods; return the time of each POST by pod name. Raises VoidRunError if one is refused."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    command = [sys.executable, "-m", "tests.bench.arrivals", str(kubeconfig), path, str(per_second)]
    given = b"\n".join(documents)
    finished = subprocess.run(command, cwd=ROOT, input=given, capture_output=True, check=False)
    if finished.returncode:
        raise VoidRunError(f"pods could not be created: {finished.stderr.decode().strip().rpartition(chr(10))[2]}")
    words = (line.split() for line in finished.stdout.decode().splitlines())
    return {name: float(at) for name, at in words}


async def send(kubeconfig: str, path: str, per_second: float, documents: Sequence[bytes]) -> list[float]:
    """Create all documents; return the time of each POST. The rate holds while the API server responds faster."""
    connections = ConnectionPool(await connect(kubeconfig, None, time.monotonic), IN_FLIGHT)
    sent = [0.0] * len(documents)
    waiting = iter(enumerate(documents))
    begun = time.monotonic()

    async def some() -> None:
        for number, document in waiting:
            if per_second:
                await asyncio.sleep(begun + number / per_second - time.monotonic())
            sent[number] = time.monotonic()
            answer = await connections.send(b"POST", path.encode(), document, b"application/json")
            if answer.status != 201:
                raise RuntimeError(f"{path}: {answer.status} {answer.body[:200]!r}")

    await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
    await connections.close()
    return sent


def main(kubeconfig: str, path: str, per_second: float) -> None:
    documents = sys.stdin.buffer.read().splitlines()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        sent = runner.run(send(kubeconfig, path, per_second, documents))
    for document, at in zip(documents, sent, strict=True):
        print(json.loads(document)["metadata"]["name"], at)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
