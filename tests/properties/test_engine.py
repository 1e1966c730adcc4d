"""Random clusters: no sequence of events breaks an invariant or makes a pod wait without a reason.

Hypothesis draws only numbers and names; the model turns them into objects, so the same draws give the same run.
"""

import re

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from aischeduler.engine.message_updates import reason
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import EvictionCause
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import BindRefusal, EvictRefusal
from aischeduler.model.names import DEFAULT_POOL
from aischeduler.model.pod import CRITICAL_PRIORITY
from aischeduler.model.pod_affinity import pod_affinity
from aischeduler.model.selectors import label_selector
from aischeduler.state.pod_records import PodState
from tests import seeds
from tests.build import a_node, a_pod, a_pool, a_taint, replace, spread
from tests.properties.playing import SHRINKING_SECONDS_MAX, Days, play
from tests.properties.wishes import (
    HOST,
    LABELS,
    NAMESPACES,
    NODES,
    NUMBER,
    PODS,
    PODS_MAX,
    POOLS,
    SECONDS_OF_CALM,
    SHAPES,
    SIZES,
    SPECS,
    TERMS,
    ShapeFields,
    SizeFields,
    Wishes,
)
from tests.properties.world import Timing, World

PACES = {
    "quick": Timing(),
    "idle": Timing(decides=False),
    "deaf": Timing(hears=False),
    "slow to bind": Timing(binds=False),
    "slow to evict": Timing(evicts=False),
    "slow to end": Timing(ends=False),
    "slow": Timing(binds=False, evicts=False, ends=False),
}


def clauses(reason: str) -> set[str]:
    """Return the clauses of a reason without counts, which may be older than the rest."""
    return {re.sub(r"\d+ ?", "", part).strip(" .") for part in re.split(r"[,;:.] ", reason)}


class Engine(Days):
    """One engine, and all events of its world."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(
        pools=st.sampled_from([1, 2, 3, 3]), nodes=st.sampled_from([2, 3, 4, 5]), cpu=st.sampled_from(["2", "4", "4"])
    )
    def there_is_a_cluster(self, pools: int, nodes: int, cpu: str) -> None:
        for name in NAMESPACES:
            self.world.label_namespace(name, {})
        for pool in POOLS[:pools]:
            self.world.put(a_pool(pool, labels={"pool": pool}))
        for i, name in enumerate(NODES[:nodes]):
            self.world.put(
                a_node(name, cpu=cpu, memory="8Gi", gpu=i % 3, pods=10, labels={**LABELS[i % 4], HOST: name})
            )
        self.begin(cpu)

    def begin(self, cpu: str) -> None:
        """Do nothing; subclasses set up a start before the drawn steps. `cpu` is the CPU of a node."""

    @rule(wishes=PODS)
    def pods_come(self, wishes: Wishes) -> None:
        self._pods_come(**wishes)
        self.world.go_on()

    @rule(wishes=PODS)
    def more_pods_come(self, wishes: Wishes) -> None:
        self._pods_come(**wishes)
        self.world.go_on()

    def _pods_come(
        self,
        *,
        shape: int,
        pool: str,
        priority: int,
        copies: int,
        preempts: bool,
        gates: tuple[str, ...],
        namespace: str,
        app: str,
        terms: int | None,
        spread_over: tuple[str, ...],
    ) -> None:
        fields: ShapeFields = {**SHAPES[shape]}
        if terms is not None:
            fields["pod_affinity"] = pod_affinity(**TERMS[terms])
        fields["topology_spread"] = tuple(spread(key, app=app, namespace=namespace) for key in spread_over)
        for _ in range(copies):
            if len(self.world.pods) >= PODS_MAX:
                self._oldest_pod_ends()
            pod = a_pod(
                self.world.next_pod_name(),
                pool=pool,
                priority=priority,
                preempts=preempts,
                gates=gates,
                namespace=namespace,
                labels={"app": app},
                created=int(self.world.now),
                **fields,
            )
            self.world.put(pod)

    def _oldest_pod_ends(self) -> None:
        uid = next(iter(self.world.pods))
        self.world.end_pod(uid, finished=bool(self.world.pods[uid].node_name))

    @rule(
        shape=st.sampled_from(range(5)),
        node=st.sampled_from(NODES),
        kind=st.sampled_from(range(4)),
        app=st.sampled_from(["x", "y"]),
        terms=st.sampled_from([None, None, *range(len(TERMS))]),
    )
    def a_pod_comes_that_others_placed(self, shape: int, node: str, kind: int, app: str, terms: int | None) -> None:
        fields: ShapeFields = {**SHAPES[shape]}
        if terms is not None:
            fields["pod_affinity"] = pod_affinity(**TERMS[terms])
        pod = a_pod(
            self.world.next_pod_name(),
            node=node,
            started=1 + int(self.world.now),
            scheduler_name="default-scheduler" if kind < 2 else "ai-scheduler",
            guarded=kind == 1,
            priority=CRITICAL_PRIORITY if kind == 2 else 0,
            labels={"app": app},
            **fields,
        )
        self.world.put(pod)
        self.world.go_on()

    @rule(
        name=st.sampled_from(NODES),
        what=st.sampled_from(["taint", "cordon", "label", "size", "size", "open", "come", "come", "go"]),
        labels=st.sampled_from(LABELS),
        size=st.sampled_from(SIZES),
    )
    def a_node_changes(self, name: str, what: str, labels: dict[str, str], size: SizeFields) -> None:
        node = self.world.nodes.get(name)
        if node is None or what == "come":
            self.world.put(a_node(name, labels={**labels, HOST: name}, memory="8Gi", **size))
        elif what == "go":
            self.world.end_node(name)
        elif what == "taint":
            self.world.put(replace(node, taints=() if node.taints else (a_taint("t"),)))
        elif what == "cordon":
            self.world.put(replace(node, unschedulable=not node.unschedulable))
        elif what == "label":
            self.world.put(replace(node, labels={**labels, HOST: name}))
        elif what == "size":
            sized = a_node(name, memory="8Gi", **size)
            self.world.put(replace(node, allocatable=sized.allocatable, capacity=sized.capacity))
        else:
            self.world.put(replace(node, taints=(), unschedulable=False))
        self.world.go_on()

    @rule(name=st.sampled_from([*POOLS, *POOLS, DEFAULT_POOL]), spec=SPECS)
    def a_pool_comes_or_changes(self, name: str, spec: dict[str, object]) -> None:
        wishes = dict(spec)
        key = "pool2" if wishes.pop("second") else "pool"
        if name == DEFAULT_POOL:
            self.world.put(a_pool(name, **{**wishes, "invalid": ""}))  # type: ignore[arg-type]
        else:
            self.world.put(a_pool(name, labels={key: name}, **wishes))  # type: ignore[arg-type]
        self.world.go_on()

    @rule(
        name=st.sampled_from([*POOLS, DEFAULT_POOL]),
        what=st.sampled_from(["preemption", "borrowing", "sharing", "sharing", "plain", "plain", "go"]),
    )
    def a_flag_of_a_pool_flips(self, name: str, what: str) -> None:
        pool = self.world.pools.get(name)
        if pool is None or what == "plain":
            self.world.put(a_pool(name, labels=None if name == DEFAULT_POOL else {"pool": name}))
        elif what == "preemption":
            self.world.put(replace(pool, disable_preemption=not pool.disable_preemption))
        elif what == "borrowing":
            self.world.put(replace(pool, disable_borrowing=not pool.disable_borrowing))
        elif what == "sharing":
            self.world.put(replace(pool, disable_sharing=not pool.disable_sharing))
        else:
            self.world.end_pool(name)
        self.world.go_on()

    @rule(name=st.sampled_from(NAMESPACES), labelled=st.booleans())
    def a_namespace_changes(self, name: str, labelled: bool) -> None:
        self.world.label_namespace(name, {"team": "yes"} if labelled else {})
        self.world.go_on()

    @rule(app=st.sampled_from(["x", "y"]), allowed=st.sampled_from([-1, 0, 1, 2]))
    def a_budget_comes_changes_or_goes(self, app: str, allowed: int) -> None:
        if allowed < 0:
            self.world.end_budget(app)
        else:
            selector = label_selector("spec.selector", {"app": app}, ())
            self.world.put(DisruptionBudget("default", app, f"uid-{app}", selector, allowed))
        self.world.go_on()

    @rule(timing=st.sampled_from(list(PACES)))
    def something_becomes_slow_or_quick(self, timing: str) -> None:
        self.world.timing = PACES[timing]
        self.world.go_on()

    @rule(
        number=NUMBER, wish=st.sampled_from([None, BindRefusal.INVALID, BindRefusal.FORBIDDEN, BindRefusal.UNAVAILABLE])
    )
    def a_bind_has_its_outcome(self, number: int, wish: BindRefusal | None) -> None:
        self.world.conclude(number, wish)
        self.world.go_on()

    @rule(number=NUMBER)
    def the_answer_to_a_bind_is_lost(self, number: int) -> None:
        self.world.lose(number)
        self.world.go_on()

    @rule(number=NUMBER, wish=st.sampled_from([None, *EvictRefusal]), grace=st.sampled_from([0, 30]))
    def an_eviction_has_its_outcome(self, number: int, wish: EvictRefusal | None, grace: int) -> None:
        self.world.evict(number, wish, grace)
        self.world.go_on()

    @rule(number=NUMBER)
    def an_eviction_is_lost(self, number: int) -> None:
        self.world.lose_eviction(number)
        self.world.go_on()

    @rule(number=NUMBER, how=st.sampled_from(["ends", "finishes", "finishes", "deleted", "deleted waiting"]))
    def a_pod_ends(self, number: int, how: str) -> None:
        pods = [pod for _, pod in sorted(self.world.pods.items())]
        fitting = {
            "ends": [pod for pod in pods if pod.terminating],
            "finishes": [pod for pod in pods if pod.node_name],
            "deleted": [pod for pod in pods if pod.node_name],
            "deleted waiting": [pod for pod in pods if not pod.node_name],
        }[how]
        if fitting:
            pod = fitting[number % len(fitting)]
            if how in ("ends", "finishes"):
                self.world.end_pod(pod.uid, finished=how == "finishes")
            else:
                self.world.delete_pod(pod.uid, 0 if number % 2 else 30)
        self.world.go_on()

    @rule(
        number=NUMBER,
        what=st.sampled_from(["pool", "gates", "x", "y", "again", "old", "waiting again"]),
        pool=st.sampled_from([*POOLS, ""]),
    )
    def a_pod_changes(self, number: int, what: str, pool: str) -> None:
        waiting = ("pool", "gates", "x", "y")
        pods = [pod for _, pod in sorted(self.world.pods.items()) if bool(pod.node_name) or what in waiting]
        if pods:
            pod = pods[number % len(pods)]
            if what == "pool":
                self.world.put(replace(pod, pool=pool))
            elif what == "gates":
                self.world.put(replace(pod, gates=()))
            elif what in ("x", "y"):
                self.world.put(replace(pod, labels={"app": what}))
            else:
                self.world.tell_again(pod.uid, old=what == "old")
        self.world.go_on()

    @rule(who=st.sampled_from(["api server", "api server", "scheduler", "nobody", "nobody"]))
    def somebody_restarts(self, who: str) -> None:
        if who == "api server":
            self.world.list_again()
        elif who == "scheduler":
            self.world.restart_scheduler()
        self.world.go_on()

    @rule(seconds=st.sampled_from([0.1, 0.6, 1.1, 5.0, 15.0, 31.0, 100.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.go_on()

    def teardown(self) -> None:
        """The faults stop: every pod that fits is bound, by wake-ups alone, and a new engine changes nothing."""
        world = self.world
        self.note(world.said)
        world.calm_down(SECONDS_OF_CALM)
        cluster = world.scheduler.cluster
        world.scheduler.look()
        assert world.scheduler.oracle.in_vain() == []
        at_rest = (PodState.PARKED, PodState.HELD, PodState.GATED, PodState.GROUPED, PodState.BOUND)
        assert {record.state for record in cluster.records.values()} <= {*at_rest}
        assert not len(cluster.claims)
        assert not cluster.leaving_pods.asked
        assert world.scheduler.net_saves() == 0
        fresh, wishes = world.fresh()
        assert wishes == []
        assert self.unconfirmed(fresh) == []

    def unconfirmed(self, fresh: Scheduler) -> list[tuple[str, str, str]]:
        """Return the waiting pods with clauses in their reason that an attempt of the new engine would not name now.

        Another pod of the same unit may lead it in the new engine, which lists the pods in another order.
        """
        ours, other = self.world.scheduler, fresh.cluster
        waiting = [uid for uid, one in ours.cluster.records.items() if one.state is PodState.PARKED]
        told = [(uid, ours.why(uid)) for uid in waiting]
        both = [(uid, why, reason(other, other.records[uid].waits_as, other.now)) for uid, why in told]
        return [(uid, why, tried) for uid, why, tried in both if clauses(why) != clauses(tried)]


class TakingBack(Engine):
    """Days that begin during a reclaim, so that even a few runs contain every kind of action."""

    def begin(self, cpu: str) -> None:
        """Fill every node with a pod of the default pool; a pod of another pool comes and evicts one."""
        for _ in self.world.nodes:
            self.world.put(a_pod(self.world.next_pod_name(), cpu=cpu, memory="1Gi"))
        self.world.settle()
        self.world.put(a_pod(self.world.next_pod_name(), pool="a", cpu=cpu, memory="1Gi"))
        self.world.decide(rounds=10)
        assert [evict.cause for evict in self.world.evictions] == [EvictionCause.RECLAIMED]


def test_random_days_briefly() -> None:
    play(TakingBack, seeds.number("engine, briefly"), runs=5)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days() -> None:
    play(Engine, seeds.number("engine"), runs=12)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_at_length(number: int) -> None:
    play(Engine, seeds.number(f"engine, at length {number}"), runs=500)
