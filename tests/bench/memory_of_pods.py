"""What pods cost in memory: reads them as a watch gives them into a reflector and an engine, and prints RSS growth.

Run as `python -m tests.bench.memory_of_pods PODS NODES`; prints bytes before and after the pods.
"""

import asyncio
import os
import sys
from collections.abc import Iterator

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube import watched_resources
from aischeduler.kube.decode_pod_spec import SpecCache
from tests.bench.documents import real_node, real_pod, watch_line
from tests.bench.processes import resident_bytes
from tests.bench.replay import reflector_of


def pods(count: int, nodes: int) -> Iterator[bytes]:
    """Return running pods, made one by one so that their bytes are not what is measured."""
    for number in range(count):
        yield watch_line("ADDED", real_pod(number, version=number + 1, node=f"gpu-{number % nodes:05d}"))


def main(count: int, nodes: int) -> None:
    scheduler = Scheduler(default_profile(), "bench")
    nodes_read = reflector_of(
        watched_resources.nodes(),
        (watch_line("ADDED", real_node(number, version=number + 1)) for number in range(nodes)),
        lambda event: scheduler.observe(event, 0.0),
    )
    asyncio.run(nodes_read._watch())
    before = resident_bytes(os.getpid())
    pods_read = reflector_of(
        watched_resources.pods(SpecCache()), pods(count, nodes), lambda event: scheduler.observe(event, 0.0)
    )
    asyncio.run(pods_read._watch())
    print(before, resident_bytes(os.getpid()), len(pods_read))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
