"""Explain one waiting pod of a large cluster: read the lists, build the engine, let it decide, explain.

The peer reads the same lists with the same decoders and does nothing else.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, loaded
from aischeduler.analysis.deciding import decide_all
from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import Verdict
from aischeduler.engine.profile import default_profile
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.watch import watched_resources
from aischeduler.model.events import Event
from aischeduler.model.names import POOL_KEY
from tests.bench.apart import apart
from tests.bench.core import cpu_of_all, peak_mib
from tests.bench.documents import compact, real_node, real_pod
from tests.bench.spec import OURS, Case, Evidence, Goal, Measure, Measured, VoidRunError
from tests.objects import Json, pool_object

FLOOR: Final = "the lists are read"
NODES, PODS = 5_000, 20_000
WAITING_SHARE = 10
ON_A_NODE = 4
WHOLE, EXPLAINING = "CPU s to the answer", "ms of the explanation"
WHOLE_SECONDS, EXPLAINING_MILLIS, FLOORS = 3.0, 300.0, 8.0


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the case of this module, with sizes divided by `shrink`."""
    nodes, pods = NODES // shrink, PODS // shrink

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda side: apart(explained if side == OURS else read, nodes, pods)

    return (
        Case(
            name="explain",
            about=f"in process: explain one of {pods // WAITING_SHARE:,} waiting pods, {nodes:,} nodes, {pods:,} pods",
            sides=(OURS, FLOOR),
            open=opened,
            goals=(
                Goal(EXPLAINING, EXPLAINING_MILLIS, at_least=False),
                Goal(WHOLE, WHOLE_SECONDS, at_least=False),
                Goal(WHOLE, FLOORS, at_least=False, peer=FLOOR),
            ),
            short=True,
        ),
    )


def explained(nodes: int, pods: int) -> Measured:
    """Measure every step to the explanation of the last waiting pod, of which every other waits too."""
    lists, uid = documents(nodes, pods)
    events: list[Event] = []
    reading = cpu_of_all(lambda: events.extend(decoded(lists)))
    snapshot = ClusterSnapshot(0, tuple(events))
    engines = []
    loading = cpu_of_all(lambda: engines.append(loaded(default_profile(), snapshot)))
    deciding = cpu_of_all(lambda: decide_all(engines[0], 0.0))
    cluster = engines[0].cluster
    found = []
    explaining = cpu_of_all(lambda: found.append(explain(cluster, cluster.records[uid], 0.0)))
    if found[0].verdict is not Verdict.WAITS or not found[0].remedies:
        raise VoidRunError("the pod does not wait, or nothing starts it")
    figures = {
        EXPLAINING: explaining * 1e3,
        WHOLE: reading + loading + deciding + explaining,
        "CPU s to read": reading,
        "CPU s to build": loading,
        "CPU s to decide": deciding,
        "peak MiB": peak_mib(),
    }
    return Measured(Evidence(), figures)


def read(nodes: int, pods: int) -> Measured:
    """Measure the CPU of reading the same lists."""
    lists, _ = documents(nodes, pods)
    return Measured(Evidence(), {WHOLE: cpu_of_all(lambda: sum(1 for _ in decoded(lists)))})


def decoded(lists: dict[str, list[bytes]]) -> Iterator[Event]:
    """Yield the events of the lists."""
    resources: dict[str, Any] = {
        "Pool": watched_resources.pools(),
        "Node": watched_resources.nodes(),
        "Pod": watched_resources.pods(SpecCache()),
    }
    for kind, found in lists.items():
        decode: Callable[[bytes], Any] = resources[kind].object_decoder.decode
        yield from map(resources[kind].seen_event, map(decode, found))


def documents(nodes: int, pods: int) -> tuple[dict[str, list[bytes]], str]:
    """Return the lists by kind, and the uid of the last waiting pod.

    Nine of ten nodes are full, the others cordoned. The pods belong to one pool of three; one does not share, one lends
    at most four GPUs.
    """
    zone = partial("zone-{}".format)
    pools = [
        pool_object("gpu-pool", labels={"topology.kubernetes.io/zone": zone(0)}),
        pool_object("closed", labels={"topology.kubernetes.io/zone": zone(1)}, disableSharing=True),
        pool_object("narrow", labels={"topology.kubernetes.io/zone": zone(2)}, lendingLimit={"nvidia.com/gpu": "4"}),
    ]
    running = pods - pods // WAITING_SHARE
    full = running // ON_A_NODE
    machines = [real_node(number, version=number + 1) for number in range(nodes)]
    for machine in machines[full:]:
        machine["spec"]["unschedulable"] = True
    crowd = [
        asking(real_pod(number, version=number + 1, node=machines[number % full]["metadata"]["name"]), 2, number % 3)
        for number in range(running)
    ]
    crowd += [asking(real_pod(number, version=number + 1), 8, 0) for number in range(running, pods)]
    lists = {"Pool": pools, "Node": machines, "Pod": crowd}
    return {kind: [compact(one) for one in found] for kind, found in lists.items()}, crowd[-1]["metadata"]["uid"]


def asking(pod: Json, gpus: int, pool: int) -> Json:
    """Return the pod with this many GPUs, in this pool."""
    resources = pod["spec"]["containers"][0]["resources"]
    resources["requests"]["nvidia.com/gpu"] = resources["limits"]["nvidia.com/gpu"] = str(gpus)
    pod["metadata"]["annotations"] = {POOL_KEY: ("gpu-pool", "closed", "narrow")[pool]}
    return pod
