"""One large gang over full nodes, in process: the longest call of the engine, where room can be made and where not."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from aischeduler.model.actions import Action, Evict
from aischeduler.model.events import Event, Gone, Seen, gone
from aischeduler.model.pod import Pod
from tests.bench.apart import apart
from tests.bench.arena import pool_name
from tests.bench.cases.gangs import declare, gangs_of
from tests.bench.core import SLICE, Crowd, World, decide_all, evidence, peak_mib, running, see, tell, world
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.build import replace
from tests.checked_scheduler import answers

NODES, GPUS = 1_000, 8
ALIKE, DIFFERENT = 512, 64
LONGEST_MS: Final = 25.0
WITHOUT, WITH, AFTER = "longest call ms, none may go", "longest call ms, victims", "longest call ms, once they are gone"


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    nodes, alike, different = (max(8, size // shrink) for size in (NODES, ALIKE, DIFFERENT))
    return (
        longest(nodes, alike, 1, f"a gang of {alike} alike pods"),
        longest(nodes, different, 0, f"a gang of {different} different pods"),
    )


def longest(nodes: int, pods: int, shapes: int, what: str) -> Case:
    """Return the case of a gang of so many shapes, 0 where every pod differs."""

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda _: apart(partial(over_full_nodes, nodes, pods, shapes))

    return Case(
        name=f"gang-over-full-nodes-{'alike' if shapes else 'different'}",
        about=f"in process: {nodes:,} nodes full of {nodes * GPUS:,} pods of one GPU, {what}; the longest call",
        sides=(OURS,),
        open=opened,
        goals=tuple(Goal(figure, LONGEST_MS, at_least=False) for figure in (WITHOUT, WITH)),
        short=True,
    )


def over_full_nodes(nodes: int, pods: int, shapes: int) -> Measured:
    """Nothing may go for the gang, then home pods of lower priority and borrowers."""
    figures = {WITHOUT: max(_calls(nodes, pods, shapes, priority=0)[1])}
    there, calls, said = _calls(nodes, pods, shapes, priority=5)
    figures[WITH] = max(calls)
    victims = {action.victim.uid for action in said if isinstance(action, Evict)}
    ends = [gone(Pod, uid) for uid in sorted(victims)]
    figures[AFTER] = max(_timed(there, ends, said))
    figures |= {"victims": float(len(victims)), "peak MiB": peak_mib()}
    old, new = _pods(there, pods, shapes, priority=5)
    return Measured(evidence(there.nodes, [pod for pod in old if pod.uid not in victims], new, said), figures)


def _pods(there: World, pods: int, shapes: int, priority: int) -> tuple[list[Pod], list[Pod]]:
    """Return the pods on the nodes, every fourth of which is a borrower where some may go, and those of the gang."""
    old = running(Crowd(len(there.nodes) * GPUS, gpu=1, shapes=1).pods("old"), there.nodes)
    if priority:
        old = [pod if number % 4 else replace(pod, pool=pool_name(1)) for number, pod in enumerate(old)]
    crowd = Crowd(pods, gpu=1, shapes=shapes, priority=priority)
    return old, gangs_of(crowd.pods("new"), "new", pods)


def _calls(nodes: int, pods: int, shapes: int, priority: int) -> tuple[World, list[float], list[Action]]:
    """Let the gang come; return the milliseconds of each call, and the actions."""
    there = world(nodes, gpu=GPUS)
    old, new = _pods(there, pods, shapes, priority)
    see(there.scheduler, old)
    decide_all(there.scheduler)
    declare(there, "new", 1, pods)
    said: list[Action] = []
    return there, _timed(there, [Seen(pod) for pod in new], said), said


def _timed(there: World, events: list[Seen] | list[Gone], said: list[Action]) -> list[float]:
    """Let the engine observe the events and decide until no pool is ready; return the CPU milliseconds of each call."""
    gc.collect()
    gc.freeze()
    scheduler, took = there.scheduler, list[float]()

    def call(work: Callable[[], object]) -> None:
        before = time.process_time()
        work()
        took.append((time.process_time() - before) * 1e3)

    def observe(event: Event) -> None:
        call(lambda: scheduler.observe(event, 1.0))

    def decide(pool: str, actions: list[Action]) -> None:
        actions += scheduler.decide(pool, 1.0, SLICE)

    for event in events:
        observe(event)
    while ready := scheduler.ready(1.0):
        for pool in ready:
            actions: list[Action] = []
            call(partial(decide, pool, actions))
            tell(scheduler, answers(actions), 1.0)
            said += actions
    return took
