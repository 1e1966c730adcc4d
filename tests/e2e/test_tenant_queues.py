"""Tenant queues on the real control plane: the article's tide, pods that a queue holds, and what kubectl shows.

The trainings and the service are pods of the real controllers of Jobs, Deployments and ReplicaSets.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aischeduler.model.workload import ON_EVICTION_KEY
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e import tide
from tests.e2e.cluster import ROOT, apply, condition, create_nodes, create_pods, events, kubectl, pod, wait_for_event
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import Json, pod_object
from tests.queue_objects import queue_object, volcano_queue_crd

WITHIN_SECONDS = 1.0
"""How soon a held pod starts once the quota that it needs is there."""
COMES_BACK_SECONDS = 60.0
"""The controller of Jobs makes pods again 10 s and more after the last ones failed."""
GANG = "training-normal"
LEAST_IMPORTANT = ("training-low", GANG)
SCHEDULED_AT_NIGHT = sum(tide.TRAININGS.values())
REPLICAS = 6
EVICTED = 3
PAGE = (ROOT / "docs" / "queues.md").read_text()
QUEUE_KEY = "resource.aibee.cn/queue"


@pytest.fixture
def definitions(control_plane: ControlPlane, clean_cluster: None) -> Iterator[None]:
    """Serve Volcano's queues during the test."""
    crd = volcano_queue_crd()
    apply(control_plane, crd)
    name = f"crd/{crd['metadata']['name']}"
    kubectl(control_plane, "wait", "--for=condition=Established", name, "--timeout=60s")
    yield
    kubectl(control_plane, "delete", name)


def names_at(history: History, namespace: str, prefix: str) -> dict[str, str]:
    """Return uid -> name of the pods of a workload that are on the node."""
    found = history.pods(namespace)
    return {one.uid: one.name for one in found if one.node == tide.NODE and one.name.startswith(f"{prefix}-")}


def leaving(plane: ControlPlane, namespace: str) -> list[str]:
    pods = plane.api("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
    return [one["metadata"]["name"] for one in pods if "deletionTimestamp" in one["metadata"]]


def the_night(
    plane: ControlPlane, history: History, namespace: str, *, volcano: bool, on_eviction: str
) -> dict[str, dict[str, str]]:
    """Create the queues and start the three trainings; return uid -> name of the pods of each.

    `on_eviction` is what becomes of the gang.
    """
    create_nodes(plane, [tide.node()])
    apply(plane, *tide.priority_classes(), *tide.queues(volcano=volcano))
    ends = {GANG: {ON_EVICTION_KEY: on_eviction}}
    trainings = (tide.training(name, **ends.get(name, {})) for name in tide.TRAININGS)
    apply(plane, *trainings, namespace=namespace)
    history.wait_for_bound(namespace, SCHEDULED_AT_NIGHT)
    wait_for_event(plane, history, namespace, "Scheduled", GANG)  # it is whole
    return {name: names_at(history, namespace, name) for name in tide.TRAININGS}


def jobs_failed(plane: ControlPlane, namespace: str) -> list[str]:
    jobs = json.loads(kubectl(plane, "get", "jobs", "-n", namespace, "-o", "json"))["items"]
    return [one["metadata"]["name"] for one in jobs if condition(one, "Failed")]


def check_evicted(history: History, namespace: str, before: dict[str, dict[str, str]]) -> None:
    """Assert that of the trainings exactly the pods of the two least important have gone."""
    there = {one.uid for one in history.pods(namespace)}
    gone = {name for name, pods in before.items() if not pods.keys() & there}
    assert gone == set(LEAST_IMPORTANT)
    assert before["training-medium"].keys() <= there


def shrink(plane: ControlPlane, namespace: str) -> None:
    kubectl(plane, "scale", "deployment", tide.SERVICE, "--replicas=2", "-n", namespace)


def training_comes_back(plane: ControlPlane, history: History, namespace: str) -> None:
    """Wait until all trainings run again beside the service of two replicas."""

    def back() -> bool:
        return all(len(names_at(history, namespace, name)) == pods for name, pods in tide.TRAININGS.items())

    history.wait_until(back, "the trainings again", COMES_BACK_SECONDS)
    assert len(names_at(history, namespace, tide.SERVICE)) == 2
    assert jobs_failed(plane, namespace) == []
    assert history.overcommitted() == []


@pytest.mark.usefixtures("definitions", "replica_controllers", "kubelets")
@pytest.mark.parametrize(("volcano", "on_eviction"), [(True, "Restart"), (False, "Abort")])
def test_service_takes_the_cards_of_the_two_least_important_trainings_which_come_back_when_it_shrinks(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History, volcano: bool, on_eviction: str
) -> None:
    daemon.start()
    before = the_night(control_plane, history, namespace, volcano=volcano, on_eviction=on_eviction)
    apply(control_plane, tide.service(), namespace=namespace)
    history.wait_until(lambda: len(names_at(history, namespace, tide.SERVICE)) == REPLICAS, "the service")
    check_evicted(history, namespace, before)
    evicted = {name for workload in LEAST_IMPORTANT for name in before[workload].values()}
    history.wait_until(lambda: events(control_plane, namespace, "Preempted").keys() == evicted | {GANG}, "the events")
    for note in events(control_plane, namespace, "Preempted").values():
        assert "inference takes back what training uses in pool default" in note
    assert [line["cause"] for line in daemon.said("evict")] == ["QueueReclaimed"] * EVICTED
    told = kubectl(control_plane, "describe", "job", GANG, "-n", namespace).partition("Events:")[2]
    if on_eviction == "Abort":
        assert "It stays suspended" in told
        shrink(control_plane, namespace)
        history.wait_until(lambda: bool(names_at(history, namespace, "training-low")), "the other", COMES_BACK_SECONDS)
        assert names_at(history, namespace, GANG) == {}
        resume = json.dumps({"spec": {"suspend": False}})
        kubectl(control_plane, "patch", "job", GANG, "-n", namespace, "--type=merge", "-p", resume)
    else:
        assert "It is resumed once they are gone" in told
        shrink(control_plane, namespace)
    training_comes_back(control_plane, history, namespace)
    assert len(daemon.said("evict")) == EVICTED


@pytest.mark.usefixtures("replica_controllers")
@pytest.mark.parametrize("gone", [1, EVICTED])
def test_scheduler_that_is_killed_while_it_reclaims_evicts_nobody_twice(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History, kubelets: Part, gone: int
) -> None:
    daemon.start()
    before = the_night(control_plane, history, namespace, volcano=False, on_eviction="Restart")
    kubelets.pause()
    apply(control_plane, tide.service(), namespace=namespace)
    history.wait_until(lambda: len(leaving(control_plane, namespace)) >= gone, "pods that leave")
    daemon.kill()
    daemon.start()
    history.wait_until(lambda: len(leaving(control_plane, namespace)) >= EVICTED, "all that leave")
    daemon.kill()
    daemon.start()
    kubelets.resume()
    history.wait_until(lambda: len(names_at(history, namespace, tide.SERVICE)) == REPLICAS, "the service")
    check_evicted(history, namespace, before)
    shrink(control_plane, namespace)
    training_comes_back(control_plane, history, namespace)
    assert before["training-medium"].keys() == names_at(history, namespace, "training-medium").keys()
    assert [nodes for nodes in history.nodes_of().values() if len(nodes) > 1] == []


@pytest.mark.usefixtures("kubelets")
def test_day_of_the_page_runs_as_it_stands(
    control_plane: ControlPlane,
    namespace: str,
    replica_controllers: None,
    daemon: Daemon,
    history: History,
    tmp_path: Path,
) -> None:
    create_nodes(control_plane, [tide.node()])
    daemon.start()
    for name, text in re.findall(r"^```yaml\n# (\w+\.yaml).*?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    night, morning, evening = re.findall(r"^\*\*\w+\.\*\*.*?```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

    def run(commands: str) -> None:
        shell = f'kubectl() {{ "{control_plane.binaries.kubectl}" -n {namespace} "$@"; }}\n'
        shell += f'ai-scheduler() {{ "{sys.executable}" -m aischeduler "$@"; }}\n'
        access = {"KUBECONFIG": str(control_plane.kubeconfig)}
        ran = subprocess.run(
            ["bash", "-ec", shell + commands],
            cwd=tmp_path,
            env=os.environ | access,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr

    def on_the_node() -> dict[str, int]:
        return {name: len(names_at(history, namespace, name)) for name in ("chat", "main", "eval", "sweep")}

    def wait_for(wanted: dict[str, int]) -> None:
        history.wait_until(lambda: on_the_node() == wanted, str(wanted), lacks=on_the_node)

    run(night)
    wait_for({"chat": 0, "main": 2, "eval": 2, "sweep": 2})
    kept = names_at(history, namespace, "main")
    run(morning)
    wait_for({"chat": 3, "main": 2, "eval": 0, "sweep": 0})
    run(evening)
    wait_for({"chat": 1, "main": 2, "eval": 2, "sweep": 2})
    assert names_at(history, namespace, "main") == kept
    assert jobs_failed(control_plane, namespace) == []


def queued(name: str, queue: str, cards: int, namespace: str) -> Json:
    return pod_object(name, namespace=namespace, cpu="1", gpu=cards, annotations={QUEUE_KEY: queue})


def described_as_held(plane: ControlPlane, history: History, namespace: str, name: str, reason: str) -> str:
    """Wait until a pod is held for this reason; return the message, which the event and the condition share."""

    def scheduled() -> Json:
        return condition(pod(plane, namespace, name), "PodScheduled")

    history.wait_until(lambda: scheduled().get("reason") == reason, f"{name}: {reason}", lacks=scheduled)
    told = scheduled()
    assert told["status"] == "False"
    message: str = told["message"]

    def described() -> str:
        return kubectl(plane, "describe", "pod", name, "-n", namespace).partition("Events:")[2]

    history.wait_until(lambda: message in described(), "the event", lacks=described)
    assert f"Warning  {reason}" in described()
    return message


def starts_at_once(history: History, namespace: str, name: str) -> None:
    """Assert that a pod starts within a second of now."""
    began = time.monotonic()
    history.wait_until(lambda: name in history.bound(namespace), f"{name} started")
    took = next(one.at for one in history.sights if one.name == name and one.node) - began
    assert took < WITHIN_SECONDS, f"{name} started after {took:.1f} s"


def patch(plane: ControlPlane, name: str, **spec: object) -> None:
    kubectl(plane, "patch", "aiq", name, "--type=merge", "-p", json.dumps({"spec": spec}))


@pytest.mark.usefixtures("kubelets")
def test_held_pod_says_why_and_starts_within_a_second_of_what_it_needs(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    create_nodes(control_plane, [tide.node()])
    apply(control_plane, queue_object("team-vision", cards={"RTX-4090": 1}))
    daemon.start()
    create_pods(control_plane, namespace, [queued("big", "team-vision", 2, namespace)])
    told = described_as_held(control_plane, history, namespace, "big", "InsufficientScalarQuota")
    wanted = "Queue team-vision has insufficient RTX-4090 quota: requested 2, total would be 2, but capability is 1"
    assert told == wanted
    patch(control_plane, "team-vision", cards={"RTX-4090": 2})
    starts_at_once(history, namespace, "big")

    create_pods(control_plane, namespace, [queued("lost", "team-visoin", 1, namespace)])
    told = described_as_held(control_plane, history, namespace, "lost", "UnknownQueue")
    assert "The queue team-visoin does not exist" in told
    assert "Did you mean team-vision?" in told
    apply(control_plane, queue_object("team-visoin"))
    starts_at_once(history, namespace, "lost")

    patch(control_plane, "team-visoin", state="Closed")
    create_pods(control_plane, namespace, [queued("late", "team-visoin", 1, namespace)])
    assert "team-visoin" in described_as_held(control_plane, history, namespace, "late", "QueueClosed")
    assert "lost" in history.bound(namespace), "running pods run on"
    patch(control_plane, "team-visoin", state="Open")
    starts_at_once(history, namespace, "late")


@pytest.mark.usefixtures("kubelets")
def test_tables_show_use_and_quota_of_queues(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History
) -> None:
    create_nodes(control_plane, [tide.node()])
    tenant = queue_object("tenant", cards={"RTX-4090": 4}, capability={"cpu": "3"})
    apply(control_plane, tenant, queue_object("project", parent="tenant", priority=7))
    daemon.start()
    create_pods(control_plane, namespace, [queued(f"p-{turn}", "project", 2, namespace) for turn in range(3)])
    history.wait_for_bound(namespace, 2)

    def rows() -> list[list[str]]:
        lines = kubectl(control_plane, "get", "aiq").splitlines()
        return [line.split() for line in lines]

    head = ["NAME", "READY", "PARENT", "PRIORITY", "CARDS", "CPU", "MEMORY", "PENDING", "STATE", "AGE"]
    project = ["project", "True", "tenant", "7", "RTX-4090", "4", "2", "2Gi", "1", "Open"]
    own = ["tenant", "True", "0", "RTX-4090", "4/4", "2/3", "2Gi", "1", "Open"]
    history.wait_until(lambda: [one[:-1] for one in rows()[1:]] == [project, own], "the numbers", lacks=rows)
    assert rows()[0] == head
    described = kubectl(control_plane, "describe", "aiq", "tenant")
    assert "The queue takes pods." in described
    assert "gpu.product" in kubectl(control_plane, "explain", "aiq.spec.cards")
    command = [sys.executable, "-m", "aischeduler", "queues", "--kubeconfig", str(control_plane.kubeconfig)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert [line.split()[0] for line in shown.stdout.splitlines() if "Open" in line] == ["tenant", "project"]
