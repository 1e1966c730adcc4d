"""Two schedulers with the lease as it is by default: how long nobody binds when the one that leads is killed, or stops.

Pods arrive all the time. What is timed is what users feel: from the signal to the first Binding of the next leader, as
a watcher sees it.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf

from tests.bench.arena import Arena, first_line, full_arena, our_runner, wait_for_bound
from tests.bench.processes import with_all_events
from tests.bench.spec import OURS, Case, Goal, Measure, Measured, VoidRunError
from tests.controlplane.part import PartError
from tests.real.bindings import Answered, bindings
from tests.real.daemon import Line
from tests.real.history import History
from tests.real.replicas import Arrivals, Replica, stand_by, start_both, wrote_late

NODES, RUNNING = 1_000, 20_000
PODS, SECONDS = 700, 50.0
"""Pods that arrive, and over how long: leaders change while they do."""
FEW = 40
"""Pods that each leader binds, at the least."""
WITHIN_SECONDS = 120.0
KILLED, TOLD = (f"s from {signal} of the leader to the next first Binding" for signal in ("SIGKILL", "SIGTERM"))
KILLED_SECONDS, TOLD_SECONDS = 17.0, 3.0


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the case of this module; the sizes are divided by `shrink`, the lease is not."""
    nodes, running = NODES // shrink, RUNNING // shrink
    return (
        Case(
            name="fail-over",
            about=f"two schedulers, {nodes:,} nodes, {running:,} running pods, pods arrive; one API server",
            sides=(OURS,),
            open=partial(opened, nodes, running),
            goals=(Goal(KILLED, KILLED_SECONDS, at_least=False), Goal(TOLD, TOLD_SECONDS, at_least=False)),
            needs_server=True,
        ),
    )


@contextmanager
def opened(nodes: int, running: int) -> Iterator[Measure]:
    with full_arena(nodes, running) as ground:
        yield partial(handed_over, ground)


def handed_over(ground: Arena, side: str) -> Measured:
    """Kill the leader, start it anew beside the next one, and tell that one to stop."""
    plane, namespace = ground.plane, ground.new_namespace()
    pods = [ground.scene.pod(number, namespace, side) for number in range(PODS)]
    options = with_all_events(plane.directory)
    first, second = (Replica(plane, plane.kubeconfig, *options, name=name) for name in ("first", "second"))
    with History(plane) as history:
        try:
            start_both(first, second)
            term = first.term()
            with Arrivals(plane, namespace, pods, SECONDS):
                wait_for_few(history, namespace)
                killed = time.monotonic()
                first.kill()
                wait_for_few(history, namespace)
                stand_by(first)
                told = time.monotonic()
                our_runner(second).end()
                wait_for_few(history, namespace)
                wait_for_bound(history, namespace, PODS, WITHIN_SECONDS)
            our_runner(first).end()
        except (AssertionError, PartError) as late:
            raise VoidRunError(first_line(late)) from late
        finally:
            first.kill()
            second.kill()
        evidence = ground.evidence(history, namespace, PODS)
        answered = bindings(plane, namespace)
        shown = {sight.uid: sight.at for sight in reversed(history.sights) if sight.node}
        ground.empty(history, namespace)
    check(answered, [*first.bugs(), *second.bugs()])
    moments = first_moments(answered, shown)
    return Measured(evidence, {KILLED: moments[term + 1] - killed, TOLD: moments[term + 2] - told})


def wait_for_few(history: History, namespace: str) -> None:
    """Wait until more pods are bound than a leader that ended can have left under way."""
    wait_for_bound(history, namespace, len(history.bound(namespace)) + FEW, WITHIN_SECONDS)


def check(answered: list[Answered], bugs: list[Line]) -> None:
    """Raise VoidRunError where two led at once, or one met a bug of ours."""
    if wrote_late(answered):
        raise VoidRunError("a leader wrote after the next one")
    if bugs:
        raise VoidRunError(f"a scheduler met a bug of ours: {bugs[0]}")


def first_moments(answered: list[Answered], shown: Mapping[str, float]) -> dict[int, float]:
    """Return of each term when its first Binding was shown; `shown` is when each pod was, by uid."""
    moments: dict[int, float] = {}
    for one in answered:
        if one.status == 201:
            term = int(one.epoch)
            moments[term] = min(moments.get(term, inf), shown[one.uid])
    return moments
