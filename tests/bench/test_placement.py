"""CPU of the core alone: decisions in process, without any API server."""

from dataclasses import replace
from functools import partial

import pytest

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Bind, ReportWaiting
from aischeduler.model.events import BindAccepted, NodeSeen, PodSeen
from aischeduler.model.pod import Pod
from tests.bench.board import cpu_seconds, micros, show, times
from tests.build import a_node, a_pod

pytestmark = pytest.mark.bench

NODE_COUNTS = (100, 1_000, 5_000, 15_000)
CLASS_COUNTS = (1, 48)
PODS = 3_000
SLICE = 32
TARGET_PER_SECOND = 5_000
TARGET_NODES = 5_000


def waiting_pods(classes: int) -> list[Pod]:
    """Return pods of so many different requests."""
    kinds = [a_pod(f"kind-{number}", cpu=f"{100 + number}m", memory="64Mi") for number in range(classes)]
    return [replace(kinds[n % classes], uid=f"uid-{n}", name=f"pod-{n}", created_seconds=n) for n in range(PODS)]


def cluster(nodes: int, cpu: str) -> Scheduler:
    scheduler = Scheduler(default_profile(), "bench")
    for number in range(nodes):
        node = a_node(f"node-{number:05d}", cpu=cpu, memory="256Gi", pods=500, labels={"zone": f"zone-{number % 3}"})
        scheduler.observe(NodeSeen(node), 0.0)
    return scheduler


def full(nodes: int, cpu: str, pods: list[Pod]) -> Scheduler:
    """Return a cluster in which the pods wait."""
    scheduler = cluster(nodes, cpu)
    for pod in pods:
        scheduler.observe(PodSeen(pod), 0.0)
    return scheduler


def decide_all(scheduler: Scheduler) -> list[Action]:
    said: list[Action] = []
    while scheduler.ready(0.0):
        said += scheduler.decide("default", 0.0, SLICE)
    return said


def live_through(pods: list[Pod], scheduler: Scheduler) -> None:
    """All that the core does for a pod: it comes, is decided, its Binding is taken, the watch shows it on its node."""
    for pod in pods:
        scheduler.observe(PodSeen(pod), 0.0)
    while scheduler.ready(0.0):
        for action in scheduler.decide("default", 0.0, SLICE):
            if not isinstance(action, Bind):
                continue  # the pool's own status
            scheduler.observe(BindAccepted(action.pod.uid, action.node), 0.0)
            scheduler.observe(PodSeen(replace(action.pod, node_name=action.node)), 0.0)


def test_cpu_of_a_decision_by_nodes_and_classes() -> None:
    rows = []
    rate_at_target = {}
    for nodes in NODE_COUNTS:
        for classes in CLASS_COUNTS:
            pods = waiting_pods(classes)
            runs = 3 if nodes < 15_000 else 1
            decided = decide_all(full(nodes, "32", pods))
            assert sum(isinstance(action, Bind) for action in decided) == PODS
            decide = cpu_seconds(partial(full, nodes, "32", pods), decide_all, runs)
            whole = cpu_seconds(partial(cluster, nodes, "32"), partial(live_through, pods), runs)
            rate = PODS / decide
            if nodes == TARGET_NODES:
                rate_at_target[classes] = rate
            rows.append(
                [
                    f"{nodes:,}",
                    str(classes),
                    micros(decide, PODS),
                    f"{rate:,.0f}",
                    micros(whole, PODS),
                    times(rate, TARGET_PER_SECOND),
                ]
            )
    show(
        f"Decisions of the core, {PODS:,} pods; the goal is {TARGET_PER_SECOND:,}/s at {TARGET_NODES:,} nodes",
        ["nodes", "classes", "µs a decision", "decisions/s", "µs a pod, from seen to confirmed", "decisions / goal"],
        rows,
    )
    assert set(rate_at_target) == set(CLASS_COUNTS)


def test_cpu_of_saying_no() -> None:
    """Pods that fit nowhere: looked at once, parked with their reasons, and never looked at again for nothing."""
    rows = []
    for nodes in NODE_COUNTS[:3]:
        for classes in CLASS_COUNTS:
            pods = waiting_pods(classes)
            refused = decide_all(full(nodes, "50m", pods))
            assert sum(isinstance(action, ReportWaiting) for action in refused) == PODS
            taken = cpu_seconds(partial(full, nodes, "50m", pods), decide_all, 3)
            rows.append([f"{nodes:,}", str(classes), micros(taken, PODS), times(PODS / taken, TARGET_PER_SECOND)])
    show(
        f"Refusals of the core, {PODS:,} pods that fit on no node",
        ["nodes", "classes", "µs a refusal", "refusals / goal"],
        rows,
    )
