"""HAMi's protocol around the Binding of a pod: the lock of the node, the annotations, and what is taken back."""

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.kube.decode.api_types import NodeDocument, PodSpecPart
from aischeduler.kube.decode.pod_devices import read_devices, read_hami, write_hami
from aischeduler.kube.decode.pods import read_node
from aischeduler.kube.decode.requests import NOTHING_GRANTED, read_request
from aischeduler.kube.write.hami_binds import LOCK_KEY, LOCK_SECONDS, POD_KEYS
from aischeduler.kube.write.pod_writes import BindAccepted
from aischeduler.model.allocation import Allocation
from aischeduler.model.device import DEVICES, HeldDevice, HeldDevices
from aischeduler.model.events import BindRefusal, BindRefused
from aischeduler.model.times import time_text
from tests.build import a_pod, replace
from tests.devices import GIB, a_gpu, asks, part_of, whole
from tests.kube.binder_world import BIND, BOUND, FREE, PATH, World, refusal
from tests.kube.scripted_server import Answer, Request, reply, slam, status

NODE, POD = "/api/v1/nodes/n1", "/api/v1/namespaces/default/pods/p"
NOW = 1_800_000_000.0
OURS = f"{time_text(NOW)},default,p"
NAME = "nvidia.com/gpu"
PARTS = ((0, 0), (0, 2))
HELD = HeldDevices((whole(0), whole(3)), by_hami=True)
OF_HAMI = replace(
    BIND,
    pod=a_pod("p", uid="u1", gpu=2, devices=replace(asks(100, count=2, vendor="nvidia"), parts=PARTS)),
    allocation=Allocation(parts=((DEVICES, HELD),)),
)


@dataclass
class Api:
    """A node and a pod that are read and patched, with versions, on the scripted server of a world."""

    world: World = field(default_factory=lambda: World(wall_seconds=NOW))
    lock: str = ""
    node: str = ""
    conflicts: int = 0
    """How many writes to the node an agent wins."""
    version: int = 1
    notes: dict[str, str] = field(default_factory=dict)
    binds: bool = True

    def __post_init__(self) -> None:
        rules = self.world.script.always
        rules["get", NODE], rules["patch", NODE] = lambda _: reply(200, self._node()), self._patch_node
        rules["get", POD], rules["patch", POD] = lambda _: reply(200, self._pod()), self._patch_pod
        rules["post", PATH] = self._post

    def _node(self) -> Any:
        notes = {LOCK_KEY: self.lock} if self.lock else {}
        return {"metadata": {"name": "n1", "resourceVersion": str(self.version), "annotations": notes}}

    def _pod(self) -> Any:
        metadata = {"name": "p", "uid": "u1", "resourceVersion": str(self.version), "annotations": self.notes}
        return {"metadata": metadata, "spec": {"nodeName": self.node}}

    def _patch_node(self, request: Request) -> Answer:
        said = request.json["metadata"]
        if self.conflicts:
            self.conflicts, self.version = self.conflicts - 1, self.version + 1
        if said["resourceVersion"] != str(self.version):
            return status(409, "Conflict", "the object has been modified")
        self.version += 1
        self.lock = said["annotations"][LOCK_KEY] or ""
        return reply(200, self._node())

    def _patch_pod(self, request: Request) -> Answer:
        said = request.json["metadata"]
        if said["uid"] != "u1" or said.get("resourceVersion", str(self.version)) != str(self.version):
            return status(409, "Conflict", "the object has been modified")
        self.version += 1
        notes = {**self.notes, **said["annotations"]}
        self.notes = {key: value for key, value in notes.items() if value is not None}
        return reply(200, self._pod())

    def _post(self, _: Request) -> Answer:
        if not self.binds:
            return status(422, "Invalid", "no")
        self.version, self.node = self.version + 1, "n1"
        return reply(201)

    def calls(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.world.script.requests]


async def test_node_is_locked_before_the_pod_says_its_gpus_and_both_before_the_binding() -> None:
    api = Api(conflicts=2)
    assert isinstance(await api.world.bind(action=OF_HAMI), BindAccepted)
    tries = [f"GET {NODE}", f"PATCH {NODE}"]
    assert api.calls() == [*tries, *tries, *tries, f"PATCH {POD}", f"POST {PATH}"]
    assert api.lock == "2027-01-15T08:00:00Z,default,p"
    shares = f"GPU-0,NVIDIA,{80 * 1024},100:GPU-3,NVIDIA,{80 * 1024},100:"
    assert api.notes == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1800000000",
        "hami.io/vgpu-devices-to-allocate": f";{shares};",
        "hami.io/vgpu-devices-allocated": f";{shares};",
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1800000000",
    }


async def test_other_bindings_ask_nothing_of_the_node() -> None:
    api = Api()
    chosen = replace(OF_HAMI, allocation=Allocation(parts=((DEVICES, HeldDevices(HELD.devices)),)))
    for action in (BIND, chosen):
        assert isinstance(await api.world.bind(action=action), BindAccepted)
        api.world.outcomes.clear()
    assert api.calls() == [f"POST {PATH}"] * 2


async def test_node_that_is_locked_for_another_pod_refuses_the_binding_for_now() -> None:
    held = f"{time_text(NOW - LOCK_SECONDS + 1)},team,other"
    api = Api(lock=held)
    outcome = await api.world.bind(action=OF_HAMI)
    assert isinstance(outcome, BindRefused)
    assert (outcome.refusal, api.lock, api.notes) == (BindRefusal.UNAVAILABLE, held, {})
    assert held in outcome.message
    assert api.calls() == [f"GET {NODE}"]


@pytest.mark.parametrize(
    "lock",
    [
        f"{time_text(NOW - LOCK_SECONDS)},team,other",
        "2020-01-01T02:00:00+02:00,team,other",
        "2020-01-01T00:00:00Z",
        f"{time_text(NOW - 1)},default,p",
    ],
)
async def test_lock_that_is_five_minutes_old_or_of_the_same_pod_is_taken_over(lock: str) -> None:
    api = Api(lock=lock)
    assert isinstance(await api.world.bind(action=OF_HAMI), BindAccepted)
    assert api.lock == OURS


@pytest.mark.parametrize("lock", ["now,team,other", "x", ",team,other", f"{time_text(NOW + 60)},team,other"])
async def test_lock_without_a_time_that_has_passed_holds(lock: str) -> None:
    assert refusal(await Api(lock=lock).world.bind(action=OF_HAMI)) is BindRefusal.UNAVAILABLE


async def test_refused_binding_ends_the_lock_and_takes_the_annotations_back() -> None:
    api = Api(binds=False, notes={"own": "stays"})
    assert refusal(await api.world.bind(action=OF_HAMI)) is BindRefusal.INVALID
    assert (api.lock, api.notes) == ("", {"own": "stays"})


async def test_lock_of_a_later_pod_stays_after_a_refused_binding() -> None:
    api = Api()
    later = f"{time_text(NOW)},team,later"

    def refuse(_: Request) -> Answer:
        api.lock = later
        return status(422, "Invalid", "no")

    api.world.script.always["post", PATH] = refuse
    assert refusal(await api.world.bind(action=OF_HAMI)) is BindRefusal.INVALID
    assert (api.lock, api.notes) == (later, {})


async def test_pod_that_has_the_node_after_all_keeps_its_lock_and_annotations() -> None:
    api = Api()

    def bind_unheard(request: Request) -> Answer:
        api._post(request)
        api.world.engine.settled.add("u1")  # the watch shows the pod on its node
        return slam

    api.world.script.always["post", PATH] = bind_unheard
    assert refusal(await api.world.bind(action=OF_HAMI)) is BindRefusal.STALE
    assert api.lock == OURS
    assert set(api.notes) == set(POD_KEYS)


async def test_lost_answer_whose_pod_is_bound_is_a_success_that_keeps_the_lock() -> None:
    api = Api()

    def bind_unheard(request: Request) -> Answer:
        api._post(request)
        return slam

    api.world.script.always["post", PATH] = bind_unheard
    api.world.reads = [BOUND]
    assert isinstance(await api.world.bind(action=OF_HAMI), BindAccepted)
    assert (api.lock, set(api.notes)) == (OURS, set(POD_KEYS))


async def test_pod_that_changed_meanwhile_and_has_no_node_is_cleared_with_its_lock() -> None:
    api = Api()

    def refuse(_: Request) -> Answer:
        api.version += 1
        return status(409, "Conflict", "the pod is terminating")

    api.world.script.always["post", PATH] = refuse
    api.world.reads = [FREE]
    assert refusal(await api.world.bind(action=OF_HAMI)) is BindRefusal.UNAVAILABLE
    assert (api.lock, api.notes) == ("", {})


@pytest.mark.parametrize(("method", "path"), [("get", NODE), ("patch", NODE), ("patch", POD)])
async def test_missing_permission_refuses_the_binding_for_now_and_leaves_no_lock(method: str, path: str) -> None:
    api = Api()
    api.world.script.always[method, path] = lambda _: status(403, "Forbidden", "no right to do this")
    outcome = await api.world.bind(action=OF_HAMI)
    assert isinstance(outcome, BindRefused)
    assert outcome.refusal is BindRefusal.UNAVAILABLE
    assert "no right to do this" in outcome.message
    assert (api.world.posts, api.lock) == (0, "")


async def test_pod_that_is_gone_leaves_no_lock() -> None:
    api = Api()
    api.world.script.always["patch", POD] = lambda _: status(404, "NotFound", "no such pod")
    assert refusal(await api.world.bind(action=OF_HAMI)) is BindRefusal.UNAVAILABLE
    assert api.lock == ""


@pytest.mark.parametrize(
    "held",
    [
        replace(whole(0), id=""),
        replace(whole(0), id="GPU:0"),
        replace(whole(0), amounts=(("gpu-core", 100), ("gpu-memory-ratio", 100))),
    ],
)
async def test_gpu_that_hami_cannot_name_is_not_bound(held: HeldDevice) -> None:
    api = Api()
    action = replace(OF_HAMI, allocation=Allocation(parts=((DEVICES, replace(HELD, devices=(whole(1), held))),)))
    assert refusal(await api.world.bind(action=action)) is BindRefusal.UNAVAILABLE
    assert api.calls() == []


def spec(containers: list[int], inits: list[tuple[int, bool]]) -> PodSpecPart:
    """Return the spec of containers that ask for so many GPUs, and of init containers, some of which stay."""

    def asking(count: int) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {NAME: str(count)} if count else {}}}

    first = [asking(count) | ({"restartPolicy": "Always"} if stays else {}) for count, stays in inits]
    document = {"containers": [asking(count) for count in containers], "initContainers": first}
    return msgspec.json.decode(json.dumps(document), type=PodSpecPart)


COUNTS = st.integers(0, 4)


@given(st.lists(COUNTS, min_size=1, max_size=4), st.lists(st.tuples(COUNTS, st.booleans()), max_size=4))
def test_each_container_has_its_number_of_gpus_and_those_that_run_together_have_different_ones(
    containers: list[int], inits: list[tuple[int, bool]]
) -> None:
    part = spec(containers, inits)
    asked, problem = read_devices(part, read_request(part, NOTHING_GRANTED)[0])
    if asked is None:
        assert not any([*containers, *(count for count, _ in inits)])
        return
    assert (asked.gpu is not None, problem) == (True, "")
    assert asked.gpu is not None
    gpus = [whole(minor) for minor in range(asked.gpu.count)]
    text = write_hami(gpus, asked.parts)
    found = read_hami(text)
    assert found is not None
    assert {device.id for device in found.devices} == {gpu.id for gpu in gpus}
    slots = [slot.split(":")[:-1] for slot in text.split(";")[:-1]]
    assert [len(slot) for slot in slots] == [count for count, _ in inits] + containers
    for place, (_, stays) in enumerate([*inits, *((count, True) for count in containers)]):
        for other in range(place + 1, len(slots)) if stays else ():
            assert not set(slots[place]) & set(slots[other])


def test_shares_that_were_written_are_read_again() -> None:
    gpus = [part_of(2, 100), part_of(0, 100, gib=40)]
    found = read_hami(write_hami(gpus, ((0, 1), (1, 1), (1, 2))))
    assert found is not None
    assert [(device.id, dict(device.amounts)) for device in found.devices] == [
        ("GPU-0", {"gpu-core": 100, "gpu-memory": 40 * GIB}),
        ("GPU-2", {"gpu-core": 100, "gpu-memory": 80 * GIB}),
    ]


@pytest.mark.parametrize("parts", [(), ((0, 1),), ((0, 3),), ((0, 0),)])
def test_containers_that_are_not_those_of_the_gpus_are_not_written(parts: tuple[tuple[int, int], ...]) -> None:
    assert write_hami([whole(0), whole(1)], parts) == ""


def test_node_has_the_gpus_that_hami_registers_on_it() -> None:
    told = [{"id": "GPU-1", "index": 1, "devmem": 80 * 1024, "health": True}, {"id": "GPU-0", "mode": "mig"}]
    document = {"metadata": {"name": "n", "annotations": {"hami.io/node-nvidia-register": json.dumps(told), "x": "y"}}}
    found = read_node(msgspec.json.decode(json.dumps(document), type=NodeDocument)).hami_gpus
    assert [(gpu.minor, gpu.id, gpu.healthy) for gpu in found] == [(0, "GPU-0", False), (1, "GPU-1", True)]
    assert found[1] == replace(a_gpu(1), numa=0)
