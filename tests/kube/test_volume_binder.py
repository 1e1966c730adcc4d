"""Writes for the volumes of placed pods: what is sent, what is read again, and what the engine hears."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from aischeduler.kube.http import connection_pool
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import OnInternalError
from aischeduler.kube.write.volume_binder import (
    ERROR_TRIES,
    INTERNAL,
    TRIES_MAX,
    VOLUMES_IN_FLIGHT,
    Outcome,
    VolumeBinder,
)
from aischeduler.model.actions import BindVolumes
from aischeduler.model.events import VolumesRefused, VolumesWritten
from aischeduler.model.volumes import VolumeChoice, VolumeWrite
from tests.build import a_pod
from tests.kube.scripted_server import (
    PATIENCE_SECONDS,
    Answer,
    Counted,
    Script,
    Waits,
    broken,
    hang,
    reply,
    serving,
    slam,
    status,
    until,
)

DISK = "/api/v1/persistentvolumes/disk"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/new"
OLD = VolumeWrite(VolumeChoice(("default", "old"), "uid-old", "disk", ""), "7", "5")
NEW = VolumeWrite(VolumeChoice(("default", "new"), "uid-new", "", "n1"), "6", "6")
REF = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "namespace": "default",
    "name": "old",
    "uid": "uid-old",
    "resourceVersion": "5",
}
CONFLICT = status(409, "Conflict", "the object has been modified")


def ask(*writes: VolumeWrite, withdraw: bool = False, pool: str = "") -> BindVolumes:
    return BindVolumes(a_pod("p", pool=pool), "n1", "d-1", writes, withdraw)


def a_disk(version: str = "9", claim: Any = None) -> Answer:
    return reply(200, {"metadata": {"name": "disk", "resourceVersion": version}, "spec": {"claimRef": claim}})


def a_claim(version: str = "9", *, node: str = "", uid: str = "uid-new") -> Answer:
    notes = {"volume.kubernetes.io/selected-node": node} if node else {}
    return reply(200, {"metadata": {"name": "new", "uid": uid, "resourceVersion": version, "annotations": notes}})


def written(*versions: str) -> VolumesWritten:
    return VolumesWritten("uid-p", "d-1", versions)


def refused(message: str) -> VolumesRefused:
    return VolumesRefused("uid-p", "d-1", message)


@dataclass
class World:
    """A volume binder and a scripted server."""

    script: Script = field(default_factory=Script)
    waits: Waits = field(default_factory=Waits)
    engine: Counted = field(default_factory=Counted)
    ends: list[Outcome] = field(default_factory=list)
    failed: OnInternalError = broken

    @asynccontextmanager
    async def running(self, answer_seconds: float | None = None) -> AsyncIterator[VolumeBinder]:
        seconds = answer_seconds or self.script.answer_seconds
        async with serving(self.script) as server:
            connections = ConnectionPool(server, 16, answer_seconds=seconds)
            binder = VolumeBinder(connections, self.waits.timing(), self.engine, self.failed)
            task = asyncio.create_task(binder.run(lambda _, outcome: self.ends.append(outcome)))
            try:
                yield binder
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                await connections.close()

    async def bind(self, action: BindVolumes) -> list[Outcome]:
        async with self.running() as binder:
            binder.submit(action)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await binder.work_queue.wait_finished()
        return self.ends

    @property
    def sent(self) -> list[str]:
        return [f"{request.method} {request.path.rpartition('/')[2]}" for request in self.script.requests]


@pytest.fixture(autouse=True)
def quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "SWEEP_SECONDS", 0.01)


async def test_volume_is_given_to_its_claim_and_then_the_node_is_written_into_the_other_claim() -> None:
    world = World()
    world.script.on("patch", DISK, a_disk("8"))
    world.script.on("patch", CLAIM, a_claim("10"))
    assert await world.bind(ask(NEW, OLD)) == [written("10", "8")]
    disk, claim = (request.json for request in world.script.requests)
    assert disk == {
        "metadata": {"resourceVersion": "7", "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
        "spec": {"claimRef": REF},
    }
    notes = {"volume.kubernetes.io/selected-node": "n1"}
    assert claim == {"metadata": {"uid": "uid-new", "resourceVersion": "6", "annotations": notes}}
    types = {request.headers["content-type"] for request in world.script.requests}
    assert types == {"application/merge-patch+json"}


async def test_volume_that_the_user_gave_to_the_claim_is_not_marked_as_bound_by_a_controller() -> None:
    world = World()
    world.script.on("patch", DISK, a_disk())
    await world.bind(ask(VolumeWrite(OLD.choice, "7", "5", prebound=True)))
    assert world.script.requests[0].json["metadata"] == {"resourceVersion": "7"}


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (a_disk("9", REF), written("9")),
        (a_disk("9", REF | {"uid": "another"}), refused('persistentvolume "disk" belongs to the claim default/old')),
        (a_disk("9", REF | {"name": "x"}), refused('persistentvolume "disk" belongs to the claim default/x')),
        (status(404, "NotFound"), refused('persistentvolume "disk" not found')),
        (status(400, "BadRequest"), refused('persistentvolume "disk" not found')),
    ],
)
async def test_volume_that_changed_since_is_read(found: Answer, outcome: Outcome) -> None:
    world = World()
    world.script.on("patch", DISK, CONFLICT)
    world.script.on("get", DISK, found)
    assert await world.bind(ask(OLD)) == [outcome]
    assert world.sent == ["PATCH disk", "GET disk"]


@pytest.mark.parametrize("claim", [None, {"namespace": "default", "name": "old"}], ids=["free", "prebound"])
async def test_volume_that_changed_and_is_free_is_written_at_its_new_version(claim: Any) -> None:
    world = World()
    world.script.on("patch", DISK, CONFLICT, a_disk("10"))
    world.script.on("get", DISK, a_disk("9", claim))
    assert await world.bind(ask(OLD)) == [written("10")]
    last = world.script.requests[-1].json
    assert (last["metadata"]["resourceVersion"], "annotations" in last["metadata"]) == ("9", claim is None)


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (a_claim("9", node="n1"), written("9")),
        (
            a_claim("9", node="n2"),
            refused('persistentvolumeclaim "new" is to be created for the node n2'),
        ),
        (a_claim("9", uid="another"), refused('persistentvolumeclaim "new" not found')),
        (status(404, "NotFound"), refused('persistentvolumeclaim "new" not found')),
    ],
)
async def test_claim_that_changed_since_is_read(found: Answer, outcome: Outcome) -> None:
    world = World()
    world.script.on("patch", CLAIM, CONFLICT)
    world.script.on("get", CLAIM, found)
    assert await world.bind(ask(NEW)) == [outcome]


async def test_refused_volume_leaves_the_claims_unwritten() -> None:
    world = World()
    world.script.on("patch", DISK, status(403, "Forbidden", "you may not"))
    assert await world.bind(ask(NEW, OLD)) == [refused("you may not")]
    assert world.sent == ["PATCH disk"]


async def test_lost_answer_is_asked_for_again_and_a_server_that_never_answers_costs_the_pod_its_turn() -> None:
    world = World()
    world.script.on("patch", DISK, slam, CONFLICT)
    world.script.on("get", DISK, a_disk("9", REF))
    assert await world.bind(ask(OLD)) == [written("9")]
    world = World()
    world.script.always["patch", DISK] = lambda _: status(500, "InternalError", "etcd is slow")
    assert await world.bind(ask(OLD)) == [refused("etcd is slow")]
    assert len(world.sent) == TRIES_MAX // ERROR_TRIES + 1


async def test_overloaded_server_is_left_alone_for_as_long_as_it_says() -> None:
    world = World()
    world.script.on("patch", DISK, reply(429, b"Too many requests.", {"Retry-After": "7"}), a_disk("8"))
    assert await world.bind(ask(OLD)) == [written("8")]
    assert world.waits.seconds == [pytest.approx(8.0)]


async def test_volume_whose_write_is_asked_to_wait_delays_no_other() -> None:
    world = World()
    world.script.on("patch", DISK, status(429, "TooManyRequests", "not now", headers={"Retry-After": "20"}))
    world.script.always["patch", DISK] = lambda _: a_disk("8")
    world.waits.hold()
    async with world.running() as binder:
        binder.submit(ask(OLD))
        await until(lambda: world.waits.held)
        binder.submit(ask(OLD))
        await until(lambda: world.ends)
        world.waits.release()
        await binder.work_queue.wait_finished()
    assert world.waits.seconds == [20.0]
    assert world.ends == [written("8")] * 2


async def test_pool_whose_volumes_get_no_answer_delays_no_other_pool() -> None:
    world = World()
    world.script.on("patch", DISK, *[hang] * VOLUMES_IN_FLIGHT, a_disk("8"))
    async with world.running(answer_seconds=60.0) as binder:
        for _ in range(3 * VOLUMES_IN_FLIGHT):
            binder.submit(ask(OLD))
        await until(lambda: len(world.sent) == VOLUMES_IN_FLIGHT)
        binder.submit(ask(OLD, pool="quiet"))
        await until(lambda: world.ends)
    assert world.ends == [written("8")]


async def test_nothing_is_written_for_a_pod_that_was_taken_back() -> None:
    world = World(engine=Counted(settled={"uid-p"}))
    assert await world.bind(ask(OLD)) == [refused("the pod is gone, or was taken back")]
    assert world.sent == []


async def test_withdrawn_node_is_taken_out_of_the_claim_and_the_engine_hears_nothing() -> None:
    world = World(engine=Counted(settled={"uid-p"}))
    world.script.on("patch", CLAIM, a_claim("10"))
    assert await world.bind(ask(NEW, OLD, withdraw=True)) == []
    (sent,) = world.script.requests
    assert sent.json["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": None}


async def test_internal_error_refuses_one_pod_and_is_reported() -> None:
    bugs: list[str] = []
    world = World(failed=lambda job, _: bugs.append(job))
    bad = VolumeWrite(None, "1", "1")  # type: ignore[arg-type]
    assert await world.bind(ask(bad)) == [refused(INTERNAL)]
    assert bugs == ["volume binder"]
    world.script.on("patch", DISK, a_disk("8"))
    assert (await world.bind(ask(OLD)))[-1] == written("8")
