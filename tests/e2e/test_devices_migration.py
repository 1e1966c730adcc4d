"""The page on the move to shares of GPUs: every command works as written, there and back; no GPU is given twice.

There are no GPUs here. The kubelets of `migration_stage` give cards as real ones do, and the device reporters run with
recorded answers of NVIDIA's driver. The pods of the release are processes: an agent runs where its pod does, and one
scheduler for the two pods of its Deployment. kube-scheduler, the controllers, the chart and the policies are the real
ones. A command without output in the page must succeed; its output is not compared.
"""

import difflib
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.controlplane.binaries import the_helm
from tests.controlplane.commands import REPLICA_CONTROLLERS
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import (
    CRD,
    QUEUE_CRD,
    ROOT,
    apply,
    condition,
    create_nodes,
    install,
    kubectl,
    pod,
    wait_until,
)
from tests.e2e.conftest import LEASES
from tests.e2e.daemon import Daemon
from tests.e2e.device_stage import CRD as DEVICE_CRD
from tests.e2e.device_stage import DELIVERY, UUIDS, allocated, asking
from tests.e2e.migration_stage import (
    COUNT,
    NODES,
    PLUGIN,
    TEAM,
    Machines,
    card,
    device_plugin,
    given_twice,
    gpu_node,
    serve,
    train,
    whole_gpu,
)
from tests.e2e.record import PATHS, Record
from tests.e2e.release import Release
from tests.e2e.terminal import Terminal
from tests.e2e.test_device_policies import VARIABLE
from tests.e2e.walkthrough import Step, comparable, read_steps
from tests.objects import Json

STEPS: Final = read_steps((ROOT / "docs" / "devices-migration.md").read_text())
LOOKS: Final = re.compile(r"kubectl (-n \S+ )?get\b|ai-scheduler devices\b")
"""Commands that only read, and are repeated until they print what is written."""
OF_DEPLOYMENT: Final = re.compile(r"\bserve-[0-9a-z]{6,10}-")
PATIENCE_SECONDS: Final = 20.0
LOOK_AGAIN_SECONDS: Final = 0.2
CONTROLLERS: Final = (*REPLICA_CONTROLLERS, "daemonset-controller", "resourcequota-controller")
STARTS_PODS: Final = "kubectl -n kube-system rollout status deployment/ai-scheduler"


@pytest.fixture
def bare(control_plane: ControlPlane, clean_cluster: None) -> Iterator[ControlPlane]:
    """Yield the control plane without the definitions that the page installs; restore them at the end."""
    delete = ("delete", "crd", CRD, QUEUE_CRD, DEVICE_CRD, "--ignore-not-found", "--wait")
    kubectl(control_plane, *delete)
    yield control_plane
    kubectl(control_plane, *delete)
    control_plane.api("DELETE", f"{LEASES}/ai-scheduler")
    install(control_plane)


@pytest.fixture
def controllers(control_plane: ControlPlane, kubelets: Part) -> Iterator[Part]:
    """Run the further controllers that the page relies on."""
    part = control_plane._controllers("migration-controllers", CONTROLLERS)
    part.start()
    yield part
    part.kill()


@pytest.fixture
def record(control_plane: ControlPlane, clean_cluster: None) -> Iterator[Record]:
    """Yield the record of all pods during the test."""
    with Record(control_plane, {"pods": PATHS["pods"]}) as record:
        yield record


@pytest.fixture
def machines(bare: ControlPlane, record: Record, controllers: Part, tmp_path: Path) -> Iterator[Machines]:
    """Yield the nodes of the page with their pods: the old scheduler has placed what it can."""
    bare.start_kube_scheduler()
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
    create_nodes(bare, [gpu_node(NODES[0])])
    apply(bare, team, device_plugin(), runtime | {"handler": "nvidia"}, train())
    with Machines(bare, record, tmp_path) as machines:
        kubectl(bare, "-n", TEAM, "create", "job", "train-1", "--from=cronjob/train")
        wait_until(lambda: len(machines.held["gpu-0"]) == 1, "a GPU of gpu-0 is given")
        kubectl(bare, "cordon", "gpu-0")
        create_nodes(bare, [gpu_node(NODES[1])])
        apply(bare, serve())
        wait_until(lambda: len(machines.held["gpu-1"]) == 2, "both GPUs of gpu-1 are given")
        kubectl(bare, "uncordon", "gpu-0")
        create_nodes(bare, [gpu_node(NODES[2])])
        apply(bare, whole("too-large", 4), namespace=TEAM)
        wait_until(lambda: gpus_listed(bare) == dict.fromkeys(NODES, "2"), "all nodes list GPUs")
        yield machines
    kubectl(bare, "-n", TEAM, "delete", "deployments,cronjobs,jobs,resourcequotas", "--all", "--wait=false")
    kubectl(bare, "-n", "kube-system", "delete", "daemonset", PLUGIN, "--wait=false")


def whole(name: str, count: int) -> Json:
    """Return a pod that asks the old scheduler for whole GPUs."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole_gpu(count)}


def gpus_listed(plane: ControlPlane) -> dict[str, str]:
    """Return how many GPUs each node lists by count."""
    nodes = plane.api("GET", "/api/v1/nodes").body["items"]
    return {one["metadata"]["name"]: one["status"]["allocatable"].get(COUNT, "") for one in nodes}


@pytest.fixture
def release(bare: ControlPlane, machines: Machines, tmp_path: Path) -> Iterator[Release]:
    """Yield the release that the page installs; uninstall it at the end."""
    found = Release(bare, the_helm(), tmp_path)
    yield found
    found.uninstall()


class Reader:
    """Someone who does what the page says, and looks again until a read-only command prints what is written."""

    def __init__(self, terminal: Terminal, machines: Machines) -> None:
        self._terminal, self._machines = terminal, machines

    def does(self, step: Step) -> None:
        expected, deadline = shown(step.output), time.monotonic() + PATIENCE_SECONDS
        ran = self._terminal.run(step.command)
        while self._differs(ran, expected) and LOOKS.match(step.command) and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_SECONDS)
            ran = self._terminal.run(step.command)
        self._machines.check()
        differences = difflib.unified_diff(expected, shown(ran.stdout), "the page", "here", lineterm="")
        told = "\n".join([f"line {step.line}: {step.command}", *differences, ran.stdout])
        assert not self._differs(ran, expected), told

    def _differs(self, ran: subprocess.CompletedProcess[str], expected: list[str]) -> bool:
        return ran.returncode != 0 or (expected != [] and shown(ran.stdout) != expected)


def shown(output: str) -> list[str]:
    """Return the lines of an output without what varies."""
    return comparable(OF_DEPLOYMENT.sub("serve-hash-", output))


def holders(machines: Machines) -> Mapping[str, tuple[str, ...]]:
    """Return the GPUs that kubelets have given, by the uid of the pod."""
    return {uid: ids for held in machines.held.values() for uid, ids in held.items()}


def last_states(record: Record) -> list[Json]:
    """Return each pod that ever was, as it was last."""
    return list({one.document["metadata"]["uid"]: one.document for one in record.changes["pods"]}.values())


def refuses_gpu_pods(plane: ControlPlane) -> bool:
    """Return whether no pod with whole GPUs can be created in the namespace."""
    answer = plane.api("POST", f"/api/v1/namespaces/{TEAM}/pods?dryRun=All", whole("one-more", 1))
    return answer.status == 403 and "exceeded quota" in answer.body["message"]


def move_beside_a_pod(plane: ControlPlane, node: str) -> None:
    """Move a node whose first GPU is free while a pod has its second: the first is shared, the second is not."""
    pair = [asking(name, {"kubernetes.io/gpu": "60"}, namespace=TEAM, node=node) for name in ("beside-0", "beside-1")]

    def said() -> list[tuple[str, str]]:
        found = (pod(plane, TEAM, one["metadata"]["name"]) for one in pair)
        return sorted(
            (one["spec"].get("nodeName", ""), condition(one, "PodScheduled").get("message", "")) for one in found
        )

    kubectl(plane, "label", "node", node, "--overwrite", f"{DELIVERY}=env")
    wait_until(lambda: gpus_listed(plane)[node] == "0", "no device plugin")
    apply(plane, *pair)
    wait_until(lambda: said()[1][0] == node and "Insufficient gpu devices" in said()[0][1], "one pod starts, one waits")
    kubectl(plane, "-n", TEAM, "delete", "pod", "beside-0", "beside-1")
    kubectl(plane, "label", "node", node, "--overwrite", f"{DELIVERY}=device-plugin")
    wait_until(lambda: gpus_listed(plane)[node] == "2", "the device plugin is back")


@pytest.mark.newest
def test_every_command_of_the_page_works_and_no_gpu_is_given_twice(
    control_plane: ControlPlane, machines: Machines, record: Record, release: Release
) -> None:
    old = dict(machines.given)
    trained, *served = sorted(old, key=lambda uid: old[uid])
    assert [old[uid] for uid in (trained, *served)] == [(card("gpu-0", 1),), (card("gpu-1", 0),), (card("gpu-1", 1),)]
    reader = Reader(Terminal(control_plane, control_plane.kubeconfig, the_helm()), machines)
    with ExitStack() as programs:
        for step in STEPS:
            if step.command.startswith(STARTS_PODS):
                access = release.access()
                programs.enter_context(Daemon(control_plane, access.kubeconfig, f"--config={access.config}")).start()
            if step.command.endswith("rollout resume deployment/serve"):
                assert refuses_gpu_pods(control_plane)
                assert holders(machines) == old
            if step.command.endswith("create job train-2 --from=cronjob/train"):
                move_beside_a_pod(control_plane, "gpu-0")
            if step.command.startswith("kubectl delete devices"):
                wait_until(lambda: not machines.agents, "no agent runs")
            reader.does(step)
            assert given_twice(record, machines.given) == [], step.command
        assert machines.given[trained] == holders(machines)[trained] == old[trained]
        ours = [one for one in last_states(record) if allocated(one)]
        shared = Counter(one["metadata"]["annotations"][UUIDS] for one in ours)
        assert shared == {card("gpu-2", 0): 3, card("gpu-0", 0): 1}
        assert [one for one in ours if one["spec"]["containers"][0]["env"] != [VARIABLE]] == []
        kubectl(control_plane, "-n", TEAM, "create", "job", "train-3", "--from=cronjob/train")
        wait_until(lambda: (card("gpu-2", 1),) in holders(machines).values(), "the old scheduler uses gpu-2 again")
        machines.check()
    assert given_twice(record, machines.given) == []
