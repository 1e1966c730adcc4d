"""After a long churn, status, `ai-scheduler pools` and `/metrics` agree with a recount from the API's own objects."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import parser

from aischeduler.daemon.process import Daemon
from aischeduler.kube.access.server import connect
from aischeduler.kube.crds import pool_crd
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import RefusedError
from aischeduler.kube.write.pod_writes import MERGE_PATCH
from aischeduler.model.quantity import parse_milli
from aischeduler.observability.telemetry import listen
from aischeduler.sandbox.controllers.kubelet import KubeletOptions
from aischeduler.sandbox.http_server import HttpSandbox
from tests.daemon.cluster import ALONE
from tests.objects import node_object, pod_object, pool_object
from tests.seeds import random

pytestmark = pytest.mark.whole

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NODES, POOLS = "/api/v1/nodes", "/apis/resource.aibee.cn/v1alpha1/pools"
PODS = "/api/v1/namespaces/default/pods"
NAMES = ("a", "b", "c")
NODES_EACH = 4
ALL_POOLS = (*NAMES, "lender", "guest")
KINDS = ("capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "pending")

Numbers = dict[tuple[str, str, str], int]
"""Pool, kind, resource -> CPU in milli, pods in pods; zeros are left out."""


class World:
    """A cluster over HTTP with a daemon in it."""

    def __init__(self, client: Client, kubeconfig: Path, pages: aiohttp.ClientSession) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        self.pages = pages
        self.chance = random("agreement")
        self.made = 0

    async def create(self, path: str, document: dict[str, Any]) -> None:
        await self.client.post(path, json.dumps(document).encode())

    async def change(self, path: str, patch: dict[str, Any]) -> None:
        await self.client.patch(path, json.dumps(patch).encode(), MERGE_PATCH)

    async def items(self, path: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(await self.client.get(path))["items"]
        return listed

    async def step(self) -> None:
        """Make one random change, as a user does."""
        chance = self.chance
        match chance.choices(("pod", "pod of others", "end", "node", "flag"), (60, 3, 25, 7, 5))[0]:
            case "pod" | "pod of others" as whose:
                self.made += 1
                scheduler = "ai-scheduler" if whose == "pod" else "other"
                node = "" if whose == "pod" else f"{chance.choice(NAMES)}-0"
                pool, cpu = chance.choice((*NAMES, "", "no-such-pool")), f"{chance.choice((250, 500, 1000, 3000))}m"
                pod = pod_object(f"p-{self.made}", pool=pool, cpu=cpu, scheduler_name=scheduler, node=node)
                await self.create(PODS, pod)
            case "end" if self.made:
                with suppress(RefusedError):  # it was evicted meanwhile
                    path = f"{PODS}/p-{chance.randint(1, self.made)}/status"
                    await self.change(path, {"status": {"phase": "Succeeded"}})
            case "node":
                name = f"{chance.choice(NAMES)}-{chance.randrange(NODES_EACH)}"
                await self.change(
                    f"{NODES}/{name}", {"metadata": {"labels": {"pool": chance.choice((*NAMES, "none"))}}}
                )
            case "flag":
                flag = chance.choice(("disableSharing", "disableBorrowing", "disablePreemption"))
                await self.change(f"{POOLS}/{chance.choice(NAMES)}", {"spec": {flag: chance.random() < 0.4}})

    async def lend(self) -> None:
        """Make a loan, so that there is one in the end whatever the random changes left."""
        await self.create(NODES, node_object("spare", cpu="1", labels={"pool": "lender"}))
        await self.create(PODS, pod_object("guest", pool="guest", cpu="100m"))

    async def recounted(self) -> Numbers:
        """Count the numbers from the API's objects; of the scheduler only the parsing of quantities is used."""
        found: Counter[tuple[str, str, str]] = Counter()
        pool_of: dict[str, str] = {}
        for node in await self.items(NODES):
            label = node["metadata"]["labels"].get("pool")
            pool = pool_of[node["metadata"]["name"]] = label if label in ALL_POOLS else "default"
            for kind in ("capacity", "allocatable"):
                found[pool, kind, "cpu"] += parse_milli(node["status"][kind]["cpu"])
                found[pool, kind, "pods"] += int(node["status"][kind]["pods"])
        for pod in await self.items("/api/v1/pods"):
            if pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            named = pod["metadata"].get("annotations", {}).get("resource.aibee.cn/pool")
            home = named if named in ALL_POOLS else "default"
            amounts = {"cpu": parse_milli(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]), "pods": 1}
            ours, node = pod["spec"]["schedulerName"] == "ai-scheduler", pod["spec"].get("nodeName")
            for resource, amount in amounts.items():
                if node:
                    pool = pool_of[node]
                    part = "system" if not ours else "own" if home == pool else "shared"
                    found[pool, "used", resource] += amount
                    found[pool, part, resource] += amount
                    found[home, "borrowed", resource] += amount if part == "shared" else 0
                elif ours:
                    found[home, "pending", resource] += amount
        return {key: amount for key, amount in found.items() if amount}

    async def by_status(self) -> Numbers:
        told = {pool["metadata"]["name"]: pool["status"] for pool in await self.items(POOLS)}
        return numbers(
            {
                (pool, kind): {"cpu": parse_milli(amounts["cpu"]), "pods": int(amounts["pods"])}
                for pool, status in told.items()
                for kind, amounts in status.items()
                if kind in KINDS
            }
        )

    async def by_command(self) -> Numbers:
        command = (sys.executable, "-m", "aischeduler", "pools", "-o", "json", "--kubeconfig", str(self.kubeconfig))
        asked = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        pools = json.loads((await asked.communicate())[0])
        return numbers(
            {
                (pool["name"], kind): {"cpu": pool[kind]["cpuMilli"], "pods": pool[kind]["pods"]}
                for pool in pools
                for kind in KINDS
            }
        )

    async def samples(self, name: str) -> list[Any]:
        async with self.pages.get("/metrics") as answer:
            families = parser.text_string_to_metric_families(await answer.text())
        return [sample for family in families for sample in family.samples if sample.name == name]

    async def by_metrics(self) -> Numbers:
        found: dict[tuple[str, str], dict[str, int]] = {}
        for sample in await self.samples("ai_scheduler_pool_resource"):
            labels, scale = sample.labels, 1000 if sample.labels["resource"] == "cpu" else 1
            if labels["kind"] in KINDS and labels["resource"] in ("cpu", "pods"):
                amounts = found.setdefault((labels["pool"], labels["kind"]), {})
                amounts[labels["resource"]] = round(sample.value * scale)
        return numbers(found)


def numbers(told: Mapping[tuple[str, str], Mapping[str, int]]) -> Numbers:
    return {
        (pool, kind, resource): amount
        for (pool, kind), amounts in told.items()
        for resource, amount in amounts.items()
        if amount
    }


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[World]:
    path, stop, listener = tmp_path / "kubeconfig", asyncio.Event(), listen("127.0.0.1:0")
    assert listener is not None
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with HttpSandbox(kubelet=KubeletOptions()) as sandbox, aiohttp.ClientSession(url) as pages:
        path.write_text(sandbox.kubeconfig)
        server = await connect(str(path), None, lambda: 0.0)
        async with Client(server) as client:
            made = World(client, path, pages)
            await made.create(CRDS, pool_crd())
            for name in ALL_POOLS:
                await made.create(POOLS, pool_object(name, labels={"pool": name}))
            for name in NAMES:
                for number in range(NODES_EACH):
                    await made.create(NODES, node_object(f"{name}-{number}", cpu="8", labels={"pool": name}))
            daemon = asyncio.create_task(Daemon(server, ALONE, stop, listener=listener).run())
            try:
                yield made
            finally:
                stop.set()
                async with asyncio.timeout(120):
                    await daemon


@pytest.mark.parametrize(("steps", "events"), [(400, 1_000), pytest.param(2_000, 5_000, marks=pytest.mark.soak)])
async def test_all_three_agree_with_a_recount_after_a_churn(tmp_path: Path, steps: int, events: int) -> None:
    async with world(tmp_path) as cluster:
        for _ in range(steps):
            await cluster.step()
        await cluster.lend()
        last: list[Numbers] = []
        async with asyncio.timeout(120):
            while True:
                counted = await cluster.recounted()
                told = [await cluster.by_status(), await cluster.by_metrics(), await cluster.by_command()]
                if counted == await cluster.recounted() and told == [counted] * 3 and last == told:
                    break
                last = told
                await asyncio.sleep(0.5)
        heard = sum(sample.value for sample in await cluster.samples("ai_scheduler_watch_events_total"))
        saves = sum(sample.value for sample in await cluster.samples("ai_scheduler_net_saves_total"))
    assert heard >= events
    assert saves == 0
    assert {kind for _, kind, _ in counted} == set(KINDS)
