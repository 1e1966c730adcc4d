"""How long a scrape keeps the event loop from others: the moment in which numbers are taken, and the longest piece."""

import asyncio
import time

import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.reporter import ReportCounts
from aischeduler.model.events import NodeSeen, PodSeen, PoolSeen
from aischeduler.observability.exposition import Form, render
from aischeduler.observability.metrics import Metrics
from aischeduler.observability.observatory import Observatory
from aischeduler.observability.sources import Sources, Waiting
from tests.bench.board import show
from tests.build import a_node, a_pod, a_pool

pytestmark = pytest.mark.bench

NODES = 2_000
PODS = 20_000
RUNS = 7


def metrics(pools: int) -> Metrics:
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
    watched = Observatory(scheduler, time.monotonic, str, bool)
    for pool in scheduler.pools():
        watched.engine.decide(pool, 2.0, PODS)
    return Metrics(Sources(scheduler, watched.meter, ReportCounts(), {}, bool, Waiting({}, float)))


async def scraped(of: Metrics, form: Form) -> tuple[float, float, int]:
    """Return CPU seconds of taking the numbers, of the longest piece, and the number of lines."""
    began = time.process_time()
    families = of.collect()
    taken = time.process_time() - began
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.process_time()
            await asyncio.sleep(0)
            longest = max(longest, time.process_time() - before)

    beating = asyncio.create_task(beat())
    text = await render(families, form)
    beating.cancel()
    return taken, longest, text.count(b"\n")


async def test_scrape_of_twenty_thousand_pods() -> None:
    rows = []
    for pools in (50, 200):
        of = metrics(pools)
        for name, form in (("text", Form.TEXT), ("OpenMetrics", Form.OPENMETRICS)):
            runs = [await scraped(of, form) for _ in range(RUNS)]
            taken, longest = (sorted(run[i] for run in runs)[RUNS // 2] for i in (0, 1))
            told = f"{taken * 1e3:.1f}", f"{longest * 1e3:.1f}", f"{runs[0][2]:,}", f"{taken / 0.005:.2f}"
            rows.append((f"{pools} pools, {name}", *told))
    columns = ("", "numbers taken, CPU ms", "longest piece, CPU ms", "lines", "of a 5 ms slice")
    show(f"A scrape: {NODES:,} nodes, {PODS:,} pods", columns, rows)
