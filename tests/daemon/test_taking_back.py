"""The daemon lends, reclaims and preempts in a cluster over HTTP, and writes what it did into events and statuses."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aischeduler.config.schema import NO_ELECTION, Config, EvictionWay
from aischeduler.daemon.process import Daemon
from aischeduler.kube.write.pod_writes import MERGE_PATCH
from tests.daemon.cluster import ALONE, BUDGETS, PODS, POOLS, Cluster, cluster
from tests.daemon.test_daemon import scripted_cluster
from tests.kube.scripted_server import reply, serving, settled, until

PDB = {"minAvailable": 2, "selector": {"matchLabels": {"app": "guest"}}}
Lines = Callable[[], list[dict[str, Any]]]


async def lent(world: Cluster) -> None:
    """Pool `gpu` owns the only node, and the pods `guest-0` and `guest-1` of pool `cpu` fill it."""
    await world.pool("gpu", nodeSelector={"matchLabels": {"pool": "gpu"}})
    await world.pool("cpu")
    await world.node("n1", cpu="2", labels={"pool": "gpu"})
    for number in range(2):
        await world.pod(f"guest-{number}", pool="cpu", app="guest")
    await world.until(world.all_placed)
    for number in range(2):
        await world.runs(f"guest-{number}")


async def going(world: Cluster) -> list[Any]:
    return [pod for pod in await world.listed(PODS) if "deletionTimestamp" in pod["metadata"]]


def marks(pod: Any) -> list[str]:
    return [
        condition["reason"]
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "DisruptionTarget"
    ]


async def finish(world: Cluster, name: str) -> None:
    """Delete a terminating pod for good, as its kubelet does."""
    await world.delete(f"{PODS}/{name}", gracePeriodSeconds=0)


async def test_owner_reclaims_lent_room_from_one_borrower_and_both_get_events(lines: Lines) -> None:
    async with cluster() as world:
        await lent(world)
        await world.pod("owner", pool="gpu")
        await world.until(lambda: told(world, "Preempted", 1))
        (victim,) = await going(world)
        name = victim["metadata"]["name"]
        assert marks(victim) == ["PreemptionByScheduler"]
        note = (await world.notes("Preempted"))[name]
        assert note.startswith("Preempted by default/owner (")
        assert note.endswith(") on node n1: pool gpu reclaimed lent room")
        await world.until(lambda: nominated(world, "owner", "n1"))
        await finish(world, name)
        await world.until(world.all_placed)
        assert (await world.placed())["owner"] == "n1"
    (line,) = [line for line in lines() if line["event"] == "evict"]
    fields = ("pod", "pool", "home_pool", "node", "cause", "beneficiary")
    assert [line[field] for field in fields] == [name, "gpu", "cpu", "n1", "Reclaimed", "default/owner"]


async def told(world: Cluster, reason: str, count: int) -> bool:
    return len(await world.notes(reason)) == count


async def nominated(world: Cluster, name: str, node: str) -> bool:
    pods = {pod["metadata"]["name"]: pod for pod in await world.listed(PODS)}
    return bool(pods[name]["status"].get("nominatedNodeName") == node)


async def test_budget_is_honoured_with_the_eviction_api(lines: Lines) -> None:
    async with cluster(config=Config(leader_election=NO_ELECTION, eviction=EvictionWay.EVICT)) as world:
        budgets = BUDGETS.replace("/poddis", "/namespaces/default/poddis")
        await world.create(budgets, {"metadata": {"name": "b"}, "spec": PDB})
        await lent(world)

        async def counted() -> bool:
            (budget,) = await world.listed(BUDGETS)
            return bool(budget.get("status", {}).get("currentHealthy") == 2)

        await world.until(counted)
        await world.pod("owner", pool="gpu")

        async def told_why() -> bool:
            return any("Disruption budgets forbid the eviction" in str(line.get("reason")) for line in lines())

        await world.until(told_why)
        assert await going(world) == []
    assert not [line for line in lines() if line["event"].startswith("evict")], "what is known is not asked"


async def there(world: Cluster, name: str) -> bool:
    return name in [pool["metadata"]["name"] for pool in await world.listed(POOLS)]


async def test_sigterm_finishes_an_eviction_that_has_begun(lines: Lines) -> None:
    victim = scripted_pod("v", cpu="4", node="n1", phase="Running")
    owner = scripted_pod("owner", cpu="4", priority=10)
    script, release, stop = scripted_cluster(victim, owner), asyncio.Event(), asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await reply(200)(writer)

    script.on("patch", f"{PODS}/owner/status", reply(200, {"metadata": {"resourceVersion": "5"}}))
    script.on("patch", f"{PODS}/v/status", late)
    script.on("delete", f"{PODS}/v", reply(200))
    script.on("post", f"{PODS}/p/binding", reply(201))
    async with serving(script) as server:
        task = asyncio.create_task(Daemon(server, ALONE, stop).run())
        await until(lambda: script.asked("patch", f"{PODS}/v/status"))
        stop.set()
        await until(lambda: [line for line in lines() if line["event"] == "stopping"])
        await settled()
        assert not task.done()
        release.set()
        async with asyncio.timeout(120):
            await task
    assert [line["evictions"] for line in lines() if line["event"] == "stopping"] == [1]
    assert script.asked("delete", f"{PODS}/v")[0].json["preconditions"] == {"uid": "u-v"}


def scripted_pod(name: str, *, cpu: str, node: str = "", phase: str = "Pending", priority: int = 0) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}", "resourceVersion": "3"},
        "spec": {
            "schedulerName": "ai-scheduler",
            "containers": [container],
            "nodeName": node,
            "priority": priority,
        },
        "status": {"phase": phase},
    }


async def test_status_that_another_client_overwrote_is_written_again() -> None:
    async with cluster() as world:
        await world.node("n1")
        await world.until(lambda: there(world, "default"))
        await world.until(lambda: default_has(world, 1))
        forged = {"status": {"nodes": 99, "columns": {"cpu": "lies"}}}
        await world.client.patch(f"{POOLS}/default/status", json.dumps(forged).encode(), MERGE_PATCH)
        await world.until(lambda: default_has(world, 1))


async def default_has(world: Cluster, nodes: int) -> bool:
    (pool,) = await world.listed(POOLS)
    status = pool.get("status") or {}
    return status.get("nodes") == nodes and status.get("columns", {}).get("cpu") != "lies"
