"""Which GPUs stay unallocated: the pods of Alibaba's openb trace, each decided alone, beside the reference policies.

Nodes have Device objects, pods ask for shares of a GPU or for whole ones, for CPU and memory. Pods never leave, and one
that fits nowhere is dropped. The trace and the reference results lie outside the repository.
"""

import csv
import gzip
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from statistics import fmean

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Bind, Evict
from aischeduler.model.device import DEVICES, GPU_CORE, WHOLE, HeldDevices
from aischeduler.model.events import Seen, gone
from aischeduler.model.pod import RUNNING, Pod
from aischeduler.model.pool import PlacementStrategy
from aischeduler.state.devices import DELIVERY_LABEL
from tests.bench.apart import apart
from tests.bench.core import cpu_of_all, decide_all, see, tell
from tests.bench.spec import OURS, Case, Evidence, Goal, Measure, Measured, VoidRunError, overfull
from tests.build import a_node, a_pod, a_pool, replace
from tests.devices import asks, gpus

TRACE = Path(os.environ.get("OPENB_TRACE", "openb"))
"""The folder of the trace."""
NODE_FILE, POD_FILE = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"
ARRIVALS, RANKS = "arrivals_default_seed42-46.txt.gz", "node_rank_default_seed42-46.txt.gz"
REFERENCE = "reference_default_seed42-46.csv"
SEEDS = range(42, 47)
PACK = "Pack"
FGD = "FGD, reference"
POLICIES = {FGD: "FGD", "best fit, reference": "BestFit", "random, reference": "Random"}
"""Side -> its name in the reference results."""
MEAN, CPU = "unallocated GPU %, mean", "CPU ms/pod"
ARRIVED = 100
"""The percentage of all GPUs for which pods have asked when what is unallocated is read."""
POOL = {"pool": "openb"}
PODS_MAX = 10_000
OF_GPU = "hundredths of GPU "
MODES = ("env", "koordlet")


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the case of this module, with every node of so many."""
    return (
        Case(
            name="placement-openb",
            about=f"in process: openb's default pods in the orders of {len(SEEDS)} seeds, placement Fragmentation",
            sides=(OURS, PACK, *POLICIES),
            open=partial(opened, shrink),
            rounds=1,
            goals=(Goal(MEAN, 1.0, at_least=False, peer=FGD),),
        ),
    )


@contextmanager
def opened(shrink: int) -> Iterator[Measure]:
    """Yield the function that runs a side; a side of the reference is read. Raises VoidRunError without the trace."""
    missing = [name for name in (NODE_FILE, POD_FILE, ARRIVALS, RANKS, REFERENCE) if not (TRACE / name).is_file()]
    if missing:
        raise VoidRunError(f"{TRACE} has no {missing[0]}; docs/performance.md says where the trace comes from")

    def measure(side: str) -> Measured:
        if side in POLICIES:
            found = reference(POLICIES[side])
            return Measured(Evidence(), {**found, MEAN: fmean(found.values())})
        placement = PlacementStrategy.PACK if side == PACK else PlacementStrategy.FRAGMENTATION
        replays = {seed: apart(replay, placement, seed, shrink) for seed in SEEDS}
        found = {figure(seed): one.unallocated for seed, one in replays.items()}
        return Measured(
            Evidence(overfull=[text for one in replays.values() for text in one.overfull]),
            {**found, MEAN: fmean(found.values()), CPU: fmean(one.cpu_ms for one in replays.values())},
        )

    yield measure


def figure(seed: int) -> str:
    return f"unallocated GPU % (seed {seed})"


def reference(policy: str) -> dict[str, float]:
    """Return the figures of a reference policy."""
    of = [row for row in table(REFERENCE) if row["policy"] == policy and row["arrived_pct"] == str(ARRIVED)]
    return {figure(int(row["seed"])): float(row["unallocated_pct"]) for row in of if int(row["seed"]) in SEEDS}


def table(name: str) -> list[dict[str, str]]:
    with (TRACE / name).open(newline="") as file:
        return list(csv.DictReader(file))


def numbers(name: str, seed: int) -> list[int]:
    """Return the numbers after the seed in the line that begins with it."""
    with gzip.open(TRACE / name, "rt") as file:
        lines = (line.split() for line in file)
        return next([int(word) for word in words] for first, *words in lines if first == str(seed))


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one order of arrival came to."""

    unallocated: float
    overfull: list[str]
    cpu_ms: float


@dataclass(slots=True)
class Cluster:
    """An engine, what its nodes have, and what the pods on them hold, of each GPU too."""

    scheduler: Scheduler
    room: dict[str, dict[str, int]] = field(default_factory=dict)
    asked: dict[str, dict[str, int]] = field(default_factory=dict)
    placements: list[tuple[str, str]] = field(default_factory=list)

    def place(self, pod: Pod) -> bool:
        """Decide about a pod that comes, and say what became of it; return whether it got a node."""
        see(self.scheduler, [pod])
        said = [action for action in decide_all(self.scheduler) if isinstance(action, Bind | Evict)]
        if not said:
            tell(self.scheduler, [gone(Pod, pod.uid)])
            return False
        [bind] = said
        if not isinstance(bind, Bind) or bind.pod.uid != pod.uid:
            raise VoidRunError(f"{pod.name} came, and another pod was bound or evicted")
        held = bind.allocation.part(DEVICES)
        devices = held if isinstance(held, HeldDevices) else HeldDevices()
        has = devices if devices.devices else None
        see(self.scheduler, [replace(pod, node_name=bind.node, phase=RUNNING, devices=has)])
        self.placements.append((pod.uid, bind.node))
        of_gpus = {f"{OF_GPU}{one.minor}": dict(one.amounts)[GPU_CORE] for one in devices.devices}
        self.asked[pod.uid] = {**pod.spec.request.amounts, **of_gpus}
        return True


def a_cluster(placement: PlacementStrategy, seed: int, shrink: int) -> Cluster:
    """Return the nodes of the trace; their names are in the order of the ranks, by which the reference breaks ties."""
    there = Cluster(Scheduler(default_profile(), "bench"))
    tell(there.scheduler, [Seen(a_pool("openb", labels=POOL, placement=placement))])
    for number, (row, rank) in enumerate(zip(table(NODE_FILE), numbers(RANKS, seed), strict=True)):
        if number % shrink:
            continue
        name, count = f"node-{rank:04d}", int(row["gpu"])
        labels = {**POOL, DELIVERY_LABEL: MODES[number % len(MODES)]}
        cpu, memory = f"{row['cpu_milli']}m", f"{row['memory_mib']}Mi"
        node = a_node(name, cpu=cpu, memory=memory, pods=PODS_MAX, labels=labels)
        tell(there.scheduler, [Seen(node), Seen(gpus(name, count))])
        there.room[name] = {**node.allocatable, **{f"{OF_GPU}{minor}": WHOLE for minor in range(count)}}
    decide_all(there.scheduler)
    return there


def a_kind(row: dict[str, str]) -> tuple[Pod, int]:
    """Return a pod as a row of the trace says, and the hundredths of GPUs for which it asks."""
    count, each = int(row["num_gpu"]), int(row["gpu_milli"]) // 10
    asked = asks(each, count=count) if count else None
    pod = a_pod(cpu=f"{row['cpu_milli']}m", memory=f"{row['memory_mib']}Mi", pool="openb", devices=asked)
    return pod, count * each


def arrive(there: Cluster, kinds: Sequence[tuple[Pod, int]], total: int) -> Iterator[tuple[int, float]]:
    """Let pods of these kinds come; yield after each the percentages of all GPUs that were asked for and are free."""
    asked = allocated = 0
    for number, (kind, hundredths) in enumerate(kinds):
        asked += hundredths
        pod = replace(kind, uid=f"pod-{number}", name=f"pod-{number}", created_seconds=number + 1)
        allocated += hundredths * there.place(pod)
        yield (200 * asked + total) // (2 * total), 100 * (1 - allocated / total)


def replay(placement: PlacementStrategy, seed: int, shrink: int) -> Replayed:
    """Let the pods of a seed come until they asked for all GPUs.

    As in the reference, the result is the mean over the arrivals after which the percentage asked for rounds to 100.
    """
    there = a_cluster(placement, seed, shrink)
    total = sum(amount for room in there.room.values() for name, amount in room.items() if name.startswith(OF_GPU))
    kinds = [a_kind(row) for row in table(POD_FILE)]
    came: list[tuple[int, float]] = []
    in_order = [kinds[at] for at in numbers(ARRIVALS, seed)]
    until = takewhile(lambda one: one[0] <= ARRIVED, arrive(there, in_order, total))
    cpu = cpu_of_all(lambda: came.extend(until))
    unallocated = fmean(free for percent, free in came if percent == came[-1][0])
    return Replayed(unallocated, overfull(there.room, there.asked, there.placements), 1e3 * cpu / len(came))
