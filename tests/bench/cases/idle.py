"""What a scheduler costs that has nothing to do: every node of a large cluster tells every few minutes that it lives.

Leases of nodes, which change every ten seconds, are not watched and cost it nothing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.bench.arena import Arena, Scene, arena, our_runner, wait
from tests.bench.documents import as_sent, real_node
from tests.bench.heartbeats import beat
from tests.bench.processes import cpu_of, peak_bytes, wait_quiet
from tests.bench.spec import OURS, Case, Goal, Measure, Measured, VoidRunError
from tests.real.cluster import create_nodes
from tests.real.history import History
from tests.real.replicas import Replica

NODES, EVERY_SECONDS, SECONDS = 5_000, 300.0, 60
SHARE, SHARE_PERCENT = "% of a core", 1.0
LAST_WORDS_SECONDS = 2.0
"""How long the last status may take to be shown."""
WITHIN_SECONDS = 120.0


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the case of this module, with sizes divided by `shrink`."""
    nodes, seconds = NODES // shrink, max(5, SECONDS // shrink)
    return (
        Case(
            name="idle",
            about=f"{nodes:,} nodes write their status every {EVERY_SECONDS:.0f} s, for {seconds} s; one API server",
            sides=(OURS,),
            open=partial(opened, nodes, seconds),
            goals=(Goal(SHARE, SHARE_PERCENT, at_least=False),),
            needs_server=True,
        ),
    )


@contextmanager
def opened(nodes: int, seconds: int) -> Iterator[Measure]:
    with arena(Scene(0)) as ground:
        create_nodes(ground.plane, [as_sent(real_node(number, version=0)) for number in range(nodes)])
        yield partial(idled, ground, nodes, seconds)


def idled(ground: Arena, nodes: int, seconds: int, _side: str) -> Measured:
    """Let ours lead and do nothing but watch."""
    namespace = ground.new_namespace()
    daemon = Replica(ground.plane, ground.plane.kubeconfig, metrics=True)
    runner = our_runner(daemon)
    with History(ground.plane) as history:
        pid = runner.start()
        wait(history, daemon.ready, "ready", WITHIN_SECONDS)
        wait_quiet(pid)
        heard_before = heard(daemon)
        began, before = time.monotonic(), cpu_of(pid)
        written = beat(ground.plane.kubeconfig, nodes, nodes / EVERY_SECONDS, seconds)
        used, took = cpu_of(pid) - before, time.monotonic() - began
        time.sleep(LAST_WORDS_SECONDS)
        missed = written - (heard(daemon) - heard_before)
        peak = peak_bytes(pid)
        runner.end()
        evidence = ground.evidence(history, namespace, 0)
    if missed > 0:
        raise VoidRunError(f"it heard of {written - missed} of {written} statuses")
    return Measured(evidence, {SHARE: used / took * 100, "statuses/s": written / took, "own peak MiB": peak / 2**20})


def heard(daemon: Replica) -> int:
    """Return how many lines about nodes it has read."""
    samples = daemon.samples("ai_scheduler_watch_events")
    return sum(int(sample.value) for sample in samples if sample.labels["kind"] == "Node")
