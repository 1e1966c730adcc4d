"""Elastic jobs: the published experiments of PaddlePaddle's autoscaler again, with the engine and beside others.

The sides are the engine with three freezing windows, the autoscaler written anew, jobs of a fixed size, and what was
published, recomputed from the raw logs: there the averages of ten passes are sums divided by eleven. The cluster is not
made smaller by `--shrink`: a run takes seconds, and one job needs three nodes.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from statistics import fmean
from typing import Final

from tests.bench.apart import apart
from tests.bench.cases.elastic_bound import bound_of_trainer_seconds, bound_of_utilisation
from tests.bench.cases.elastic_engine import Engine
from tests.bench.cases.elastic_original import Fixed, Original
from tests.bench.cases.elastic_script import (
    FAIR_AT_SECONDS,
    OFF_PEAK,
    Story,
    System,
    at_time,
    back_seconds,
    case_1,
    case_2,
    jain,
    lost_seconds,
    mean_of_fit,
    most_in_window,
    names,
    pending_seconds,
    play,
    resizes_of,
    trainer_seconds,
    utilisation,
)
from tests.bench.spec import OURS, Case, Evidence, Goal, Measure, Measured

SCRIPTS: Final = {1: case_1, 2: case_2}
WINDOWS: Final = {OURS: 30.0, "window 0": 0.0, "window 5 min": 300.0}
"""Side -> the freezing window of its jobs."""
AUTOSCALER, FIXED = "autoscaler anew", "fixed size"
PUBLISHED, PUBLISHED_FIXED = "autoscaler, published", "fixed size, published"
SEEDS: Final = 10

PENDING, PENDING_MOST = "pending s, mean", "pending s, most"
USED, USED_OFF_PEAK = "utilisation %", "utilisation off-peak %"
USED_OF_BOUND = "utilisation / perfectly packed"
TRAINERS, RECEIVED, RECEIVED_NET = "trainers, most", "trainer-seconds", "trainer-seconds less 30 s per resize"
OF_BOUND = "trainer-seconds / perfectly packed"
FIT = "trainers that still fit, mean"
FAIR, FAIR_RECEIVED = "Jain of trainers at 500 s", "Jain of trainer-seconds"
RESIZES, WRITTEN = "resizes per job", "sizes written per job"
IN_WINDOW, GROWN_IN_WINDOW = "resizes of a job in its window, most", "growths of a job in its window, most"
REFUSED = "sizes refused, all jobs"
BACK, SERVING = "s until the service is whole, most", "pods of the service at the end"
CPU = "CPU s"

IN_SHORT: Final = (PENDING, PENDING_MOST, USED, RECEIVED, RECEIVED_NET, FAIR, FAIR_RECEIVED, RESIZES, BACK)
"""The figures of the other windows."""

RAW: Final[Mapping[int, Mapping[str, Mapping[str, float]]]] = {
    1: {
        PUBLISHED: {PENDING: 47.2, USED: 76.33, TRAINERS: 346, RECEIVED: 143_491, FAIR_RECEIVED: 0.372},
        PUBLISHED_FIXED: {PENDING: 308.5, USED: 76.16, TRAINERS: 347, RECEIVED: 175_713, FAIR_RECEIVED: 0.296},
    },
    2: {
        PUBLISHED: {
            PENDING: 58.6,
            USED: 83.42,
            USED_OFF_PEAK: 79.35,
            TRAINERS: 261,
            RECEIVED: 105_398,
            FAIR_RECEIVED: 0.795,
        },
        PUBLISHED_FIXED: {
            PENDING: 1.5,
            USED: 61.86,
            USED_OFF_PEAK: 44.91,
            TRAINERS: 90,
            RECEIVED: 46_528,
            FAIR_RECEIVED: 0.999,
        },
    },
}
"""Case -> side -> what the raw logs of the ten published passes say."""


def cases(_shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module."""
    window = Goal(GROWN_IN_WINDOW, 1.0, at_least=False)
    return (
        _case(
            1,
            "elastic-training-only",
            "twenty jobs of 2 to 60 trainers come to 133 nodes",
            Goal(PENDING, 5.0, at_least=False),
            Goal(PENDING_MOST, 15.0, at_least=False),
            Goal(FAIR, 0.95),
            Goal(OF_BOUND, 0.95),
            Goal(RECEIVED, 1.0, peer=PUBLISHED),
            window,
        ),
        _case(
            2,
            "elastic-beside-a-service",
            "six jobs of 2 to 60 trainers beside a service of 100 to 400 pods",
            Goal(BACK, 10.0, at_least=False),
            Goal(USED_OF_BOUND, 0.95),
            window,
        ),
    )


def _case(number: int, name: str, about: str, *goals: Goal) -> Case:
    return Case(
        name=name,
        about=f"in process, virtual time: {about}",
        sides=(*WINDOWS, AUTOSCALER, FIXED, PUBLISHED, PUBLISHED_FIXED),
        open=partial(opened, number),
        rounds=SEEDS,
        goals=goals,
    )


@contextmanager
def opened(number: int) -> Iterator[Measure]:
    """Yield the function that runs a side: each run of a side has the next seed."""
    seeds = Counter[str]()

    def measure(side: str) -> Measured:
        if side in RAW[number]:
            return Measured(Evidence(), RAW[number][side])
        seeds[side] += 1
        return apart(run, number, side, seeds[side])

    yield measure


def run(number: int, side: str, seed: int) -> Measured:
    """Play a script with a side; the seed moves each event by up to a second."""
    before = time.process_time()
    story, system = play_side(number, side, seed)
    return measured(side, story, system, time.process_time() - before)


def measured(side: str, story: Story, system: System, cpu: float) -> Measured:
    """Return the figures of a script that was played with a side, which took so many seconds of CPU."""
    found = figures(story)
    if side != FIXED:
        found |= of_resizes(story, WINDOWS.get(side, WINDOWS[OURS]))
    if isinstance(system, Engine):
        found |= {REFUSED: len(system.refused), CPU: cpu}
    if side in WINDOWS and side != OURS:
        found = {name: value for name, value in found.items() if name in IN_SHORT}
    return Measured(Evidence(overfull=story.overfull), found)


def play_side(number: int, side: str, seed: int) -> tuple[Story, System]:
    """Return what comes of a script with a side, and the side as it is at the end."""
    script, system = SCRIPTS[number](seed), a_system(number, side, seed)
    return play(script, system), system


def a_system(number: int, side: str, seed: int) -> System:
    """Return the cluster of a side."""
    match side:
        case name if name in WINDOWS:
            return Engine(WINDOWS[name])
        case name if name == AUTOSCALER:
            return Original(seed)
        case _:
            return Fixed(SCRIPTS[number](seed).static, seed)


def of_resizes(story: Story, window: float) -> dict[str, float]:
    """Return the figures of a story in which jobs are resized, with this freezing window."""
    jobs, total = names(story.script), sum(trainer_seconds(story).values())
    return {
        RECEIVED_NET: max(total - lost_seconds(story), 0.0),
        RESIZES: sum(len(resizes_of(story, job)) for job in jobs) / len(jobs),
        WRITTEN: len(story.resized) / len(jobs),
        IN_WINDOW: most_in_window(story, window, grown=False),
        GROWN_IN_WINDOW: most_in_window(story, window, grown=True),
    }


def figures(story: Story) -> dict[str, float]:
    """Return the figures of a story."""
    pending, received = pending_seconds(story), trainer_seconds(story)
    total, jobs = sum(received.values()), names(story.script)
    fair = at_time(story, FAIR_AT_SECONDS).trainers
    found = {
        PENDING: fmean(pending),
        PENDING_MOST: max(pending),
        USED: utilisation(story),
        USED_OF_BOUND: utilisation(story) / bound_of_utilisation(story),
        TRAINERS: max(sum(one.trainers.values()) for one in story.samples),
        RECEIVED: total,
        OF_BOUND: total / bound_of_trainer_seconds(story),
        FIT: mean_of_fit(story),
        FAIR: jain([fair.get(job, 0) for job in jobs]),
        FAIR_RECEIVED: jain(list(received.values())),
    }
    if story.script.service:
        found |= {
            USED_OFF_PEAK: utilisation(story, *OFF_PEAK),
            BACK: max(back_seconds(story)),
            SERVING: story.samples[-1].serving,
        }
    return found
