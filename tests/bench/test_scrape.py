"""How long a scrape keeps the event loop from other tasks: while numbers are taken, and while a thread encodes them."""

import asyncio
import gc
import time
from dataclasses import asdict

import pytest
import structlog

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.reporter import ReportCounts
from aischeduler.model.events import NodeSeen, PodSeen, PoolSeen
from aischeduler.observability.metrics import DaemonCollector, Sources
from aischeduler.observability.scrape_cache import Form, encode
from aischeduler.observability.telemetry import Telemetry
from tests.bench.board import show
from tests.build import a_node, a_pod, a_pool

pytestmark = pytest.mark.bench

NODES = 2_000
PODS = 20_000
RUNS = 7


def daemon_metrics(pools: int) -> tuple[Telemetry, DaemonCollector]:
    """Return the metrics of an engine with so many pools, three quarters of whose pods run."""
    scheduler = Scheduler(default_profile(), "bench")
    for number in range(pools):
        scheduler.observe(PoolSeen(a_pool(f"pool-{number:03}", labels={"pool": str(number)})), 0.0)
    for number in range(NODES):
        labels = {"pool": str(number % pools)}
        scheduler.observe(NodeSeen(a_node(f"n-{number}", cpu="32", memory="128Gi", gpu=8, labels=labels)), 0.0)
    for number in range(PODS):
        cpu = "64" if number % 4 == 0 else "2"
        scheduler.observe(PodSeen(a_pod(f"p-{number}", cpu=cpu, pool=f"pool-{number % pools:03}")), 1.0)
    telemetry = Telemetry(scheduler, time.monotonic, structlog.get_logger(), str)
    for pool in scheduler.pools():
        telemetry.scheduler.decide(pool, 2.0, PODS)
    sources = Sources(scheduler, lambda: asdict(ReportCounts()), {}, bool, {}, float)
    return telemetry, DaemonCollector(sources, telemetry.recorder)


async def scraped(telemetry: Telemetry, collector: DaemonCollector, form: Form) -> tuple[float, float, float, int]:
    """Return seconds of taking the numbers, of the longest turn of the loop, of encoding, and the number of lines."""
    began = time.perf_counter()
    collector.take()
    taken = time.perf_counter() - began
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - before)

    beating = asyncio.create_task(beat())
    began = time.perf_counter()
    text = await asyncio.to_thread(encode, telemetry.recorder.registry, form)
    encoded = time.perf_counter() - began
    beating.cancel()
    return taken, longest, encoded, text.count(b"\n")


async def test_scrape_of_twenty_thousand_pods() -> None:
    rows = []
    for pools in (50, 200, 500):
        telemetry, collector = daemon_metrics(pools)
        gc.freeze()  # as the daemon does after the first lists
        for name, form in (("text", Form.TEXT), ("OpenMetrics", Form.OPENMETRICS)):
            runs = [await scraped(telemetry, collector, form) for _ in range(RUNS)]
            taken, longest, encoded = (sorted(run[i] for run in runs)[RUNS // 2] * 1e3 for i in range(3))
            told = f"{taken:.1f}", f"{longest:.1f}", f"{encoded:.0f}", f"{runs[0][3]:,}"
            rows.append((f"{pools} pools, {name}", *told))
        gc.unfreeze()
    columns = ("", "numbers taken, ms", "longest turn meanwhile, ms", "encoded in, ms", "lines")
    show(f"A scrape: {NODES:,} nodes, {PODS:,} pods", columns, rows)
