"""CPU of a proposal that is dropped, against the attempt that proposes the same and applies it, in process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from aischeduler.engine.propose import propose
from aischeduler.model.actions import Bind
from tests.bench.apart import apart
from tests.bench.arena import pool_name
from tests.bench.core import Crowd, evidence, peak_mib, see, world
from tests.bench.spec import OURS, Case, Goal, Measure, Measured

NODES, PODS = 5_000, 5_000
DROPPED = "a dropped proposal, of an applied one"


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the case of this module, with sizes divided by `shrink`."""
    nodes, pods = NODES // shrink, PODS // shrink

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda _: apart(partial(proposing, nodes, pods))

    return (
        Case(
            name="proposals",
            about=f"in process: {pods:,} pods are proposed and then tried, {nodes:,} nodes, one pool",
            sides=(OURS,),
            open=opened,
            goals=(Goal(DROPPED, 1.2, at_least=False),),
            short=True,
        ),
    )


def proposing(nodes: int, pods: int) -> Measured:
    """Propose each pod at its turn, drop the proposal, and let the pool try the pod."""
    there = world(nodes)
    scheduler, pool = there.scheduler, pool_name(0)
    waiting = Crowd(pods).pods("p")
    see(scheduler, waiting)
    cluster = scheduler.cluster
    queue = cluster.queues[pool]
    dropped = applied = 0.0
    said: list[Bind] = []
    while queue.lively:
        record = queue._active[0]
        before = time.process_time()
        propose(cluster, record, pool, 0.0)
        between = time.process_time()
        actions = scheduler.decide(pool, 0.0, 1)
        applied += time.process_time() - between
        dropped += between - before
        said += [one for one in actions if isinstance(one, Bind)]
    figures = {
        DROPPED: dropped / applied,
        "µs/pod, dropped": dropped / pods * 1e6,
        "µs/pod, applied": applied / pods * 1e6,
        "peak MiB": peak_mib(),
    }
    return Measured(evidence(there.nodes, (), waiting, said), figures)
