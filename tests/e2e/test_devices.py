"""Devices on the real API server: every form of request, Device objects that change, and a scheduler that dies.

What pods have is read from their annotations, at every moment of the history of the API server.
"""

import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests import seeds
from tests.controlplane.many import Request, create, send
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import ROOT, apply, condition, create_nodes, create_pods, events, kubectl, pod, wait_until
from tests.e2e.crowd_invariants import judge_bindings
from tests.e2e.daemon import Daemon
from tests.e2e.device_cases import (
    ALL_OF_ONE,
    BAD,
    BYTES,
    DELIVERED,
    FORMS,
    HALF,
    INVALID,
    KOORDINATOR,
    MIX,
    ONE,
    RDMA,
    SWITCHED,
    TABLE,
    TWO,
    WHOLE,
    hint,
)
from tests.e2e.device_stage import (
    ALLOCATED,
    CRD,
    DEFINITION,
    DEVICES,
    UUIDS,
    Held,
    allocated,
    asking,
    binding_changes,
    device_object,
    gpu,
    other,
    oversubscribed,
    stage_node,
    totals,
    used,
)
from tests.e2e.record import PATHS, Record
from tests.e2e.replicas import Arrivals, KubeconfigContext, first_of, stand_by, two_replicas
from tests.e2e.rules import finished
from tests.objects import Json, pool_object
from tests.queue_objects import queue_object

SOON_SECONDS: Final = 2.0
"""How soon a pod starts once the devices that it needs are there."""
LOOKED_FOR_SECONDS: Final = 60.0 + SOON_SECONDS
"""How soon the scheduler finds a definition that comes later."""
PAGE: Final = (ROOT / "docs" / "devices.md").read_text()


@pytest.fixture(scope="module")
def definition(control_plane: ControlPlane) -> Iterator[None]:
    """Serve Device objects during the module."""
    define(control_plane)
    yield
    kubectl(control_plane, "delete", "crd", CRD, "--ignore-not-found")


@pytest.fixture
def record(control_plane: ControlPlane, clean_cluster: None) -> Iterator[Record]:
    """Yield the record of all pods during the test."""
    with Record(control_plane, {"pods": PATHS["pods"]}) as record:
        yield record


def define(plane: ControlPlane) -> None:
    kubectl(plane, "apply", "-f", str(DEFINITION))
    wait_until(lambda: plane.api("GET", DEVICES).status == 200, "Device objects served")


def node_of(record: Record, namespace: str, name: str) -> str:
    """Return the node of a pod; empty while it has none."""
    found: str = record.now("pods").get((namespace, name), {"spec": {}})["spec"].get("nodeName", "")
    return found


def wait_for_bound(record: Record, namespace: str, *names: str, seconds: float = 30.0) -> None:
    def lacking() -> list[str]:
        return [name for name in names if not node_of(record, namespace, name)]

    record.wait_until(lambda: not lacking(), "bound pods", seconds, lacks=lacking)


def why_waiting(record: Record, namespace: str, name: str) -> str:
    """Return what the condition of a pod says that is on no node; empty before it says something."""
    document = record.now("pods").get((namespace, name), {"spec": {}})
    said = condition(document, "PodScheduled")
    if document["spec"].get("nodeName") or (said.get("status"), said.get("reason")) != ("False", "Unschedulable"):
        return ""
    message: str = said["message"]
    return message


def waits_because(record: Record, namespace: str, name: str, *parts: str) -> None:
    """Wait until a pod is on no node and its condition has all these parts."""

    def said() -> str:
        return why_waiting(record, namespace, name)

    record.wait_until(lambda: all(part in said() for part in parts), f"{name}: {parts}", 20.0, lacks=said)


def starts_soon(record: Record, namespace: str, name: str, change: Callable[[], object]) -> None:
    """Make a change, and assert that it starts this pod soon."""
    assert not node_of(record, namespace, name)
    change()
    began = time.monotonic()  # the scheduler sees it before kubectl has ended
    wait_for_bound(record, namespace, name)
    took = next(one.at for one in record.changes["pods"] if one.key == (namespace, name) and at_node(one.document))
    assert took - began < SOON_SECONDS, f"{name} started after {took - began:.1f} s"


def at_node(document: Json) -> str:
    found: str = document["spec"].get("nodeName", "")
    return found


def patch_devices(plane: ControlPlane, node: str, *devices: Json) -> None:
    answer = plane.api("PATCH", f"{DEVICES}/{node}", {"spec": {"devices": list(devices)}})
    assert answer.status == 200, answer.body


@pytest.mark.usefixtures("definition", "kubelets")
def test_every_form_of_request_gets_its_devices_in_the_revision_that_binds_the_pod(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, record: Record
) -> None:
    deliveries = {name: "koordlet" if name == "counted" or turn % 2 else "" for turn, name in enumerate(FORMS)}
    nodes = [stage_node(name, *SWITCHED, delivery=label) for name, label in deliveries.items()]
    create_nodes(control_plane, nodes)
    tables = {"partition": {f"{KOORDINATOR}gpu-partitions": json.dumps(TABLE)}}
    objects = [device_object(name, *SWITCHED, annotations=tables.get(name, {})) for name in FORMS]
    create(control_plane.connect, DEVICES, objects)
    daemon.start()
    pods = []
    for name, form in FORMS.items():
        where = {"namespace": namespace, "node": name}
        pods.append(asking(name, form.requests, **where, visible=not deliveries[name], annotations=form.annotations))
    apply(control_plane, *pods)
    wait_for_bound(record, namespace, *FORMS)
    found = {name: allocated(pod(control_plane, namespace, name)) for name in FORMS}
    assert found == {name: form.gets for name, form in FORMS.items()}
    for bound, others in binding_changes(record):
        noted, name = bound["metadata"]["annotations"], bound["metadata"]["name"]
        ids = [f"GPU-{minor}" for kind, minor in FORMS[name].gets if kind == "gpu"]
        assert noted.get(UUIDS, "") == ",".join(ids)
        assert allocated(bound) == FORMS[name].gets
        for one in others:
            there = {key: one["metadata"].get("annotations", {}).get(key) for key in (ALLOCATED, UUIDS)}
            assert there == ({key: noted.get(key) for key in there} if at_node(one) else dict.fromkeys(there))


@pytest.mark.usefixtures("definition", "kubelets")
def test_pod_of_the_page_gets_half_a_gpu(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, record: Record
) -> None:
    create_nodes(control_plane, [stage_node("n", gpu(0))])
    apply(control_plane, device_object("n", gpu(0)))
    daemon.start()
    document, variable = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
    document["spec"]["containers"][0] |= variable
    apply(control_plane, document, namespace=namespace)
    wait_for_bound(record, namespace, "half-a-gpu")
    assert allocated(pod(control_plane, namespace, "half-a-gpu")) == HALF.gets


@pytest.mark.usefixtures("definition", "kubelets")
def test_invalid_request_is_held_with_its_field_and_the_others_go_on(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, record: Record
) -> None:
    create_nodes(control_plane, [stage_node("n", gpu(0))])
    apply(control_plane, device_object("n", gpu(0)))
    daemon.start()
    pods = []
    for name, (asked, _, _) in INVALID.items():
        document = asking(name, {}, namespace=namespace, visible=True)
        document["spec"]["containers"][0]["resources"] = asked
        pods.append(document)
    sum_of_two = asking("sum-of-two", {"kubernetes.io/gpu": "60"}, namespace=namespace, visible=True)
    sum_of_two["spec"]["containers"] *= 2
    sum_of_two["spec"]["containers"][1] = sum_of_two["spec"]["containers"][0] | {"name": "second"}
    wrong = hint(gpu={"selektor": {}})
    misspelt = asking("misspelt", HALF.requests, namespace=namespace, visible=True, annotations=wrong)
    good = asking("good", HALF.requests, namespace=namespace, visible=True)
    apply(control_plane, *pods, sum_of_two, misspelt, good)
    wait_for_bound(record, namespace, "good")
    said = {name: (text, f"spec.containers[0].resources.{field}") for name, (_, text, field) in INVALID.items()}
    said["sum-of-two"] = (
        "invalid resource unit kubernetes.io/gpu: 120",
        "spec.containers[0].resources.requests[kubernetes.io/gpu] is 60, spec.containers[1]",
    )
    said["misspelt"] = (f"metadata.annotations[{KOORDINATOR}device-allocate-hint].gpu", "selektor")
    for name, parts in said.items():
        waits_because(record, namespace, name, *parts)
        assert "nodes are available" not in why_waiting(record, namespace, name)
    record.wait_until(lambda: events(control_plane, namespace, "FailedScheduling").keys() >= said.keys(), "the events")
    told = events(control_plane, namespace, "FailedScheduling")
    assert [name for name in said if why_waiting(record, namespace, name) != told[name]] == []
    described = kubectl(control_plane, "describe", "pod", "above-one", "-n", namespace).partition("Events:")[2]
    assert said["above-one"][0] in described
    mended = hint(gpu={"selector": {}})
    (key,) = mended

    def mend() -> None:
        kubectl(control_plane, "annotate", "pod", "misspelt", "-n", namespace, "--overwrite", f"{key}={mended[key]}")

    starts_soon(record, namespace, "misspelt", mend)


@pytest.mark.usefixtures("definition", "kubelets")
def test_device_objects_that_come_change_and_go_start_the_pods_that_wait_and_stop_none(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, record: Record
) -> None:
    create_nodes(control_plane, [stage_node("n", gpu(0), delivery="koordlet")])
    daemon.start()

    def waits(name: str, why: str) -> None:
        create_pods(control_plane, namespace, [asking(name, {"koordinator.sh/gpu": "50"}, namespace=namespace)])
        waits_because(record, namespace, name, why)

    waits("first", "node(s) had no Device object")
    starts_soon(record, namespace, "first", lambda: apply(control_plane, device_object("n", gpu(0))))
    patch_devices(control_plane, "n", gpu(0, health=False))
    waits("second", "Insufficient gpu devices")
    starts_soon(record, namespace, "second", lambda: patch_devices(control_plane, "n", gpu(0)))
    kubectl(control_plane, "delete", "device", "n")
    waits("third", "node(s) had no Device object")
    apply(control_plane, device_object("n", gpu(0)))
    waits("fourth", "Insufficient")  # the first two have it all
    starts_soon(record, namespace, "third", lambda: kubectl(control_plane, "delete", "pod", "first", "-n", namespace))
    patch_devices(control_plane, "n", gpu(0), gpu(1))
    waits("fifth", "Insufficient koordinator.sh/gpu")  # the node does not list it yet
    assert not node_of(record, namespace, "fourth")
    lists = {"status": stage_node("n", gpu(0), gpu(1))["status"]}
    starts_soon(record, namespace, "fourth", lambda: control_plane.api("PATCH", "/api/v1/nodes/n/status", lists))
    assert allocated(pod(control_plane, namespace, "fourth")) == {("gpu", 1): HALF.gets["gpu", 0]}
    assert all(pod(control_plane, namespace, name)["status"]["phase"] == "Running" for name in ("second", "third"))
    assert oversubscribed(record, {"n": totals(gpu(0), gpu(1))}) == []


@pytest.mark.soak  # it waits for up to a minute
@pytest.mark.usefixtures("definition", "kubelets")
def test_definition_that_comes_after_the_scheduler_started_needs_no_restart(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, record: Record
) -> None:
    kubectl(control_plane, "delete", "crd", CRD)
    create_nodes(control_plane, [stage_node("n", gpu(0)), stage_node("counted", gpus=1)])
    daemon.start()
    pods = [asking("share", HALF.requests, namespace=namespace, visible=True)]
    create_pods(control_plane, namespace, [*pods, asking("card", ONE, namespace=namespace)])
    waits_because(record, namespace, "share", "node(s) had no Device object")
    wait_for_bound(record, namespace, "card")
    assert "there are no Device objects" in devices(control_plane).stderr
    define(control_plane)
    apply(control_plane, device_object("n", gpu(0)))
    wait_for_bound(record, namespace, "share", seconds=LOOKED_FOR_SECONDS)
    assert "Device" in [line["kind"] for line in daemon.said("kind not served")]


@pytest.mark.usefixtures("definition", "kubelets")
def test_device_that_cannot_be_read_is_named_on_its_object_and_the_others_of_the_node_work(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, record: Record
) -> None:
    create_nodes(control_plane, [stage_node(name, delivery="koordlet") for name in BAD])
    apply(control_plane, *(device_object(name, *devices) for name, (devices, *_) in BAD.items()))
    daemon.start()
    asked = {name: ({"koordinator.sh/gpu": amount}, minors) for name, (_, _, amount, minors) in BAD.items()}
    create_pods(
        control_plane,
        namespace,
        [asking(name, requests, namespace=namespace, node=name) for name, (requests, _) in asked.items()],
    )
    wait_for_bound(record, namespace, *BAD)
    for name, (_, minors) in asked.items():
        assert allocated(pod(control_plane, namespace, name)) == {("gpu", minor): WHOLE for minor in minors}

    def told() -> dict[str, str]:
        return events(control_plane, "default", "InvalidDevice")

    record.wait_until(lambda: told().keys() >= BAD.keys(), "the events", lacks=told)
    assert [name for name, (_, why, *_) in BAD.items() if not told()[name].startswith(why)] == []
    for name in ("twins", "many"):
        described = kubectl(control_plane, "describe", "device", name).partition("Events:")[2]
        assert "Warning  InvalidDevice" in described
        assert BAD[name][1] in described
    shown = devices(control_plane, "unit")
    assert BAD["unit"][1] in shown.stderr
    create_pods(
        control_plane, namespace, [asking("late", {"koordinator.sh/gpu": "100"}, namespace=namespace, node="twins")]
    )
    waits_because(record, namespace, "late", "Insufficient")
    starts_soon(record, namespace, "late", lambda: patch_devices(control_plane, "twins", gpu(0), gpu(1)))


@pytest.mark.usefixtures("definition", "kubelets")
def test_parts_of_gpus_count_as_their_shares_in_queues_and_pools(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, record: Record
) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H200", "team": "lender"}
    node = stage_node("n", *(gpu(minor) for minor in range(8)), delivery="koordlet")
    node["metadata"]["labels"] |= labels
    create_nodes(control_plane, [node])
    apply(control_plane, device_object("n", *(gpu(minor) for minor in range(8))))
    lender = pool_object("lender", labels={"team": "lender"}, lendingLimit={"nvidia.com/gpu": "2"})
    apply(control_plane, lender, queue_object("team", cards={"H200": 1}))
    daemon.start()

    def come(names: str, asked: Mapping[str, str], **notes: str) -> None:
        said = {f"resource.aibee.cn/{key}": value for key, value in notes.items()}
        pods = [asking(name, asked, namespace=namespace, annotations=said) for name in names.split()]
        create_pods(control_plane, namespace, pods)

    come("a b", HALF.requests, pool="lender", queue="team")
    wait_for_bound(record, namespace, "a", "b")
    come("c", HALF.requests, pool="lender", queue="team")
    text = "Queue team has insufficient H200 quota: requested 0.5, total would be 1.5, but capability is 1"

    def said() -> tuple[str, str]:
        told = condition(record.now("pods").get((namespace, "c"), {}), "PodScheduled")
        return told.get("reason", ""), told.get("message", "")

    record.wait_until(lambda: said() == ("InsufficientScalarQuota", text), "the reason", lacks=said)
    come("d e f", {"koordinator.sh/gpu-memory": "60Gi"})  # three quarters of a GPU each, from a pool without nodes
    wait_for_bound(record, namespace, "d", "e")
    waits_because(record, namespace, "f", "over its lending limit: lender")

    def shown() -> tuple[list[str], list[str], list[str]]:
        paths = (".status.columns.gpu", ".status.columns.shared", ".status.columns.cards")
        pool = [kubectl(control_plane, "get", "pool", "lender", "-o", f"jsonpath={{{path}}}") for path in paths]
        queue = kubectl(control_plane, "get", "aiq", "team", "-o", "jsonpath={.status.columns.cards}")
        used = kubectl(control_plane, "get", "pool", "lender", "-o", r"jsonpath={.status.used.nvidia\.com/gpu}")
        return pool, [queue], [used]

    expected = (["2.5/8", "1.5 gpu", "H200 2.5/8"], ["H200 1/1"], ["2500m"])
    record.wait_until(lambda: shown() == expected, "the numbers", lacks=shown)
    starts_soon(record, namespace, "c", lambda: kubectl(control_plane, "delete", "pod", "a", "-n", namespace))
    starts_soon(record, namespace, "f", lambda: kubectl(control_plane, "delete", "pod", "d", "-n", namespace))


@pytest.mark.usefixtures("definition", "kubelets")
def test_node_takes_the_requests_that_its_way_to_deliver_gpus_can_honour(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, record: Record
) -> None:
    there = [gpu(0), gpu(1), other("rdma", 0)]
    modes = {"env": "", "device-plugin": "", "koordlet": "koordlet", "hami": "hami", "odd": "enw"}
    nodes = [
        stage_node(mode, *there, delivery=label, gpus=2 if mode in ("device-plugin", "hami") else 0)
        for mode, label in modes.items()
    ]
    create_nodes(control_plane, nodes)
    apply(control_plane, *(device_object(mode, *there) for mode in modes))
    daemon.start()
    pods = [
        asking(name, requests, namespace=namespace, node=mode, visible=visible)
        for name, (mode, requests, visible, _) in DELIVERED.items()
    ]
    create_pods(control_plane, namespace, pods)
    wait_for_bound(record, namespace, *(name for name, (*_, why) in DELIVERED.items() if not why))
    for name, (*_, why) in DELIVERED.items():
        if why:
            waits_because(record, namespace, name, f"1 {why}")
    held = {name: allocated(record.now("pods")[namespace, name]) for name, (*_, why) in DELIVERED.items() if not why}
    assert not held.pop("plugin-one"), "nobody knows what the kubelet chooses"
    assert held["plugin-rdma"] == RDMA.gets
    assert held["koordlet-one"] in ({("gpu", 0): WHOLE}, {("gpu", 1): WHOLE})
    assert oversubscribed(record, dict.fromkeys(modes, totals(*there))) == []
    label = ("label", "node", "odd", "--overwrite", "resource.aibee.cn/gpu-delivery=env")
    starts_soon(record, namespace, "odd-half", lambda: kubectl(control_plane, *label))


def devices(plane: ControlPlane, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aischeduler", "devices", *arguments, "--kubeconfig", str(plane.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def devices_json(plane: ControlPlane, *arguments: str) -> list[Any]:
    shown = devices(plane, *arguments, "-o", "json")
    assert (shown.returncode, shown.stderr) == (0, "")
    found: list[Any] = json.loads(shown.stdout)
    return found


def as_shown(lines: list[Any]) -> dict[str, Held]:
    """Return what is used of each device, by node; without the devices that nobody has."""
    found: dict[str, Held] = {}
    for line in lines:
        amounts = Counter({name: of["used"] for name, of in line["dimensions"].items() if of["used"]})
        if amounts:
            found.setdefault(line["node"], {})[line["type"], line["minor"]] = amounts
    return found


@pytest.mark.usefixtures("definition", "kubelets")
def test_command_shows_what_the_annotations_say(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, record: Record
) -> None:
    there = [gpu(0), gpu(1), other("rdma", 0)]
    create_nodes(control_plane, [stage_node(f"n{turn}", *there) for turn in range(2)])
    sick = gpu(1, health=False)
    apply(control_plane, device_object("n0", gpu(0), sick, there[2]), device_object("n1", *there))
    daemon.start()
    asked = {
        "half": ("n0", HALF.requests),
        "bytes": ("n0", BYTES.requests),
        "rdma": ("n0", RDMA.requests),
        "two": ("n1", TWO.requests),
    }
    create_pods(
        control_plane,
        namespace,
        [
            asking(name, requests, namespace=namespace, node=node, visible=True)
            for name, (node, requests) in asked.items()
        ],
    )
    wait_for_bound(record, namespace, *asked)
    lines = devices_json(control_plane)
    assert as_shown(lines) == used(record.now("pods").values())
    assert [(line["node"], line["type"], line["minor"], line["health"]) for line in lines] == [
        (node, kind, minor, (node, minor) != ("n0", 1))
        for node in ("n0", "n1")
        for kind, minor in (("gpu", 0), ("gpu", 1), ("rdma", 0))
    ]
    (first, *_) = lines
    holders = {(one["namespace"], one["name"], one["uid"], one["source"]) for one in first["holders"]}
    uids = {name: pod(control_plane, namespace, name)["metadata"]["uid"] for name in ("half", "bytes")}
    assert holders == {(namespace, name, uid, "device-allocated") for name, uid in uids.items()}
    table = devices(control_plane, "n0").stdout.splitlines()
    (row,) = (line.split() for line in table if line.split()[:3] == ["n0", "gpu", "0"])
    assert row[3:7] == ["Healthy", "80/100", "60Gi/80Gi", "75/100"]
    assert any(f"{namespace}/rdma" in line and "25/100" in line for line in table)
    lost = devices(control_plane, "n2")
    assert (lost.returncode, lost.stdout) == (1, "")
    assert "there is no node" in lost.stderr


KILLS: Final = 20
PODS: Final = 500
EACH_TURN: Final = PODS // KILLS
NODES: Final = 40
RUN_ON: Final = 180
PODS_OF_LEADERS, ARRIVE_SECONDS = 150, 15.0
"""How many pods run on while more come: about two thirds of the GPUs."""
KILLED_AFTER_MOST: Final = 12
IN_FLIGHT: Final = """\
apiVersion: config.resource.aibee.cn/v1alpha1
kind: AiSchedulerConfiguration
bindInFlight: 8
"""
SUCCEEDED: Final = {"status": {"phase": "Succeeded"}}


def running(record: Record, namespace: str) -> list[str]:
    """Return the pods on nodes that have not finished, in the order in which they were made."""
    pods = record.now("pods").items()
    return sorted(name for (there, name), one in pods if there == namespace and at_node(one) and not finished(one))


def bound_count(record: Record, namespace: str) -> int:
    return sum(1 for (there, _), one in record.now("pods").items() if there == namespace and at_node(one))


def wait_for_count(record: Record, namespace: str, count: int) -> None:
    record.wait_until(lambda: bound_count(record, namespace) >= count, f"{count} pods bound")


def finish(plane: ControlPlane, namespace: str, names: list[str]) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    send(plane.connect, [Request("PATCH", f"{path}/{name}/status", SUCCEEDED) for name in names])


def all_bound(plane: ControlPlane, record: Record, namespace: str) -> bool:
    """Return whether all pods came to nodes; otherwise some finish, which makes room for others."""
    finish(plane, namespace, running(record, namespace)[:-RUN_ON])
    return bound_count(record, namespace) == PODS


@pytest.mark.usefixtures("definition")
def test_scheduler_that_is_killed_twenty_times_gives_no_device_beyond_its_total(
    control_plane: ControlPlane, namespace: str, record: Record, pools_served: None, tmp_path: Path
) -> None:
    there = [gpu(0), gpu(1)]
    names = [f"n{number:02d}" for number in range(NODES)]
    create_nodes(control_plane, [stage_node(name, *there, delivery="koordlet") for name in names])
    create(control_plane.connect, DEVICES, [device_object(name, *there) for name in names])
    config = tmp_path / "config.yaml"
    config.write_text(IN_FLIGHT)
    chance = seeds.random("test_devices")
    pods = [asking(f"p{turn:03d}", MIX[turn % len(MIX)][0], namespace=namespace) for turn in range(PODS)]
    has = dict.fromkeys(names, totals(*there))
    with Daemon(control_plane, None, "--config", str(config)) as daemon:
        for turn in range(KILLS):
            create_pods(control_plane, namespace, pods[turn * EACH_TURN : (turn + 1) * EACH_TURN])
            before, more = bound_count(record, namespace), chance.randint(1, KILLED_AFTER_MOST)
            daemon.launch()
            wait_for_count(record, namespace, before + more)
            daemon.kill()
            finish(control_plane, namespace, running(record, namespace)[:-RUN_ON])
        daemon.start()
        record.wait_until(lambda: all_bound(control_plane, record, namespace), "all bound")
        assert oversubscribed(record, has) == []
        daemon.kill()
        held = used(record.now("pods").values())
        free = sum(device not in held.get(name, {}) for name in names for device in has[name])
        daemon.start()
        whole = [asking(f"whole{turn:02d}", ALL_OF_ONE, namespace=namespace) for turn in range(free + 1)]
        create_pods(control_plane, namespace, whole)
        wait_for_count(record, namespace, PODS + free)
        last = next(name for one in whole if not node_of(record, namespace, name := one["metadata"]["name"]))
        waits_because(record, namespace, last, "Insufficient gpu devices")
    judge_history(control_plane, record, namespace, has)


@pytest.mark.usefixtures("definition")
def test_leaders_that_are_paused_and_killed_give_no_device_beyond_its_total(
    control_plane: ControlPlane, namespace: str, record: Record, access: KubeconfigContext
) -> None:
    there = [gpu(0), gpu(1)]
    names = [f"n{number:02d}" for number in range(NODES)]
    create_nodes(control_plane, [stage_node(name, *there, delivery="koordlet") for name in names])
    create(control_plane.connect, DEVICES, [device_object(name, *there) for name in names])
    pods = [asking(f"p{turn:03d}", MIX[turn % len(MIX)][0], namespace=namespace) for turn in range(PODS_OF_LEADERS)]
    with (
        two_replicas(control_plane, access) as (leader, standby),
        Arrivals(control_plane, namespace, pods, ARRIVE_SECONDS),
    ):
        wait_for_count(record, namespace, PODS_OF_LEADERS // 10)
        leader.pause()
        first_of(control_plane, namespace, 1)
        leader.resume()
        wait_until(lambda: leader.end_status() is not None, "the end of the deposed leader")
        stand_by(leader)
        standby.kill()
        first_of(control_plane, namespace, 2)
        wait_for_count(record, namespace, PODS_OF_LEADERS)
        assert leader.stop() == 0
    judge_history(control_plane, record, namespace, dict.fromkeys(names, totals(*there)))


def judge_history(plane: ControlPlane, record: Record, namespace: str, has: Mapping[str, Held]) -> None:
    """Check each moment, and that each pod has what it asks for, since its Binding and as long as it is there."""
    assert oversubscribed(record, has) == []
    judge_bindings(plane, record.nodes_of(), namespace)
    for bound, others in binding_changes(record):
        name, found = bound["metadata"]["name"], allocated(bound)
        number = re.fullmatch(r"p(\d+)", name)
        assert list((found or {}).values()) == [MIX[int(number[1]) % len(MIX)][1] if number else WHOLE], name
        assert [one for one in others if at_node(one) and allocated(one) != found] == []
