"""One real API server with nodes and pools, on which the sides bind pods in turn.

Invariants:
- Every run has its own namespace, so that the audit log of the API server shows which Bindings belong to the run.
- Every run starts with the same cluster: the pods of the last run are deleted and the API server is idle.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from itertools import count

from aischeduler.model.gang import GANG_KEY, GANG_MIN_KEY
from tests.bench.arrivals import FLAT_OUT, arrive
from tests.bench.documents import compact
from tests.bench.processes import compile_ours, cpu_of, wait_quiet, with_all_events
from tests.bench.spec import OURS, Evidence, VoidRunError
from tests.controlplane.binaries import Binaries, BinariesUnavailableError, find_binaries, go_problem
from tests.controlplane.part import PartError
from tests.controlplane.plane import ControlPlane
from tests.e2e.bindings import bindings
from tests.e2e.cluster import create_namespace, create_nodes, create_pods, create_pools, install
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import Json, node_object, pod_object, pool_object

FLOOD, PEER = "flood of Bindings", "kube-scheduler"
SCHEDULER_NAMES = {OURS: "ai-scheduler", PEER: "default-scheduler", FLOOD: "nobody"}
RUN_SECONDS = 900.0
REMOVALS_MAX = 20
"""Number of attempts to delete the pods of a run."""
ALL_DIFFERENT = 0
SHAPES = 48
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
PRODUCT = "nvidia.com/gpu.product"
GPUS = 16


class MissingAssetsError(Exception):
    """The programs of the real control plane are missing; the text says how to get them."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The cluster before the first run. `shapes` is the number of different pod specs (0: every pod differs).

    With `zones` the nodes are in as many zones. With `gang` each so many pods start together. With `cards` the nodes
    have `GPUS` each, of these products in turn. `dress` changes the pod of a number.
    """

    nodes: int
    pools: int = 1
    shapes: int = SHAPES
    zones: int = 0
    gang: int = 0
    cards: tuple[str, ...] = ()
    dress: Callable[[int, Json], None] | None = None

    def pod(self, number: int, namespace: str, side: str) -> Json:
        """Return a pod of which ten fit on a node; for kube-scheduler a node selector names the nodes of its pool."""
        shape = number % self.shapes if self.shapes else number
        told = side == PEER and self.pools > 1
        document = self._pod(number, shape, namespace, side, told=told)
        if self.gang:
            labels = {GANG_KEY: f"gang-{number // self.gang}", GANG_MIN_KEY: str(self.gang)}
            document["metadata"]["labels"] = labels
        if self.dress is not None:
            self.dress(number, document)
        return document

    def _pod(self, number: int, shape: int, namespace: str, side: str, *, told: bool) -> Json:
        return pod_object(
            f"train-{number:06d}",
            namespace=namespace,
            cpu=f"{500 + shape % 500}m",
            memory=f"{256 * 1024 + shape}Ki",
            pool=pool_name(number % self.pools),
            scheduler_name=SCHEDULER_NAMES[side],
            node_selector=team_of(number, self.pools) if told else {},
        )


@dataclass(frozen=True, slots=True)
class Runner:
    """How to run a side: `start` returns its pid, `end` stops it and raises VoidRunError if it failed."""

    start: Callable[[], int]
    end: Callable[[], None]


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def pool_name(number: int) -> str:
    return f"pool-{number:03d}"


def team_of(number: int, pools: int) -> dict[str, str]:
    """Return the labels of the nodes of a pool; nodes and pods go to the pools in turn."""
    return {"team": f"team-{number % pools}"}


def a_node(number: int, scene: Scene) -> Json:
    name = node_name(number)
    zone = {ZONE: f"zone-{number % scene.zones}", HOST: name} if scene.zones else {}
    card = {PRODUCT: scene.cards[number % len(scene.cards)]} if scene.cards else {}
    gpu = GPUS if scene.cards else 0
    return node_object(name, cpu="64", memory="256Gi", gpu=gpu, labels=team_of(number, scene.pools) | zone | card)


class Arena:
    """A cluster in which the sides run in turn."""

    def __init__(self, plane: ControlPlane, scene: Scene) -> None:
        self.plane = plane
        self.scene = scene
        self._namespaces = count(1)

    def dressed(self, dress: Callable[[int, Json], None]) -> "Arena":
        """Return the same cluster with other pods."""
        other = copy(self)
        other.scene = replace(self.scene, dress=dress)
        return other

    def new_namespace(self) -> str:
        """Create the namespace of one run."""
        name = f"bench-{next(self._namespaces)}"
        create_namespace(self.plane, name)
        return name

    def create(self, namespace: str, side: str, pods: int) -> None:
        """Create waiting pods for a side and wait until the API server is idle."""
        create_pods(self.plane, namespace, [self.scene.pod(number, namespace, side) for number in range(pods)])
        wait_quiet(self.plane.pid("kube-apiserver"))

    def fill(self, pods: int, side: str = OURS, dress: Callable[[Json], None] | None = None) -> str:
        """Create bound pods in their own namespace, on all nodes in turn; return the namespace."""
        namespace = self.new_namespace()
        bound = []
        for number in range(pods):
            document = self.scene.pod(number, namespace, side)
            document["spec"]["nodeName"] = node_name(number % self.scene.nodes)
            if dress is not None:
                dress(document["spec"])
            bound.append(compact(document))
        arrive(self.plane.kubeconfig, namespace, bound, FLAT_OUT)
        return namespace

    def let_arrive(self, namespace: str, side: str, pods: int, per_second: float) -> dict[str, float]:
        """Create pods for a side at a rate; return the time of each POST by pod name."""
        documents = [compact(self.scene.pod(number, namespace, side)) for number in range(pods)]
        return arrive(self.plane.kubeconfig, namespace, documents, per_second)

    def runner(self, side: str, namespace: str) -> Runner:
        """Return how to run a side."""
        plane = self.plane
        if side == PEER:
            return Runner(self._start_peer, lambda: plane.kill("kube-scheduler"))
        if side == FLOOD:
            words = (str(plane.kubeconfig), namespace, str(self.scene.nodes))
            command = [sys.executable, "-m", "tests.bench.flood", *words]
            part = plane.program("flood", command, lambda: True)

            def start() -> int:
                part.launch()
                return part.pid

            return Runner(start, part.kill)
        return our_runner(Daemon(plane, plane.kubeconfig, *with_all_events(plane.directory)))

    def server_cpu(self) -> dict[str, float]:
        """Return the CPU seconds of the API server and of etcd so far."""
        return {"API server": cpu_of(self.plane.pid("kube-apiserver")), "etcd": cpu_of(self.plane.pid("etcd"))}

    def evidence(self, history: History, namespace: str, pods: int) -> Evidence:
        """Return where the pods of a run were bound, from the audit log and from a watch."""
        awaited = [sight.uid for sight in history.pods(namespace)]
        if len(awaited) != pods:
            raise VoidRunError(f"{len(awaited)} of {pods} pods are there at the end")
        accepted = [one for one in bindings(self.plane, namespace) if one.status == 201]
        moved = [f"{uid} went to {', '.join(nodes)}" for uid, nodes in history.nodes_of().items() if len(nodes) > 1]
        if moved:
            raise VoidRunError(f"{len(moved)} pods changed their node: {moved[0]}")
        return Evidence(awaited, [(one.uid, one.node) for one in accepted], history.overcommitted())

    def empty(self, history: History, namespace: str) -> None:
        """Delete the pods of a run; one request may time out before it has deleted all of them."""
        self.delete_pods(namespace)
        wait(history, lambda: not history.pods(namespace), "an empty namespace")

    def delete_pods(self, namespace: str) -> None:
        """Delete the pods of a namespace."""
        for _ in range(REMOVALS_MAX):
            with suppress(TimeoutError):
                self.plane.api("DELETE", f"/api/v1/namespaces/{namespace}/pods", {"gracePeriodSeconds": 0})
                break

    def _start_peer(self) -> int:
        try:
            self.plane.start_kube_scheduler()
        except PartError as error:
            raise VoidRunError(first_line(error)) from error
        return self.plane.pid("kube-scheduler")


def our_runner(daemon: Daemon) -> Runner:
    """Return how to run ai-scheduler; a refused Binding voids the run."""

    def start() -> int:
        daemon.launch()
        return daemon.pid

    def end() -> None:
        status = daemon.stop()
        refused = daemon.said("bind refused")
        if status or refused:
            raise VoidRunError(f"{OURS} ended with status {status} after {len(refused)} refused Bindings")

    return Runner(start, end)


@contextmanager
def arena(scene: Scene) -> Iterator[Arena]:
    """Start a real API server with the nodes and pools of a scene. Raises MissingAssetsError."""
    binaries = the_binaries()
    with ControlPlane(binaries) as plane:
        install(plane)
        create_nodes(plane, [a_node(number, scene) for number in range(scene.nodes)])
        pools = (pool_object(pool_name(n), labels=team_of(n, scene.pools)) for n in range(scene.pools))
        create_pools(plane, *pools)
        yield Arena(plane, scene)


@contextmanager
def full_arena(nodes: int, running: int) -> Iterator[Arena]:
    """Start a real API server with so many bound pods."""
    compile_ours()
    with arena(Scene(nodes)) as ground:
        ground.fill(running)
        yield ground


def the_binaries() -> Binaries:
    """Return the programs of the control plane. Raises MissingAssetsError."""
    try:
        found = find_binaries()
    except BinariesUnavailableError as error:
        raise MissingAssetsError(first_line(error)) from error
    if found is None:
        way = go_problem()
        then = f"and cannot be built: {way}" if way else "run `make controlplane` once"
        raise MissingAssetsError(f"the programs of the real control plane are missing: {then}")
    return found


def wait(history: History, holds: Callable[[], bool], what: str, seconds: float = RUN_SECONDS) -> None:
    """Wait until `holds` is true; a timeout voids the run."""
    try:
        history.wait_until(holds, what, seconds)
    except AssertionError as late:
        raise VoidRunError(first_line(late)) from late


def wait_for_bound(history: History, namespace: str, pods: int, seconds: float = RUN_SECONDS) -> None:
    """Wait until so many pods of the namespace are bound; a timeout voids the run."""
    try:
        history.wait_for_bound(namespace, pods, seconds)
    except AssertionError as late:
        raise VoidRunError(first_line(late)) from late


def first_line(error: BaseException) -> str:
    """Return the first line of an error."""
    return str(error).partition("\n")[0]
