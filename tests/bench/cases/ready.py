"""How soon a scheduler is ready in a cluster full of pods, and how much memory it has then."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.bench.arena import Arena, full_arena, our_runner, wait, wait_for_bound
from tests.bench.processes import cpu_of, peak_bytes, wait_quiet
from tests.bench.spec import OURS, Case, Goal, Measure, Measured, VoidRunError
from tests.real.history import History
from tests.real.replicas import Replica

NODES, RUNNING = 1_000, 20_000
AFTER = 20
"""Pods that come once it is ready, and have to be bound."""
READY, PEAK = "s to /readyz", "own peak MiB"
READY_SECONDS, PEAK_MIB = 5.0, 200.0
WITHIN_SECONDS = 120.0


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the case of this module, with sizes divided by `shrink`."""
    nodes, running = NODES // shrink, RUNNING // shrink
    return (
        Case(
            name="ready",
            about=f"{nodes:,} nodes, {running:,} running pods, one API server; from the start of the process",
            sides=(OURS,),
            open=partial(opened, nodes, running),
            goals=(Goal(READY, READY_SECONDS, at_least=False), Goal(PEAK, PEAK_MIB, at_least=False)),
            needs_server=True,
        ),
    )


@contextmanager
def opened(nodes: int, running: int) -> Iterator[Measure]:
    with full_arena(nodes, running) as ground:
        yield partial(became_ready, ground, running)


def became_ready(ground: Arena, running: int, side: str) -> Measured:
    """Start ours as the chart does, elected and with metrics; then let it bind a few."""
    namespace = ground.new_namespace()
    daemon = Replica(ground.plane, ground.plane.kubeconfig, metrics=True)
    runner = our_runner(daemon)
    with History(ground.plane) as history:
        started = time.monotonic()
        pid = runner.start()
        wait(history, daemon.ready, "ready", WITHIN_SECONDS)
        seconds, own = time.monotonic() - started, cpu_of(pid)
        check_knows(daemon, {"Node": ground.scene.nodes, "Pod": running})
        ground.create(namespace, side, AFTER)
        wait_for_bound(history, namespace, AFTER, WITHIN_SECONDS)
        wait_quiet(pid)
        peak = peak_bytes(pid)
        runner.end()
        evidence = ground.evidence(history, namespace, AFTER)
        ground.empty(history, namespace)
    return Measured(evidence, {READY: seconds, "own CPU s to /readyz": own, PEAK: peak / 2**20})


def check_knows(daemon: Replica, expected: dict[str, int]) -> None:
    """Raise VoidRunError where it called itself ready before it had listed everything."""
    known = {sample.labels["kind"]: int(sample.value) for sample in daemon.samples("ai_scheduler_watched_objects")}
    if {kind: known[kind] for kind in expected} != expected:
        raise VoidRunError(f"it was ready and knew {known}, not {expected}")
