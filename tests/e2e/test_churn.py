"""A long churn of all kinds of objects, then a comparison: every source of numbers reports the exact state.

Invariant: random choices come from the seed of the run; the timing of the API server does not.
"""

import json
import subprocess
import sys
import time
from itertools import chain, islice

import pytest

from tests.controlplane.many import Request, send
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import POOLS_PATH, create_nodes, create_pods, create_pools, create_priority
from tests.e2e.crowd_invariants import judge_bindings
from tests.e2e.daemon import Daemon
from tests.e2e.decision_audit import Judge
from tests.e2e.record import Record
from tests.e2e.recount import Numbers, difference, from_command, from_metrics, from_status, recount, without_loans
from tests.objects import Json, eviction_object, node_object, pod_object, pool_object
from tests.seeds import random

EVENTS = [600, pytest.param(5_000, marks=[pytest.mark.soak, pytest.mark.timeout(0)])]
ROUND_SECONDS = 0.15
QUIET_SECONDS = 2.5
CALM_WITHIN_SECONDS = 30.0
AGREE_WITHIN_SECONDS = 30.0
POOLS = ("red", "blue", "green", "grey")
NODES = 32
GONE_MAX = 6
MARGIN_SECONDS = 4.0
"""The scheduler knows a fact that is older than this, even on a busy machine."""
FAULTS_SHOWN = 5
OVERHEAD = {"cpu": "125m", "memory": "48Mi"}
TAINT = {"key": "closed", "effect": "NoSchedule"}
SWITCHES = ("disablePreemption", "disableBorrowing", "disableSharing")
FREE: Json = {
    **dict.fromkeys(SWITCHES, False),
    **dict.fromkeys(("lendingLimit", "borrowingLimit", "borrowingPools", "allowedNamespaces", "reclaimPolicy")),
}
STRICT: dict[str, Json] = {
    "red": {"lendingLimit": {"cpu": "2"}},
    "blue": {"disableSharing": True},
    "green": {"borrowingLimit": {"cpu": "2"}},
    "grey": {"disableBorrowing": True, "disablePreemption": True},
}
"""The final specs, each of which the pods that follow could violate."""
INITS: tuple[tuple[tuple[str, str, str], ...], ...] = (
    *((), (), ()),
    (("first", "2500m", ""), ("second", "500m", "")),
    (("sidecar", "250m", "Always"), ("first", "2", "")),
    (("first", "1", ""), ("sidecar", "750m", "Always")),
)
"""Init containers by name, CPU and restart policy."""


class Churn:
    """Makes random changes, and counts them."""

    def __init__(self, plane: ControlPlane, namespace: str, record: Record) -> None:
        self._plane, self._namespace, self._record = plane, namespace, record
        self._chance = random("churn")
        self._made = 0
        self._flips = 0
        self._pools: dict[str, None] = {}
        self._gone: list[int] = []

    @property
    def events(self) -> int:
        """The number of events about pods, and of changes of nodes and pools."""
        return len(self._record.changes["pods"]) + self._flips

    def begin(self) -> None:
        """Set up nodes of four pools, and pods of another scheduler on some."""
        create_nodes(self._plane, [self._node(number) for number in range(NODES)])
        create_pods(self._plane, self._namespace, [self._system_pod(number) for number in range(0, NODES, 2)])
        for name in POOLS:
            self._toggle(name)
        for name, value in (("high", 1000), ("low", -10)):
            create_priority(self._plane, f"{name}-{self._namespace}", value)
        heavy = {
            "metadata": {"name": f"heavy-{self._namespace}"},
            "handler": "heavy",
            "overhead": {"podFixed": OVERHEAD},
        }
        assert self._plane.api("POST", "/apis/node.k8s.io/v1/runtimeclasses", heavy).status == 201

    def stand_still(self) -> None:
        """Set the final spec of every pool before the last pods come, so that the scheduler knows it."""
        for name, spec in STRICT.items():
            if name not in self._pools:
                self._toggle(name)
            self._patch_pool(name, FREE | spec)
        time.sleep(MARGIN_SECONDS)
        for _ in range(4):
            create_pods(self._plane, self._namespace, [self._pod() for _ in range(30)])
            time.sleep(ROUND_SECONDS)

    def lend(self) -> None:
        """Make a loan and pods that wait to borrow, whatever the random changes left."""
        create_nodes(self._plane, [node_object("spare", cpu="64", memory="256Gi", labels={"lends": "true"})])
        create_pools(
            self._plane,
            pool_object("lender", labels={"lends": "true"}, lendingLimit={"cpu": "8"}),
            pool_object("proud", disableBorrowing=True),
            pool_object("modest", borrowingLimit={"cpu": "500m"}),
            pool_object("guest"),
        )
        time.sleep(MARGIN_SECONDS)
        for pool, count in (("proud", 4), ("modest", 4), ("guest", 40)):
            create_pods(
                self._plane,
                self._namespace,
                [
                    pod_object(f"{pool}-{number}", namespace=self._namespace, cpu="300m", memory="64Mi", pool=pool)
                    for number in range(count)
                ],
            )

    def round(self) -> None:
        """Make some changes at once: pods come, end, are deleted and evicted; nodes and pools change."""
        chance = self._chance
        create_pods(self._plane, self._namespace, [self._pod() for _ in range(chance.randrange(10, 40))])
        send(self._plane.connect, [self._end(name) for name in self._some_running()])
        send(self._plane.connect, [self._change_of_node() for _ in range(chance.randrange(4))])
        if chance.random() < 0.3:
            self._lose_or_return_a_node()
        if chance.random() < 0.2:
            self._edit(chance.choice(POOLS))
        if chance.random() < 0.1:
            self._toggle(chance.choice(POOLS))

    def _some_running(self) -> list[str]:
        """Return some pods for which the kubelet has no write left, so that no ended pod is set to running again."""
        path = f"/api/v1/namespaces/{self._namespace}/pods?fieldSelector=status.phase=Running"
        items = self._plane.api("GET", path).body["items"]
        running = sorted(pod["metadata"]["name"] for pod in items if pod["spec"]["schedulerName"] != "other")
        return self._chance.sample(running, min(len(running), self._chance.randrange(4, 24)))

    def _end(self, name: str) -> Request:
        """Finish a bound pod, delete it, or evict it as a user does."""
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}"
        match self._chance.randrange(4):
            case 0:
                return Request("PATCH", f"{path}/status", {"status": {"phase": "Succeeded"}})
            case 1:
                return Request("PATCH", f"{path}/status", {"status": {"phase": "Failed"}})
            case 2:
                return Request("DELETE", path, {})
            case _:
                return Request("PATCH", path, {"metadata": {"labels": {"evict": "please"}}})

    def evict_marked(self) -> None:
        """Evict the pods with the label for it through the Eviction API."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        for pod in self._plane.api("GET", f"{path}?labelSelector=evict").body["items"]:
            name = pod["metadata"]["name"]
            answer = self._plane.api(
                "POST", f"{path}/{name}/eviction", eviction_object(name, namespace=self._namespace)
            )
            assert answer.status in {200, 201, 404}, answer

    def _lose_or_return_a_node(self) -> None:
        """Delete a node with the pods on it, or create it again, with those of its pods that still exist."""
        self._flips += 1
        if len(self._gone) < GONE_MAX and self._chance.random() < 0.6:
            number = self._chance.choice([one for one in range(NODES) if one not in self._gone])
            self._gone.append(number)
            send(self._plane.connect, [Request("DELETE", f"/api/v1/nodes/node-{number:02d}", {})])
        elif self._gone:
            create_nodes(self._plane, [self._node(self._gone.pop(0))])

    def _change_of_node(self) -> Request:
        chance = self._chance
        path = f"/api/v1/nodes/node-{chance.randrange(NODES):02d}"
        self._flips += 1
        if chance.random() < 0.2:
            room = {"cpu": chance.choice("2488"), "memory": chance.choice(("4Gi", "32Gi", "32Gi"))}
            return Request("PATCH", f"{path}/status", {"status": {"allocatable": room}})
        change: Json = chance.choice(
            (
                {"metadata": {"labels": {"team": chance.choice((*POOLS, "nobody"))}}},
                {"metadata": {"labels": {"also": chance.choice((*POOLS, None, None, None))}}},
                {"spec": {"taints": [TAINT]}},
                {"spec": {"taints": None}},
                {"spec": {"taints": None}},
                {"spec": {"unschedulable": chance.random() < 0.3}},
            )
        )
        return Request("PATCH", path, change)

    def _edit(self, name: str) -> None:
        chance = self._chance
        spec: Json = {switch: chance.random() < 0.3 for switch in SWITCHES}
        spec["lendingLimit"] = chance.choice((None, {"cpu": str(chance.randrange(4, 40))}))
        spec["borrowingLimit"] = chance.choice((None, {"cpu": str(chance.randrange(4, 40)), "memory": "64Gi"}))
        spec["reclaimPolicy"] = chance.choice(("OnDemand", "Evict"))
        spec["makeRoom"] = chance.choice(("PreemptThenBorrow", "BorrowThenPreempt"))
        elsewhere = {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}
        spec["allowedNamespaces"] = chance.choice((None,) * 7 + (elsewhere,))
        spec["borrowingPools"] = chance.choice((None, [other for other in POOLS if other != name][:2]))
        if name in self._pools:
            self._patch_pool(name, spec)

    def _patch_pool(self, name: str, spec: Json) -> None:
        self._flips += 1
        send(self._plane.connect, [Request("PATCH", f"{POOLS_PATH}/{name}", {"spec": spec})])

    def _toggle(self, name: str) -> None:
        """Create a pool or delete it; it selects the nodes of its label, and of one more label that may conflict."""
        self._flips += 1
        if name in self._pools:
            del self._pools[name]
            assert self._plane.api("DELETE", f"{POOLS_PATH}/{name}").status == 200
        else:
            self._pools[name] = None
            key = "also" if name == "grey" else "team"
            create_pools(self._plane, pool_object(name, labels={key: name}))

    def _pod(self) -> Json:
        chance = self._chance
        self._made += 1
        document = pod_object(
            f"p{self._made:05d}",
            namespace=self._namespace,
            cpu=chance.choice(("250m", "500m", "1", "1500m", "3")),
            memory=chance.choice(("64Mi", "1Gi", "100M", "1500Ki")),
            gpu=chance.choice((0, 0, 0, 1, 4)),
            pool=chance.choice((*POOLS, *POOLS, "", "nowhere")),
            priority_class=chance.choice(("", "", f"high-{self._namespace}", f"low-{self._namespace}")),
            gates=chance.choice(((),) * 9 + (("example.com/quota",),)),
        )
        document["spec"] |= {
            "initContainers": [init_container(*one) for one in chance.choice(INITS)],
            **({"runtimeClassName": f"heavy-{self._namespace}"} if chance.random() < 0.2 else {}),
        }
        return document

    def _system_pod(self, number: int) -> Json:
        return pod_object(
            f"system-{number:02d}",
            namespace=self._namespace,
            cpu="300m",
            memory="128Mi",
            scheduler_name="other",
            node=f"node-{number:02d}",
        )

    def _node(self, number: int) -> Json:
        labels = {"team": POOLS[number % 3]} | ({"also": "grey"} if number % 8 == 0 else {})
        return node_object(f"node-{number:02d}", cpu="8", memory="32Gi", gpu=8 * (number % 4 == 0), labels=labels)


def init_container(name: str, cpu: str, restart_policy: str) -> Json:
    """Return an init container, or with `Always` a sidecar."""
    always = {"restartPolicy": restart_policy} if restart_policy else {}
    return {"name": name, "image": "registry.example/init:1", "resources": {"requests": {"cpu": cpu}}, **always}


def listed(plane: ControlPlane) -> list[Json]:
    """Return pods, nodes and pools as `kubectl get` shows them."""
    shown = plane.kubectl("get", "pods,nodes,pools.resource.aibee.cn", "--all-namespaces", "-o", "json")
    assert shown.returncode == 0, shown.stderr
    items: list[Json] = json.loads(shown.stdout)["items"]
    return items


def table(plane: ControlPlane) -> Numbers:
    """Return the numbers of the command line."""
    command = [sys.executable, "-m", "aischeduler", "pools", "-o", "json", "--kubeconfig", str(plane.kubeconfig)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    return from_command(json.loads(shown.stdout))


def disagreements(plane: ControlPlane, daemon: Daemon) -> list[str]:
    """Return the numbers of each source that differ from the count of the objects."""
    documents = listed(plane)
    counted = recount(documents)
    by_pool = without_loans(counted)
    told = {
        "status": difference(from_status(one for one in documents if one["kind"] == "Pool"), by_pool),
        "command": difference(table(plane), by_pool),
        "metrics": difference(from_metrics(daemon.samples()), counted),
    }
    return [f"{teller}: {line}" for teller, lines in told.items() for line in lines]


def faults(judge: Judge) -> list[str]:
    """Return the first decisions that a fully informed scheduler does not make."""
    found = chain(judge.wrong_bindings(), judge.faults(rooms=False))
    return [*judge.strangers(), *islice(found, FAULTS_SHOWN)]


@pytest.mark.parametrize("events", EVENTS)
def test_all_numbers_are_exact_after_thousands_of_events(
    control_plane: ControlPlane, namespace: str, pools_served: None, kubelets: Part, events: int
) -> None:
    with Record(control_plane) as record, Daemon(control_plane, metrics=True) as daemon:
        churn = Churn(control_plane, namespace, record)
        churn.begin()
        daemon.start()
        while churn.events < events:
            churn.round()
            churn.evict_marked()
            time.sleep(ROUND_SECONDS)
        churn.stand_still()
        churn.lend()
        record.wait_until_calm(QUIET_SECONDS, CALM_WITHIN_SECONDS)
        deadline = time.monotonic() + AGREE_WITHIN_SECONDS
        while (found := disagreements(control_plane, daemon)) and time.monotonic() < deadline:
            time.sleep(0.5)
        saves = daemon.net_saves()
        counted = recount(listed(control_plane))
        print("watches that broke:", daemon.said("list or watch failed"))
        judge = Judge(record, margin_seconds=MARGIN_SECONDS)
        record.wait_until(lambda: judge.neglected() == [], "pods that fit on nodes", CALM_WITHIN_SECONDS)
    assert not found, "\n".join(found)
    judge_bindings(control_plane, record.nodes_of(), namespace)
    assert faults(judge) == []
    assert judge.evictions() != []
    assert saves == 0
    told = {kind for _, kind, _ in counted}
    assert told >= {"used", "own", "shared", "system", "borrowed", "pending", "loans"}, "the churn left too little"
