"""CPU per pod of each step, from reading its ADDED event to reading the event that shows it bound.

Each step is measured for many pods with documents of realistic size. Events and logs are not included.
"""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.watch import watched_resources
from aischeduler.model.actions import Bind
from aischeduler.model.events import Event, Seen
from aischeduler.model.pod import Pod
from tests.bench.apart import apart
from tests.bench.core import cpu_of_all, decide_all, evidence, peak_mib, tell, world
from tests.bench.documents import CREATED, real_pod, watch_line
from tests.bench.replay import reflector_of
from tests.bench.sending import bind_server, run
from tests.bench.spec import OURS, Case, Goal, Measure, Measured
from tests.build import a_pool
from tests.objects import Json

NODES, PODS = 5_000, 10_000
PIECE_BYTES = 64 * 1024
POOL = "gpu-pool"
WHOLE, GOAL_MICROS = "µs/pod, all steps", 300.0


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the case of this module, with sizes divided by `shrink`."""
    nodes, pods = NODES // shrink, PODS // shrink

    @contextmanager
    def opened() -> Iterator[Measure]:
        yield lambda _: apart(steps, nodes, pods)

    return (
        Case(
            name="steps",
            about=f"in process: CPU of each step of a pod, {nodes:,} nodes, {pods:,} pods, Bindings by TLS",
            sides=(OURS,),
            open=opened,
            goals=(Goal(WHOLE, GOAL_MICROS, at_least=False),),
            short=True,
        ),
    )


def steps(nodes: int, pods: int) -> Measured:
    """Measure every step."""
    there = world(nodes, cpu="96", gpu=8)
    scheduler = there.scheduler
    scheduler.observe(Seen(a_pool(POOL, labels={"team": "team-0"})), 0.0)
    scheduler.observe(Seen(a_pool("pool-000")), 0.0)
    decide_all(scheduler)
    documents = [real_pod(number, version=number + 1) for number in range(pods)]
    lines = [watch_line("ADDED", document) for document in documents]
    specs = SpecCache()
    seen: list[Event] = []
    costs = {"read its ADDED event": cpu_of_all(lambda: seen.extend(read(lines, specs)))}
    costs["take it in"] = cpu_of_all(lambda: tell(scheduler, seen))
    said: list[Bind] = []
    costs["decide"] = cpu_of_all(lambda: said.extend(act for act in decide_all(scheduler) if isinstance(act, Bind)))
    with tempfile.TemporaryDirectory() as directory, bind_server(Path(directory)) as server:
        costs["send its Binding and read the answer"] = cpu_of_all(partial(run, said, server))
    bound = [watch_line("MODIFIED", shown_bound(bind, version=pods + 1 + place)) for place, bind in enumerate(said)]
    shown: list[Event] = []
    costs["read the event that shows it bound"] = cpu_of_all(lambda: shown.extend(read(bound, specs)))
    costs["take that in"] = cpu_of_all(lambda: tell(scheduler, shown))
    awaited = [event.object for event in seen if isinstance(event, Seen) and isinstance(event.object, Pod)]
    figures = {f"µs/pod, {step}": seconds / pods * 1e6 for step, seconds in costs.items()}
    figures |= {WHOLE: sum(costs.values()) / pods * 1e6, "peak MiB": peak_mib()}
    return Measured(evidence(there.nodes, (), awaited, said), figures)


def read(lines: Sequence[bytes], specs: SpecCache) -> list[Event]:
    """Let the reflector read the lines in pieces like those of a socket; return the events."""
    stream = b"".join(lines)
    pieces = [stream[start : start + PIECE_BYTES] for start in range(0, len(stream), PIECE_BYTES)]
    heard: list[Event] = []
    asyncio.run(reflector_of(watched_resources.pods(specs), pieces, heard.append)._watch())
    return heard


def shown_bound(bind: Bind, *, version: int) -> Json:
    """Return the pod as the API server shows it after its Binding."""
    number = int(bind.pod.uid.rpartition("-")[2])
    document = real_pod(number, version=version)
    document["spec"]["nodeName"] = bind.node
    document["status"] = {
        "phase": "Pending",
        "qosClass": "Burstable",
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": CREATED}],
    }
    return document
