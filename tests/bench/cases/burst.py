"""Alike pods that wait when a side starts on a freshly started API server: pods bound per second in the first seconds.

Invariants:
- Every run has an etcd and an API server of its own, which start before it, so that no side uses what another has
  warmed up.
- The start of the process is not counted: the clock of a side runs from the moment at which it has listed the pods and
  has sent nothing, until the API server answers the last Binding. Both open their connections within that time.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from tests.bench.arena import FLOOD_BY_AIOHTTP, Arena, Scene, arena, wait_for_bound
from tests.bench.processes import compile_ours, cpu_of
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.e2e.history import History

PODS = 3_000
ROUNDS = 6
RATE = "pods/s"


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    pods = PODS // shrink
    return tuple(
        Case(
            name=f"burst-{nodes}",
            about=f"{pods:,} alike waiting pods, {nodes:,} nodes, 1 pool, a fresh API server for each run",
            sides=(OURS, FLOOD_BY_AIOHTTP),
            open=partial(opened, Scene(nodes, shapes=1), pods),
            rounds=ROUNDS,
            goals=(Goal(RATE, 0.9, peer=FLOOD_BY_AIOHTTP),),
            needs_server=True,
        )
        for nodes in (1_000 // shrink, 5_000 // shrink)
    )


@contextmanager
def opened(scene: Scene, pods: int) -> Iterator[Measure]:
    compile_ours()
    yield partial(on_fresh_server, scene, pods)


def on_fresh_server(scene: Scene, pods: int, side: str) -> Measured:
    """Start an API server and let a side bind the waiting pods."""
    with arena(scene) as ground:
        namespace = ground.new_namespace()
        ground.create(namespace, side, pods)
        return burst(ground, namespace, pods, side)


def burst(ground: Arena, namespace: str, pods: int, side: str) -> Measured:
    runner = ground.runner(side, namespace)
    with History(ground.plane) as history:
        before = sum(ground.server_cpu().values())
        pid = runner.start()
        wait_for_bound(history, namespace, pods)
        own, server = cpu_of(pid), sum(ground.server_cpu().values())
        runner.end()
        evidence = ground.evidence(history, namespace, pods)
    ready, answers = runner.ready_at(), answered_at(ground, namespace)
    figures = {
        RATE: pods / (answers[-1] - ready),
        "pods/s, first to last Binding": (pods - 1) / (answers[-1] - answers[0]),
        "ms to the first Binding": (answers[0] - ready) * 1e3,
        "own CPU ms/pod, with the start": own / pods * 1e3,
        "API server and etcd CPU ms/pod": (server - before) / pods * 1e3,
    }
    return Measured(evidence, figures)


def answered_at(ground: Arena, namespace: str) -> list[float]:
    """Return the times of the answers to the Bindings of a namespace, from the audit log, in unix seconds."""
    lines = ground.plane.audit_log.read_text().splitlines()
    noted = (json.loads(line) for line in lines if '"subresource":"binding"' in line)
    return sorted(
        datetime.fromisoformat(one["stageTimestamp"]).timestamp()
        for one in noted
        if one["objectRef"]["namespace"] == namespace
    )
