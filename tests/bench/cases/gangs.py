"""Gangs: a verdict about one that cannot start, many that start, and one that needs the room of others.

In process, except the last case: the same gangs on a real API server, against a flood of Bindings.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from aischeduler.model.actions import Action, Bind, Evict
from aischeduler.model.events import Seen, gone
from aischeduler.model.pod import Pod
from tests.bench.arena import FLOOD, Scene, arena
from tests.bench.cases.backlog import run_backlog
from tests.bench.cases.pathological import alone
from tests.bench.core import Crowd, World, cpu_of_all, decide_all, evidence, peak_mib, running, see, world
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.build import replace
from tests.gangs import a_gang, member

MEMBERS = 8
FULL_NODES, ASKERS = 500, 100
GANGS, NODES = 1_000, 1_000
VERDICT, RATE, ROOM = "CPU s to the verdict", "members/s of CPU", "CPU s to choose the victims"


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    full, askers, gangs, nodes = (max(2, size // shrink) for size in (FULL_NODES, ASKERS, GANGS, NODES))
    old = f"{full * MEMBERS:,} pods of gangs of {MEMBERS} run on {full} nodes of 8 GPUs"
    return (
        alone(
            "gang-impossible",
            f"in process: {full} full nodes of 8 GPUs, a gang of {askers} whole nodes, too few of which may be freed",
            partial(impossible, full, askers),
            Goal(VERDICT, 0.1, at_least=False),
        ),
        alone(
            "gang-start",
            f"in process: {gangs:,} gangs of {MEMBERS} start on {nodes:,} nodes",
            partial(start, gangs, nodes),
            Goal(RATE, 2_000),
        ),
        alone(
            "gang-preempts",
            f"in process: {old}; a gang of {min(64, full)} whole nodes has a higher priority",
            partial(preempt, full, min(64, full)),
            Goal(ROOM, 0.2, at_least=False),
        ),
        Case(
            name="gang-backlog",
            about=f"{gangs * MEMBERS:,} waiting pods in gangs of {MEMBERS}, {nodes:,} nodes, one API server",
            sides=(OURS, FLOOD),
            open=partial(opened, Scene(nodes, gang=MEMBERS), gangs * MEMBERS),
            goals=(Goal("pods/s", 0.85, peer=FLOOD),),
            needs_server=True,
        ),
    )


@contextmanager
def opened(scene: Scene, pods: int) -> Iterator[Measure]:
    with arena(scene) as ground:
        yield partial(run_backlog, ground, pods)


def gangs_of(pods: list[Pod], name: str, size: int) -> list[Pod]:
    """Return the pods as gangs of this size, in turn."""
    return [member(pod, f"{name}-{number // size}") for number, pod in enumerate(pods)]


def declare(there: World, name: str, count: int, size: int) -> None:
    """Tell the engine of the objects of gangs."""
    for number in range(count):
        there.scheduler.observe(Seen(a_gang(f"{name}-{number}", size)), 0.0)


def impossible(nodes: int, askers: int) -> Measured:
    """Every node is full, and a gang needs more nodes than pods of lower priority have."""
    there = world(nodes, gpu=8)
    old = running(Crowd(nodes, gpu=8, shapes=1).pods("old"), there.nodes)
    free = askers - 1
    stay = [replace(pod, priority=0 if number < free else 9) for number, pod in enumerate(old)]
    see(there.scheduler, stay)
    decide_all(there.scheduler)
    declare(there, "new", 1, askers)
    see(there.scheduler, gangs_of(Crowd(askers, gpu=8, shapes=1, priority=5).pods("new"), "new", askers))
    deciding = cpu_of_all(lambda: decide_all(there.scheduler, 1.0))
    return Measured(evidence(there.nodes, stay, (), ()), {VERDICT: deciding, "peak MiB": peak_mib()})


def start(gangs: int, nodes: int) -> Measured:
    """Gangs of alike pods that all fit."""
    there = world(nodes, gpu=8)
    declare(there, "new", gangs, MEMBERS)
    pods = gangs_of(Crowd(gangs * MEMBERS, gpu=1, shapes=1).pods("new"), "new", MEMBERS)
    said: list[Action] = []

    def all_start() -> None:
        see(there.scheduler, pods)
        said.extend(decide_all(there.scheduler, 1.0))

    deciding = cpu_of_all(all_start)
    bound = sum(isinstance(action, Bind) for action in said)
    return Measured(evidence(there.nodes, (), pods, said), {RATE: bound / deciding, "peak MiB": peak_mib()})


def preempt(nodes: int, askers: int) -> Measured:
    """A gang needs whole nodes, each of which has pods of several gangs."""
    there = world(nodes, gpu=8)
    old = running(gangs_of(Crowd(nodes * MEMBERS, gpu=1, shapes=1).pods("old"), "old", MEMBERS), there.nodes)
    declare(there, "old", nodes, MEMBERS)
    see(there.scheduler, old)
    decide_all(there.scheduler)
    declare(there, "new", 1, askers)
    pods = gangs_of(Crowd(askers, gpu=8, shapes=1, priority=5).pods("new"), "new", askers)
    see(there.scheduler, pods)
    said: list[Action] = []
    deciding = cpu_of_all(lambda: said.extend(decide_all(there.scheduler, 1.0)))
    victims = {action.victim.uid for action in said if isinstance(action, Evict)}
    for pod in old:
        if pod.uid in victims:
            there.scheduler.observe(gone(Pod, pod.uid), 2.0)
    said += decide_all(there.scheduler, 2.0)
    stay = [pod for pod in old if pod.uid not in victims]
    figures = {ROOM: deciding, "victims": float(len(victims)), "peak MiB": peak_mib()}
    return Measured(evidence(there.nodes, stay, pods, said), figures)
