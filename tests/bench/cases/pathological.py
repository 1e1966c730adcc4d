"""Pathological clusters, in process: no pod fits, one node is free, every pod is a victim, a node flaps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from aischeduler.model.actions import Action, Evict
from aischeduler.model.events import Seen, gone
from aischeduler.model.pod import Pod
from tests.bench.apart import apart
from tests.bench.core import Crowd, World, cpu_of_all, decide_all, evidence, peak_mib, running, see, world
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.build import a_taint, replace

NODES, POOLS = 5_000, 20
STUCK = 20_000
GPU_NODES, GPUS_EACH = 500, 8
DECIDING, DECIDING_AGAIN = "CPU s to decide all", "CPU ms after a node changed"
DECISIONS, DECISIONS_GOAL = "decisions/s of CPU", 5_000
DECIDE_ALL_SECONDS = 1.0
FLAPS, FLAPS_PER_SECOND = 300, 10
STUCK_BESIDE = 2_000
CORE_SHARE, CORE_SHARE_GOAL = "share of a core", 0.1
EVERY = Goal(DECISIONS, DECISIONS_GOAL)
ALL = Goal(DECIDING, DECIDE_ALL_SECONDS, at_least=False)


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    nodes, stuck, gpu_nodes, beside = (size // shrink for size in (NODES, STUCK, GPU_NODES, STUCK_BESIDE))
    where = f"in process: {nodes:,} nodes, {POOLS} pools"
    gpus = f"{gpu_nodes * GPUS_EACH:,}"
    preempting = (
        f"in process: {gpu_nodes} nodes of {GPUS_EACH} GPUs, {gpus} GPU pods run, {gpus} of higher priority wait"
    )
    return (
        alone("never-fit", f"{where}, {stuck:,} pods that fit on no node", partial(never_fit, nodes, stuck), EVERY),
        alone("one-hole", f"{where}, one free; {stuck:,} pods of a whole node", partial(one_hole, nodes, stuck), EVERY),
        alone("all-preemptible", preempting, partial(all_preemptible, gpu_nodes), ALL),
        alone(
            "flapping-node",
            f"{where}, one flaps {FLAPS_PER_SECOND} times a second; {beside:,} pods wait, others arrive",
            partial(flapping_node, nodes, beside),
            Goal(CORE_SHARE, CORE_SHARE_GOAL, at_least=False),
        ),
    )


def alone(name: str, about: str, measure: Callable[[], Measured], *goals: Goal) -> Case:
    """Return a case of the short set without a peer."""

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda _: apart(measure)

    return Case(name, about, (OURS,), open=opened, goals=goals, short=True)


def never_fit(nodes: int, stuck: int) -> Measured:
    """Pods that request more than any node has."""
    there = world(nodes, POOLS)
    see(there.scheduler, Crowd(stuck, pools=POOLS, cpu_milli=65_000).pods("stuck"))
    said, figures = decided_twice(there, stuck)
    return Measured(evidence(there.nodes, (), (), said), figures)


def one_hole(nodes: int, stuck: int) -> Measured:
    """Pods that need a whole node, and one free node, which the oldest pod gets."""
    there = world(nodes, POOLS)
    small = Crowd(nodes - 1, pools=POOLS, cpu_milli=1_000).pods("small")
    stay = running(small, there.nodes[1:])
    see(there.scheduler, stay)
    decide_all(there.scheduler)
    pods = Crowd(stuck, pools=POOLS, cpu_milli=63_900).pods("stuck")
    see(there.scheduler, pods)
    said, figures = decided_twice(there, stuck)
    return Measured(evidence(there.nodes, stay, pods[:1], said), figures)


def decided_twice(there: World, pods: int) -> tuple[list[Action], dict[str, float]]:
    """Decide about all pods, and again after the labels of a node changed; return the actions and the figures."""
    said: list[Action] = []
    deciding = cpu_of_all(lambda: said.extend(decide_all(there.scheduler)))
    last = there.nodes[-1]
    changed = replace(last, labels={**last.labels, "driver": "new"})

    def again() -> None:
        there.scheduler.observe(Seen(changed), 1.0)
        said.extend(decide_all(there.scheduler, 1.0))

    figures = {DECISIONS: pods / deciding, DECIDING: deciding, DECIDING_AGAIN: cpu_of_all(again) * 1e3}
    return said, {**figures, "peak MiB": peak_mib()}


def all_preemptible(nodes: int) -> Measured:
    """Every GPU is in use, and every running pod has a lower priority than every waiting pod.

    After the decisions the victims end, and each waiting pod must be bound.
    """
    there = world(nodes, gpu=GPUS_EACH)
    held = running(Crowd(nodes * GPUS_EACH, cpu_milli=2_000, gpu=1).pods("old"), there.nodes)
    see(there.scheduler, held)
    decide_all(there.scheduler)
    pods = Crowd(nodes * GPUS_EACH, cpu_milli=2_000, gpu=1, priority=100).pods("new")
    see(there.scheduler, pods)
    said: list[Action] = []
    deciding = cpu_of_all(lambda: said.extend(decide_all(there.scheduler)))
    victims = {action.victim.uid for action in said if isinstance(action, Evict)}

    def carry_out() -> None:
        for pod in held:
            if pod.uid in victims:
                there.scheduler.observe(gone(Pod, pod.uid), 1.0)
        said.extend(decide_all(there.scheduler, 1.0))

    following = cpu_of_all(carry_out)
    stay = [pod for pod in held if pod.uid not in victims]
    figures = {DECIDING: deciding, "CPU s to bind all": following, "victims": len(victims), "peak MiB": peak_mib()}
    return Measured(evidence(there.nodes, stay, pods, said), figures)


def flapping_node(nodes: int, stuck: int) -> Measured:
    """A node is cordoned and tainted and recovers repeatedly, while large pods wait and small pods arrive."""
    there = world(nodes, POOLS)
    stay = running(Crowd(nodes, pools=POOLS, cpu_milli=30_000).pods("half"), there.nodes)
    see(there.scheduler, stay)
    see(there.scheduler, Crowd(stuck, pools=POOLS, cpu_milli=40_000).pods("stuck"))
    said = decide_all(there.scheduler)
    healthy = there.nodes[0]
    sick = replace(healthy, unschedulable=True, taints=(a_taint("node.kubernetes.io/not-ready"),))
    arriving = Crowd(FLAPS, pools=POOLS).pods("small")

    def flap() -> None:
        for number, pod in enumerate(arriving):
            now = 1.0 + number / FLAPS_PER_SECOND
            there.scheduler.observe(Seen(healthy if number % 2 else sick), now)
            there.scheduler.observe(Seen(pod), now)
            said.extend(decide_all(there.scheduler, now))

    share = cpu_of_all(flap) / (FLAPS / FLAPS_PER_SECOND)
    figures = {CORE_SHARE: share, "peak MiB": peak_mib()}
    return Measured(evidence(there.nodes, stay, arriving, said), figures)
