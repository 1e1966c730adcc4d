"""A mixed day: pods arrive and end, pools borrow and take back, pods find no room, labels change, 300 events a second.

Every node but a few in a pool is taken; one pool asks for more than it has, so it borrows, and lenders take back.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tests.bench.arena import Arena, Scene, arena, node_name, our_runner, pool_name
from tests.bench.arrivals import FLAT_OUT, arrive
from tests.bench.documents import compact
from tests.bench.processes import cpu_of, peak_bytes, wait_quiet, with_all_events
from tests.bench.spec import OURS, Case, Evidence, Goal, Measure, Measured, VoidRunError
from tests.controlplane.many import Request, send
from tests.objects import Json, pod_object
from tests.real.bindings import bindings
from tests.real.daemon import Daemon
from tests.real.history import History, Sight

NODES, POOLS = 5_000, 20
FREE_NODES = 40
"""In each pool."""
SECONDS = 60
ARRIVALS_PER_SECOND = EDITS_PER_SECOND = 75
"""Each arrival is followed by a Binding and an end: with the edits, 300 events a second."""
HUNGRY_SHARE = 0.4
NEVER_FIT_EVERY = 20
RUNS_SECONDS = 10.0
TICK_SECONDS = 0.2
LATE_SECONDS = 120.0
NEVER = "never"
ROOT = Path(__file__).resolve().parents[3]
DELAY, DELAY_GOAL_MS = "event loop delay ms, p99", 10.0
SUCCEEDED = {"status": {"phase": "Succeeded"}}


@dataclass(frozen=True, slots=True)
class Day:
    """How large the cluster is and how long the day."""

    nodes: int
    free: int
    seconds: int
    rate: int

    @property
    def arrivals(self) -> int:
        """Pods that arrive in all."""
        return self.seconds * self.rate


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the case of this module, with sizes divided by `shrink`."""
    day = Day(NODES // shrink, max(2, FREE_NODES // shrink), max(5, SECONDS // shrink), ARRIVALS_PER_SECOND // shrink)
    return (
        Case(
            name="mixed-day",
            about=f"{4 * day.rate} events a second for {day.seconds} s, {day.nodes:,} nearly full nodes, {POOLS} pools",
            sides=(OURS,),
            open=partial(opened, day),
            goals=(Goal(DELAY, DELAY_GOAL_MS, at_least=False),),
            needs_server=True,
        ),
    )


@contextmanager
def opened(day: Day) -> Iterator[Measure]:
    with arena(Scene(day.nodes, POOLS)) as ground:
        held = ground.new_namespace()
        taken = range(day.free * POOLS, day.nodes)
        bound = [compact(whole_node(f"held-{n:05d}", held, n % POOLS, node_name(n))) for n in taken]
        arrive(ground.plane.kubeconfig, held, bound, FLAT_OUT)
        yield partial(lived, ground, day)


def whole_node(name: str, namespace: str, pool: int, node: str = "", cpu: str = "60") -> Json:
    """Return a pod beside which nothing fits; it leaves at once when it is evicted."""
    document = pod_object(name, namespace=namespace, cpu=cpu, memory="1Gi", pool=pool_name(pool), node=node)
    document["spec"]["terminationGracePeriodSeconds"] = 0
    return document


def arriving(number: int, namespace: str) -> Json:
    """Return the pod of a number: many of the hungry pool, some that fit nowhere, the others of all pools in turn."""
    if number % NEVER_FIT_EVERY == 0:
        return whole_node(f"{NEVER}-{number:05d}", namespace, number // NEVER_FIT_EVERY % POOLS, cpu="100")
    hungry = number % 10 < 10 * HUNGRY_SHARE
    return whole_node(f"pod-{number:05d}", namespace, 0 if hungry else 1 + number % (POOLS - 1))


class Actors:
    """Those beside the scheduler: pods that have run for a while end, labels of nodes change."""

    def __init__(self, ground: Arena, day: Day, namespace: str, history: History) -> None:
        self.first_bound: dict[str, Sight] = {}
        """Name -> the pod when it was seen bound first."""
        self._ground = ground
        self._day = day
        self._namespace = namespace
        self._history = history
        self._read = 0
        self._running: list[Sight] = []
        self._edits = 0

    def act(self, until: Callable[[], bool], seconds: float) -> None:
        """Go on until something holds; after so many seconds the run is void."""
        deadline = time.monotonic() + seconds
        while not until():
            now = time.monotonic()
            if now > deadline:
                raise VoidRunError(f"the day did not end: {len(self.first_bound)} pods were bound")
            self._look()
            send(self._ground.plane.connect, [*self._ends(now), *self._label_edits()])
            time.sleep(max(0.0, now + TICK_SECONDS - time.monotonic()))

    def all_bound(self) -> bool:
        """Say whether all that can be bound were."""
        return len(self.first_bound) == len(fitting(self._day.arrivals))

    def _look(self) -> None:
        sights = self._history.sights
        end = len(sights)
        for sight in sights[self._read : end]:
            if sight.namespace == self._namespace and sight.node and sight.name not in self.first_bound:
                self.first_bound[sight.name] = sight
                self._running.append(sight)
        self._read = end

    def _ends(self, now: float) -> list[Request]:
        over = [sight for sight in self._running if sight.at < now - RUNS_SECONDS]
        self._running = self._running[len(over) :]
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        return [Request("PATCH", f"{path}/{sight.name}/status", SUCCEEDED) for sight in over]

    def _label_edits(self) -> list[Request]:
        edited = range(self._edits, self._edits + round(self._day.rate * TICK_SECONDS))
        self._edits = edited.stop
        return [
            Request(
                "PATCH", f"/api/v1/nodes/{node_name(n % self._day.nodes)}", {"metadata": {"labels": {"seen": str(n)}}}
            )
            for n in edited
        ]


def fitting(arrivals: int) -> list[int]:
    """Return the numbers of the pods that find room some day."""
    return [number for number in range(arrivals) if number % NEVER_FIT_EVERY]


@contextmanager
def idle_loop(delays: Path) -> Iterator[None]:
    """Let an event loop with nothing to do run beside ours; then `delays` says how late the machine let it be."""
    loop = subprocess.Popen([sys.executable, "-m", "tests.bench.beating", str(delays)], cwd=ROOT)
    try:
        yield
    finally:
        loop.terminate()
        loop.wait()


def lived(ground: Arena, day: Day, _side: str) -> Measured:
    """Let a day pass."""
    namespace = ground.new_namespace()
    delays, idle_delays = (ground.plane.directory / name for name in ("delays.json", "idle_delays.json"))
    beating = ("-m", "tests.bench.beating", str(delays))
    options = with_all_events(ground.plane.directory)
    daemon = Daemon(ground.plane, ground.plane.kubeconfig, *options, program=beating)
    runner = our_runner(daemon, may_be_refused=True)
    documents = [compact(arriving(number, namespace)) for number in range(day.arrivals)]
    with History(ground.plane) as history, ThreadPoolExecutor(1) as elsewhere, idle_loop(idle_delays):
        pid = runner.start()
        wait_quiet(pid)
        begun, own = time.monotonic(), cpu_of(pid)
        sent = elsewhere.submit(arrive, ground.plane.kubeconfig, namespace, documents, float(day.rate))
        actors = Actors(ground, day, namespace, history)
        actors.act(sent.done, day.seconds + LATE_SECONDS)
        share, peak = (cpu_of(pid) - own) / (time.monotonic() - begun), peak_bytes(pid)
        actors.act(actors.all_bound, LATE_SECONDS)
        runner.end()
        evidence = judged(ground, history, namespace)
        evicted = sum(sight.gone for sight in history.sights if sight.namespace == namespace)
        ground.empty(history, namespace)
    waits = [(sight.at - sent.result()[name]) * 1e3 for name, sight in actors.first_bound.items()]
    late, idle_late = (np.array(json.loads(file.read_text())) for file in (delays, idle_delays))
    figures = {
        "own share of a core": share,
        DELAY: float(np.percentile(late, 99)),
        "event loop delay ms, p99, of a loop with nothing to do": float(np.percentile(idle_late, 99)),
        "event loop delay ms, longest": float(late.max()),
        "event loop delay ms, longest, of a loop with nothing to do": float(idle_late.max()),
        **{f"ms from POST to Binding, p{percent}": float(np.percentile(waits, percent)) for percent in (50, 99)},
        "pods evicted": float(evicted),
        "own peak MiB": peak / 2**20,
    }
    return Measured(evidence, figures)


def judged(ground: Arena, history: History, namespace: str) -> Evidence:
    """Return what became of the pods of the day; many of them have ended, some were evicted."""
    names = {sight.uid: sight.name for sight in history.sights if sight.namespace == namespace}
    moved = [names.get(uid, uid) for uid, nodes in history.nodes_of().items() if len(nodes) > 1]
    if moved:
        raise VoidRunError(f"{len(moved)} pods changed their node: {moved[0]}")
    awaited = [uid for uid, name in names.items() if not name.startswith(NEVER)]
    taken = [(one.uid, one.node) for one in bindings(ground.plane, namespace) if one.status == 201]
    return Evidence(awaited, taken, history.overcommitted())
