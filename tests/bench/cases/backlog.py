"""Pods bound per second and CPU per pod on one real API server: ai-scheduler, a flood of Bindings, and kube-scheduler.

The pods wait before the scheduler starts. The rate is from the first Binding to the last, as a watcher sees them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tests.bench.arena import ALL_DIFFERENT, FLOOD, PEER, Arena, Runner, Scene, arena, wait_for_bound
from tests.bench.processes import cpu_of, peak_bytes, wait_quiet
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.e2e.history import History

PODS = 10_000
PODS_SHORT = 4_000
OWN_CPU_OF_SERVER = 0.2
"""Own CPU per pod, as a share of the CPU that a Binding of a flood costs the API server and etcd."""
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
        ]
    return tuple(found)


def backlog(scene: Scene, pods: int, *, short: bool = False) -> Case:
    different = scene.shapes == ALL_DIFFERENT
    shapes = "all different" if different else f"of {scene.shapes} shapes"
    return Case(
        name=f"backlog-{scene.nodes}n-{scene.pools}p-{pods}{'-different' if different else ''}",
        about=f"{pods:,} waiting pods, {scene.nodes:,} nodes, {scene.pools} pools, pods {shapes}, one API server",
        sides=(OURS, FLOOD, PEER),
        open=partial(opened, scene, pods),
        goals=(
            Goal("pods/s", 0.9, peer=FLOOD),
            Goal("pods/s", 3.0, peer=PEER),
            Goal(ALL_CPU, 1.0, at_least=False, peer=PEER),
            Goal(BINDING_CPU, OWN_CPU_OF_SERVER, at_least=False, peer=FLOOD, of=SERVER_CPU),
        ),
        short=short,
        needs_server=True,
    )


@contextmanager
def opened(scene: Scene, pods: int) -> Iterator[Measure]:
    with arena(scene) as ground:
        yield partial(run_backlog, ground, pods)


@dataclass(frozen=True, slots=True)
class Run:
    """One run in progress, with the CPU seconds of API server and etcd at its start."""

    namespace: str
    pods: int
    runner: Runner
    pid: int
    server_before: dict[str, float]


def run_backlog(ground: Arena, pods: int, side: str, prepare: Callable[[str], None] | None = None) -> Measured:
    """Let a side bind the waiting pods; `prepare` creates what they need in their namespace."""
    namespace = ground.new_namespace()
    if prepare is not None:
        prepare(namespace)
    ground.create(namespace, side, pods)
    runner = ground.runner(side, namespace)
    with History(ground.plane) as history:
        before = ground.server_cpu()
        run = Run(namespace, pods, runner, runner.start(), before)
        wait_for_bound(history, namespace, 1)
        return finished(ground, history, run, own_at_first=cpu_of(run.pid))


def finished(ground: Arena, history: History, run: Run, *, own_at_first: float) -> Measured:
    """Wait for the last Binding and the last event; return the figures of the run."""
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

    spent = sum(server_quiet.values()) - sum(run.server_before.values()) + own_quiet
    to_last = {part: each(server[part] - run.server_before[part]) for part in ("API server", "etcd")}
    figures = {
        "pods/s": (run.pods - 1) / (max(first_seen.values()) - min(first_seen.values())),
        BINDING_CPU: each(own - own_at_first),
        QUIET_CPU: each(own_quiet),
        **{f"{part} CPU ms/pod, to last Binding": cost for part, cost in to_last.items()},
        SERVER_CPU: sum(to_last.values()),
        ALL_CPU: each(spent),
        "own peak MiB": peak / 2**20,
    }
    return Measured(evidence, figures)
