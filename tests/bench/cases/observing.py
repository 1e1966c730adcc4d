"""The worst call of `observe`, in process: many claims on one node, and parked pods of many classes behind them."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.pod import RUNNING, Pod
from aischeduler.model.pool import Namespace
from aischeduler.model.selectors import label_selector
from tests.bench.apart import apart
from tests.bench.arena import pool_name
from tests.bench.core import Crowd, World, decide_all, evidence, peak_mib, running, see, world
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.build import a_node, a_pod, a_pool, replace

NODES, POOLS, RUN = 5_000, 20, 20_000
WAIT = 1_000
"""The number of claims, and of parked classes."""
EACH = 50
"""How many events of a kind are observed."""
WORST, WORST_MS = "worst ms of CPU", 2.0
TEAM = {"team": "team-0"}


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    nodes, run, wait = NODES // shrink // POOLS * POOLS, RUN // shrink, WAIT // shrink  # every pod runs at home

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda _: apart(partial(observing, nodes, run, wait))

    about = f"in process: {nodes:,} nodes, {run:,} pods run; {wait:,} claims, {wait:,} parked classes behind them"
    goals = (Goal(WORST, WORST_MS, at_least=False),)
    return (Case("observe-worst", about, (OURS,), open=opened, goals=goals, short=True),)


def observing(nodes: int, run: int, wait: int) -> Measured:
    """Time each call of `observe`; no pool decides meanwhile, so all claims and parked pods stay."""
    there = world(nodes, POOLS)
    stay = running(Crowd(run, pools=POOLS, cpu_milli=15_000, priority=10).pods("stay"), there.nodes)
    see(there.scheduler, stay)
    big = a_node("big", cpu=f"{7 * wait + 4}", memory="8000Gi", pods=5_000, labels=TEAM)
    there.scheduler.observe(Seen(big), 0.0)
    low = a_pod("low", cpu=f"{7 * wait}", pool=pool_name(0), node="big", phase=RUNNING, started=1)
    see(there.scheduler, [low, *Crowd(wait, shapes=1, cpu_milli=7_000, priority=5).pods("owner")])
    said = decide_all(there.scheduler)
    see(there.scheduler, [low := replace(low, terminating=True, grace_seconds=600)])
    see(there.scheduler, Crowd(wait, shapes=0, cpu_milli=5_000, priority=4).pods("parked"))
    said += decide_all(there.scheduler)
    waiting = there.scheduler.waiting()[pool_name(0)]
    assert waiting == {"parked": wait, "nominated": wait}, waiting
    cordoned = replace(big, unschedulable=True)
    selector = label_selector("spec.selector", {"app": "any"}, ())
    edits = [
        a_pool(pool_name(0), labels=TEAM, disable_sharing=number % 2 > 0, generation=number) for number in range(4)
    ]
    kinds: dict[str, list[Event]] = {
        "a pod goes": [gone(Pod, pod.uid) for pod in stay[: EACH * POOLS : POOLS]],
        "an owner goes": [gone(Pod, f"owner-{number}") for number in range(EACH)],
        "a node is cordoned": [Seen(cordoned if number % 2 else big) for number in range(1, 5)],
        "a budget changes": [Seen(DisruptionBudget("default", "b", "u", selector, number)) for number in range(9)],
        "a Pool is edited": [Seen(pool) for pool in edits],
        "a namespace changes": [Seen(Namespace("default", {"n": str(number)})) for number in range(9)],
        "a pod binds elsewhere": [Seen(a_pod("other", cpu="1", node="big", scheduler_name="other"))],
        "a victim goes": [gone(Pod, low.uid)],
    }
    figures = {
        f"ms of CPU when {kind}": worst(there, events, number) for number, (kind, events) in enumerate(kinds.items())
    }
    return Measured(
        evidence(there.nodes, (), (), ()), {WORST: max(figures.values()), **figures, "peak MiB": peak_mib()}
    )


def worst(there: World, events: list[Event], number: int) -> float:
    """Return the CPU milliseconds of the longest call of `observe`."""
    gc.collect()
    gc.freeze()
    longest, now = 0.0, float(number)
    for event in events:
        before = time.process_time()
        there.scheduler.observe(event, now)
        longest = max(longest, time.process_time() - before)
    return longest * 1e3
