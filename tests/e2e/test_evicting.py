"""The daemon's evictor against a real API server and its disruption controller."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from aischeduler.kube.access.server import connect
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.write import pod_writes
from aischeduler.kube.write.eviction_writes import Evicted, EvictionOutcome, NotNeeded
from aischeduler.kube.write.evictor import EVICTIONS_IN_FLIGHT, Evictor
from aischeduler.model.actions import Evict, EvictionCause
from aischeduler.model.events import EvictRefusal, EvictRefused
from aischeduler.model.pod import Pod
from tests.build import a_pod
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import condition, create_nodes, create_pods, pod
from tests.kube.scripted_server import Counted, Half, broken
from tests.objects import binding_object, node_object, pdb_object, pod_object

BUDGET_SECONDS = 20.0
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


@pytest.fixture
async def connections(control_plane: ControlPlane, clean_cluster: None) -> AsyncIterator[ConnectionPool]:
    connections = ConnectionPool(
        await connect(str(control_plane.kubeconfig), None, time.monotonic), EVICTIONS_IN_FLIGHT
    )
    yield connections
    await connections.close()


async def patch(connections: ConnectionPool, path: str, body: Any) -> int:
    content = pod_writes.STRATEGIC_PATCH.encode()
    return (await connections.send(b"PATCH", path.encode(), json.dumps(body).encode(), content)).status


async def evict(connections: ConnectionPool, victim: Pod, *, honour_budgets: bool = False) -> EvictionOutcome:
    """Evict one victim with an evictor, and return the outcome."""
    evictor = Evictor(
        connections,
        Timing(time.monotonic, asyncio.sleep, Half()),
        broken,
        controller="ai-scheduler",
        honour_budgets=honour_budgets,
        wall=time.time,
        engine=Counted(),
    )
    ends: list[EvictionOutcome] = []
    task = asyncio.create_task(evictor.run(lambda _, ended, __: ends.append(ended)))
    owner = a_pod("owner", uid="u-owner")
    evictor.submit(Evict(victim, "n", "gpu", "cpu", EvictionCause.RECLAIMED, owner, "d"))
    async with asyncio.timeout(30):
        await evictor.work_queue.wait_finished()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    (ended,) = ends
    return ended


async def running(plane: ControlPlane, connections: ConnectionPool, namespace: str, name: str, **labels: str) -> Pod:
    """Create a pod on a node, ready as a kubelet reports it."""
    create_nodes(plane, [node_object(f"n-{name}")])
    create_pods(plane, namespace, [pod_object(name, namespace=namespace, labels=labels)])
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    assert plane.api("POST", f"{path}/binding", binding_object(name, f"n-{name}")).status == 201
    assert await patch(connections, f"{path}/status", {"status": READY}) == 200
    return a_pod(name, namespace=namespace, uid=pod(plane, namespace, name)["metadata"]["uid"])


async def test_victim_has_its_condition_beside_others_and_its_own_grace_period(
    control_plane: ControlPlane, connections: ConnectionPool, namespace: str
) -> None:
    victim = await running(control_plane, connections, namespace, "v")
    assert await evict(connections, victim) == Evicted()
    found = pod(control_plane, namespace, "v")
    assert found["metadata"]["deletionGracePeriodSeconds"] == 30
    mark = condition(found, "DisruptionTarget")
    assert (mark["status"], mark["reason"]) == ("True", "PreemptionByScheduler")
    assert mark["message"] == "ai-scheduler: preempting to accommodate default/owner"
    assert condition(found, "Ready")["status"] == "True"
    assert condition(found, "PodScheduled")["status"] == "True"


@pytest.mark.parametrize("honour_budgets", [False, True], ids=["delete", "eviction"])
async def test_another_pod_of_the_name_is_not_changed(
    control_plane: ControlPlane, connections: ConnectionPool, namespace: str, honour_budgets: bool
) -> None:
    await running(control_plane, connections, namespace, "v")
    former = a_pod("v", namespace=namespace, uid="11111111-2222-3333-4444-555555555555")
    assert isinstance(await evict(connections, former, honour_budgets=honour_budgets), NotNeeded)
    found = pod(control_plane, namespace, "v")
    assert "deletionTimestamp" not in found["metadata"]
    assert condition(found, "DisruptionTarget") == {}


async def test_budget_allows_its_number_of_evictions_and_a_refused_victim_has_no_condition(
    control_plane: ControlPlane, connections: ConnectionPool, namespace: str
) -> None:
    victims = [await running(control_plane, connections, namespace, name, app="a") for name in ("v", "w")]
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    document = pdb_object("budget", namespace=namespace, min_available=1, labels={"app": "a"})
    assert control_plane.api("POST", budgets, document).status == 201
    async with asyncio.timeout(BUDGET_SECONDS):
        while control_plane.api("GET", f"{budgets}/budget").body["status"].get("disruptionsAllowed") != 1:
            await asyncio.sleep(0.1)
    assert await evict(connections, victims[0], honour_budgets=True) == Evicted()
    refused = await evict(connections, victims[1], honour_budgets=True)
    assert isinstance(refused, EvictRefused)
    assert refused.why is EvictRefusal.BUDGET
    assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert condition(pod(control_plane, namespace, "v"), "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"
    assert condition(pod(control_plane, namespace, "w"), "DisruptionTarget") == {}
    assert await evict(connections, victims[1]) == Evicted()
