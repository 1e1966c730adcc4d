"""The engine in process: builders of clusters and pods, and a loop that decides until no pool is ready.

Invariant: the timed figure is the CPU of this process, after `gc.freeze()`, which the daemon calls too.
"""

import gc
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Bind
from aischeduler.model.events import Event, Seen
from aischeduler.model.node import Node
from aischeduler.model.pod import RUNNING, Pod
from tests.bench.arena import node_name, pool_name
from tests.bench.processes import peak_bytes
from tests.bench.spec import Evidence, overfull
from tests.build import a_node, a_pod, a_pool, replace
from tests.checked_scheduler import answers

SLICE = 32
"""Attempts in one call of `decide`; about as many fit into a slice of 5 ms of the daemon."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Pods to build. `shapes` is the number of different specs (0: every pod differs); pods go to the pools in turn."""

    count: int
    shapes: int = 48
    pools: int = 1
    cpu_milli: int = 500
    gpu: int = 0
    priority: int = 0

    def pods(self, name: str) -> list[Pod]:
        """Return the pods, oldest first."""
        shapes = self.shapes or self.count
        made: dict[tuple[int, int], Pod] = {}
        found = []
        for number in range(self.count):
            kind = (number % shapes, number % self.pools)
            if kind not in made:
                made[kind] = a_pod(
                    cpu=f"{self.cpu_milli + kind[0] % 100}m",
                    memory=f"{256 * 1024 + kind[0]}Ki",
                    gpu=self.gpu,
                    pool=pool_name(kind[1]),
                    priority=self.priority,
                )
            pod = replace(made[kind], uid=f"{name}-{number}", name=f"{name}-{number}", created_seconds=number + 1)
            found.append(pod)
        return found


@dataclass(frozen=True, slots=True)
class World:
    """An engine and its nodes."""

    scheduler: Scheduler
    nodes: Sequence[Node]


def world(nodes: int, pools: int = 1, *, cpu: str = "64", gpu: int = 0) -> World:
    """Return an engine with pools and nodes; the nodes belong to the pools in turn."""
    scheduler = Scheduler(default_profile(), "bench")
    for number in range(pools):
        scheduler.observe(Seen(a_pool(pool_name(number), labels={"team": f"team-{number}"})), 0.0)
    known = []
    for number in range(nodes):
        labels = {"team": f"team-{number % pools}", "zone": f"zone-{number % 3}"}
        node = a_node(node_name(number), cpu=cpu, memory="512Gi", gpu=gpu, pods=500, labels=labels)
        known.append(node)
        scheduler.observe(Seen(node), 0.0)
    return World(scheduler, known)


def running(pods: Sequence[Pod], nodes: Sequence[Node]) -> list[Pod]:
    """Return the pods as running pods, on all nodes in turn."""
    return [
        replace(pod, node_name=nodes[number % len(nodes)].name, phase=RUNNING, started_seconds=number + 1)
        for number, pod in enumerate(pods)
    ]


def tell(scheduler: Scheduler, events: Iterable[Event], now: float = 0.0) -> None:
    """Pass events to the engine."""
    for event in events:
        scheduler.observe(event, now)


def see(scheduler: Scheduler, pods: Sequence[Pod]) -> None:
    """Pass pods to the engine."""
    tell(scheduler, (Seen(pod) for pod in pods))


def decide_all(scheduler: Scheduler, now: float = 0.0) -> list[Action]:
    """Let every pool decide in turn until no pool is ready; return the actions."""
    said: list[Action] = []
    while ready := scheduler.ready(now):
        for pool in ready:
            actions = scheduler.decide(pool, now, SLICE)
            tell(scheduler, answers(actions), now)
            said += actions
    return said


def cpu_of_all(work: Callable[[], object]) -> float:
    """Return the CPU seconds of the work; objects from before are frozen for the garbage collector."""
    gc.collect()
    gc.freeze()
    before = time.process_time()
    work()
    return time.process_time() - before


def peak_mib() -> float:
    """Return the peak resident set of this process in MiB."""
    return peak_bytes(os.getpid()) / 2**20


def evidence(nodes: Sequence[Node], there: Sequence[Pod], awaited: Sequence[Pod], said: Sequence[Action]) -> Evidence:
    """Return where the awaited pods were placed, beside the running pods `there`."""
    placements = [(action.pod.uid, action.node) for action in said if isinstance(action, Bind)]
    asked = {action.pod.uid: action.pod.spec.request.amounts for action in said if isinstance(action, Bind)}
    asked |= {pod.uid: pod.spec.request.amounts for pod in there}
    on_nodes = [*((pod.uid, pod.node_name) for pod in there), *placements]
    room = {node.name: node.allocatable for node in nodes}
    return Evidence([pod.uid for pod in awaited], placements, overfull(room, asked, on_nodes))
