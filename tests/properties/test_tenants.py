"""Random days with tenant queues, their trees and their gangs.

The rules are those of `tests.tenant_oracle`: no start exceeds a quota, training takes nothing from others, and sums
equal those counted anew; and every check of the other random days: no pod waits in vain, and a new engine decides the
same. No smaller set of victims would do. After each day, nobody is evicted by a pod that it evicted, and what a quota
holds starts within a second of what it needs.
"""

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from aischeduler.engine.propose import QUOTA
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import EvictionCause
from aischeduler.model.gang import Gang, GangSource
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.selectors import label_selector
from aischeduler.model.tenant_queue import QueueSource, QueueState, TenantQueue, TenantSettings
from aischeduler.model.workload import ServiceType, TenantTerms, Workload
from tests import seeds
from tests.build import a_node, a_pod, replace
from tests.gangs import a_gang, member
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.tenant_world import TenantScheduler, TenantWorld
from tests.properties.test_gangs import GangEngine
from tests.properties.wishes import HOST, PODS_MAX, POOLS, SHAPES, Wishes
from tests.tenant_oracle import GPU, PRODUCT
from tests.tenants import a_queue, in_queue

QUEUES = ("root", "online", "batch", "low")
PARENTS = ("", "", "", "", "root", "root", "root", "online", "batch", "gone")
SERVICES = ("inference", "inference", "training", "training", "", "trainning")
PRODUCTS = ("NVIDIA-H200", "NVIDIA-A100-SXM4-80GB")
NEW_PRODUCTS = (*PRODUCTS, "NVIDIA-L40")
CARD_NAMES = ("", "", "H200", "H200|A100")
WORKLOADS = ("web", "train")
CARDS = (None, None, {"H200": 1}, {"H200": 2, "A100": 1}, {"A100": 0}, {"L40": 1})
TEAM = label_selector("spec.allowedNamespaces", {"team": "yes"}, ())
TIDES = st.fixed_dictionaries(
    {
        "pool": st.sampled_from([*POOLS, ""]),
        "trainings": st.integers(0, 4),
        "services": st.integers(0, 3),
        "shape": st.sampled_from([1, 2, 9, 9]),
        "cards": st.booleans(),
        "quota": st.sampled_from(["", "", "3"]),
        "priority": st.sampled_from([0, 0, 1, -1]),
        "together": st.booleans(),
        "anew": st.sampled_from([False, True]),
    }
)
SETTINGS = (
    TenantSettings(),
    TenantSettings(card_unlimited_cpu_memory=True, service_types=(("Job", ServiceType.TRAINING),)),
    TenantSettings(over_commit_milli=1500, non_preemptible=TEAM),
    TenantSettings(non_preemptible=label_selector("nonPreemptibleNamespaces", {}, ())),
)
QUIET_SECONDS = 180.0
"""Longer than anything that the scheduler or a queue waits for."""
BACKOFF_SECONDS = 12.0
"""Longer than the backoff of a pod."""


class TenantDays(GangEngine):
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
            self.world.put(self._with_cards(replace(node, allocatable={**node.allocatable, GPU: 2}), at))
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
        return replace(node, labels={**node.labels, PRODUCT: PRODUCTS[at % 2]})

    @rule(
        queue=st.sampled_from([*QUEUES, *QUEUES, "nowhere", ""]),
        service=st.sampled_from(SERVICES),
        owner=st.sampled_from(["", "", *(f"Job/{name}" for name in WORKLOADS)]),
        number=st.integers(0, 1000),
        preemptable=st.sampled_from([None, None, True, False]),
    )
    def a_pod_says_whose_it_is(
        self, queue: str, service: str, owner: str, number: int, preemptable: bool | None
    ) -> None:
        pods = [pod for _, pod in sorted(self.world.pods.items())]
        if pods:
            pod: Pod = pods[number % len(pods)]
            terms = TenantTerms(queue, service, preemptable=preemptable)
            self.world.put(replace(pod, terms=terms if queue or service else None, owner=owner))
        self.world.go_on()

    def _pods_come(self, **wishes: object) -> None:
        before = set(self.world.pods)
        super()._pods_come(**wishes)  # type: ignore[arg-type]
        for uid in sorted(set(self.world.pods) - before):
            self._draws += 1
            asks = GPU in self.world.pods[uid].spec.request.amounts
            cards = CARD_NAMES[self._draws % 4] if asks else ""
            self._says(uid, self._draws, cards)

    def _member_comes(self, gang: Gang, shape: int, pool: str, priority: int, terms: int | None = None) -> None:
        before = set(self.world.pods)
        super()._member_comes(gang, shape, pool, priority, None)  # the affinity of gangs has days of its own
        for uid in sorted(set(self.world.pods) - before):
            self._says(uid, self.made, "")

    def _says(self, uid: str, number: int, cards: str) -> None:
        queue = (*QUEUES, "online", "batch", "")[number % 7]
        self.world.put(in_queue(self.world.pods[uid], queue, cards=cards, service=SERVICES[number % len(SERVICES)]))

    @rule(
        name=st.sampled_from([*QUEUES, "default"]),
        parent=st.sampled_from(PARENTS),
        cpu=st.sampled_from(["", "", "2", "6", "0"]),
        cards=st.sampled_from(CARDS),
        priority=st.sampled_from([0, 20, 80, 90]),
        reclaimable=st.booleans(),
        state=st.sampled_from([QueueState.OPEN] * 10 + [QueueState.CLOSED, QueueState.DRAINING]),
        source=st.sampled_from([QueueSource.OWN] * 4 + [QueueSource.VOLCANO]),
        seconds=st.sampled_from([0, 0, 5, 40]),
        shrinks=st.sampled_from([False, False, True]),
        team=st.sampled_from([False, False, False, True]),
        invalid=st.sampled_from([*[""] * 15, "spec.cards: broken"]),
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
        source: QueueSource,
        seconds: int,
        shrinks: bool,
        team: bool,
        invalid: str,
    ) -> None:
        queue = a_queue(
            name,
            parent="" if parent == name else parent,
            cpu=cpu,
            cards=cards,
            priority=priority,
            reclaimable=reclaimable,
            state=state,
            source=source,
            min_runtime_seconds=0 if shrinks else seconds,
            drain_after_seconds=seconds,
            shrink_after_seconds=seconds if shrinks else None,
            allowed_namespaces=TEAM if team else None,
            invalid=invalid,
        )
        self.world.declare(queue)
        self.world.go_on()

    @rule(name=st.sampled_from([*QUEUES, "default"]), source=st.sampled_from(QueueSource))
    def a_queue_goes(self, name: str, source: QueueSource) -> None:
        self.world.end_queue(source, name)
        self.world.go_on()

    @rule(settings=st.sampled_from(SETTINGS))
    def the_configuration_changes(self, settings: TenantSettings) -> None:
        self.world.configure(settings)
        self.world.go_on()

    @rule(
        kind=st.sampled_from(["Job", "Job", "PodGroup"]),
        number=st.integers(0, 1000),
        service=st.sampled_from([*SERVICES, "gone"]),
        queue=st.sampled_from(QUEUES),
    )
    def a_workload_comes_changes_or_goes(self, kind: str, number: int, service: str, queue: str) -> None:
        names = WORKLOADS if kind == "Job" else [f"g{turn}" for turn in range(1, self.made + 1)] or WORKLOADS
        name = names[number % len(names)]
        if service == "gone":
            self.world.end_workload((kind, "default", name))
        else:
            self.world.employ(Workload(kind, "default", name, f"uid-{name}", terms=TenantTerms(queue, service)))
        self.world.go_on()

    @rule(number=st.integers(0, 1000))
    def a_node_gets_other_cards(self, number: int) -> None:
        nodes = [node for _, node in sorted(self.world.nodes.items())]
        if nodes:
            self.world.put(self._with_cards(nodes[number % len(nodes)], number))
        self.world.go_on()

    @rule(tide=TIDES)
    def the_tide_turns(self, tide: Wishes) -> None:
        self._tide_turns(**tide)
        self.world.go_on()

    @rule(tide=TIDES)
    def the_tide_turns_again(self, tide: Wishes) -> None:
        self._tide_turns(**tide)
        self.world.go_on()

    def _tide_turns(
        self,
        *,
        pool: str,
        trainings: int,
        services: int,
        shape: int,
        cards: bool,
        quota: str,
        priority: int,
        together: bool,
        anew: bool,
    ) -> None:
        """Let training fill a pool, pod by pod or as a gang, and then services ask for room there."""
        if anew:
            self.world.declare(a_queue("online", priority=80, reclaimable=False))
            self.world.declare(
                a_queue("batch", priority=20, cpu=quota, cards={"H200": 2, "A100": 1} if cards else None)
            )
        shapes = (4, 4, 5) if cards else (1, 2, shape)
        for service, queue, pods in (("training", "batch", trainings), ("inference", "online", services)):
            gang = a_gang(f"t{self.world.next_pod_name()}", pods, GangSource.LABELS) if together and pods > 1 else None
            for turn in range(pods):
                if len(self.world.pods) >= PODS_MAX:
                    self._oldest_pod_ends()
                fields = SHAPES[shapes[turn % 2] if service == "training" else shapes[2]]
                mine = priority if together else priority * turn
                name, created = self.world.next_pod_name(), int(self.world.now)
                pod = in_queue(a_pod(name, pool=pool, priority=mine, created=created, **fields), queue, service=service)
                self.world.put(member(pod, gang) if gang is not None else pod)
            self.world.go_on()

    def unconfirmed(self, fresh: Scheduler) -> list[tuple[str, str, str]]:
        """Compare the reasons, without those of quotas where nodes are gone: a new engine does not know their cards."""
        world, found = self.world, super().unconfirmed(fresh)
        if all(pod.node_name in world.nodes for pod in world.pods.values() if pod.node_name):
            return found
        return [one for one in found if QUOTA not in one[1] + one[2]]

    def teardown(self) -> None:
        """Let quotas grow and cards come free, and then nothing happen but what follows from that."""
        super().teardown()
        assert self.world.miscounted() == {}
        for edit in self._that_help():
            self.world.now += BACKOFF_SECONDS
            self.world.settle()
            self.world.scheduler.look()
            be_so(self.world, edit)
            self.world.one_second()
            assert (edit, self._in_vain()) == (edit, [])
        self._nobody_goes_in_turns()

    def _nobody_goes_in_turns(self) -> None:
        """Let pods of all kinds come at once, and be made anew: nobody evicts who evicted it, and it ends."""
        world = self.world
        for at, name in enumerate(QUEUES):
            known = world.queues.get((QueueSource.OWN, name)) or a_queue(name, priority=20 * at)
            world.declare(replace(known, capability={}, cards=(), parent="", state=QueueState.OPEN, invalid=""))
        world.recreates = True
        for number, (service, name) in enumerate(product(("training", "", "inference"), QUEUES)):
            pool = sorted(world.pools)[number // 2 % 2 % len(world.pools)]
            pod = a_pod(world.next_pod_name(), cpu="2", priority=number % 3, pool=pool)
            world.put(in_queue(pod, name, service=service))
            world.settle()
        world.calm_down(QUIET_SECONDS)
        mutual = {pair for pair in world.evicted if pair[::-1] in world.evicted}
        assert mutual <= world.taken_back, sorted(mutual)  # each of two may lend to the other
        world.evicted.clear()
        world.calm_down(QUIET_SECONDS)
        assert world.evicted == []
        assert world.miscounted() == {}

    def _that_help(self) -> Iterator[TenantQueue | Node | Pod]:
        """Yield pods that end, nodes that come, and queues that allow more than before."""
        world = self.world
        yield from [pod for _, pod in sorted(world.pods.items()) if pod.node_name][:4]
        for at, card in enumerate(NEW_PRODUCTS):
            labels = {PRODUCT: card, HOST: f"new{at}", "pool": "a"}
            yield a_node(f"new{at}", cpu="4", memory="8Gi", gpu=1, labels=labels)
        for queue in [queue for _, queue in sorted(world.queues.items())]:
            more = {"cpu": queue.capability["cpu"] + 2000} if queue.capability else {}
            cards = tuple(replace(entry, cards=entry.cards + 1) for entry in queue.cards)
            yield replace(queue, capability=more, cards=cards)
            yield replace(queue, capability={}, cards=(), parent="", state=QueueState.OPEN, invalid="")

    def _in_vain(self) -> list[str]:
        return [*self.world.scheduler.oracle.in_vain(), *self.world.in_vain()]


def be_so(world: TenantWorld, edit: TenantQueue | Node | Pod) -> None:
    """Let one thing of a world be so; a pod ends."""
    match edit:
        case TenantQueue():
            world.declare(edit)
        case Pod():
            if edit.uid in world.pods:
                world.end_pod(edit.uid, finished=True)
        case Node():
            world.put(edit)


def test_random_days_with_tenants_briefly() -> None:
    TenantScheduler.victims_checked = 0
    play(TenantDays, seeds.number("tenants, briefly"), runs=6)
    assert TenantScheduler.victims_checked > 0


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_with_tenants() -> None:
    play(TenantDays, seeds.number("tenants"), runs=8)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_with_tenants_at_length(number: int) -> None:
    play(TenantDays, seeds.number(f"tenants, at length {number}"), runs=500)
