"""CPU of a decision about a pod with inter-pod affinity, against one about a plain pod, in process.

As many pods as there are nodes run already, with the same labels and terms.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Action
from aischeduler.model.events import Seen
from aischeduler.model.gang import GangSource
from aischeduler.model.pod_affinity import NO_POD_AFFINITY, PodAffinity, pod_affinity
from tests.affinity_terms import term
from tests.bench.apart import apart
from tests.bench.arena import node_name, pool_name
from tests.bench.core import cpu_of_all, decide_all, evidence, peak_mib, running, see
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.build import a_node, a_pod, a_pool, replace
from tests.gangs import a_gang, member

NODES, PODS, ZONES, GANG = 5_000, 2_000, 3, 10
HOST, ZONE = "kubernetes.io/hostname", "zone"
OF_PLAIN = "a decision, of one about a plain pod"
WEB = {"app": "web"}
HERE, BESIDE = term(HOST, "app=web"), term(ZONE, "app=web")
TERMS = {
    "anti": pod_affinity(anti_required=(term(HOST, "app=new"),)),
    "required": pod_affinity(required=(BESIDE,)),
    "preferred": pod_affinity(preferred=((10, BESIDE),)),
    "preferred-anti": pod_affinity(preferred=((-10, HERE),)),
}

KEPT_AWAY = pod_affinity(anti_required=(term(HOST, "app=other"),))
"""The terms of running pods beside which pods with anti-affinity find room."""


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    nodes, pods = NODES // shrink, PODS // shrink
    alone = [
        _case(f"affinity-{name}", f"pods with {name} terms", partial(against_plain, nodes, pods, terms, 0))
        for name, terms in TERMS.items()
    ]
    gangs = partial(against_plain, nodes, pods, TERMS["anti"], GANG)
    return (*alone, _case("affinity-gangs", f"pods that keep apart, in gangs of {GANG}", gangs))


def _case(name: str, about: str, measure: Callable[[], Measured]) -> Case:
    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda _: apart(measure)

    return Case(
        name=name,
        about=f"in process: {PODS:,} {about}, {NODES:,} nodes with as many running pods",
        sides=(OURS,),
        open=opened,
        goals=(Goal(OF_PLAIN, 3.0, at_least=False),),
    )


def against_plain(nodes: int, pods: int, terms: PodAffinity, gang: int) -> Measured:
    """Measure the decisions about plain pods, then those about pods with terms, each in a cluster of their own."""
    plain, _ = deciding(nodes, pods, NO_POD_AFFINITY, gang)
    seconds, measured = deciding(nodes, pods, terms, gang)
    figures = {
        OF_PLAIN: seconds / plain,
        "µs/pod": seconds / pods * 1e6,
        "µs/pod, plain": plain / pods * 1e6,
        "peak MiB": peak_mib(),
    }
    return Measured(measured.evidence, figures)


def deciding(nodes: int, pods: int, terms: PodAffinity, gang: int) -> tuple[float, Measured]:
    """Return the CPU seconds of the decisions about pods with these terms, in gangs of `gang` if that is not 0."""
    scheduler = Scheduler(default_profile(), "bench")
    scheduler.observe(Seen(a_pool(pool_name(0), labels={"team": "team-0"})), 0.0)
    known = []
    for number in range(nodes):
        name = node_name(number)
        labels = {"team": "team-0", ZONE: f"zone-{number % ZONES}", HOST: name}
        known.append(a_node(name, cpu="64", memory="512Gi", pods=500, labels=labels))
        scheduler.observe(Seen(known[-1]), 0.0)
    one = a_pod(cpu="100m", memory="64Mi", pool=pool_name(0), labels=WEB, pod_affinity=terms)
    old = a_pod(cpu="100m", memory="64Mi", pool=pool_name(0), labels=WEB, pod_affinity=KEPT_AWAY)
    of_running = old if terms.anti_required else one
    there = [replace(of_running, uid=f"there-{number}", name=f"there-{number}") for number in range(nodes)]
    there = running(there, known)
    see(scheduler, there)
    new = replace(one, labels={"app": "new"}) if terms.anti_required else one
    waiting = []
    for number in range(pods):
        pod = replace(new, uid=f"new-{number}", name=f"new-{number}", created_seconds=number + 1)
        waiting.append(member(pod, a_gang(f"g{number // gang}", gang, GangSource.LABELS)) if gang else pod)
    see(scheduler, waiting)
    said: list[Action] = []
    seconds = cpu_of_all(lambda: said.extend(decide_all(scheduler)))
    return seconds, Measured(evidence(known, there, waiting, said), {})
