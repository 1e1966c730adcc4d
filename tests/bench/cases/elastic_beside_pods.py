"""Ordinary pods that are decided while elastic jobs run, beside the same jobs with fixed sizes.

The jobs have grown as far as `maxLoad` of their Pools lets them, and want to grow on: every pass looks at each of them
and changes nothing. The clock of the engine is the CPU time of this process, so passes come as often as they do in a
scheduler that is always busy.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from msgspec import Struct

from aischeduler.model.events import Seen
from aischeduler.model.names import CLUSTER
from tests.bench.apart import apart
from tests.bench.cases.elastic_pass import CPUS, JOBS, LEAST, NODES, POOLS, Cluster, pool_of
from tests.bench.spec import OURS, Case, Evidence, Goal, Measure, Measured, VoidRunError
from tests.build import a_pod

PODS, BATCH = 60_000, 500
LOAD_THOUSANDTHS = 500
FIXED = "fixed sizes"
RATE, PASSES, SHARE = "pods per second of CPU", "calls for the whole cluster", "% of the CPU in these calls"


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    jobs, nodes, pods = JOBS // shrink, NODES // shrink, PODS // shrink

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda side: apart(partial(beside, jobs, nodes, pods, elastic=side == OURS))

    about = f"in process: {pods:,} pods decided beside {jobs:,} jobs on {nodes:,} nodes of {POOLS} pools"
    return (Case("elastic-pass-pods", about, (OURS, FIXED), open=opened, goals=(Goal(RATE, 0.97, peer=FIXED),)),)


class Passes(Struct):
    """The calls for the whole cluster, which passes are part of, and their CPU seconds."""

    calls: int = 0
    seconds: float = 0.0


def beside(jobs: int, nodes: int, pods: int, *, elastic: bool) -> Measured:
    """Time the decisions on pods of no gang."""
    size = int(CPUS) * LOAD_THOUSANDTHS * nodes // (1000 * jobs)
    cluster = Cluster(nodes, max_load_thousandths=LOAD_THOUSANDTHS)
    cluster.add(0, jobs, least=LEAST if elastic else size, elastic=elastic)
    cluster.run(3.0)
    if [len(job.pods) for job in cluster.jobs.values()] != [size] * jobs:
        raise VoidRunError(f"not every job has {size} instances")
    gc.collect()
    gc.freeze()
    passes, placed, begun, since = Passes(), 0, time.process_time(), cluster.now
    for first in range(0, pods, BATCH):
        numbers = range(first, min(first + BATCH, pods))
        cluster.tell(*(Seen(a_pod(f"o{n}", cpu="100m", memory="1Mi", pool=pool_of(n), created=n + 1)) for n in numbers))
        cluster.now = since + time.process_time() - begun
        while ready := cluster.scheduler.ready(cluster.now):
            for pool in ready:
                at = time.process_time()
                placed += cluster.decide(pool)
                if pool == CLUSTER:
                    passes.calls += 1
                    passes.seconds += time.process_time() - at
            cluster.now = since + time.process_time() - begun
    spent = time.process_time() - begun
    if placed != pods:
        raise VoidRunError(f"{placed:,} of {pods:,} pods are bound")
    figures = {RATE: pods / spent, PASSES: float(passes.calls), SHARE: 100 * passes.seconds / spent}
    return Measured(Evidence(), figures)
