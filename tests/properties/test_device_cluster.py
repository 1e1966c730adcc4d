"""Random days with devices in a virtual cluster: the annotations in every state of the API server are recounted.

The definition of Device objects, agents that list devices on nodes, and pods whose annotations are forged come too.
"""

import json
from typing import Any, Final

import pytest
import yaml
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from aischeduler.model.device import NodeDevices
from aischeduler.sandbox.request import Request
from aischeduler.sandbox.watches import WatchStream
from aischeduler.state.pod_records import PodState
from tests import seeds
from tests.checked_scheduler import CheckedScheduler
from tests.device_rules import COUNTED, DELIVERY
from tests.harness import Harness, Json
from tests.objects import pod_object
from tests.properties.device_world import ALLOCATED, HARDWARE, PREFIXES, allocated, known, over, published
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.test_cluster import CLASSES, NAMESPACE, NODES, NUMBER, PODS_MAX, POOLS, Cluster
from tests.properties.test_devices import LABELS, NAMED
from tests.test_tidy import ROOT

DEFINITION: Final[Json] = yaml.safe_load((ROOT / "manifests" / "devices" / "device-crd.yaml").read_text())
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEVICES: Final = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
VISIBLE: Final[Json] = {
    "name": "NVIDIA_VISIBLE_DEVICES",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['scheduling.resource.aibee.cn/gpu-uuids']"}},
}
FORGED: Final = json.dumps(
    {"gpu": [{"minor": 0, "id": "GPU-0", "resources": {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu": "100"}}]}
)
WANTS = st.fixed_dictionaries(
    {
        "named": st.sampled_from(range(len(NAMED))),
        "visible": st.sampled_from([True, True, True, False]),
        "forged": st.sampled_from([False, False, False, True]),
        "pool": st.sampled_from([*POOLS, ""]),
        "priority_class": st.sampled_from(["", "", *CLASSES]),
    }
)


class History:
    """Every state of the pods of an API server: on no node they have more of a device together than there is."""

    def __init__(self, harness: Harness) -> None:
        self._harness, self._pods = harness, dict[str, Json]()
        self._stream: WatchStream | None = None

    def read(self) -> None:
        """Follow the pods until now."""
        cluster = self._harness.cluster
        if self._stream is None or self._stream.closed:
            self._pods = {pod["metadata"]["uid"]: pod for pod in self._harness.all("Pod")}
            listed = json.loads(cluster.request("GET", "/api/v1/pods").body)
            query = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
            answer = cluster.server.handle(Request("GET", "/api/v1/pods", query), cluster.now)
            assert isinstance(answer, WatchStream)
            self._stream = answer
        for line in self._stream.read(cluster.now):
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED"):
                self._pods[event["object"]["metadata"]["uid"]] = event["object"]
                self._check(event["object"])
            elif event["type"] == "DELETED":
                self._pods.pop(event["object"]["metadata"]["uid"], None)

    def _check(self, pod: Json) -> None:
        node, asked = pod["spec"].get("nodeName", ""), _asked(pod)
        if node in HARDWARE and asked:
            counted = {"gpu"} if COUNTED in pod["spec"]["containers"][0]["resources"]["requests"] else set()
            assert asked - counted <= {kind for kind, _ in allocated(_text(pod))} <= asked, pod["metadata"]
            there = [one for one in self._pods.values() if one["spec"].get("nodeName") == node and _asked(one)]
            texts = [_text(one) for one in there if one["status"].get("phase") not in ("Succeeded", "Failed")]
            assert over(HARDWARE[node], texts) == []


def _asked(pod: Json) -> set[str]:
    """Return the types of devices that a pod asks for which our scheduler placed; none of another pod."""
    ours = "scheduling.resource.aibee.cn/decision" in pod["metadata"].get("annotations", {})
    names = pod["spec"]["containers"][0]["resources"]["requests"] if ours else ()
    return {"rdma" if name.endswith("/rdma") else "gpu" for name in names if "/" in name}


def _text(pod: Json) -> str:
    text: str = pod["metadata"].get("annotations", {}).get(ALLOCATED, "")
    return text


def device_object(found: NodeDevices, *, sick: int | None = None) -> Json:
    """Return a Device object; the device at `sick` is unhealthy."""
    devices = [
        {
            "type": one.type,
            "minor": one.minor,
            "id": one.id,
            "health": at != sick,
            "resources": {f"koordinator.sh/{name}": str(amount) for name, amount in one.totals},
        }
        for at, one in enumerate(found.devices)
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": found.node},
        "spec": {"devices": devices},
    }


class DeviceCluster(Cluster):
    """One virtual cluster with devices."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History(self.harness)

    def go_on(self, seconds: float) -> None:
        super().go_on(seconds)
        self.history.read()

    @initialize(early=st.sampled_from([True, True, False]), turn=st.integers(0, 8))
    def agents_start(self, early: bool, turn: int) -> None:
        """The definition of Device objects is there from the start, or comes later."""
        if early:
            self._write(NODES, None)
        for at, name in enumerate(NODES):
            self._publish(name, LABELS[(2 * at + turn) % len(LABELS)], [*PREFIXES][(at + turn) % 3], at % 2)

    @rule(name=st.sampled_from(NODES), what=st.sampled_from(["come", "come", "sick", "go"]), number=st.integers(0, 3))
    def a_device_object_changes(self, name: str, what: str, number: int) -> None:
        if what == "go":
            self.ask("DELETE", f"{DEVICES}/{name}")
        else:
            self._write([name], number if what == "sick" else None)
        self.go_on(0.1)

    def _write(self, names: list[str], sick: int | None) -> None:
        self.ask("POST", DEFINITIONS, DEFINITION)
        for name in names:
            document = device_object(HARDWARE[name], sick=sick)
            if self.ask("POST", DEVICES, document) == 409:
                assert self.ask("PATCH", f"{DEVICES}/{name}", {"spec": document["spec"]}) == 200

    @rule(
        name=st.sampled_from(NODES),
        label=st.sampled_from(LABELS),
        lists=st.sampled_from([*PREFIXES]),
        counted=st.sampled_from([0, 0, 1, 2]),
    )
    def an_agent_lists_devices(self, name: str, label: str | None, lists: str, counted: int) -> None:
        self._publish(name, label, lists, counted)
        self.go_on(0.1)

    def _publish(self, name: str, label: str | None, lists: str, counted: int) -> None:
        path, found = f"/api/v1/nodes/{name}", HARDWARE[name]
        amounts: dict[str, str | None] = dict.fromkeys(published(found, "both"))
        amounts |= {resource: str(amount) for resource, amount in published(found, lists).items()}
        amounts[COUNTED] = str(counted) if counted else None
        self.ask("PATCH", path, {"metadata": {"labels": {DELIVERY: label}}})
        self.ask("PATCH", f"{path}/status", {"status": {"allocatable": amounts, "capacity": amounts}})

    @rule(wants=WANTS, copies=st.integers(1, 3))
    def pods_that_want_devices_come(self, wants: dict[str, Any], copies: int) -> None:
        for _ in range(copies):
            self._one_that_wants(**wants)
        self.go_on(1.0)

    @rule(wants=WANTS, copies=st.integers(1, 3))
    def more_pods_that_want_devices_come(self, wants: dict[str, Any], copies: int) -> None:
        for _ in range(copies):
            self._one_that_wants(**wants)
        self.go_on(1.0)

    @rule(wants=WANTS, node=st.sampled_from(NODES))
    def a_pod_comes_that_says_nothing_of_its_devices(self, wants: dict[str, Any], node: str) -> None:
        self._one_that_wants(**{**wants, "forged": False}, node=node)
        self.go_on(0.1)

    def _one_that_wants(
        self, *, named: int, visible: bool, forged: bool, pool: str, priority_class: str, node: str = ""
    ) -> None:
        self.made += 1
        name, notes = f"p{self.made}", {ALLOCATED: FORGED} if forged else {}
        pod = pod_object(name, cpu="500m", pool=pool, priority_class=priority_class, annotations=notes, node=node)
        container = pod["spec"]["containers"][0]
        resources = container["resources"]
        resources["requests"] |= NAMED[named]
        resources["limits"] = dict(NAMED[named])
        if visible:
            container["env"] = [VISIBLE]
        assert self.ask("POST", f"{NAMESPACE}/pods", pod) == 201
        self.names.append(name)
        if len(self.names) > PODS_MAX:
            self.ask("DELETE", f"{NAMESPACE}/pods/{self.names.pop(0)}")

    @rule(number=NUMBER)
    def a_pod_is_forged(self, number: int) -> None:
        """Somebody writes an annotation on a waiting pod, but not between a decision about it and its Binding."""
        records = self.harness.scheduler.cluster.records
        decided = {uid for uid, record in records.items() if record.state is PodState.ASSUMED}
        waiting = [pod for pod in self.pods(bound=False) if pod["metadata"]["uid"] not in decided]
        if waiting:
            path = f"{NAMESPACE}/pods/{waiting[number % len(waiting)]['metadata']['name']}"
            self.ask("PATCH", path, {"metadata": {"annotations": {ALLOCATED: FORGED}}})
        self.go_on(0.1)

    def _restart_scheduler(self) -> None:
        self.history.read()
        super()._restart_scheduler()

    def teardown(self) -> None:
        """At rest, a new scheduler knows of every device what the old one knows."""
        old = self.harness.scheduler
        super().teardown()
        new = self.harness.scheduler
        assert isinstance(old, CheckedScheduler)
        assert isinstance(new, CheckedScheduler)
        assert known(new) == known(old)


def test_random_days_of_a_cluster_with_devices_briefly() -> None:
    play(DeviceCluster, seeds.number("cluster with devices, briefly"), runs=3)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_of_a_cluster_with_devices() -> None:
    play(DeviceCluster, seeds.number("cluster with devices"), runs=4)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_of_a_cluster_with_devices_at_length(number: int) -> None:
    play(DeviceCluster, seeds.number(f"cluster with devices, at length {number}"), runs=50)
