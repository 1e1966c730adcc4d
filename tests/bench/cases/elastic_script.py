"""What both published experiments on elastic jobs ask of a system, and the figures of what came of it.

The cluster, the jobs, the service and their times are those of the experiment of PaddlePaddle's autoscaler (December
2017); the nodes are calibrated so that as many trainers fit as were seen.

Invariants:
- Time is virtual, and pods start and end at once. Every system gets the same calls at the same times.
- A pod counts while it is on a node: in the experiment utilisation is that of the requests of running pods.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - the generator is made from the seed
from typing import Final, Protocol

CORES: Final = (18,) * 87 + (17,) * 46
"""The cores of each node."""
MEMORY_MB: Final = 102_700
SYSTEM_MILLI: Final = 380
"""What the pods of the system take on each node."""
TRAINER, PSERVER, MASTER, SERVICE = "trainer", "pserver", "master", "service"
CPU_MILLI: Final = {TRAINER: 5_000, PSERVER: 4_000, MASTER: 1_000, SERVICE: 3_000}
MEMORY_MIB: Final = {TRAINER: 8_192, PSERVER: 5_120, MASTER: 1_024, SERVICE: 3_072}
PSERVERS: Final = 10
LEAST, MOST = 2, 60
"""The bounds of the trainers of a job."""
END_SECONDS: Final = 550.0
"""Until then trainers and utilisation are counted."""
FAIR_AT_SECONDS: Final = 500.0
OFF_PEAK: Final = (300.0, 370.0)
RESIZE_COST_SECONDS: Final = 30.0
"""What a resize costs each trainer of its job, where that is counted."""
TOGETHER_SECONDS: Final = 1.0
"""Sizes of a job that are written within this time are one resize: its trainers notice one change."""
JITTER_SECONDS: Final = 1.0
FIRST_JOB_SECONDS: Final = 5.0
JOBS_IN_CASE_1, APART_IN_CASE_1 = 20, 10.0
JOBS_IN_CASE_2, APART_IN_CASE_2 = 6, 5.0
STATIC_IN_CASE_1, STATIC_IN_CASE_2 = 60, 15
STEP_SECONDS: Final = 90.0
STEPS: Final = (300, 200, 100, 200, 300, 400)
"""The pods of the service after the jobs came; before, as many as at the end."""
LAST_STEP_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Script:
    """What happens: `jobs` are the times at which jobs come, `service` those at which the service gets a size.

    Where jobs are not elastic, they have `static` trainers.
    """

    until: float
    jobs: tuple[float, ...]
    static: int
    service: tuple[tuple[float, int], ...] = ()


def case_1(seed: int = 0) -> Script:
    """Training only: 20 jobs, one every ten seconds."""
    shifts = jitter(seed, JOBS_IN_CASE_1)
    jobs = tuple(FIRST_JOB_SECONDS + APART_IN_CASE_1 * number + shift for number, shift in enumerate(shifts))
    return Script(END_SECONDS, jobs, STATIC_IN_CASE_1)


def case_2(seed: int = 0) -> Script:
    """A service, six jobs one every five seconds, and the steps of the service."""
    shifts = jitter(seed, JOBS_IN_CASE_2 + len(STEPS))
    jobs = tuple(30.0 + APART_IN_CASE_2 * number + shifts[number] for number in range(JOBS_IN_CASE_2))
    begin = 30.0 + APART_IN_CASE_2 * JOBS_IN_CASE_2 + 60.0
    steps = [
        (begin + STEP_SECONDS * number + shift, count)
        for number, (count, shift) in enumerate(zip(STEPS, shifts[JOBS_IN_CASE_2:], strict=True))
    ]
    until = begin + STEP_SECONDS * (len(STEPS) - 1) + LAST_STEP_SECONDS
    return Script(until, jobs, STATIC_IN_CASE_2, ((0.0, STEPS[-1]), *steps))


def jitter(seed: int, count: int) -> list[float]:
    """Return by how much each event is moved; by nothing with the seed 0."""
    chance = Random(seed)
    return [chance.uniform(-JITTER_SECONDS, JITTER_SECONDS) if seed else 0.0 for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Resized:
    """A job got another size."""

    at: float
    job: str
    before: int
    after: int


class System(Protocol):
    """A cluster with something that decides. `resized` has what was decided, `started` when the job first trained."""

    resized: list[Resized]
    started: dict[str, float]

    def submit(self, job: str) -> None:
        """Let a job come."""

    def serve(self, count: int) -> None:
        """Let the service have so many pods."""

    def advance(self, until: float) -> None:
        """Do all that is due until then, and at that time."""

    def trainers(self) -> dict[str, int]:
        """Return how many trainers of each job are on nodes."""

    def serving(self) -> int:
        """Return how many pods of the service are on nodes."""

    def free_milli(self) -> list[int]:
        """Return what each node has left, in thousandths of a core; less than 0 where its pods request too much."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A moment: how many trainers of each job and pods of the service run, and what all running pods request.

    So many more trainers `fit` on the nodes then.
    """

    at: float
    trainers: dict[str, int]
    serving: int
    used_milli: int
    fit: int


@dataclass(slots=True)
class Story:
    """What came of a script with a system."""

    script: Script
    samples: list[Sample] = field(default_factory=list)
    resized: list[Resized] = field(default_factory=list)
    started: dict[str, float] = field(default_factory=dict)
    overfull: list[str] = field(default_factory=list)


def job_name(number: int) -> str:
    return f"job-{number:02d}"


def play(script: Script, system: System) -> Story:
    """Let a script happen; a sample is taken each second, and after each event."""
    story = Story(script)
    jobs = [(at, job_name(number), -1) for number, at in enumerate(script.jobs)]
    service = [(at, "", count) for at, count in script.service]
    seconds = [(float(second), "", -1) for second in range(int(script.until) + 1)]
    for at, job, count in sorted([*jobs, *service, *seconds]):
        system.advance(at)
        if job:
            system.submit(job)
        elif count >= 0:
            system.serve(count)
        system.advance(at)
        story.samples.append(_sample(at, system, story))
    story.resized, story.started = list(system.resized), dict(system.started)
    return story


def _sample(at: float, system: System, story: Story) -> Sample:
    free = system.free_milli()
    story.overfull += [f"a node was overcommitted by {-milli}m of CPU at {at} s" for milli in free if milli < 0]
    fit = sum(max(milli, 0) // CPU_MILLI[TRAINER] for milli in free)
    return Sample(at, system.trainers(), system.serving(), capacity_milli() - sum(free), fit)


def spans(story: Story, begin: float = 0.0, end: float = END_SECONDS) -> Iterator[tuple[float, Sample]]:
    """Yield the samples of a time, each with the seconds that it stands for."""
    for one, following in zip(story.samples, story.samples[1:], strict=False):
        seconds = min(following.at, end) - max(one.at, begin)
        if seconds > 0:
            yield seconds, one


def at_time(story: Story, at: float) -> Sample:
    """Return the last sample until a time."""
    return [sample for sample in story.samples if sample.at <= at][-1]


def jain(values: Sequence[float]) -> float:
    """Return Jain's index: 1 where all values are equal, 1/n where one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def names(script: Script) -> list[str]:
    return [job_name(number) for number in range(len(script.jobs))]


def trainer_seconds(story: Story) -> dict[str, float]:
    """Return how long trainers of each job ran until the end, all together."""
    found = dict.fromkeys(names(story.script), 0.0)
    for seconds, sample in spans(story):
        for job, count in sample.trainers.items():
            found[job] += seconds * count
    return found


def pending_seconds(story: Story) -> list[float]:
    """Return how long each job had no trainer, from its coming; one that never had any, until the end."""
    came = dict(zip(names(story.script), story.script.jobs, strict=True))
    return [story.started.get(job, story.script.until) - at for job, at in came.items()]


def resizes_of(story: Story, job: str) -> list[Resized]:
    """Return the resizes of a job, in which sizes that were written together are one."""
    found: list[Resized] = []
    for one in story.resized:
        if one.job != job:
            continue
        if found and one.at <= found[-1].at + TOGETHER_SECONDS and (one.after > one.before) == is_growth(found[-1]):
            found[-1] = Resized(found[-1].at, job, found[-1].before, one.after)
        else:
            found.append(one)
    return found


def is_growth(one: Resized) -> bool:
    return one.after > one.before


def lost_seconds(story: Story) -> float:
    """Return the trainer-seconds that resizes cost until the end, where each stops all trainers of its job."""
    lost = 0.0
    for job in names(story.script):
        found = [one for one in resizes_of(story, job) if one.at < END_SECONDS]
        ends = [*(one.at for one in found[1:]), END_SECONDS]
        lost += sum(one.after * min(end - one.at, RESIZE_COST_SECONDS) for one, end in zip(found, ends, strict=False))
    return lost


def most_in_window(story: Story, window: float, *, grown: bool) -> int:
    """Return the most resizes of one job within one window; `grown` counts only those to a larger size."""
    most = 0
    for job in names(story.script):
        times = [one.at for one in resizes_of(story, job) if is_growth(one) or not grown]
        within = [sum(at <= other < at + max(window, TOGETHER_SECONDS) for other in times) for at in times]
        most = max([most, *within])
    return most


def back_seconds(story: Story) -> list[float]:
    """Return how long the service had fewer pods than it wanted after each of its steps."""
    found = []
    service = story.script.service
    for number, (at, count) in enumerate(service):
        until = service[number + 1][0] if number + 1 < len(service) else story.script.until
        full = [one.at for one in story.samples if at <= one.at <= until and one.serving >= count]
        found.append((full[0] if full else until) - at)
    return found


def capacity_milli() -> int:
    return 1_000 * sum(CORES)


def utilisation(story: Story, begin: float = 0.0, end: float = END_SECONDS) -> float:
    """Return the percentage of all cores that running pods request, in the mean."""
    used = sum(seconds * sample.used_milli for seconds, sample in spans(story, begin, end))
    return 100 * used / ((end - begin) * capacity_milli())


def mean_of_fit(story: Story) -> float:
    """Return how many more trainers fit on the nodes, in the mean from the last coming of a job until the end."""
    after = list(spans(story, max(story.script.jobs)))
    return sum(seconds * sample.fit for seconds, sample in after) / sum(seconds for seconds, _ in after)
