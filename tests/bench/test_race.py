"""Pods bound per second on one real API server: a pure flood of Bindings, our scheduler, and kube-scheduler.

All three find the same waiting pods and the same nodes, one after the other on the same machine. The rate is from the
first Binding to the last, as a watcher sees them. `AI_SCHEDULER_BENCH_PODS`, `…_NODES` and `…_ROUNDS` make it larger.
"""

import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.bench.board import show, times
from tests.bench.processes import cpu_of, wait_quiet
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.objects import Json, node_object, pod_object, pool_object
from tests.real.cluster import create_namespace, create_nodes, create_pods, create_pools, install
from tests.real.daemon import Daemon
from tests.real.history import History

pytestmark = pytest.mark.bench

PODS = int(os.environ.get("AI_SCHEDULER_BENCH_PODS", "2000"))
NODES = int(os.environ.get("AI_SCHEDULER_BENCH_NODES", "1000"))
ROUNDS = int(os.environ.get("AI_SCHEDULER_BENCH_ROUNDS", "2"))
POOLS = 4
SIZES = 6
RUN_SECONDS = 600.0
NAMESPACE = "bench"


@dataclass(frozen=True)
class Runner:
    """Somebody who binds: how to start it, its process, and how to end it; `scheduler` is the name its pods carry."""

    name: str
    scheduler: str
    start: Callable[[], int]
    end: Callable[[], None]


@dataclass(frozen=True)
class Result:
    """One run: seconds of CPU are from the start of the process to the last Binding unless said otherwise."""

    rate: float
    own_cpu: float
    own_cpu_binding: float
    own_cpu_at_rest: float
    server_cpu: float
    etcd_cpu: float


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    install(control_plane)
    create_namespace(control_plane, NAMESPACE)
    create_nodes(control_plane, [a_node(number) for number in range(NODES)])
    create_pools(control_plane, *(pool_object(f"pool-{n}", labels={"team": f"team-{n}"}) for n in range(POOLS)))
    yield control_plane
    control_plane.heal()
    sweep(control_plane)


def a_node(number: int) -> Json:
    return node_object(f"node-{number:05d}", cpu="64", memory="256Gi", labels={"team": f"team-{number % POOLS}"})


def a_pod(number: int, scheduler: str) -> Json:
    """Return a pod of one of the pools, in one of a few sizes."""
    return pod_object(
        f"train-{number:05d}",
        namespace=NAMESPACE,
        cpu=f"{500 + 100 * (number % SIZES)}m",
        memory="256Mi",
        pool=f"pool-{number % POOLS}",
        scheduler_name=scheduler,
    )


def flood(plane: ControlPlane) -> Runner:
    command = [sys.executable, "-m", "tests.bench.flood", str(plane.kubeconfig), NAMESPACE, str(NODES)]
    part = plane.program("flood", command, lambda: True)

    def start() -> int:
        part.launch()
        return part.pid

    return Runner("flood of Bindings", "nobody", start, part.kill)


def ours(plane: ControlPlane) -> Runner:
    daemon = Daemon(plane)

    def start() -> int:
        daemon.start()
        return daemon.pid

    def end() -> None:
        assert daemon.stop() == 0
        assert daemon.said("bind refused") == []

    return Runner("ai-scheduler", "ai-scheduler", start, end)


def peer(plane: ControlPlane) -> Runner:
    def start() -> int:
        plane.start_kube_scheduler()
        return plane.pid("kube-scheduler")

    return Runner("kube-scheduler", "default-scheduler", start, lambda: plane.kill("kube-scheduler"))


def run(plane: ControlPlane, runner: Runner) -> Result:
    """Let one of them bind a backlog."""
    create_pods(plane, NAMESPACE, [a_pod(number, runner.scheduler) for number in range(PODS)])
    server, etcd = plane.pid("kube-apiserver"), plane.pid("etcd")
    wait_quiet(server)
    with History(plane) as history:
        server_before, etcd_before = cpu_of(server), cpu_of(etcd)
        pid = runner.start()
        history.wait_for_bound(NAMESPACE, 1, RUN_SECONDS)
        own_at_first = cpu_of(pid)
        history.wait_for_bound(NAMESPACE, PODS, RUN_SECONDS)
        own, server_after, etcd_after = cpu_of(pid), cpu_of(server), cpu_of(etcd)
        wait_quiet(pid)
        at_rest = cpu_of(pid)
        runner.end()
        first_seen = {sight.uid: sight.at for sight in reversed(history.sights) if sight.node}
        empty(plane, history)
    seconds = max(first_seen.values()) - min(first_seen.values())
    return Result(
        rate=(PODS - 1) / seconds,
        own_cpu=own,
        own_cpu_binding=own - own_at_first,
        own_cpu_at_rest=at_rest,
        server_cpu=server_after - server_before,
        etcd_cpu=etcd_after - etcd_before,
    )


def empty(plane: ControlPlane, history: History) -> None:
    """Remove the pods at once."""
    plane.api("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods", {"gracePeriodSeconds": 0})
    history.wait_until(lambda: not history.pods(NAMESPACE), "an empty namespace", RUN_SECONDS)


def median(results: list[Result], value: Callable[[Result], float]) -> float:
    return statistics.median(map(value, results))


def ratio(results: list[Result], others: list[Result], value: Callable[[Result], float]) -> str:
    """Return the median of the rounds' ratios: what disturbs a round disturbs its neighbours as well."""
    return times(statistics.median(value(one) / value(other) for one, other in zip(results, others, strict=True)), 1.0)


@pytest.mark.timeout(3600)
def test_pods_per_second_beside_a_flood_of_bindings_and_kube_scheduler(plane: ControlPlane) -> None:
    runners = [flood(plane), ours(plane), peer(plane)]
    results: dict[str, list[Result]] = {runner.name: [] for runner in runners}
    for number in range(ROUNDS):
        for runner in runners if number % 2 == 0 else reversed(runners):
            results[runner.name].append(run(plane, runner))
    flooded, peered = results[runners[0].name], results[runners[2].name]
    show(
        f"{PODS:,} waiting pods, {NODES:,} nodes, one API server; medians of {ROUNDS} rounds",
        ["", "pods/s", "best", "/ flood", "/ kube-scheduler"],
        [
            [
                name,
                f"{median(found, lambda one: one.rate):,.0f}",
                f"{max(one.rate for one in found):,.0f}",
                ratio(found, flooded, lambda one: one.rate),
                ratio(found, peered, lambda one: one.rate),
            ]
            for name, found in results.items()
        ],
    )
    show(
        "the same: CPU in ms per bound pod (own: from start to last Binding, while binding, with all events written)",
        ["", "own", "binding", "at rest", "API server", "etcd", "all while binding / flood's"],
        [
            [
                name,
                *(
                    f"{median(found, value) / PODS * 1000:.2f}"
                    for value in (
                        lambda one: one.own_cpu,
                        lambda one: one.own_cpu_binding,
                        lambda one: one.own_cpu_at_rest,
                        lambda one: one.server_cpu,
                        lambda one: one.etcd_cpu,
                    )
                ),
                ratio(found, flooded, lambda one: one.own_cpu_binding + one.server_cpu + one.etcd_cpu),
            ]
            for name, found in results.items()
        ],
    )
