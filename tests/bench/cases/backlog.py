"""Pods bound per second on one real API server: ours, a pure flood of Bindings, and kube-scheduler.

A backlog waits before the scheduler starts; live pods arrive as fast as they can be created while it runs. The rate is
from the first Binding to the last, as a watcher sees them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tests.bench.arena import (
    ALL_DIFFERENT,
    FLOOD,
    FLOOD_BY_AIOHTTP,
    PEER,
    SHAPES,
    Arena,
    Runner,
    Scene,
    arena,
    wait_for_bound,
)
from tests.bench.arrivals import FLAT_OUT
from tests.bench.processes import cpu_of, peak_bytes, wait_quiet
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.real.history import History

PODS = 10_000
PODS_SHORT = 4_000
OWN_CPU_GOAL_MS = 0.3
OWN_CPU_GOAL_OF_SERVER = OWN_CPU_GOAL_MS / 1.45
"""The same on any machine: on the one for which 0.3 ms were asked, a Binding of a flood cost the server 1.45 ms."""
BINDING_CPU = "own CPU ms/pod, first to last Binding"
QUIET_CPU = "own CPU ms/pod, to quiet"
SERVER_CPU = "API server and etcd CPU ms/pod, to last Binding"
ALL_CPU = "all CPU ms/pod, to quiet"


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    found: list[Case] = []
    for nodes, short in ((1_000 // shrink, False), (5_000 // shrink, True)):
        found += [
            backlog(Scene(nodes, 4), PODS_SHORT // shrink, short=short),
            backlog(Scene(nodes, 1), PODS // shrink),
            backlog(Scene(nodes, 20), PODS // shrink),
            backlog(Scene(nodes, 20, ALL_DIFFERENT), PODS // shrink),
            live(Scene(nodes, 20), PODS // shrink),
        ]
    return tuple(found)


def described(scene: Scene) -> str:
    """Return a scene in words."""
    shapes = "all different" if scene.shapes == ALL_DIFFERENT else f"of {scene.shapes} shapes"
    return f"{scene.nodes:,} nodes, {scene.pools} pools, pods {shapes}"


def named(kind: str, scene: Scene, pods: int) -> str:
    """Return the name of a case."""
    different = "" if scene.shapes == SHAPES else "-different"
    return f"{kind}-{scene.nodes}n-{scene.pools}p-{pods}{different}"


def backlog(scene: Scene, pods: int, *, short: bool = False) -> Case:
    return Case(
        name=named("backlog", scene, pods),
        about=f"{pods:,} waiting pods, {described(scene)}, one API server",
        sides=(OURS, FLOOD, FLOOD_BY_AIOHTTP, PEER),
        open=partial(opened, scene, pods),
        goals=(
            Goal("pods/s", 0.9, peer=FLOOD),
            Goal("pods/s", 0.9, peer=FLOOD_BY_AIOHTTP),
            Goal("pods/s", 3.0, peer=PEER),
            Goal(ALL_CPU, 1.0, at_least=False, peer=PEER),
            *(own_cpu_goals() if scene.nodes == 5_000 else ()),
        ),
        short=short,
        needs_server=True,
    )


def own_cpu_goals() -> tuple[Goal, Goal]:
    """Return what own CPU should reach, as it was asked and by the speed of the machine during the run."""
    of_server = Goal(BINDING_CPU, OWN_CPU_GOAL_OF_SERVER, at_least=False, peer=FLOOD_BY_AIOHTTP, of=SERVER_CPU)
    return Goal(BINDING_CPU, OWN_CPU_GOAL_MS, at_least=False), of_server


def live(scene: Scene, pods: int) -> Case:
    return Case(
        name=named("live", scene, pods),
        about=f"{pods:,} pods that arrive as fast as they can be created, {described(scene)}, one API server",
        sides=(OURS, PEER),
        open=partial(opened, scene, pods, waiting=False),
        goals=(
            Goal("pods/s", 1.0, peer=PEER),
            Goal(ALL_CPU, 1.0, at_least=False, peer=PEER),
            *([Goal(QUIET_CPU, OWN_CPU_GOAL_MS, at_least=False)] if scene.nodes == 5_000 else []),
        ),
        needs_server=True,
    )


@contextmanager
def opened(scene: Scene, pods: int, *, waiting: bool = True) -> Iterator[Measure]:
    with arena(scene) as ground:
        yield partial(run_backlog if waiting else run_live, ground, pods)


@dataclass(frozen=True, slots=True)
class Run:
    """One run under way; CPU seconds of the server's parts and of the runner before it began to work."""

    namespace: str
    pods: int
    runner: Runner
    pid: int
    server_before: dict[str, float]
    own_before: float


def run_backlog(ground: Arena, pods: int, side: str) -> Measured:
    """Let a side bind pods that wait already."""
    namespace = ground.new_namespace()
    ground.create(namespace, side, pods)
    runner = ground.runner(side, namespace)
    with History(ground.plane) as history:
        before = ground.server_cpu()
        run = Run(namespace, pods, runner, runner.start(), before, 0.0)
        wait_for_bound(history, namespace, 1)
        return finished(ground, history, run, own_at_first=cpu_of(run.pid))


def run_live(ground: Arena, pods: int, side: str) -> Measured:
    """Let a side bind pods that arrive while it runs."""
    namespace = ground.new_namespace()
    runner = ground.runner(side, namespace)
    with History(ground.plane) as history:
        pid = runner.start()
        wait_quiet(pid)
        wait_quiet(ground.plane.pid("kube-apiserver"))
        run = Run(namespace, pods, runner, pid, ground.server_cpu(), cpu_of(pid))
        ground.let_arrive(namespace, side, pods, FLAT_OUT)
        return finished(ground, history, run, own_at_first=run.own_before)


def finished(ground: Arena, history: History, run: Run, *, own_at_first: float) -> Measured:
    """Wait for the last Binding and the last Event; return the figures of the run."""
    wait_for_bound(history, run.namespace, run.pods)
    own, server = cpu_of(run.pid), ground.server_cpu()
    wait_quiet(run.pid)
    wait_quiet(ground.plane.pid("kube-apiserver"))
    own_quiet, server_quiet, peak = cpu_of(run.pid), ground.server_cpu(), peak_bytes(run.pid)
    run.runner.end()
    evidence = ground.evidence(history, run.namespace, run.pods)
    first_seen = {sight.uid: sight.at for sight in reversed(history.sights) if sight.node}
    ground.empty(history, run.namespace)

    def each(seconds: float) -> float:
        return seconds / run.pods * 1e3

    spent = sum(server_quiet.values()) - sum(run.server_before.values()) + own_quiet - run.own_before
    to_last = {part: each(server[part] - run.server_before[part]) for part in ("API server", "etcd")}
    figures = {
        "pods/s": (run.pods - 1) / (max(first_seen.values()) - min(first_seen.values())),
        BINDING_CPU: each(own - own_at_first),
        QUIET_CPU: each(own_quiet - run.own_before),
        **{f"{part} CPU ms/pod, to last Binding": cost for part, cost in to_last.items()},
        SERVER_CPU: sum(to_last.values()),
        ALL_CPU: each(spent),
        "own peak MiB": peak / 2**20,
    }
    return Measured(evidence, figures)
