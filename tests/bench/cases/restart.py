"""Restart in a full cluster: the time from the start of the process to the first Binding.

On a real API server beside kube-scheduler, and alone with generated lists of a much larger cluster.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aischeduler.sandbox.http_server import kubeconfig
from tests.bench.arena import PEER, Arena, full_arena, wait_for_bound
from tests.bench.documents import CLASSES_MAX
from tests.bench.processes import compile_ours, cpu_of, peak_bytes, program, wait_quiet, with_all_events
from tests.bench.recorded import NO_GPUS, node_of, pod_name
from tests.bench.spec import OURS, Case, Evidence, Goal, Measure, Measured, VoidRunError, overfull
from tests.e2e.history import History

ROOT = Path(__file__).resolve().parents[3]
FIRST, LAST, OWN_CPU, PEAK = "s to first Binding", "s to last Binding", "own CPU s to last Binding", "own peak MiB"
HUGE_SECONDS, HUGE_PEAK_MIB = 10.0, 1536.0
ALL_BOUND_SECONDS = 180.0
TOLD_SECONDS = 30.0
POLL_SECONDS = 0.1
NODE_ROOM = {"cpu": 96_000, "pods": 110}


@dataclass(frozen=True, slots=True)
class Crowd:
    """The cluster at the start of the scheduler."""

    nodes: int
    running: int
    waiting: int

    @property
    def text(self) -> str:
        """The cluster in words."""
        return f"{self.nodes:,} nodes, {self.running:,} running pods, {self.waiting:,} waiting pods"


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    real = Crowd(1_000 // shrink, 20_000 // shrink, 100 // min(shrink, 10))
    huge = Crowd(5_000 // shrink, 140_000 // shrink, 1_000 // shrink)
    return (
        Case(
            name="restart",
            about=f"{real.text}, one API server; from the start of the process",
            sides=(OURS, PEER),
            open=partial(opened, real),
            goals=(Goal(FIRST, 1.0, at_least=False, peer=PEER),),
            short=True,
            needs_server=True,
        ),
        Case(
            name="restart-huge",
            about=f"{huge.text}, generated lists; from the start of the process",
            sides=(OURS,),
            open=partial(opened_recorded, huge),
            goals=(Goal(FIRST, HUGE_SECONDS, at_least=False), Goal(PEAK, HUGE_PEAK_MIB, at_least=False)),
            short=True,
        ),
    )


@contextmanager
def opened(crowd: Crowd) -> Iterator[Measure]:
    with full_arena(crowd.nodes, crowd.running) as ground:
        yield partial(restarted, ground, crowd.waiting)


def restarted(ground: Arena, waiting: int, side: str) -> Measured:
    """Start a side after the waiting pods were created."""
    namespace = ground.new_namespace()
    ground.create(namespace, side, waiting)
    runner = ground.runner(side, namespace)
    with History(ground.plane) as history:
        started = time.monotonic()
        pid = runner.start()
        wait_for_bound(history, namespace, waiting)
        own = cpu_of(pid)
        wait_quiet(pid)
        peak = peak_bytes(pid)
        runner.end()
        evidence = ground.evidence(history, namespace, waiting)
        seen = [sight.at for sight in history.sights if sight.node and sight.namespace == namespace]
        ground.empty(history, namespace)
    last = sorted(seen)[waiting - 1]
    return Measured(evidence, {FIRST: min(seen) - started, LAST: last - started, OWN_CPU: own, PEAK: peak / 2**20})


@contextmanager
def opened_recorded(crowd: Crowd) -> Iterator[Measure]:
    compile_ours()
    yield lambda _: restarted_on_records(crowd, NO_GPUS)


def restarted_on_records(crowd: Crowd, gpus: str) -> Measured:
    """Start ai-scheduler against a server with generated lists; `gpus` is what running pods have."""
    sizes = map(str, (crowd.nodes, crowd.running, crowd.waiting))
    command = [sys.executable, "-m", "tests.bench.recorded", *sizes, gpus]
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
    ):
        try:
            return against(server, crowd, Path(directory))
        finally:
            server.kill()


def against(server: subprocess.Popen[str], crowd: Crowd, directory: Path) -> Measured:
    """Start ai-scheduler, wait until it is idle, and read the Bindings from the server."""
    assert server.stdout is not None
    access = directory / "kubeconfig"
    access.write_text(kubeconfig(f"http://127.0.0.1:{int(server.stdout.readline())}"))
    usual = ("--kubeconfig", str(access), "--no-leader-elect", "--http-address=none", "--log-level=info")
    log = directory / "daemon.log"
    started = time.monotonic()
    with program("run", *usual, *with_all_events(directory), log=log) as pid:
        deadline = started + ALL_BOUND_SECONDS
        while log.read_bytes().count(b'"bind"') < crowd.waiting:
            if time.monotonic() > deadline:
                raise VoidRunError(f"not all of {crowd.waiting} pods were bound within {ALL_BOUND_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        own = cpu_of(pid)
        wait_quiet(pid)
        peak = peak_bytes(pid)
    told, _ = server.communicate("end\n", timeout=TOLD_SECONDS)
    bindings = [line.split() for line in told.splitlines()]
    moments = [float(at) for _, _, at in bindings]
    figures = {
        FIRST: min(moments) - started,
        LAST: max(moments) - started,
        OWN_CPU: own,
        PEAK: peak / 2**20,
    }
    return Measured(recorded_evidence(crowd, [(uid, node) for uid, node, _ in bindings]), figures)


def recorded_evidence(crowd: Crowd, placements: list[tuple[str, str]]) -> Evidence:
    """Return where the waiting pods were bound, beside the running pods."""
    names = {bound: [pod_name(n, bound=bound) for n in range(count)] for bound, count in counts(crowd)}
    there = [(name, node_of(number, crowd.nodes)) for number, name in enumerate(names[True])]
    asked = {
        name: {"cpu": 1_000 + number % CLASSES_MAX, "pods": 1}
        for found in names.values()
        for number, name in enumerate(found)
    }
    room = {node_of(number, crowd.nodes): NODE_ROOM for number in range(crowd.nodes)}
    return Evidence(names[False], placements, overfull(room, asked, [*there, *placements]))


def counts(crowd: Crowd) -> tuple[tuple[bool, int], ...]:
    """Return the numbers of bound and of waiting pods."""
    return (True, crowd.running), (False, crowd.waiting)
