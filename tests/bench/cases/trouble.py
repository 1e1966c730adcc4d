"""An API server that is slow, that throttles, or that stalls for ten seconds, beside the same server in good health.

A proxy makes the trouble; both sides go through it, and both are ours. They are elected: who loses the Lease ends, and
its run is void.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from aischeduler.sandbox.http_server import kubeconfig
from tests.bench.arena import Arena, Scene, arena, our_runner, wait_for_bound
from tests.bench.processes import with_all_events
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.controlplane.plane import ControlPlane
from tests.real.history import History, Sight
from tests.real.replicas import Replica

ROOT = Path(__file__).resolve().parents[3]
HEALTHY = "no trouble"
NODES, POOLS, PODS = 1_000, 4, 3_000
STALL_SECONDS = 10.0
RATE, FAIRNESS = "pods/s", "least pool's share when half are bound, of an equal share"
AFTER = "s from the end of the stall to the next Binding"
ABOUT = {
    "slow": "every request takes 200 ms more",
    "throttle": "every second write is refused with 429",
    "stall": f"nothing moves for {STALL_SECONDS:.0f} s, which are not counted",
}
GOALS = {"slow": (), "throttle": (), "stall": (Goal(RATE, 0.8, peer=HEALTHY),)}


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    nodes, pods = NODES // shrink, PODS // shrink
    return tuple(
        Case(
            name=f"server-{trouble}",
            about=f"{about}; {pods:,} waiting pods, {nodes:,} nodes, {POOLS} pools",
            sides=(OURS, HEALTHY),
            open=partial(opened, Scene(nodes, POOLS), pods, trouble),
            goals=GOALS[trouble],
            needs_server=True,
        )
        for trouble, about in ABOUT.items()
    )


@contextmanager
def opened(scene: Scene, pods: int, trouble: str) -> Iterator[Measure]:
    with arena(scene) as ground:
        yield partial(bound_through, ground, pods, trouble)


class Between:
    """The proxy as a process; `kubeconfig` leads through it."""

    def __init__(self, plane: ControlPlane) -> None:
        files = (plane.authority, plane.admin.certificate, plane.admin.key)
        command = [sys.executable, "-m", "tests.bench.proxy", plane.url, *map(str, files)]
        pipe = subprocess.PIPE
        self._proxy = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self.kubeconfig = plane.directory / "proxy.kubeconfig"
        self.kubeconfig.write_text(kubeconfig(f"http://127.0.0.1:{int(self._told())}"))

    def fall(self, mode: str) -> None:
        """Let the server look ill, or well again."""
        assert self._proxy.stdin is not None
        self._proxy.stdin.write(f"{mode}\n")
        self._proxy.stdin.flush()
        self._told()

    def end(self) -> None:
        """Kill the proxy."""
        self._proxy.kill()
        self._proxy.communicate()

    def _told(self) -> str:
        assert self._proxy.stdout is not None
        return self._proxy.stdout.readline()


def bound_through(ground: Arena, pods: int, trouble: str, side: str) -> Measured:
    """Let ours bind a backlog through the proxy, in trouble or in good health."""
    namespace = ground.new_namespace()
    ground.create(namespace, OURS, pods)
    between = Between(ground.plane)
    replica = Replica(ground.plane, between.kubeconfig, *with_all_events(ground.plane.directory))
    try:
        with History(ground.plane) as history:
            runner = our_runner(replica, may_be_refused=True)
            if side == OURS and trouble != "stall":
                between.fall(trouble)
            runner.start()
            wait_for_bound(history, namespace, 1 if trouble != "stall" else pods // 4)
            stalled = stall(between) if side == OURS and trouble == "stall" else None
            wait_for_bound(history, namespace, pods)
            between.fall("healthy")
            runner.end()
            evidence = ground.evidence(history, namespace, pods)
            bound = first_sights(history)
            ground.empty(history, namespace)
    finally:
        between.end()
    return Measured(evidence, figures(bound, stalled))


def stall(between: Between) -> float:
    """Let nothing move for a while; return the moment at which it moved again."""
    between.fall("stall")
    time.sleep(STALL_SECONDS)
    between.fall("healthy")
    return time.monotonic()


def first_sights(history: History) -> list[Sight]:
    """Return each pod as it was seen bound first, in the order of their Bindings."""
    return list({sight.uid: sight for sight in reversed(history.sights) if sight.node}.values())[::-1]


def figures(bound: list[Sight], stalled: float | None) -> dict[str, float]:
    """Return the rate, how equally the pools fared, and how soon Bindings went on."""
    moments = sorted(sight.at for sight in bound)
    seconds = moments[-1] - moments[0] - (STALL_SECONDS if stalled else 0.0)
    half = sorted(bound, key=lambda sight: sight.at)[: len(bound) // 2]
    by_pool = Counter(int(sight.name.rpartition("-")[2]) % POOLS for sight in half)
    found = {RATE: (len(bound) - 1) / seconds, FAIRNESS: min(by_pool[n] for n in range(POOLS)) * POOLS / len(half)}
    if stalled is not None:
        found[AFTER] = min((at for at in moments if at > stalled), default=stalled) - stalled
    return found
