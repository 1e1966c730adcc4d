"""What pods ask of kube-scheduler, shape by shape, on one real API server: pods bound per second beside kube-scheduler.

The shapes are those of its own benchmark, scheduler_perf. Where pods wait `beside` the counted ones, they never fit.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from threading import Event

from tests.bench.arena import (
    FLOOD,
    HOST,
    PEER,
    SCHEDULER_NAMES,
    ZONE,
    Arena,
    Scene,
    arena,
    node_name,
    team_of,
)
from tests.bench.cases.backlog import BINDING_CPU, SERVER_CPU, run_backlog
from tests.bench.spec import OURS, Case, Goal, Measure, Measured, VoidRunError
from tests.e2e.cluster import create_pods
from tests.objects import Json, node_object, pod_object, priority_class_object

PODS_BY_NODES = {1_000: 3_000, 5_000: 5_000}
"""Nodes -> the waiting pods; scheduler_perf has as many pods as nodes for most shapes."""
PLAIN = 10_000
"""The waiting pods of the plain shape, as in scheduler_perf's SchedulingBasic."""
BESIDE = 2_000
ZONES = 3
OF_PEER = 2.5
"""Pods per second against kube-scheduler."""
OWN_CPU_OF_SERVER = 0.4
"""Own CPU per pod with affinity or spread at 5,000 nodes, as a share of what a Binding costs API server and etcd."""
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
LABELS = {"app": "train"}
SELECTOR = {"labelSelector": {"matchLabels": LABELS}}
LOW_PER_NODE = 4
HIGH = "high"
HUGE_CPU = "1000"
CHURN = "churn"
CHURN_SECONDS = 1.0
"""How often what churns is created or deleted, as in scheduler_perf's SchedulingWithMixedChurn."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape: `dress` changes the spec of the pod of this number, given the number of nodes.

    `beside` so many other pods wait that never start, which `dress_beside` changes. With `low`, so many pods of low
    priority fill each node before each run. `pods` wait where that is given, and with `apart` one for each node. With
    `churn` a node, a Service and a pod of high priority that never fits come and go meanwhile.
    """

    name: str
    about: str
    dress: Callable[[Json, int, int], None]
    beside: int = 0
    dress_beside: Callable[[Json, int, int], None] | None = None
    low: int = 0
    pods: int = 0
    crosses: bool = False
    apart: bool = False
    churn: bool = False


def _plain(spec: Json, number: int, nodes: int) -> None:
    """Change nothing."""


def _node_affinity(spec: Json, number: int, nodes: int) -> None:
    zones = {"key": ZONE, "operator": "In", "values": ["zone-0", "zone-1"]}
    term = {"matchExpressions": [zones]}
    spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}


def _daemon(spec: Json, number: int, nodes: int) -> None:
    field = {"key": "metadata.name", "operator": "In", "values": [node_name(number % nodes)]}
    spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}


def _pods(kind: str, key: str, *, hard: bool) -> Callable[[Json, int, int], None]:
    term = SELECTOR | {"topologyKey": key}
    terms = {REQUIRED: [term]} if hard else {PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}

    def dress(spec: Json, number: int, nodes: int) -> None:
        spec["affinity"] = {kind: terms}

    return dress


def _spread(when: str) -> Callable[[Json, int, int], None]:
    constraint = SELECTOR | {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when}

    def dress(spec: Json, number: int, nodes: int) -> None:
        spec["topologySpreadConstraints"] = [constraint]

    return dress


def _mixed(spec: Json, number: int, nodes: int) -> None:
    dresses = (_plain, _node_affinity, _spread("ScheduleAnyway"), _pods("podAntiAffinity", ZONE, hard=False))
    dresses[number % len(dresses)](spec, number, nodes)


def _high(spec: Json, number: int, nodes: int) -> None:
    _requests(spec, "16")
    spec["priorityClassName"] = HIGH


def _requests(spec: Json, cpu: str) -> None:
    spec["containers"][0]["resources"]["requests"]["cpu"] = cpu


def _huge(spec: Json, number: int, nodes: int) -> None:
    _requests(spec, HUGE_CPU)


def _gated(spec: Json, number: int, nodes: int) -> None:
    spec["schedulingGates"] = [{"name": "example.com/wait"}]


SHAPES = (
    Shape("plain", "no rule but resources", _plain, pods=PLAIN),
    Shape("node-affinity", "two of three zones", _node_affinity),
    Shape("daemon", "each pod names its node", _daemon),
    Shape("affinity", "required affinity, one zone", _pods("podAffinity", ZONE, hard=True), crosses=True),
    Shape(
        "anti-affinity",
        "required, one pod per node",
        _pods("podAntiAffinity", HOST, hard=True),
        crosses=True,
        apart=True,
    ),
    Shape("affinity-preferred", "preferred, by node", _pods("podAffinity", HOST, hard=False), crosses=True),
    Shape("anti-affinity-preferred", "preferred, by node", _pods("podAntiAffinity", HOST, hard=False), crosses=True),
    Shape("spread", "hard, over 3 zones", _spread("DoNotSchedule"), crosses=True),
    Shape("spread-preferred", "soft, over 3 zones", _spread("ScheduleAnyway"), crosses=True),
    Shape("mixed", "plain, node affinity, soft spread and preferred anti-affinity in turn", _mixed),
    Shape("unschedulable", "2,000 pods that never fit wait beside", _plain, beside=BESIDE, dress_beside=_huge),
    Shape("gated", "4,000 gated pods wait beside", _plain, beside=2 * BESIDE, dress_beside=_gated),
    Shape("churn", "a node, a Service and a pod that never fits come and go", _plain, pods=PLAIN, churn=True),
    Shape("preemption", "every node is full of pods of low priority", _high, low=LOW_PER_NODE, pods=1_000),
)


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    return tuple(_case(shape, nodes, shrink) for shape in SHAPES for nodes in PODS_BY_NODES)


def _case(shape: Shape, size: int, shrink: int) -> Case:
    nodes = size // shrink
    pods = (shape.pods or PODS_BY_NODES[size]) // shrink
    pods = min(pods, nodes) if shape.apart else pods
    goals = [Goal("pods/s", OF_PEER, peer=PEER)]
    if shape.crosses and size == max(PODS_BY_NODES):
        goals.append(Goal(BINDING_CPU, OWN_CPU_OF_SERVER, at_least=False, peer=FLOOD, of=SERVER_CPU))
    return Case(
        name=f"shape-{shape.name}-{nodes}n",
        about=f"{pods:,} waiting pods, {nodes:,} nodes, one API server: {shape.about}",
        sides=(OURS, PEER) if shape.low else (OURS, FLOOD, PEER),
        open=partial(opened, shape, nodes, pods, shrink),
        rounds=1,
        goals=tuple(goals),
        needs_server=True,
    )


@contextmanager
def opened(shape: Shape, nodes: int, pods: int, shrink: int) -> Iterator[Measure]:
    def dress(number: int, document: Json) -> None:
        document["metadata"]["labels"] = dict(LABELS)
        shape.dress(document["spec"], number, nodes)

    with arena(Scene(nodes, zones=ZONES, dress=dress)) as ground:
        high = priority_class_object(HIGH, value=1000)
        ground.plane.api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", high)
        yield partial(run_shape, ground, shape, pods, shrink)


def run_shape(ground: Arena, shape: Shape, pods: int, shrink: int, side: str) -> Measured:
    """Let a side bind the waiting pods, beside those that never start."""
    others: list[str] = []
    if shape.beside:
        others = [ground.new_namespace()]
        documents = [_beside(shape, number, others[0], side) for number in range(shape.beside // shrink)]
        create_pods(ground.plane, others[0], documents)
    if shape.low:
        others = [ground.fill(shape.low * ground.scene.nodes, side, _low)]
    try:
        with churning(ground, side) if shape.churn else nullcontext():
            return run_backlog(ground, pods, side)
    finally:
        for namespace in others:
            ground.delete_pods(namespace)


@contextmanager
def churning(ground: Arena, side: str) -> Iterator[None]:
    """Create and delete, in turn, what churns, until the end. The node takes no pods: it is gone at any time."""
    namespace, over = ground.new_namespace(), Event()
    pod = pod_object(
        CHURN, namespace=namespace, cpu=HUGE_CPU, priority_class=HIGH, scheduler_name=SCHEDULER_NAMES[side]
    )
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": CHURN}}
    service["spec"] = {"selector": {"app": CHURN}, "ports": [{"port": 80}]}
    taint = {"key": "example.com/churn", "effect": "NoSchedule"}
    inside = f"/api/v1/namespaces/{namespace}"
    churned = {
        "/api/v1/nodes": node_object(CHURN, labels=team_of(0, 1), taints=[taint]),
        f"{inside}/pods": pod,
        f"{inside}/services": service,
    }
    with ThreadPoolExecutor(1) as threads:
        churn = threads.submit(_churn, ground, churned, over)
        try:
            yield
        finally:
            over.set()
        churn.result()


def _churn(ground: Arena, churned: dict[str, Json], over: Event) -> None:
    """Create these objects, given by the path of their list, or delete them, each second; delete them at the end."""
    there = False
    while not over.wait(CHURN_SECONDS) or there:
        for path, document in churned.items():
            sent = ("DELETE", f"{path}/{CHURN}", None) if there else ("POST", path, document)
            answer = ground.plane.api(*sent)
            if answer.status >= 400:  # a run without churn is not the one that is meant
                raise VoidRunError(f"{sent[0]} {sent[1]}: {answer.status} {answer.body}")
        there = not there


def _beside(shape: Shape, number: int, namespace: str, side: str) -> Json:
    document = pod_object(f"beside-{number:05d}", namespace=namespace, scheduler_name=SCHEDULER_NAMES[side])
    if shape.dress_beside is not None:
        shape.dress_beside(document["spec"], number, number + 1)
    return document


def _low(spec: Json) -> None:
    """Make a pod that is gone as soon as it is deleted: there is no kubelet."""
    _requests(spec, "16")
    del spec["priorityClassName"]
    spec["terminationGracePeriodSeconds"] = 0
