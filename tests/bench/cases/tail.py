"""Pods that arrive at a fixed rate: the time from the POST of a pod to its Binding, as a watcher sees it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from tests.bench.arena import PEER, Arena, Scene, arena, wait_for_bound
from tests.bench.cases.backlog import QUIET_CPU
from tests.bench.processes import cpu_of, peak_bytes, wait_quiet
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.e2e.history import History

NODES = 1_000
SECONDS = 20
P50 = "ms from POST to Binding, p50"
P99 = "ms from POST to Binding, p99"
PERCENTILES = (50, 90, 99)
GOALS = {50: 1.0, 150: 0.5}
"""Pods per second -> goal of p99, as a share of the peer's."""


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    nodes, seconds = NODES // shrink, max(2, SECONDS // shrink)
    return tuple(
        Case(
            name=f"tail-{rate}-a-second",
            about=f"{rate} pods a second for {seconds} s, {nodes:,} nodes, one API server",
            sides=(OURS, PEER),
            open=partial(opened, nodes, rate, rate * seconds),
            goals=(Goal(P99, share, at_least=False, peer=PEER),),
            needs_server=True,
        )
        for rate, share in GOALS.items()
    )


@contextmanager
def opened(nodes: int, rate: int, pods: int) -> Iterator[Measure]:
    with arena(Scene(nodes)) as ground:
        yield partial(paced, ground, rate, pods)


def paced(ground: Arena, rate: int, pods: int, side: str) -> Measured:
    """Create pods at a fixed rate while a side runs."""
    namespace = ground.new_namespace()
    runner = ground.runner(side, namespace)
    with History(ground.plane) as history:
        pid = runner.start()
        wait_quiet(pid)
        wait_quiet(ground.plane.pid("kube-apiserver"))
        before, server_before = cpu_of(pid), sum(ground.server_cpu().values())
        sent = ground.let_arrive(namespace, side, pods, per_second=rate)
        wait_for_bound(history, namespace, pods)
        wait_quiet(pid)
        own, server, peak = cpu_of(pid), sum(ground.server_cpu().values()), peak_bytes(pid)
        runner.end()
        evidence = ground.evidence(history, namespace, pods)
        bound = {sight.name: sight.at for sight in reversed(history.sights) if sight.node}
        ground.empty(history, namespace)
    waits = np.array([(bound[name] - at) * 1e3 for name, at in sent.items()])
    figures = {
        **{f"ms from POST to Binding, p{percent}": float(np.percentile(waits, percent)) for percent in PERCENTILES},
        QUIET_CPU: (own - before) / pods * 1e3,
        "server CPU ms/pod, to quiet": (server - server_before) / pods * 1e3,
        "own peak MiB": peak / 2**20,
    }
    return Measured(evidence, figures)
