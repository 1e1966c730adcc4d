"""The refresh of a large cluster on a real API server: pods and workloads are not listed, and nothing is written."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import structlog

from aischeduler.kube.access.server import connect
from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.watch import pre_eviction_reads as module
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.pod_set_resources import pod_set_resources
from aischeduler.kube.watch.pre_eviction_reads import WATCH_LAG_SECONDS_MAX, Reflectors, Refresher
from aischeduler.kube.watch.reflector import Handlers, Reflector
from aischeduler.model.actions import Refresh
from aischeduler.model.events import Event, Refreshed, RefreshFailed, Seen
from aischeduler.model.tenant_queue import QUEUE_KEY
from aischeduler.model.workload import Workload
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import create_namespace, create_nodes, create_pods
from tests.kube.scripted_server import Half, broken
from tests.objects import job_object, node_object, pod_object

REFRESH = Refresh("default", None, (), namespaces=False, tenants=True)


class Scene:
    def __init__(self) -> None:
        self.events: list[Event] = []

    async def answered(self, refresher: Refresher, seconds: float) -> float:
        """Request a refresh; return how long its success took."""
        began, before = time.monotonic(), len(self.events)
        refresher.submit(REFRESH)
        async with asyncio.timeout(seconds):
            while not any(isinstance(event, Refreshed | RefreshFailed) for event in self.events[before:]):
                await asyncio.sleep(0.01)
        assert Refreshed("default") in self.events[before:], self.events[before:]
        return time.monotonic() - began


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
async def refresher(
    control_plane: ControlPlane, clean_cluster: None, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Refresher]:
    """Run a refresher for which every cluster is large."""
    monkeypatch.setattr(module, "LISTED_MAX", 0)
    timing = Timing(time.monotonic, asyncio.sleep, Half())
    handlers = Handlers(scene.events.append, lambda _: None, lambda *_: None)
    async with Client(await connect(str(control_plane.kubeconfig), None, time.monotonic)) as client:
        kinds = (
            watched_resources.pods(SpecCache()),
            watched_resources.nodes(),
            watched_resources.pools(),
            watched_resources.budgets(),
            watched_resources.namespaces(),
        )
        reflectors = [Reflector(client, kind, handlers, timing) for kind in kinds]
        workloads = (*gang_resources(GangOwners()), *pod_set_resources())
        followed = tuple(Reflector(client, kind, handlers, timing) for kind in workloads)
        read = Reflectors(*reflectors, queues=(), workloads=followed)
        refresher = Refresher(client, read, timing, scene.events.append, structlog.get_logger())
        jobs = [asyncio.create_task(one.run()) for one in (*reflectors, *followed)]
        jobs.append(asyncio.create_task(refresher.run(broken)))
        for reflector in (reflectors[0], *followed):
            await reflector.synced.wait()
        yield refresher
        for job in jobs:
            job.cancel()
        for job in jobs:
            with suppress(asyncio.CancelledError):
                await job


async def test_quiet_cluster_proves_in_time_that_no_pod_has_changed(
    control_plane: ControlPlane, refresher: Refresher, scene: Scene
) -> None:
    for count in range(3):
        create_nodes(control_plane, [node_object(f"later-{count}", cpu="1")])  # the version of no pod
        assert await scene.answered(refresher, 10.0) < WATCH_LAG_SECONDS_MAX


async def test_pods_that_were_created_before_the_refresh_are_seen_before_its_answer(
    control_plane: ControlPlane, refresher: Refresher, scene: Scene
) -> None:
    create_namespace(control_plane, "refreshing")
    for count in range(3):
        create_pods(control_plane, "refreshing", [pod_object(f"new-{count}", namespace="refreshing")])
        await scene.answered(refresher, 10.0)
        seen = [str(event) for event in scene.events[: scene.events.index(Refreshed("default"))]]
        assert any(f"new-{count}" in event for event in seen)
        scene.events.clear()


async def test_edit_of_a_job_before_the_refresh_is_seen_before_its_answer(
    control_plane: ControlPlane, refresher: Refresher, scene: Scene
) -> None:
    create_namespace(control_plane, "editing")
    path = "/apis/batch/v1/namespaces/editing/jobs"
    assert control_plane.api("POST", path, job_object("train", namespace="editing")).status == 201
    for queue in ("a", "b"):
        change = {"metadata": {"annotations": {QUEUE_KEY: queue}}}
        assert control_plane.api("PATCH", f"{path}/train", change).status == 200
        await scene.answered(refresher, 10.0)
        told = [one.object for one in scene.events if isinstance(one, Seen) and isinstance(one.object, Workload)]
        assert [workload.terms.queue for workload in told if workload.name == "train"][-1] == queue
