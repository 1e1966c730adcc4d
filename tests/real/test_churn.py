"""A long churn in which everything changes, and then the numbers: who tells them tells what there is, to the last byte.

Law: chance comes from one printed seed; what the API server makes of it in time is its own affair.
"""

import json
import subprocess
import sys
import time
from random import Random  # noqa: TID251 - here the seed becomes chance

from tests.controlplane.many import Request, send
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.objects import Json, eviction_object, node_object, pod_object, pool_object, priority_class_object
from tests.real.cluster import create_nodes, create_pods, create_pools
from tests.real.daemon import Daemon
from tests.real.history import History
from tests.real.judge import judge
from tests.real.recount import Numbers, difference, from_command, from_metrics, from_status, recount, without_loans

SEED = 20_260_102
EVENTS = 5_000
ROUND_SECONDS = 0.15
QUIET_SECONDS = 2.5
CALM_WITHIN_SECONDS = 30.0
AGREE_WITHIN_SECONDS = 30.0
POOLS = ("red", "blue", "green", "grey")
NODES = 32
POOLS_PATH = "/apis/resource.aibee.cn/v1alpha1/pools"
TAINT = {"key": "closed", "effect": "NoSchedule"}
SWITCHES = ("disablePreemption", "disableBorrowing", "disableSharing")


class Churn:
    """Lets things happen by chance, and counts them."""

    def __init__(self, plane: ControlPlane, namespace: str, history: History) -> None:
        self._plane, self._namespace, self._history = plane, namespace, history
        self._chance = Random(SEED)
        self._made = 0
        self._flips = 0
        self._pools: dict[str, None] = {}

    @property
    def events(self) -> int:
        """What the API server told of pods, and what was done to nodes and pools."""
        return len(self._history.sights) + self._flips

    def begin(self) -> None:
        """Set up nodes of four pools, and pods of another scheduler on some."""
        create_nodes(self._plane, [self._node(number) for number in range(NODES)])
        create_pods(self._plane, self._namespace, [self._system_pod(number) for number in range(0, NODES, 2)])
        for name in POOLS:
            self._toggle(name)
        for name, value in (("high", 1000), ("low", -10)):
            document = priority_class_object(f"{name}-{self._namespace}", value=value)
            assert self._plane.api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", document).status == 201

    def lend(self) -> None:
        """See to it that there is a loan in the end, whatever chance has left."""
        create_nodes(self._plane, [node_object("spare", cpu="2", labels={"lends": "true"})])
        create_pools(self._plane, pool_object("lender", labels={"lends": "true"}), pool_object("guest"))
        create_pods(
            self._plane, self._namespace, [pod_object("guest", namespace=self._namespace, cpu="100m", pool="guest")]
        )

    def round(self) -> None:
        """Let some things happen at once: pods come, end, are deleted and evicted; nodes and pools change."""
        chance = self._chance
        create_pods(self._plane, self._namespace, [self._pod() for _ in range(chance.randrange(10, 40))])
        send(self._plane.connect, [self._end(name) for name in self._some_running()])
        send(self._plane.connect, [self._change_of_node() for _ in range(chance.randrange(4))])
        if chance.random() < 0.5:
            self._edit(chance.choice(POOLS))
        if chance.random() < 0.1:
            self._toggle(chance.choice(POOLS))

    def _some_running(self) -> list[str]:
        """Return some pods whose kubelet has spoken its last word, or it would call ended ones running again."""
        path = f"/api/v1/namespaces/{self._namespace}/pods?fieldSelector=status.phase=Running"
        items = self._plane.api("GET", path).body["items"]
        running = sorted(pod["metadata"]["name"] for pod in items if pod["spec"]["schedulerName"] != "other")
        return self._chance.sample(running, min(len(running), self._chance.randrange(4, 24)))

    def _end(self, name: str) -> Request:
        """Let a bound pod finish, delete it, or evict it as a user would."""
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
        """Evict through the Eviction API the pods that bear the label for it."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        for pod in self._plane.api("GET", f"{path}?labelSelector=evict").body["items"]:
            name = pod["metadata"]["name"]
            answer = self._plane.api(
                "POST", f"{path}/{name}/eviction", eviction_object(name, namespace=self._namespace)
            )
            assert answer.status in {200, 201, 404}, answer

    def _change_of_node(self) -> Request:
        chance = self._chance
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
        self._flips += 1
        return Request("PATCH", f"/api/v1/nodes/node-{chance.randrange(NODES):02d}", change)

    def _edit(self, name: str) -> None:
        chance = self._chance
        spec: Json = {switch: chance.random() < 0.3 for switch in SWITCHES}
        spec["lendingLimit"] = chance.choice((None, {"cpu": str(chance.randrange(4, 40))}))
        spec["borrowingLimit"] = chance.choice((None, {"cpu": str(chance.randrange(4, 40)), "memory": "64Gi"}))
        spec["reclaimPolicy"] = chance.choice(("OnDemand", "Evict"))
        spec["makeRoom"] = chance.choice(("PreemptThenBorrow", "BorrowThenPreempt"))
        spec["borrowingPools"] = chance.choice((None, [other for other in POOLS if other != name][:2]))
        if name in self._pools:
            send(self._plane.connect, [Request("PATCH", f"{POOLS_PATH}/{name}", {"spec": spec})])
            self._flips += 1

    def _toggle(self, name: str) -> None:
        """Create a pool, or delete it: its nodes are those of its label, and of one more label that may conflict."""
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
        return pod_object(
            f"p{self._made:05d}",
            namespace=self._namespace,
            cpu=chance.choice(("250m", "500m", "1", "1500m", "3")),
            memory=chance.choice(("64Mi", "1Gi", "100M", "1500Ki")),
            gpu=chance.choice((0, 0, 0, 1, 4)),
            pool=chance.choice((*POOLS, *POOLS, "", "nowhere")),
            priority_class=chance.choice(("", "", f"high-{self._namespace}", f"low-{self._namespace}")),
            gates=chance.choice(((),) * 9 + (("example.com/quota",),)),
        )

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


def listed(plane: ControlPlane) -> list[Json]:
    """Return what `kubectl get` shows of pods, nodes and pools."""
    shown = plane.kubectl("get", "pods,nodes,pools.resource.aibee.cn", "--all-namespaces", "-o", "json")
    assert shown.returncode == 0, shown.stderr
    items: list[Json] = json.loads(shown.stdout)["items"]
    return items


def table(plane: ControlPlane) -> Numbers:
    """Return what the command line says."""
    command = [sys.executable, "-m", "aischeduler", "pools", "-o", "json", "--kubeconfig", str(plane.kubeconfig)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    return from_command(json.loads(shown.stdout))


def disagreements(plane: ControlPlane, daemon: Daemon) -> list[str]:
    """Return what somebody tells otherwise than the objects say."""
    documents = listed(plane)
    counted = recount(documents)
    by_pool = without_loans(counted)
    told = {
        "status": difference(from_status(one for one in documents if one["kind"] == "Pool"), by_pool),
        "command": difference(table(plane), by_pool),
        "metrics": difference(from_metrics(daemon.samples()), counted),
    }
    return [f"{teller}: {line}" for teller, lines in told.items() for line in lines]


def wait_until_calm(history: History) -> None:
    """Wait until nothing has happened to any pod for a while."""
    deadline = time.monotonic() + CALM_WITHIN_SECONDS
    while time.monotonic() - history.sights[-1].at < QUIET_SECONDS:
        assert time.monotonic() < deadline, f"still moving: {history.sights[-5:]}"
        time.sleep(0.1)


def test_after_five_thousand_events_everybody_tells_what_there_is(
    control_plane: ControlPlane, namespace: str, pools_served: None, history: History, kubelets: Part
) -> None:
    print(f"seed {SEED}")
    churn = Churn(control_plane, namespace, history)
    churn.begin()
    with Daemon(control_plane, metrics=True) as daemon:
        daemon.start()
        while churn.events < EVENTS:
            churn.round()
            churn.evict_marked()
            time.sleep(ROUND_SECONDS)
        churn.lend()
        wait_until_calm(history)
        deadline = time.monotonic() + AGREE_WITHIN_SECONDS
        while (found := disagreements(control_plane, daemon)) and time.monotonic() < deadline:
            time.sleep(0.5)
        saves = daemon.net_saves()
        counted = recount(listed(control_plane))
        assert daemon.said("evict") != []
        asked = {line["uid"]: line for line in daemon.said("evict")}
        print(
            "asked to leave and still there:", [asked[pod.uid] for pod in history.pods(namespace) if pod.uid in asked]
        )
        print("watches that broke:", daemon.said("list or watch failed"))
    assert not found, "\n".join(found)
    judge(control_plane, history, namespace)
    assert saves == 0
    told = {kind for _, kind, _ in counted}
    assert told >= {"used", "own", "shared", "system", "borrowed", "pending", "loans"}, "the churn left too little"
