"""Tenant queues: the cost of quotas at three levels, pods over quota beside others, and the tide.

The peer of the first cases are the same pods without queues. Those and the tide are in process, the backlogs on one
real API server.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action, Bind, Evict
from aischeduler.model.events import Seen
from aischeduler.model.names import GPU_DEFAULT, GROUP, VERSION
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.tenant_queue import QUEUE_KEY
from aischeduler.model.workload import ServiceType
from tests.bench.apart import apart
from tests.bench.arena import FLOOD, Arena, Scene, arena, pool_name
from tests.bench.cases.backlog import QUIET_CPU, run_backlog
from tests.bench.cases.pathological import alone
from tests.bench.cases.tail import P50, SECONDS, paced
from tests.bench.core import cpu_of_all, decide_all, evidence, peak_mib, see
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.build import replace
from tests.controlplane.many import create
from tests.e2e.cluster import create_pods
from tests.gangs import a_gang, member
from tests.objects import Json, pod_object
from tests.queue_objects import queue_object
from tests.tenants import a_card_node, a_card_pod, a_queue, in_queue

PLAIN: Final = "the same pods without queues"
BESIDE: Final = "5,000 others over quota beside"
"""They were held, and it was said of them, before the others come."""
PODS, TENANTS, PROJECTS = 10_000, 20, 180
OVER = 5_000
RATE = 150
"""Pods per second."""
TRAINING_NODES, GPUS = 500, 8
SERVICES, SERVED = 64, 5
PLAIN_SHARE: Final = 1.7
"""Of the CPU of decisions alone, which are a third of the scheduler's own CPU per pod: 1.2 of all of it."""
ALL_CPU = "1000000"
CARDS = ("NVIDIA-H200", "NVIDIA-A100-SXM4-80GB")
CPU, CARD, SERVICE = "CPU ms/pod", "CPU ms of the slowest reclaim of one card", "CPU s to reclaim for all services"


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    pods, over, full = (max(8, size // shrink) for size in (PODS, OVER, TRAINING_NODES))
    return (
        *(flood(max(2, nodes // shrink), pods, over) for nodes in (1_000, 5_000)),
        *(backlog(nodes // shrink, pods) for nodes in (1_000, 5_000)),
        tail(1_000 // shrink, max(2, SECONDS // shrink), over),
        alone(
            "tenants-card",
            f"in process: {full * GPUS:,} training pods on {full} nodes of {GPUS} GPUs; a service takes one card",
            partial(one_card, full),
            Goal(CARD, 20, at_least=False),
        ),
        alone(
            "tenants-services",
            f"in process: {full} gangs of {GPUS} on as many nodes; {min(SERVICES, full)} services of {GPUS} GPUs come",
            partial(services, full, min(SERVICES, full)),
            Goal(SERVICE, 0.2, at_least=False),
        ),
    )


def flood(nodes: int, pods: int, over: int) -> Case:
    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda side: apart(partial(decided, nodes, pods, over, queues=side == OURS))

    queues = f"{TENANTS + PROJECTS} queues on three levels, {over:,} others over quota"
    about = f"in process: {pods:,} pods decided, {queues}, {nodes:,} nodes"
    goal = Goal(CPU, PLAIN_SHARE, at_least=False, peer=PLAIN)
    return Case(f"tenants-{nodes}-nodes", about, (OURS, PLAIN), open=opened, goals=(goal,))


def backlog(nodes: int, pods: int) -> Case:
    return Case(
        f"tenants-backlog-{nodes}n-{pods}",
        f"{pods:,} waiting pods, {TENANTS + PROJECTS} queues on three levels, {nodes:,} nodes, one API server",
        (OURS, PLAIN, FLOOD),
        open=partial(opened, Scene(nodes, cards=CARDS), partial(run, pods), pods),
        goals=(
            Goal("pods/s", 0.9, peer=FLOOD),
            Goal(QUIET_CPU, 1.2, at_least=False, peer=PLAIN),
        ),
        needs_server=True,
    )


def tail(nodes: int, seconds: int, over: int) -> Case:
    pods = RATE * seconds
    return Case(
        f"tenants-tail-{nodes}n",
        f"{RATE} pods a second for {seconds} s, {TENANTS + PROJECTS} queues, {nodes:,} nodes, one API server",
        (OURS, BESIDE),
        open=partial(opened, Scene(nodes, cards=CARDS), partial(arriving, pods, over), pods),
        goals=tuple(Goal(figure, 1 / 1.05, peer=BESIDE) for figure in (P50, QUIET_CPU)),
        needs_server=True,
    )


Run = Callable[[Arena, str], Measured]
"""Runs a side in a cluster with queues."""


@contextmanager
def opened(scene: Scene, run: Run, pods: int) -> Iterator[Measure]:
    with arena(scene) as ground:
        cards = {"H200": 10 * pods, "A100": 10 * pods}
        queues = [
            queue_object(name, cards=cards, **({"parent": parent} if parent else {"capability": {"cpu": ALL_CPU}}))
            for name, parent in tree().items()
        ]
        full = queue_object("full", parent="t-0", cards={"H200": 0})
        create(ground.plane.connect, f"/apis/{GROUP}/{VERSION}/queues", [*queues, full])
        yield partial(run, ground)


def run(pods: int, ground: Arena, side: str) -> Measured:
    """Let a side bind the waiting pods, which name queues if they are ours."""
    dress = _queued if side == OURS else _carded
    return run_backlog(ground.dressed(dress), pods, FLOOD if side == FLOOD else OURS)


def arriving(pods: int, over: int, ground: Arena, side: str) -> Measured:
    """Create pods at a fixed rate, beside others that are over their quota or alone."""
    beside = ground.new_namespace()
    if side == BESIDE:
        create_pods(ground.plane, beside, [_held(number, beside) for number in range(over)])
    try:
        return paced(ground.dressed(_queued), RATE, pods, OURS)
    finally:
        ground.delete_pods(beside)


def _held(number: int, namespace: str) -> Json:
    full = {QUEUE_KEY: "full"}
    return pod_object(f"over-{number:05}", namespace=namespace, gpu=1, pool=pool_name(0), annotations=full)


def _carded(number: int, document: Json) -> None:
    resources = document["spec"]["containers"][0]["resources"]
    for amounts in ("requests", "limits"):
        resources.setdefault(amounts, {})[GPU_DEFAULT] = "1"


def _queued(number: int, document: Json) -> None:
    _carded(number, document)
    document["metadata"]["annotations"][QUEUE_KEY] = f"q-{number % PROJECTS}"


def tree() -> dict[str, str]:
    """Return the parents of the queues: one root, tenants, and projects."""
    tenants = {f"t-{number}": "root" for number in range(TENANTS)}
    return {"root": "", **tenants, **{f"q-{number}": f"t-{number % TENANTS}" for number in range(PROJECTS)}}


def engine(nodes: int) -> tuple[Scheduler, list[Node]]:
    scheduler = Scheduler(default_profile(), "bench")
    known = [a_card_node(f"n-{number:05}", CARDS[number % 2], 2 * GPUS, cpu="256") for number in range(nodes)]
    for node in known:
        scheduler.observe(Seen(node), 0.0)
    return scheduler, known


def decided(nodes: int, pods: int, over: int, *, queues: bool) -> Measured:
    """Decide the pods; with queues, others wait beside them that are over their quota."""
    scheduler, known = engine(nodes)
    cards = {"H200": 10 * pods, "A100": 10 * pods}
    if queues:
        for name, parent in tree().items():
            scheduler.observe(Seen(a_queue(name, parent=parent, cpu="" if parent else ALL_CPU, cards=cards)), 0.0)
        scheduler.observe(Seen(a_queue("full", parent="t-0", cards={"H200": 0})), 0.0)
        see(scheduler, [in_queue(a_card_pod(f"over-{number}", priority=9), "full") for number in range(over)])
        decide_all(scheduler)
    waiting = [a_card_pod(f"p-{number:05}", 1, cpu=f"{1 + number % 12}", created=number) for number in range(pods)]
    if queues:
        waiting = [in_queue(pod, f"q-{number % PROJECTS}") for number, pod in enumerate(waiting)]
    said: list[Action] = []

    def all_start() -> None:
        see(scheduler, waiting)
        said.extend(decide_all(scheduler, 1.0))

    deciding = cpu_of_all(all_start)
    figures = {CPU: 1e3 * deciding / pods, "peak MiB": peak_mib()}
    return Measured(evidence(known, (), waiting, said), figures)


def trained(nodes: int, *, gangs: bool) -> tuple[Scheduler, list[Node], list[Pod]]:
    """Return an engine whose nodes are full of training pods, where `gangs` are whole nodes."""
    scheduler = Scheduler(default_profile(), "bench")
    scheduler.observe(Seen(a_queue("online", priority=80_000, reclaimable=False)), 0.0)
    scheduler.observe(Seen(a_queue("batch", priority=20_000)), 0.0)
    known = [a_card_node(f"n-{number:05}", CARDS[0], GPUS) for number in range(nodes)]
    for number, node in enumerate(known):
        scheduler.observe(Seen(node), 0.0)
        if gangs:
            scheduler.observe(Seen(a_gang(f"g-{number}", GPUS)), 0.0)
    stay: list[Pod] = []
    for number in range(nodes * GPUS):
        pod = a_card_pod(f"t-{number:05}", 1, priority=(number // GPUS if gangs else number) % 7)
        pod = in_queue(pod, "batch", service=ServiceType.TRAINING)
        pod = member(pod, f"g-{number // GPUS}") if gangs else pod
        name = known[number // GPUS].name
        stay.append(replace(pod, node_name=name, phase="Running", started_seconds=1 + number % 97))
    see(scheduler, stay)
    decide_all(scheduler)
    return scheduler, known, stay


def one_card(nodes: int) -> Measured:
    """Services of one card come one after the other."""
    scheduler, known, stay = trained(nodes, gangs=False)
    slowest, victims = 0.0, 0
    for number in range(SERVED):
        see(scheduler, [in_queue(a_card_pod(f"web-{number}"), "online", service=ServiceType.INFERENCE)])
        said: list[Action] = []
        slowest = max(slowest, cpu_of_all(partial(_decide_into, scheduler, said)))
        victims += sum(isinstance(action, Evict) for action in said)
    figures = {CARD: slowest * 1e3, "victims": float(victims), "peak MiB": peak_mib()}
    return Measured(evidence(known, stay, (), ()), figures)


def _decide_into(scheduler: Scheduler, said: list[Action]) -> None:
    said.extend(decide_all(scheduler, 1.0))


def services(nodes: int, count: int) -> Measured:
    """Services of a whole node each come at once."""
    scheduler, known, stay = trained(nodes, gangs=True)
    coming = [in_queue(a_card_pod(f"web-{n}", GPUS), "online", service=ServiceType.INFERENCE) for n in range(count)]
    see(scheduler, coming)
    said: list[Action] = []
    deciding = cpu_of_all(partial(_decide_into, scheduler, said))
    victims = sum(isinstance(action, Evict) for action in said)
    figures = {SERVICE: deciding, "victims": float(victims), "peak MiB": peak_mib()}
    return Measured(evidence(known, stay, (), [a for a in said if isinstance(a, Bind)]), figures)
