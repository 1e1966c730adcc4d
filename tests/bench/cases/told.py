"""How long after its Binding a pod's Scheduled event is there, while Bindings go on all the time.

Events go out behind the Bindings, so a crowd that takes long to bind shows how long they wait for that. The API server
dates an event when it takes it in, in whole seconds; so each wait is told as the most that it can have been.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

import numpy as np

from tests.bench.arena import PEER, Arena, Scene, arena, wait_for_bound
from tests.bench.processes import wait_quiet
from tests.bench.spec import OURS, Case, Goal, Measure, Measured, VoidRunError
from tests.real.history import History

NODES, PODS = 1_000, 20_000
MIDDLE, LATE, LATEST = (f"s from Binding to event, {which}" for which in ("p50", "p99", "longest"))
LATE_GOAL_SECONDS = 15.0


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the case of this module, with sizes divided by `shrink`."""
    scene, pods = Scene(NODES // shrink, 4), PODS // shrink
    return (
        Case(
            name="sustained-events",
            about=f"{pods:,} waiting pods, {scene.nodes:,} nodes, one API server: each pod's Scheduled event",
            sides=(OURS, PEER),
            open=partial(opened, scene, pods),
            rounds=1,
            goals=(Goal(LATE, LATE_GOAL_SECONDS, at_least=False),),
            needs_server=True,
        ),
    )


@contextmanager
def opened(scene: Scene, pods: int) -> Iterator[Measure]:
    with arena(scene) as ground:
        yield partial(told, ground, pods)


def told(ground: Arena, pods: int, side: str) -> Measured:
    """Let a side bind a crowd; void when a pod has no event in the end."""
    namespace = ground.new_namespace()
    ground.create(namespace, side, pods)
    runner = ground.runner(side, namespace)
    with History(ground.plane) as history:
        pid = runner.start()
        wait_for_bound(history, namespace, pods)
        wait_quiet(pid)
        wait_quiet(ground.plane.pid("kube-apiserver"))
        runner.end()
        evidence = ground.evidence(history, namespace, pods)
        unix = time.time() - time.monotonic()
        bound = {sight.uid: unix + sight.at for sight in reversed(history.sights) if sight.node}
        events = event_seconds(ground, namespace)
        ground.empty(history, namespace)
    if missing := bound.keys() - events.keys():
        raise VoidRunError(f"{side}: {len(missing)} of {pods} pods have no Scheduled event")
    waits = [max(0.0, events[uid] + 1.0 - at) for uid, at in bound.items()]  # the watch may tell late of a Binding
    middle, late = np.percentile(waits, (50, 99))
    figures = {MIDDLE: float(middle), LATE: float(late), LATEST: max(waits), "s of Bindings": span(bound)}
    return Measured(evidence, figures)


def event_seconds(ground: Arena, namespace: str) -> dict[str, float]:
    """Return of each pod's Scheduled event when the API server took it in, in whole seconds of unix time."""
    items = ground.plane.api("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").body["items"]
    return {
        item["regarding"]["uid"]: datetime.fromisoformat(item["metadata"]["creationTimestamp"]).timestamp()
        for item in items
        if item["reason"] == "Scheduled"
    }


def span(moments: dict[str, float]) -> float:
    return max(moments.values()) - min(moments.values())
