"""Random days with devices: no device is given twice, and what pods have is known to a scheduler that restarts.

Pods ask under mixed names, of which each node lists some: a rule that counts by name alone does not hide a fault.
"""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from aischeduler.model.gang import GangSource
from aischeduler.model.pod import Pod
from tests import seeds
from tests.build import a_pod, a_request, replace
from tests.gangs import a_gang, member
from tests.properties.device_world import HARDWARE, PREFIXES, DeviceWorld, asks
from tests.properties.faults import BreakingWorld
from tests.properties.playing import SHRINKING_SECONDS_MAX, play
from tests.properties.test_exceptions import BreakingEngine, play_exceptions
from tests.properties.test_gangs import GangEngine
from tests.properties.wishes import NODES, PODS_MAX, POOLS, Wishes
from tests.properties.world import World

NAMED = [
    {"kubernetes.io/gpu": "50"},
    {"kubernetes.io/gpu": "100"},
    {"kubernetes.io/gpu-core": "30", "kubernetes.io/gpu-memory": "10Gi"},
    {"koordinator.sh/gpu": "40"},
    {"koordinator.sh/gpu": "200"},
    {"koordinator.sh/gpu-memory": "30Gi"},
    {"koordinator.sh/gpu-core": "100", "kubernetes.io/gpu-memory-ratio": "100"},
    {"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "60"},
    {"nvidia.com/gpu": "1"},
    {"nvidia.com/gpu": "1"},
    {"nvidia.com/gpu": "2"},
    {"koordinator.sh/rdma": "50"},
    {"koordinator.sh/gpu": "100", "koordinator.sh/rdma": "100"},
    {"nvidia.com/gpu": "1", "kubernetes.io/rdma": "40"},
]
"""What pods ask for."""
LABELS = [None, None, "env", "env", "koordlet", "koordlet", "device-plugin", "device-plugin", "magic"]
WANTS = st.fixed_dictionaries(
    {
        "named": st.sampled_from(range(len(NAMED))),
        "visible": st.sampled_from([True, True, True, False]),
        "pool": st.sampled_from([*POOLS, ""]),
        "priority": st.sampled_from([0, 0, 5, 10]),
    }
)


class DeviceEngine(GangEngine):
    """One engine in a world with devices."""

    world: DeviceWorld

    def __init__(self) -> None:
        super().__init__()
        self.world = DeviceWorld()

    @initialize(first=st.booleans(), turn=st.integers(0, 8))
    def nodes_deliver_their_devices(self, first: bool, turn: int) -> None:
        """Let nodes list devices; the Device objects are there from the start, or come later."""
        for at, name in enumerate(NODES):
            label = LABELS[(at * 2 + turn) % len(LABELS)]
            self.world.deliver(name, label, [*PREFIXES][(at + turn) % 3], 2 if label == "device-plugin" else 0)
            if first:
                self.world.put_devices(HARDWARE[name])

    @rule(wants=WANTS, copies=st.integers(1, 3))
    def pods_that_want_devices_come(self, wants: Wishes, copies: int) -> None:
        for _ in range(copies):
            self.world.put(self._one_that_wants(**wants))
        self.world.go_on()

    @rule(wants=WANTS, copies=st.integers(1, 3))
    def more_pods_that_want_devices_come(self, wants: Wishes, copies: int) -> None:
        for _ in range(copies):
            self.world.put(self._one_that_wants(**wants))
        self.world.go_on()

    def _one_that_wants(self, *, named: int, visible: bool, pool: str, priority: int, node: str = "") -> Pod:
        if len(self.world.pods) >= PODS_MAX:
            self._oldest_pod_ends()
        wanted = NAMED[named]
        return a_pod(
            self.world.next_pod_name(),
            cpu="500m",
            pool=pool,
            priority=priority,
            extended=wanted,
            devices=asks(a_request(extended=wanted).amounts, visible=visible),
            labels={"app": "x"},
            created=int(self.world.now),
            node=node,
            started=1 + int(self.world.now) if node else 0,
        )

    @rule(wants=WANTS, other=st.sampled_from(range(len(NAMED))), pods=st.integers(2, 4), mixed=st.booleans())
    def a_gang_that_wants_devices_comes(self, wants: Wishes, other: int, pods: int, mixed: bool) -> None:
        self.made += 1
        gang = a_gang(f"g{self.made}", pods, GangSource.LABELS)
        for turn in range(pods):
            named = other if mixed and turn % 2 else wants["named"]
            self.world.put(member(self._one_that_wants(**{**wants, "named": named}), gang))
        self.world.go_on()

    @rule(wants=WANTS, node=st.sampled_from(NODES), ours=st.booleans())
    def a_pod_comes_that_says_nothing_of_its_devices(self, wants: Wishes, node: str, ours: bool) -> None:
        """Another scheduler placed it, or this one before it knew of devices."""
        pod = self._one_that_wants(**wants, node=node)
        self.world.put(pod if ours else replace(pod, scheduler_name="default-scheduler"))
        self.world.go_on()

    @rule(
        name=st.sampled_from(NODES),
        what=st.sampled_from(["come", "come", "well", "sick", "reported", "go"]),
        number=st.integers(0, 3),
    )
    def the_device_object_of_a_node_changes(self, name: str, what: str, number: int) -> None:
        found = HARDWARE[name]
        if what == "go":
            self.world.end_devices(name)
        elif what == "sick":
            devices = list(found.devices)
            devices[number % len(devices)] = replace(devices[number % len(devices)], healthy=False)
            self.world.put_devices(replace(found, devices=tuple(devices)))
        elif what == "reported":
            self.world.put_devices(replace(found, kubelet=self.world.reported(name)))
        elif what == "come" or name in self.world.devices:
            self.world.put_devices(found)
        self.world.go_on()

    @rule(
        name=st.sampled_from(NODES),
        label=st.sampled_from(LABELS),
        lists=st.sampled_from([*PREFIXES]),
        counted=st.sampled_from([0, 0, 0, 1, 2]),
    )
    def a_node_delivers_its_devices_otherwise(self, name: str, label: str | None, lists: str, counted: int) -> None:
        self.world.deliver(name, label, lists, counted)
        self.world.go_on()

    @rule()
    def a_new_engine_knows_as_much(self) -> None:
        assert self.world.forgotten() == {}

    def teardown(self) -> None:
        """At rest, a new engine knows of every device what the old one knows."""
        super().teardown()
        assert self.world.forgotten() == {}


def test_random_days_with_devices_briefly() -> None:
    play(DeviceEngine, seeds.number("devices, briefly"), runs=5)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_random_days_with_devices() -> None:
    play(DeviceEngine, seeds.number("devices"), runs=8)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_random_days_with_devices_at_length(number: int) -> None:
    play(DeviceEngine, seeds.number(f"devices, at length {number}"), runs=200)


class BreakingDeviceWorld(BreakingWorld, DeviceWorld):
    """A world with devices whose engine raises."""


class BreakingDeviceEngine(BreakingEngine, DeviceEngine):
    """One engine in a world with devices that raises at calls that the seed chooses."""

    def breaking_world(self) -> World:
        return BreakingDeviceWorld(self.injector)


@pytest.mark.whole
@pytest.mark.timeout(SHRINKING_SECONDS_MAX)
def test_exception_gives_no_device_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    play_exceptions(monkeypatch, 5, BreakingDeviceEngine, "exceptions with devices")


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(20))
def test_exception_gives_no_device_twice_at_length(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    play_exceptions(monkeypatch, 50, BreakingDeviceEngine, f"devices, at length {number}")
