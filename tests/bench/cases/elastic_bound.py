"""How many trainers fit on the cluster of the experiment beside parameter servers and a service, perfectly packed.

Invariant: it is a bound. Masters, which take what is left of nodes, are not counted, and memory is not scarce.
"""

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.bench.cases.elastic_script import (
    CORES,
    CPU_MILLI,
    JOBS_IN_CASE_1,
    JOBS_IN_CASE_2,
    MASTER,
    MOST,
    PSERVER,
    PSERVERS,
    SERVICE,
    STEPS,
    SYSTEM_MILLI,
    TRAINER,
    Story,
    capacity_milli,
    spans,
)

NEVER: Final = -10_000


def most_trainers(jobs: int, service: int) -> int:
    """Return the most trainers that fit beside the parameter servers of so many jobs, and so many pods of a service."""
    table = _table(JOBS_IN_CASE_2 if service else JOBS_IN_CASE_1, max(STEPS) if service else 0)
    return min(MOST * jobs, int(table[PSERVERS * jobs, service]))


@cache
def _table(jobs: int, service: int) -> NDArray[np.int32]:
    """Return the most trainers beside at least so many parameter servers (rows) and pods of the service (columns)."""
    best = np.full((PSERVERS * jobs + 1, service + 1), NEVER, dtype=np.int32)
    best[0, 0] = 0
    for cores in CORES:
        fuller = np.full_like(best, NEVER)
        for trainers, servers, serving in _fillings(1_000 * cores - SYSTEM_MILLI):
            rows = np.minimum(np.arange(best.shape[0]) + servers, best.shape[0] - 1)
            columns = np.minimum(np.arange(best.shape[1]) + serving, best.shape[1] - 1)
            np.maximum.at(fuller, np.ix_(rows, columns), best + trainers)
        best = fuller
    return best


@cache
def _fillings(cpu_milli: int) -> tuple[tuple[int, int, int], ...]:
    """Return how many trainers, parameter servers and pods of the service fit on a node together, as many as do."""
    of_trainer, of_server, of_serving = CPU_MILLI[TRAINER], CPU_MILLI[PSERVER], CPU_MILLI[SERVICE]
    found: list[tuple[int, int, int]] = []
    for trainers in range(cpu_milli // of_trainer + 1):
        left = cpu_milli - trainers * of_trainer
        for servers in range(left // of_server + 1):
            serving = (left - servers * of_server) // of_serving
            found.append((trainers, servers, serving))
    return tuple(found)


def running(story: Story, at: float) -> int:
    """Return how many jobs have started until a time."""
    return sum(started <= at for started in story.started.values())


def bound_of_trainer_seconds(story: Story) -> float:
    """Return the most trainer-seconds that the jobs that run could have received, perfectly packed."""
    return sum(seconds * most_trainers(running(story, one.at), one.serving) for seconds, one in spans(story))


def bound_of_utilisation(story: Story) -> float:
    """Return the highest utilisation (%) with the jobs and the pods of the service that run, perfectly packed."""
    of_job = CPU_MILLI[MASTER] + PSERVERS * CPU_MILLI[PSERVER]
    milli = 0.0
    for seconds, one in spans(story):
        jobs = running(story, one.at)
        trainers = most_trainers(jobs, one.serving) * CPU_MILLI[TRAINER]
        milli += seconds * (trainers + jobs * of_job + one.serving * CPU_MILLI[SERVICE] + SYSTEM_MILLI * len(CORES))
    length = sum(seconds for seconds, _ in spans(story))
    return 100 * milli / (length * capacity_milli())
