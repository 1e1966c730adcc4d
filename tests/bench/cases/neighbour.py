"""One pool has thousands of waiting pods: how long a single pod of another pool waits beside them.

kube-scheduler has one queue for all, so there the single pod waits behind the crowd.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from tests.bench.arena import PEER, Arena, Scene, arena, wait_for_bound
from tests.bench.arrivals import arrive
from tests.bench.documents import compact
from tests.bench.spec import OURS, Case, Measure, Measured
from tests.controlplane.many import create
from tests.objects import Json
from tests.real.history import History

NODES, CROWD = 1_000, 8_000
SINGLES, SINGLES_PER_SECOND = 20, 10.0
WAIT, LONGEST = "ms a single pod waits, p50", "ms a single pod waits, longest"


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the case of this module, with sizes divided by `shrink`."""
    nodes, crowd = NODES // shrink, CROWD // shrink
    return (
        Case(
            name="crowded-neighbour",
            about=f"{crowd:,} pods wait in one pool, {SINGLES} arrive in another; {nodes:,} nodes, one API server",
            sides=(OURS, PEER),
            open=partial(opened, nodes, crowd),
            needs_server=True,
        ),
    )


@contextmanager
def opened(nodes: int, crowd: int) -> Iterator[Measure]:
    with arena(Scene(nodes, pools=2)) as ground:
        yield partial(waited, ground, crowd)


def pods_of(ground: Arena, namespace: str, side: str, pool: int, count: int) -> list[Json]:
    """Return pods that are all of one of the two pools."""
    return [ground.scene.pod(2 * number + pool, namespace, side) for number in range(count)]


def waited(ground: Arena, crowd: int, side: str) -> Measured:
    """Let a crowd wait, start a side, and let single pods of the other pool arrive."""
    namespace = ground.new_namespace()
    create(ground.plane.connect, f"/api/v1/namespaces/{namespace}/pods", pods_of(ground, namespace, side, 0, crowd))
    singles = [compact(document) for document in pods_of(ground, namespace, side, 1, SINGLES)]
    runner = ground.runner(side, namespace)
    with History(ground.plane) as history:
        runner.start()
        wait_for_bound(history, namespace, crowd // 10)
        sent = arrive(ground.plane.kubeconfig, namespace, singles, SINGLES_PER_SECOND)
        crowd_left = crowd + SINGLES - len(history.bound(namespace))
        wait_for_bound(history, namespace, crowd + SINGLES)
        runner.end()
        evidence = ground.evidence(history, namespace, crowd + SINGLES)
        bound = {sight.name: sight.at for sight in reversed(history.sights) if sight.node}
        ground.empty(history, namespace)
    waits = [(bound[name] - at) * 1e3 for name, at in sent.items()]
    figures = {
        WAIT: float(np.median(waits)),
        LONGEST: max(waits),
        "pods of the crowd that waited to the end": float(crowd_left),
    }
    return Measured(evidence, figures)
