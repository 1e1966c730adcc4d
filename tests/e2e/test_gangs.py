"""The objects of gangs at the real API server: definitions that come and go, and the statuses that are written."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import astuple

from aischeduler.kube.access.server import from_kubeconfig
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError
from aischeduler.kube.report.gang_status_writer import GangStatusWriter
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.reflector import Handlers, Reflector
from aischeduler.model.actions import ReportGang
from aischeduler.model.events import Event, Gone, Seen, gone
from aischeduler.model.gang import Gang, GangClaim, GangKey, GangPhase, GangSource, GangStatus
from aischeduler.model.pod import Pod
from tests.controlplane.plane import ControlPlane
from tests.gang_objects import (
    coscheduling_crd,
    job_set_crd,
    native_pod_group_object,
    pod_group_object,
    volcano_crd,
    volcano_pod_group_object,
)
from tests.objects import Json

NATIVE_FLAGS = (
    "--feature-gates=GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true",
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
)
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.05


def of_gang(event: Event) -> bool:
    return (
        isinstance(event.object, Gang) if isinstance(event, Seen) else isinstance(event, Gone) and event.kind == "Gang"
    )


class Middle:
    """A random source that always returns the middle."""

    def random(self) -> float:
        return 0.5


async def soon(_seconds: float) -> None:
    """Wait a moment instead of the seconds that a daemon waits before it tries again."""
    await asyncio.sleep(POLL_SECONDS)


def timing() -> Timing:
    return Timing(time.monotonic, soon, Middle())


@dataclass
class Observed:
    """What reflectors have told of a server."""

    client: Client
    specs: SpecCache = field(default_factory=SpecCache)
    events: list[Event] = field(default_factory=list)
    failures: list[ApiError] = field(default_factory=list)
    reflectors: list[Reflector[Any]] = field(default_factory=list)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not holds():
                    await asyncio.sleep(POLL_SECONDS)
        assert holds(), f"not seen: {what}; events: {self.events}, failures: {self.failures}"

    def gangs(self) -> list[Event]:
        return [event for event in self.events if of_gang(event)]

    def claims(self) -> dict[str, GangClaim | None]:
        return {
            event.object.name: event.object.gang
            for event in self.events
            if isinstance(event, Seen) and isinstance(event.object, Pod)
        }


@asynccontextmanager
async def observing(plane: ControlPlane) -> AsyncIterator[Observed]:
    """Watch all kinds that declare gangs, and pods after them."""
    server = await from_kubeconfig(str(plane.kubeconfig), None, time.monotonic)
    async with Client(server) as client:
        seen = Observed(client)
        handlers = Handlers(seen.events.append, lambda _: None, lambda _, error: seen.failures.append(error))
        seen.reflectors = [Reflector(client, one, handlers, timing()) for one in gang_resources(seen.specs.owners)]
        seen.specs.owners.listed[GangSource.JOB] = seen.reflectors[-1].current
        pods = Reflector(client, watched_resources.pods(seen.specs), handlers, timing())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one.run()) for one in seen.reflectors]
            for one in seen.reflectors:
                await one.synced.wait()
            tasks.append(group.create_task(pods.run()))
            try:
                yield seen
            finally:
                for task in tasks:
                    task.cancel()
    await server.close()


async def apply(plane: ControlPlane, document: Json) -> Json:
    """Apply a document and return what is stored; a new kind may need a moment to be served."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        text = json.dumps(document)
        applied = await asyncio.to_thread(plane.kubectl, "apply", "-f", "-", "-o", "json", stdin=text)
        if applied.returncode == 0:
            stored: Json = json.loads(applied.stdout)
            return stored
        assert time.monotonic() < deadline, applied.stderr
        await asyncio.sleep(POLL_SECONDS)


@pytest.fixture
def definitions(control_plane: ControlPlane, clean_cluster: None) -> Iterator[None]:
    """Delete the definitions of the kinds of gangs after the test."""
    yield
    names = [one["metadata"]["name"] for one in (coscheduling_crd(), volcano_crd(), job_set_crd())]
    control_plane.kubectl("delete", "crd", "--ignore-not-found", *names)


def report(
    source: GangSource, namespace: str, uid: str, phase: GangPhase, *, running: int = 0, name: str = "group"
) -> ReportGang:
    gang = Gang(GangKey(source, namespace, name), 2, uid=uid, generation=1)
    return ReportGang(gang, GangStatus(phase, 2, members=2, placed=running, running=running))


@asynccontextmanager
async def writing(plane: ControlPlane) -> AsyncIterator[GangStatusWriter]:
    server = await from_kubeconfig(str(plane.kubeconfig), None, time.monotonic)
    async with Client(server) as client:
        yield GangStatusWriter(client, time.time)
    await server.close()


def read(plane: ControlPlane, group_version: str, namespace: str) -> Json:
    found: Json = plane.api("GET", f"/apis/{group_version}/namespaces/{namespace}/podgroups/group").body
    return found


async def test_pod_groups_are_seen_once_their_definition_is_installed_and_end_with_it(
    control_plane: ControlPlane, namespace: str, definitions: None
) -> None:
    async with observing(control_plane) as seen:
        assert seen.gangs() == []
        await apply(control_plane, coscheduling_crd())
        stored = await apply(control_plane, pod_group_object(namespace=namespace, min_member=4))
        await seen.until(lambda: bool(seen.gangs()), "the PodGroup")
        (event,) = seen.gangs()
        key = GangKey(GangSource.COSCHEDULING, namespace, "group")
        assert isinstance(event, Seen)
        assert isinstance(event.object, Gang)
        assert (event.object.key, event.object.min_member, event.object.uid) == (key, 4, stored["metadata"]["uid"])
        deleted = await asyncio.to_thread(
            control_plane.kubectl, "delete", "crd", coscheduling_crd()["metadata"]["name"]
        )
        assert deleted.returncode == 0, deleted.stderr
        await seen.until(lambda: seen.gangs()[-1] == gone(Gang, *astuple(key)), "the end of the PodGroup")
        await apply(control_plane, coscheduling_crd())
        await apply(control_plane, pod_group_object(namespace=namespace, min_member=3))
        await seen.until(lambda: isinstance(seen.gangs()[-1], Seen), "the PodGroup of the new definition")


@pytest.mark.parametrize("subresource", [True, False])
async def test_status_of_each_kind_is_stored_as_its_definition_has_it(
    control_plane: ControlPlane, namespace: str, definitions: None, subresource: bool
) -> None:
    await apply(control_plane, coscheduling_crd())
    await apply(control_plane, volcano_crd(subresource=subresource))
    uids = {
        GangSource.COSCHEDULING: (await apply(control_plane, pod_group_object(namespace=namespace)))["metadata"]["uid"],
        GangSource.VOLCANO: (await apply(control_plane, volcano_pod_group_object(namespace=namespace)))["metadata"][
            "uid"
        ],
    }
    async with writing(control_plane) as writer:
        for phase, running in ((GangPhase.SCHEDULING, 0), (GangPhase.RUNNING, 2)):
            for source, uid in uids.items():
                await writer.write(report(source, namespace, uid, phase, running=running), lambda _: True)
        versions = [read(control_plane, "scheduling.x-k8s.io/v1alpha1", namespace)["metadata"]["resourceVersion"]]
        for source, uid in uids.items():
            await writer.write(report(source, namespace, uid, GangPhase.RUNNING, running=2), lambda _: True)
    group = read(control_plane, "scheduling.x-k8s.io/v1alpha1", namespace)
    assert group["status"] == {"phase": "Running", "running": 2}
    assert group["metadata"]["resourceVersion"] == versions[0]
    status = read(control_plane, "scheduling.volcano.sh/v1beta1", namespace)["status"]
    conditions = [(one["type"], one["status"], one["reason"]) for one in status["conditions"]]
    assert (status["phase"], status["running"]) == ("Running", 2)
    assert conditions == [("Scheduled", "True", "Scheduled"), ("Unschedulable", "False", "Scheduled")]


async def test_status_survives_a_conflict_and_is_not_written_to_a_deleted_or_recreated_pod_group(
    control_plane: ControlPlane, namespace: str, definitions: None
) -> None:
    await apply(control_plane, coscheduling_crd())
    stored = await apply(control_plane, pod_group_object(namespace=namespace))
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups/group"
    edits = iter([{"metadata": {"labels": {"edited": "yes"}}}])

    def wanted(_report: ReportGang) -> bool:
        """Edit the PodGroup once, between the read and the write."""
        for edit in edits:
            assert control_plane.api("PATCH", path, edit).status == 200
        return True

    found = report(GangSource.COSCHEDULING, namespace, stored["metadata"]["uid"], GangPhase.SCHEDULED)
    async with writing(control_plane) as writer:
        with pytest.raises(ApiError, match="409 Conflict"):
            await writer.write(found, wanted)
        await writer.write(found, wanted)
        group = read(control_plane, "scheduling.x-k8s.io/v1alpha1", namespace)
        assert (group["status"]["phase"], group["metadata"]["labels"]) == ("Scheduling", {"edited": "yes"})
        assert control_plane.api("DELETE", path).status == 200
        await writer.write(found, wanted)
        await apply(control_plane, pod_group_object(namespace=namespace))
        await writer.write(found, wanted)
    assert "status" not in read(control_plane, "scheduling.x-k8s.io/v1alpha1", namespace)


@pytest.mark.newest
async def test_pod_group_of_the_server_itself_is_read_and_its_condition_written(control_plane: ControlPlane) -> None:
    with ControlPlane(control_plane.binaries, *NATIVE_FLAGS) as plane:
        async with observing(plane) as seen, writing(plane) as writer:
            document = native_pod_group_object(min_count=4, topology="example.com/rack")
            uid = (await apply(plane, document))["metadata"]["uid"]
            pod = {"schedulingGroup": {"podGroupName": "group"}, "containers": [{"name": "c", "image": "i.example/i"}]}
            member: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod}
            await apply(plane, member)
            await seen.until(lambda: bool(seen.gangs() and seen.claims()), "the PodGroup and its pod")
            key = GangKey(GangSource.NATIVE, "default", "group")
            (event,) = seen.gangs()
            assert isinstance(event, Seen)
            assert isinstance(event.object, Gang)
            assert (event.object.key, event.object.min_member, len(event.object.topology)) == (key, 4, 1)
            assert seen.claims() == {"p": GangClaim(key)}
            await writer.write(report(GangSource.NATIVE, "default", uid, GangPhase.SCHEDULED), lambda _: True)
            await seen.until(lambda: len(seen.gangs()) == 2, "the written condition")
            (condition,) = read(plane, "scheduling.k8s.io/v1alpha2", "default")["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodGroupScheduled",
            "True",
            "Scheduled",
        )
