"""Random days with tenant queues: no start exceeds a quota, and training takes nothing from others.

The rules are those of `tests.tenant_oracle`, and every check of the other random days: no pod waits in vain, a new
engine decides the same, and sums equal those counted anew.
"""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from aischeduler.model.actions import EvictionCause
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.tenant_queue import QueueState, TenantQueue
from aischeduler.model.workload import TenantTerms, Workload
from tests import seeds
from tests.build import a_pod, replace
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.test_engine import Engine
from tests.properties.world import World
from tests.tenants import a_queue, in_queue

QUEUES = ("root", "online", "batch", "low")
PARENTS = ("", "", "", "root", "root", "online", "gone")
SERVICES = ("inference", "inference", "training", "training", "", "trainning")
PRODUCTS = ("NVIDIA-H200", "NVIDIA-A100-SXM4-80GB")
WORKLOADS = ("web", "train")
CARDS = (None, None, {"H200": 1}, {"H200": 2, "A100": 1}, {"A100": 0})


class TenantWorld(World):
    """A world with tenant queues and workloads; nodes have cards by their names."""

    def __init__(self) -> None:
        self.queues: dict[str, TenantQueue] = {}
        self.workloads: dict[str, Workload] = {}
        super().__init__()

    def declare(self, queue: TenantQueue) -> None:
        """Create or change a queue."""
        self.queues[queue.name] = queue
        self._happens(Seen(queue))

    def end_queue(self, name: str) -> None:
        """Delete a queue."""
        queue = self.queues.pop(name, None)
        if queue is not None:
            self._happens(gone(TenantQueue, str(queue.source), name))

    def employ(self, workload: Workload) -> None:
        """Create or change a workload."""
        self.workloads[workload.name] = workload
        self._happens(Seen(workload))

    def end_workload(self, name: str) -> None:
        """Delete a workload."""
        workload = self.workloads.pop(name, None)
        if workload is not None:
            self._happens(gone(Workload, *workload.key))

    def _everything(self) -> list[Event]:
        queues = (Seen(queue) for _, queue in sorted(self.queues.items()))
        return [*queues, *(Seen(workload) for _, workload in sorted(self.workloads.items())), *super()._everything()]


class TenantDays(Engine):
    """One engine with tenant queues. A pod's queue, service and workload follow from its number."""

    def __init__(self) -> None:
        super().__init__()
        self.world: TenantWorld = TenantWorld()
        self._draws = 0

    def begin(self, cpu: str) -> None:
        self.world.declare(a_queue("root", cpu="64"))
        self.world.declare(a_queue("online", priority=80, reclaimable=False, parent="root"))
        self.world.declare(a_queue("batch", priority=20, parent="root", cards={"H200": 2, "A100": 2}))
        for at, node in enumerate([*self.world.nodes.values()]):
            self.world.put(self._with_cards(node, at))
            self._fill(cpu, node, "batch", "training")
        self.world.settle()
        self._fill(cpu, next(iter(self.world.nodes.values())), "online", "inference")
        self.world.decide(rounds=10)
        assert [evict.cause for evict in self.world.evictions] == [EvictionCause.QUEUE_RECLAIMED]

    def _fill(self, cpu: str, node: Node, queue: str, service: str) -> None:
        """Create a pod of the pool of this node that needs all of it."""
        pools = [name for name in self.world.pools if node.labels.get("pool") == name]
        pod = a_pod(self.world.next_pod_name(), cpu=cpu, memory="1Gi", pool=next(iter(pools), ""))
        self.world.put(in_queue(pod, queue, service=service))

    def _with_cards(self, node: Node, at: int) -> Node:
        return replace(node, labels={**node.labels, "nvidia.com/gpu.product": PRODUCTS[at % 2]})

    @rule(
        queue=st.sampled_from([*QUEUES, *QUEUES, "nowhere", ""]),
        service=st.sampled_from(SERVICES),
        owner=st.sampled_from(["", "", *(f"Job/{name}" for name in WORKLOADS)]),
        number=st.integers(0, 1000),
        keeps=st.booleans(),
    )
    def a_pod_says_whose_it_is(self, queue: str, service: str, owner: str, number: int, keeps: bool) -> None:
        pods = [pod for _, pod in sorted(self.world.pods.items())]
        if pods:
            pod: Pod = pods[number % len(pods)]
            terms = TenantTerms(queue, service, preemptable=None if keeps else True)
            self.world.put(replace(pod, terms=terms if queue or service else None, owner=owner))
        self.world.go_on()

    def _pods_come(self, **wishes: object) -> None:
        before = set(self.world.pods)
        super()._pods_come(**wishes)  # type: ignore[arg-type]
        for uid in sorted(set(self.world.pods) - before):
            self._draws += 1
            queue = (*QUEUES, "online", "batch", "")[self._draws % 7]
            terms = TenantTerms(queue, SERVICES[self._draws % len(SERVICES)])
            self.world.put(replace(self.world.pods[uid], terms=terms))

    @rule(
        name=st.sampled_from([*QUEUES, "default"]),
        parent=st.sampled_from(PARENTS),
        cpu=st.sampled_from(["", "", "2", "6", "0"]),
        cards=st.sampled_from(CARDS),
        priority=st.sampled_from([0, 20, 80, 90]),
        reclaimable=st.booleans(),
        state=st.sampled_from([QueueState.OPEN] * 4 + [QueueState.CLOSED]),
    )
    def a_queue_comes_or_changes(
        self,
        *,
        name: str,
        parent: str,
        cpu: str,
        cards: dict[str, int] | None,
        priority: int,
        reclaimable: bool,
        state: QueueState,
    ) -> None:
        parent = "" if parent == name else parent
        self.world.declare(
            a_queue(name, parent=parent, cpu=cpu, cards=cards, priority=priority, reclaimable=reclaimable, state=state)
        )
        self.world.go_on()

    @rule(name=st.sampled_from([*QUEUES, "default"]))
    def a_queue_goes(self, name: str) -> None:
        self.world.end_queue(name)
        self.world.go_on()

    @rule(name=st.sampled_from(WORKLOADS), service=st.sampled_from([*SERVICES, "gone"]), queue=st.sampled_from(QUEUES))
    def a_workload_comes_changes_or_goes(self, name: str, service: str, queue: str) -> None:
        if service == "gone":
            self.world.end_workload(name)
        else:
            self.world.employ(Workload("Job", "default", name, f"uid-{name}", terms=TenantTerms(queue, service)))
        self.world.go_on()

    @rule(number=st.integers(0, 1000))
    def a_node_gets_other_cards(self, number: int) -> None:
        nodes = [node for _, node in sorted(self.world.nodes.items())]
        if nodes:
            self.world.put(self._with_cards(nodes[number % len(nodes)], number))
        self.world.go_on()


def test_random_days_with_tenants_briefly() -> None:
    play(TenantDays, seeds.number("tenants, briefly"), runs=6)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_with_tenants() -> None:
    play(TenantDays, seeds.number("tenants"), runs=16)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_with_tenants_at_length(number: int) -> None:
    play(TenantDays, seeds.number(f"tenants, at length {number}"), runs=500)
