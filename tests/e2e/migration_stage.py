"""A cluster whose pods ask for whole GPUs, on nodes whose kubelets give them: the stage of the move to shares.

Invariants:
- What a kubelet does with GPUs is done here: while a pod of the device plugin runs on its node, it lists the GPUs and
  gives any that it has not given, and its checkpoint says to whom. It knows nothing of shares.
- A device reporter runs where a pod of it does, with the rights of the chart. The driver that it asks has recorded
  answers; all else of it is the program.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.device_reporter.hosts import entry, write_checkpoint
from tests.e2e.cluster import token_kubeconfig
from tests.e2e.device_stage import WHERE, allocated
from tests.e2e.record import Changes, Record
from tests.e2e.rules import finished
from tests.objects import Json, node_object, pod_spec

TEAM: Final = "team-a"
NODES: Final = ("gpu-0", "gpu-1", "gpu-2")
COUNT: Final = "nvidia.com/gpu"
PLUGIN: Final = "nvidia-device-plugin-daemonset"
REPORTER: Final = "ai-scheduler-device-reporter"
MINORS: Final = (0, 1)
WHOLE: Final = 100
LOOK_SECONDS: Final = 0.1
PROGRAM: Final = """
import sys
from aischeduler.cli.app import main
from tests.device_reporter.recorded_nvml import RecordedNvml, a_gpu
node, minors = sys.argv[1], range(int(sys.argv[2]))
sys.modules["pynvml"] = RecordedNvml(*(a_gpu(n, nvmlDeviceGetUUID=f"GPU-{node}-{n}") for n in minors))
sys.exit(main(sys.argv[3:]))
"""
"""The device reporter, on a node and with a number of GPUs."""


def card(node: str, minor: int) -> str:
    """Return the id of a GPU."""
    return f"GPU-{node}-{minor}"


def gpu_node(name: str) -> Json:
    """Return a node of a new cluster; its kubelet lists the GPUs once there is a device plugin."""
    return node_object(name, cpu="16", labels={"kubernetes.io/os": "linux", WHERE: name})


def whole_gpu(count: int = 1) -> Json:
    """Return the spec of pods that ask the old scheduler for whole GPUs."""
    return pod_spec(cpu="1", gpu=count, scheduler_name="default-scheduler")


def device_plugin() -> Json:
    """Return NVIDIA's device plugin, as it runs on all nodes."""
    labels = {"name": PLUGIN}
    container = {"name": "plugin", "image": "registry.example/plugin:1"}
    spec = {"tolerations": [{"operator": "Exists"}], "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": PLUGIN, "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def serve() -> Json:
    """Return the Deployment whose pods have a GPU each."""
    labels = {"app": "serve"}
    template = {"metadata": {"labels": labels}, "spec": whole_gpu() | {"restartPolicy": "Always"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "serve", "namespace": TEAM},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }


def train() -> Json:
    """Return the CronJob whose Jobs have a GPU each."""
    job = {"spec": {"template": {"spec": whole_gpu()}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "train", "namespace": TEAM},
        "spec": {"schedule": "0 4 * * *", "jobTemplate": job},
    }


class Machines:
    """What runs on the nodes, from entering the context to its end: the part of kubelets about GPUs, and the agents."""

    def __init__(self, plane: ControlPlane, record: Record, directory: Path) -> None:
        self._plane, self._record, self._directory = plane, record, directory
        self._listed: dict[str, int] = {}
        self._written: dict[str, dict[str, tuple[str, ...]]] = {}
        self.agents: dict[str, Part] = {}
        """The device reporters, by node."""
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.failure: Exception | None = None
        self.held: dict[str, dict[str, tuple[str, ...]]] = {node: {} for node in NODES}
        """Node and uid of a pod -> the GPUs that the kubelet gave to it."""
        self.given: dict[str, tuple[str, ...]] = {}
        """The same of all pods, also of those that are gone."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for agent in self.agents.values():
            agent.kill()

    def check(self) -> None:
        """Raise what went wrong on a node."""
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(LOOK_SECONDS):
                pods = list(self._record.now("pods").values())
                for node in NODES:
                    self._look(node, [pod for pod in pods if pod["spec"].get("nodeName") == node and not finished(pod)])
        except Exception as failure:  # noqa: BLE001 - the test raises it
            self.failure = failure

    def _look(self, node: str, pods: list[Json]) -> None:
        """Do what a kubelet does about GPUs and the pods on its node."""
        running = {_program(pod) for pod in pods if pod["status"].get("phase") == "Running"}
        plugin = PLUGIN in running
        uids, held = {pod["metadata"]["uid"] for pod in pods}, self.held[node]
        for uid in [uid for uid in held if uid not in uids]:
            del held[uid]
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
            count, uid = asked_by_count(pod), pod["metadata"]["uid"]
            if count and uid not in held:
                taken = {one for ids in held.values() for one in ids}
                free = [card(node, minor) for minor in reversed(MINORS) if card(node, minor) not in taken]
                assert count <= (len(free) if plugin else 0), f"the kubelet of {node} refuses {pod['metadata']['name']}"
                held[uid] = self.given[uid] = tuple(free[:count])
        if self._written.get(node) != held:
            write_checkpoint(self._directory / node, [entry(uid, {"0": list(ids)}) for uid, ids in held.items()])
            self._written[node] = dict(held)
        self._list(node, len(MINORS) if plugin else 0)
        if (REPORTER in running) != (node in self.agents):
            self._change_agent(node)

    def _list(self, node: str, count: int) -> None:
        if self._listed.get(node, 0) != count:
            amounts = {"capacity": {COUNT: str(count)}, "allocatable": {COUNT: str(count)}}
            answer = self._plane.api("PATCH", f"/api/v1/nodes/{node}/status", {"status": amounts})
            assert answer.status == 200, answer.body
            self._listed[node] = count

    def _change_agent(self, node: str) -> None:
        """Start the device reporter of a node, or stop it."""
        if node in self.agents:
            self.agents.pop(node).kill()
            return
        root = self._directory / node
        kubeconfig = token_kubeconfig(self._plane, REPORTER, "kube-system", root)
        where = ["--node-name", node, "--host-root", str(root), "--kubeconfig", str(kubeconfig), "--interval=1"]
        command = [sys.executable, "-c", PROGRAM, node, str(len(MINORS)), "device-reporter", *where]
        self.agents[node] = self._plane.program(f"device-reporter-{node}", command, lambda: True)
        self.agents[node].launch()


def asked_by_count(pod: Json) -> int:
    """Return how many GPUs a pod asks for by count."""
    requests = (one.get("resources", {}).get("requests", {}) for one in pod["spec"]["containers"])
    return sum(int(amounts.get(COUNT, 0)) for amounts in requests)


def given_twice(record: Changes, by_kubelets: Mapping[str, Iterable[str]]) -> list[str]:
    """Return each moment at which pods had more of a GPU than there is: by kubelets, and by what pods say."""
    now: defaultdict[str, dict[str, Counter[str]]] = defaultdict(dict)
    found = []
    for change in record.changes["pods"]:
        pod, uid = change.document, change.document["metadata"]["uid"]
        node = pod["spec"].get("nodeName", "")
        there = now[node]
        there.pop(uid, None)
        if not node or change.gone or finished(pod):
            continue
        shares = Counter(dict.fromkeys(by_kubelets.get(uid, ()), WHOLE))
        for (_, minor), amounts in (allocated(pod) or {}).items():
            shares[card(node, minor)] += max(amounts["gpu-core"], amounts["gpu-memory-ratio"])
        there[uid] = shares
        total = sum(there.values(), Counter())
        found += [f"{one} is given twice since {pod['metadata']['name']}" for one in total if total[one] > WHOLE]
    return found


def _program(pod: Json) -> str:
    """Return which of the programs of each node a pod is; empty for another pod."""
    labels = pod["metadata"].get("labels", {})
    if labels.get("app.kubernetes.io/component") == "device-reporter":
        return REPORTER
    return PLUGIN if labels.get("name") == PLUGIN else ""
