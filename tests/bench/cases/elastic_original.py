"""The autoscaler of the published experiment, and jobs of a fixed size, on the same cluster.

The pass is written anew from what its source does, with its faults: jobs are ordered by how much of their bounds they
have, and the order does not follow the plan; each round gives every job one trainer, or takes one; what a trainer takes
of a node is added to the node; nothing asks whether a pod that waits would fit. Nodes are chosen by CPU and memory
alone, the emptiest first.

Invariant: each instant all waiting pods that fit get a node, in an order by chance: there they were tried again after
backoffs of up to a minute.
"""

from dataclasses import dataclass, field
from random import Random  # noqa: TID251 - the generator is made from the seed
from typing import Final

from tests.bench.cases.elastic_script import (
    CORES,
    CPU_MILLI,
    LEAST,
    MASTER,
    MEMORY_MB,
    MEMORY_MIB,
    MOST,
    PSERVER,
    PSERVERS,
    SERVICE,
    SYSTEM_MILLI,
    TRAINER,
    Resized,
    capacity_milli,
)

TICK_SECONDS: Final = 5.0
MAX_LOAD: Final = 0.97
ROUNDS_MAX: Final = 10_000
BYTES_PER_MB, BYTES_PER_MIB = 10**6, 2**20


@dataclass(eq=False, slots=True)
class Waiting:
    """A pod, on its node or not; of the service the job is empty."""

    number: int
    job: str
    role: str
    node: int | None = None


@dataclass(slots=True)
class Nodes:
    """What is left of each node."""

    cpu_milli: list[int] = field(default_factory=lambda: [1_000 * cores - SYSTEM_MILLI for cores in CORES])
    memory_bytes: list[int] = field(default_factory=lambda: [MEMORY_MB * BYTES_PER_MB] * len(CORES))

    def emptiest(self, role: str) -> int | None:
        """Return the node with the largest share of free CPU and memory on which a pod fits."""
        cpu, memory = CPU_MILLI[role], MEMORY_MIB[role] * BYTES_PER_MIB
        fit = [at for at, free in enumerate(self.cpu_milli) if free >= cpu and self.memory_bytes[at] >= memory]
        return max(fit, key=self._free_share, default=None)

    def _free_share(self, at: int) -> tuple[float, int]:
        share = self.cpu_milli[at] / (1_000 * CORES[at]) + self.memory_bytes[at] / (MEMORY_MB * BYTES_PER_MB)
        return share, -at

    def take(self, at: int, role: str, sign: int = 1) -> None:
        """Count a pod on a node, or with the sign -1 no more."""
        self.cpu_milli[at] -= sign * CPU_MILLI[role]
        self.memory_bytes[at] -= sign * MEMORY_MIB[role] * BYTES_PER_MIB


class Fixed:
    """Jobs that get all their trainers when they come, and keep them; see `System`."""

    def __init__(self, trainers: int, seed: int) -> None:
        self.now = 0.0
        self._chance = Random(seed)
        self.resized: list[Resized] = []
        self.started: dict[str, float] = {}
        self._first = trainers
        self._sizes: dict[str, int] = {}
        self._wanted = 0
        self._nodes = Nodes()
        self._pods: list[Waiting] = []
        self._made = 0

    def submit(self, job: str) -> None:
        """Let a job come."""
        self._sizes[job] = self._first
        for role, count in ((MASTER, 1), (PSERVER, PSERVERS)):
            self._make(job, role, count)
        self._sync()

    def serve(self, count: int) -> None:
        """Let the service have so many pods: pods without a node go first, then the newest."""
        self._wanted = count
        self._sync()

    def advance(self, until: float) -> None:
        """Do all that is due until then, and at that time."""
        self.now = until
        self._place()

    def trainers(self) -> dict[str, int]:
        """Return how many trainers of each job are on nodes."""
        return {job: sum(pod.node is not None for pod in self._trainers_of(job)) for job in self._sizes}

    def serving(self) -> int:
        """Return how many pods of the service are on nodes."""
        return sum(pod.node is not None for pod in self._pods if pod.role == SERVICE)

    def free_milli(self) -> list[int]:
        """Return what each node has left, in thousandths of a core."""
        return list(self._nodes.cpu_milli)

    def _trainers_of(self, job: str) -> list[Waiting]:
        return [pod for pod in self._pods if pod.job == job and pod.role == TRAINER]

    def _make(self, job: str, role: str, count: int) -> None:
        for _ in range(count):
            self._made += 1
            self._pods.append(Waiting(self._made, job, role))

    def _end(self, pods: list[Waiting], count: int) -> None:
        """End so many of these pods: those without a node, then the newest."""
        for pod in sorted(pods, key=lambda pod: (pod.node is not None, -pod.number))[: max(count, 0)]:
            self._pods.remove(pod)
            if pod.node is not None:
                self._nodes.take(pod.node, pod.role, -1)

    def _sync(self) -> None:
        """Make and end pods as their controllers do."""
        groups = [(job, TRAINER, size) for job, size in self._sizes.items()]
        for job, role, wanted in (*groups, ("", SERVICE, self._wanted)):
            there = [pod for pod in self._pods if pod.job == job and pod.role == role]
            self._make(job, role, wanted - len(there))
            self._end(there, len(there) - wanted)

    def _place(self) -> None:
        refused = set[str]()
        waiting = [pod for pod in self._pods if pod.node is None]
        self._chance.shuffle(waiting)
        for pod in waiting:
            if pod.role not in refused:
                pod.node = self._nodes.emptiest(pod.role)
                if pod.node is None:
                    refused.add(pod.role)
                    continue
                self._nodes.take(pod.node, pod.role)
                if pod.role == TRAINER:
                    self.started.setdefault(pod.job, self.now)


class Original(Fixed):
    """The autoscaler: a pass every five seconds, and when a job comes."""

    def __init__(self, seed: int) -> None:
        super().__init__(LEAST, seed)
        self._due = TICK_SECONDS

    def submit(self, job: str) -> None:
        """Let a job come, which leads to a pass."""
        super().submit(job)
        self._place()
        self._scale()

    def advance(self, until: float) -> None:
        """Do all that is due until then, and at that time."""
        while self._due <= until:
            super().advance(self._due)
            self._due += TICK_SECONDS
            self._scale()
        super().advance(until)

    def _scale(self) -> None:
        """Write the sizes of a pass."""
        for job, added in self._dry_run(self._considered()).items():
            if added:
                self.resized.append(Resized(self.now, job, self._sizes[job], self._sizes[job] + added))
                self._sizes[job] += added
        self._sync()
        self._place()

    def _considered(self) -> list[str]:
        """Return the jobs of which all trainers run; all jobs where one has none that runs."""
        pods = {job: self._trainers_of(job) for job in self._sizes}
        if any(all(pod.node is None for pod in of_job) for of_job in pods.values()):
            return list(pods)
        return [job for job, of_job in pods.items() if all(pod.node is not None for pod in of_job)]

    def _dry_run(self, jobs: list[str]) -> dict[str, int]:
        """Return what is added to the size of each job: rounds in one order, until a round changes nothing."""
        ordered = sorted(jobs, key=lambda job: ((self._sizes[job] - LEAST) / (MOST - LEAST), job))
        ledger = _Ledger(self._pods, self._nodes)
        added = dict.fromkeys(jobs, 0)
        for _ in range(ROUNDS_MAX):
            before = dict(added)
            for job in ordered:
                added[job] += ledger.up(self._sizes[job] + added[job])
            for job in reversed(ordered):
                added[job] += ledger.down(self._sizes[job] + added[job])
            if added == before:
                return added
        return added


class _Ledger:
    """What a pass of the autoscaler counts: the requests of all pods, waiting ones too, and what is idle on nodes."""

    def __init__(self, pods: list[Waiting], nodes: Nodes) -> None:
        system = SYSTEM_MILLI * len(CORES)
        self._cpu = system + sum(CPU_MILLI[pod.role] for pod in pods)
        self._memory = sum(MEMORY_MIB[pod.role] * BYTES_PER_MIB for pod in pods)
        self._idle_cpu, self._free_memory = list(nodes.cpu_milli), list(nodes.memory_bytes)

    def up(self, planned: int) -> int:
        """Return what a round adds to a job of this planned size."""
        cpu, memory = CPU_MILLI[TRAINER], MEMORY_MIB[TRAINER] * BYTES_PER_MIB
        if planned >= MOST:
            return self._count(MOST - planned)
        if len(CORES) * MEMORY_MB * BYTES_PER_MB - self._memory <= memory:
            return 0
        fits = (at for at, idle in enumerate(self._idle_cpu) if idle >= cpu and self._free_memory[at] >= memory)
        at = next(fits, None)
        if at is None or MAX_LOAD * capacity_milli() - self._cpu < cpu:
            return 0
        self._idle_cpu[at] += cpu  # as there: it should be less, and is more
        self._free_memory[at] += memory
        return self._count(1)

    def down(self, planned: int) -> int:
        """Return what a round adds to a job of this planned size, or takes."""
        if planned > MOST or (self._cpu > MAX_LOAD * capacity_milli() and planned > LEAST):
            return self._count(-1)
        return 0

    def _count(self, trainers: int) -> int:
        self._cpu += trainers * CPU_MILLI[TRAINER]
        self._memory += trainers * MEMORY_MIB[TRAINER] * BYTES_PER_MIB
        return trainers
