"""CPU of a decision in process, by the numbers of nodes, waiting pods, running pods and pools.

The peer parses the JSON of as many pods with msgspec, as a measure of the machine.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import msgspec

from aischeduler.model.actions import Bind
from aischeduler.model.events import Seen
from tests.bench.apart import apart
from tests.bench.core import Crowd, cpu_of_all, decide_all, evidence, peak_mib, running, see, tell, world
from tests.bench.documents import compact, real_pod
from tests.bench.processes import resident_bytes
from tests.bench.spec import OURS, Case, Evidence, Goal, Measure, Measured
from tests.build import replace

FLOOR = "msgspec parses the pods"
DECIDED = 10_000
DECISIONS_GOAL = 5_000
DOCUMENTS = 500


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a cluster; `shapes` as in `Crowd`."""

    nodes: int = 5_000
    pools: int = 20
    waiting: int = DECIDED
    running: int = 0
    shapes: int = 48

    def divided(self, shrink: int) -> "Size":
        """Return a smaller cluster with the same pools and shapes."""
        return replace(self, nodes=self.nodes // shrink, waiting=self.waiting // shrink, running=self.running // shrink)


SIZES = {
    "scale-1000-nodes": Size(nodes=1_000),
    "scale-5000-nodes": Size(),
    "scale-all-different": Size(shapes=0),
    "scale-100000-waiting": Size(waiting=100_000),
    "scale-100000-running": Size(running=100_000),
    "scale-1-pool": Size(pools=1),
    "scale-200-pools": Size(pools=200),
}
SHORT = ("scale-1000-nodes", "scale-5000-nodes", "scale-100000-running")


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    return tuple(scaled(name, size.divided(shrink)) for name, size in SIZES.items())


def scaled(name: str, size: Size) -> Case:
    shapes = f"{size.shapes} shapes" if size.shapes else "all different"
    return Case(
        name=name,
        about=f"in process: {size.nodes:,} nodes, {size.pools} pools, {size.running:,} running pods,"
        f" {size.waiting:,} pods decided, {shapes}",
        sides=(OURS, FLOOR),
        open=partial(opened, size),
        goals=(Goal("decisions/s of CPU", DECISIONS_GOAL),),
        short=name in SHORT,
    )


@contextmanager
def opened(size: Size) -> Iterator[Measure]:
    def measure(side: str) -> Measured:
        return apart(decide, size) if side == OURS else apart(parse, size)

    yield measure


def decide(size: Size) -> Measured:
    """Measure a backlog: the engine sees the pods, decides, and sees the Bindings."""
    before_nodes = resident_bytes(os.getpid())
    there = world(size.nodes, size.pools)
    scheduler = there.scheduler
    after_nodes = resident_bytes(os.getpid())
    stay = running(Crowd(size.running, pools=size.pools).pods("old"), there.nodes)
    see(scheduler, stay)
    decide_all(scheduler)
    pods = Crowd(size.waiting, size.shapes, size.pools).pods("new")
    before_pods = resident_bytes(os.getpid())
    seeing = cpu_of_all(lambda: see(scheduler, pods))
    after_pods = resident_bytes(os.getpid())
    said = []
    deciding = cpu_of_all(lambda: said.extend(decide_all(scheduler)))
    binds = [action for action in said if isinstance(action, Bind)]
    confirmed = [Seen(replace(bind.pod, node_name=bind.node)) for bind in binds]
    whole = seeing + deciding + cpu_of_all(lambda: tell(scheduler, confirmed))
    figures = {
        "decisions/s of CPU": size.waiting / deciding,
        "CPU µs/decision": deciding / size.waiting * 1e6,
        "CPU µs/pod": whole / size.waiting * 1e6,
        "engine's bytes/node": (after_nodes - before_nodes) / size.nodes,
        "engine's bytes/waiting pod": (after_pods - before_pods) / size.waiting,
        "peak MiB": peak_mib(),
    }
    return Measured(evidence(there.nodes, stay, pods, said), figures)


def parse(size: Size) -> Measured:
    """Measure the CPU of parsing the same number of pods."""
    documents = [compact(real_pod(number, version=number + 1)) for number in range(DOCUMENTS)]
    parsed = msgspec.json.Decoder(msgspec.Struct).decode

    def read() -> None:
        for number in range(size.waiting):
            parsed(documents[number % DOCUMENTS])

    return Measured(Evidence(), {"CPU µs/pod": cpu_of_all(read) / size.waiting * 1e6})
