"""Random small clusters and gangs for two schedulers: nodes, running pods, and gangs that fit, just fit or do not fit.

Invariants:
- Amounts are (cpu in milli, GPUs). No other resource is scarce.
- A gang of equal pods may need fewer than it has. A gang of different pods needs all of them, so that every scheduler
  means the same pods by its minimum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251 - a type; the generator comes from the seed

from tests.packing_oracle import Amounts, count_that_fit, fits, less

MACHINES: tuple[Amounts, ...] = ((8_000, 4), (16_000, 8), (32_000, 8), (8_000, 0), (4_000, 0))
SHAPES: tuple[Amounts, ...] = (
    *((500, 0), (1_000, 0), (2_000, 0), (3_000, 0)),
    *((1_000, 1), (1_000, 2), (2_000, 3), (2_000, 4), (4_000, 8)),
)
PODS_MAX = 7
GANGS_OF_A_DAY = 7
DRAWS_MAX = 40
GANGS_AT_ONCE_MAX = 8
GPU_NODES: tuple[Amounts, ...] = ((64_000, 4), (64_000, 8))
"""Nodes on which GPUs alone are scarce."""


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang: its pods, how many start together, and its priority."""

    name: str
    pods: tuple[Amounts, ...]
    minimum: int
    priority: int = 0

    @property
    def required(self) -> tuple[Amounts, ...]:
        """What the least pods ask for."""
        return self.pods[: self.minimum]

    @property
    def alike(self) -> bool:
        """Whether all pods ask for the same."""
        return len(set(self.pods)) == 1

    def __str__(self) -> str:
        return f"{self.name} (priority {self.priority}, at least {self.minimum} of {list(self.pods)})"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes by number, and the running pods on them: (node, amounts)."""

    nodes: tuple[Amounts, ...]
    running: tuple[tuple[int, Amounts], ...] = ()

    def free(self) -> list[Amounts]:
        """Return the room beside the running pods, by node."""
        return left_of(self.nodes, self.running)


def left_of(free: Sequence[Amounts], placed: Sequence[tuple[int, Amounts]]) -> list[Amounts]:
    """Return the room beside these pods, by node."""
    left = list(free)
    for node, pod in placed:
        left[node] = less(left[node], pod)
    return left


def a_cluster(chance: Random) -> Cluster:
    """Return two to five nodes of several kinds, half of them with running pods."""
    nodes = tuple(chance.choice(MACHINES) for _ in range(chance.randint(2, 5)))
    running: list[tuple[int, Amounts]] = []
    for number in range(len(nodes)):
        for _ in range(chance.choice((0, 0, 1, 2, 3))):
            pod = chance.choice(SHAPES)
            if min(left_of(nodes, [*running, (number, pod)])[number]) >= 0:
                running.append((number, pod))
    return Cluster(nodes, tuple(running))


def next_gang(chance: Random, name: str, free: Sequence[Amounts]) -> Gang:
    """Return a gang for this room: any, one that takes all room of its shape, or one that lacks room for one pod.

    Gangs of different pods are drawn until one just fits, if that comes soon.
    """
    if chance.random() < 0.4:
        several: tuple[Amounts, ...] = ()
        for _ in range(DRAWS_MAX):
            several = tuple(chance.choice(SHAPES) for _ in range(chance.randint(2, PODS_MAX - 1)))
            if len(set(several)) > 1 and just_fits(free, several):
                break
        return Gang(name, several, len(several))
    edges = [(pod, count) for pod in SHAPES if 2 <= (count := count_that_fit(free, pod)) < PODS_MAX]
    if not edges or chance.random() < 0.3:
        size = chance.randint(2, PODS_MAX)
        return Gang(name, (chance.choice(SHAPES),) * size, chance.randint(2, size))
    pod, count = chance.choice(edges)
    minimum = count + chance.choice((0, 1))
    return Gang(name, (pod,) * chance.randint(minimum, PODS_MAX), minimum)


def just_fits(free: Sequence[Amounts], pods: Sequence[Amounts]) -> bool:
    """Return whether these pods fit, and no second one of the largest does beside them."""
    return fits(free, pods) and not fits(free, [*pods, max(pods, key=lambda pod: (pod[1], pod[0]))])


def spare_day(chance: Random) -> tuple[Cluster, list[Gang]]:
    """Return a cluster and at least two gangs that all fit, wherever the pods before them are.

    A pod finds no node only if each node has less than the largest pod free. The total leaves more than that.
    """
    while True:
        nodes = tuple(chance.choice(GPU_NODES) for _ in range(chance.randint(2, 5)))
        largest = chance.randint(1, 4)
        left = sum(gpus for _, gpus in nodes) - len(nodes) * (largest - 1)
        gangs: list[Gang] = []
        for turn, priority in enumerate(chance.sample(range(10), GANGS_AT_ONCE_MAX)):
            pods = tuple((500, chance.randint(1, largest)) for _ in range(chance.randint(2, PODS_MAX)))
            pods = pods[:1] * len(pods) if chance.random() < 0.5 else pods
            asked = sum(gpus for _, gpus in pods)
            if asked <= left:
                left -= asked
                gangs.append(Gang(f"gang-{turn}", pods, len(pods), priority))
        if len(gangs) >= 2:
            return Cluster(nodes), gangs


def equal_pods_day(chance: Random) -> tuple[Cluster, list[Gang]]:
    """Return a cluster and gangs of one shape, not all of which fit: where pods are makes no difference."""
    while True:
        cluster, shape = a_cluster(chance), chance.choice(SHAPES)
        slots = count_that_fit(cluster.free(), shape)
        gangs = []
        for turn, priority in enumerate(chance.sample(range(10), chance.randint(4, GANGS_AT_ONCE_MAX))):
            size = chance.randint(2, PODS_MAX)
            gangs.append(Gang(f"gang-{turn}", (shape,) * size, chance.randint(2, size), priority))
        if 2 <= slots < sum(gang.minimum for gang in gangs):
            return cluster, gangs


def crowded_day(chance: Random) -> tuple[Cluster, list[Gang]]:
    """Return a cluster and gangs of several shapes, which ask for more than there is."""
    while True:
        cluster = a_cluster(chance)
        room = [sum(amounts) for amounts in zip(*cluster.free(), strict=True)]
        gangs: list[Gang] = []
        for turn, priority in enumerate(chance.sample(range(10), GANGS_AT_ONCE_MAX)):
            if chance.random() < 0.4:
                pods = tuple(chance.choice(SHAPES) for _ in range(chance.randint(2, 4)))
                minimum = len(pods)
            else:
                pods = (chance.choice(SHAPES),) * chance.randint(2, 5)
                minimum = chance.randint(2, len(pods))
            gangs.append(Gang(f"gang-{turn}", pods, minimum, priority))
        asked = [sum(amounts) for amounts in zip(*(pod for gang in gangs for pod in gang.required), strict=True)]
        if any(wanted > there for wanted, there in zip(asked, room, strict=True)):
            return cluster, gangs
