"""Random days in a virtual cluster: API server, kubelets and a network that loses answers, around a checked engine.

`test_engine` calls the engine with events; here the changes reach it through the API server and the daemon's code.
"""

from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from aischeduler.model.actions import Bind, Evict
from aischeduler.model.names import POOL_KEY
from aischeduler.sandbox.controllers.kubelet import STOP_SECONDS
from aischeduler.state.pod_records import PodState
from tests import seeds
from tests.checked_scheduler import CheckedScheduler
from tests.harness import Harness, Json
from tests.objects import binding_object, node_object, pdb_object, pod_object, pool_object, priority_class_object
from tests.properties.playing import SHRINKING_SECONDS_MAX, Days, play
from tests.virtual.virtual_daemon import Network

NODES: Final = [f"n{i}" for i in range(4)]
POOLS: Final = ["a", "b"]
CLASSES: Final = {"high": 10, "low": 5, "patient": 10}
NUMBER = st.integers(0, 30)
PODS_MAX: Final = 14
"""The most pods at one time; a new pod ends the oldest one."""
SECONDS_OF_CALM: Final = 200.0
"""Less than the five-minute flush; the longest grace period, backoff and wait for a lost answer are over by then."""
NAMESPACE: Final = "/api/v1/namespaces/default"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
TAINT: Final = {"key": "closed", "effect": "NoSchedule"}

PODS = st.fixed_dictionaries(
    {
        "cpu": st.sampled_from(["1", "1", "2", "2", "3"]),
        "gpu": st.sampled_from([0, 0, 0, 1]),
        "pool": st.sampled_from([*POOLS, *POOLS, "", "nowhere"]),
        "priority_class": st.sampled_from(["", "", *CLASSES]),
        "labels": st.sampled_from([{"app": "x"}, {"app": "y"}]),
        "gates": st.sampled_from([(), (), (), ("example.com/data",)]),
    }
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "disablePreemption": st.booleans(),
        "disableBorrowing": st.booleans(),
        "disableSharing": st.booleans(),
        "borrowingPools": st.sampled_from([["default"], ["a", "default"], ["b"]]),
        "lendingLimit": st.sampled_from([{"cpu": "1"}, {"cpu": "2"}, {"pods": "1"}]),
        "borrowingLimit": st.sampled_from([{"cpu": "1"}, {"cpu": "2"}]),
        "makeRoom": st.sampled_from(["PreemptThenBorrow", "BorrowThenPreempt"]),
        "reclaimPolicy": st.sampled_from(["OnDemand", "Evict"]),
    },
)


class Cluster(Days):
    """One virtual cluster, and the actions of its users, kubelets and network."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        self.names: list[str] = []
        self.made = 0

    def ask(self, method: str, path: str, document: Any = None, kind: str = "application/merge-patch+json") -> int:
        """Send a request as a user; it may be refused because the object is gone, exists, or has changed."""
        content = kind if method == "PATCH" else "application/json"
        answer = self.harness.cluster.request(method, path, document, content)
        assert answer.status in {200, 201, 404, 409}, answer
        return answer.status

    def go_on(self, seconds: float) -> None:
        """Let time pass, then check every invariant, and that no pod waits without a reason."""
        self.harness.run(seconds)
        scheduler = self.harness.scheduler
        assert isinstance(scheduler, CheckedScheduler)
        scheduler.look(closely=True)

    def pods(self, *, bound: bool | None = None) -> list[Json]:
        found: list[Json] = self.harness.all("Pod")
        return [pod for pod in found if bound is None or bool(pod["spec"].get("nodeName")) == bound]

    @initialize(nodes=st.sampled_from([3, 4]), lost=st.sampled_from([0.0, 0.0, 0.3]), slow=st.sampled_from([0.01, 2.0]))
    def there_is_a_cluster(self, nodes: int, lost: float, slow: float) -> None:
        h = self.harness
        h.add(*(priority_class_object(name, value=value) for name, value in CLASSES.items() if name != "patient"))
        h.add({**priority_class_object("patient", value=CLASSES["patient"]), "preemptionPolicy": "Never"})
        h.add(*(pool_object(name, labels={"pool": name}) for name in POOLS))
        for i, name in enumerate(NODES[:nodes]):
            h.add(node_object(name, cpu="3", gpu=i % 2, pods=10, labels={"pool": [*POOLS, "none"][i % 3]}))
        h.daemon._network = Network(slow, slow, lost)

    @rule(wishes=PODS, copies=st.integers(1, 3), stop=st.sampled_from([1, 1, 20, 100]))
    def pods_come(self, wishes: dict[str, Any], copies: int, stop: int) -> None:
        self._pods_come(wishes, copies, stop)

    @rule(wishes=PODS, copies=st.integers(1, 3), stop=st.sampled_from([1, 1, 20, 100]))
    def more_pods_come(self, wishes: dict[str, Any], copies: int, stop: int) -> None:
        self._pods_come(wishes, copies, stop)

    def _pods_come(self, wishes: dict[str, Any], copies: int, stop: int) -> None:
        for _ in range(copies):
            self.made += 1
            name = f"p{self.made}"
            pod = pod_object(name, annotations={STOP_SECONDS: str(stop)}, **wishes)
            assert self.ask("POST", f"{NAMESPACE}/pods", pod) == 201
            self.names.append(name)
            if len(self.names) > PODS_MAX:
                self.ask("DELETE", f"{NAMESPACE}/pods/{self.names.pop(0)}")
        self.go_on(1.0)

    @rule(node=st.sampled_from(NODES), cpu=st.sampled_from(["1", "2"]))
    def a_pod_comes_that_others_placed(self, node: str, cpu: str) -> None:
        self.made += 1
        pod = pod_object(f"p{self.made}", cpu=cpu, node=node, scheduler_name="default-scheduler")
        assert self.ask("POST", f"{NAMESPACE}/pods", pod) == 201
        self.names.append(f"p{self.made}")
        self.go_on(0.1)

    @rule(number=NUMBER, node=st.sampled_from(NODES))
    def another_scheduler_binds_a_pod(self, number: int, node: str) -> None:
        waiting = self.pods(bound=False)
        if waiting:
            name = waiting[number % len(waiting)]["metadata"]["name"]
            self.ask("POST", f"{NAMESPACE}/pods/{name}/binding", binding_object(name, node))
        self.go_on(0.1)

    @rule(
        name=st.sampled_from(NODES),
        what=st.sampled_from(["go", "taint", "cordon", "open", "open", "open", "label", "size", "size"]),
        number=NUMBER,
    )
    def a_node_changes(self, name: str, what: str, number: int) -> None:
        path, label = f"/api/v1/nodes/{name}", [*POOLS, "none"][number % 3]
        amounts = {"cpu": str(1 + number % 4), "memory": "16Gi", "pods": "10"}
        node = node_object(name, cpu="3", gpu=number % 2, pods=10, labels={"pool": label})
        if self.ask("POST", "/api/v1/nodes", node) == 201:
            what = "come"
        match what:
            case "come":
                pass
            case "go":
                self.ask("DELETE", path)
            case "taint":
                self.ask("PATCH", path, {"spec": {"taints": [TAINT]}})
            case "cordon":
                self.ask("PATCH", path, {"spec": {"unschedulable": True}})
            case "open":
                self.ask("PATCH", path, {"spec": {"unschedulable": None, "taints": None}})
            case "label":
                self.ask("PATCH", path, {"metadata": {"labels": {"pool": label}}})
            case _:
                self.ask("PATCH", f"{path}/status", {"status": {"allocatable": amounts, "capacity": amounts}})
        self.go_on(0.1)

    @rule(name=st.sampled_from([*POOLS, *POOLS, "default"]), spec=SPECS, goes=st.sampled_from([False, False, True]))
    def a_pool_changes(self, name: str, spec: Json, goes: bool) -> None:
        path = f"/apis/resource.aibee.cn/v1alpha1/pools/{name}"
        if name in spec.get("borrowingPools", ()):
            spec = {**spec, "borrowingPools": ["default"] if name != "default" else ["a"]}
        if goes:
            self.ask("DELETE", path)
        elif self.ask("PATCH", path, {"spec": spec}) == 404:
            labels = None if name == "default" else {"pool": name}
            self.ask("POST", path.rpartition("/")[0], pool_object(name, labels=labels, **spec))
        self.go_on(0.1)

    @rule(app=st.sampled_from(["x", "y"]), least=st.sampled_from([-1, 0, 1, 5]))
    def a_budget_comes_or_goes(self, app: str, least: int) -> None:
        self.ask("DELETE", f"{BUDGETS}/{app}")
        if least >= 0:
            budget = pdb_object(app, namespace="default", min_available=least, labels={"app": app})
            assert self.ask("POST", BUDGETS, budget) == 201
        self.go_on(0.1)

    @rule(number=NUMBER, how=st.sampled_from(["deleted", "deleted", "finished", "pool", "gates", "killed"]))
    def something_becomes_of_a_pod(self, number: int, how: str) -> None:
        pods = self.pods()
        if pods:
            path = f"{NAMESPACE}/pods/{pods[number % len(pods)]['metadata']['name']}"
            match how:
                case "deleted":
                    self.ask("DELETE", path)
                case "killed":
                    self.ask("DELETE", path, {"gracePeriodSeconds": 0})
                case "finished":
                    self.ask("PATCH", f"{path}/status", {"status": {"phase": "Succeeded"}})
                case "gates":
                    self.ask("PATCH", path, {"spec": {"schedulingGates": None}})
                case _:
                    self.ask("PATCH", path, {"metadata": {"annotations": {POOL_KEY: POOLS[number % 2]}}})
        self.go_on(0.1)

    @rule(who=st.sampled_from(["server", "server", "scheduler", "nobody", "nobody", "nobody"]))
    def somebody_restarts(self, who: str) -> None:
        if who == "server":
            self.harness.restart_server()
        elif who == "scheduler":
            self._restart_scheduler()
        self.go_on(0.1)

    def _restart_scheduler(self) -> None:
        network, honours = self.harness.daemon._network, self.harness.daemon.honours_budgets
        self.harness.restart_scheduler()
        self.harness.daemon._network, self.harness.daemon.honours_budgets = network, honours

    @rule(honours=st.booleans())
    def budgets_are_honoured_or_only_preferred(self, honours: bool) -> None:
        self.harness.daemon.honours_budgets = honours
        self.go_on(0.1)

    @rule(seconds=st.sampled_from([0.3, 1.0, 3.0, 12.0, 40.0, 120.0]))
    def time_passes(self, seconds: float) -> None:
        self.go_on(seconds)

    def teardown(self) -> None:
        """The faults stop: every pod that fits is bound, by wake-ups alone, and a new scheduler changes nothing."""
        h = self.harness
        h.daemon._network = Network()
        for app in ("x", "y"):
            self.ask("DELETE", f"{BUDGETS}/{app}")
        self.note(h.actions)
        h.run(SECONDS_OF_CALM)
        scheduler = h.scheduler
        assert isinstance(scheduler, CheckedScheduler)
        scheduler.look(closely=True)
        assert scheduler.oracle.in_vain() == []
        cluster = scheduler.cluster
        for record in cluster.records.values():
            assert record.state in (PodState.PARKED, PodState.HELD, PodState.GATED, PodState.BOUND), record
        assert not len(cluster.claims)
        assert not cluster.leaving_pods.asked
        assert scheduler.net_saves() == 0
        before = len(h.actions)
        self._restart_scheduler()
        h.run(5.0)
        assert [action for action in h.actions[before:] if isinstance(action, Bind | Evict)] == []


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days() -> None:
    play(Cluster, seeds.number("cluster"), runs=4)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_at_length(number: int) -> None:
    play(Cluster, seeds.number(f"cluster, at length {number}"), runs=50)
