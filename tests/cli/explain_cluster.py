"""The cluster of docs/cli.md on explain: three Pools, seven nodes, pods that run and pods that wait."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson

from aischeduler.cli.demo_cluster import create
from aischeduler.kube.access.server import connect
from aischeduler.kube.crds import pool_crd
from aischeduler.kube.http.client import Client
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.http_server import HttpSandbox
from aischeduler.sandbox.request import Request, Response
from tests.analysis.clusters import merged
from tests.objects import Json, node_object, pod_object, pool_object

AT_ONCE = (b'{"gracePeriodSeconds":0}', "application/json")
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "tune", "uid": "job", "controller": True}


def a_machine(pool: str, number: int, *, disk: str = "ssd", cordoned: bool = False) -> Json:
    labels = {"team": pool, **({"disk": disk} if disk else {})}
    node = node_object(f"{pool}-{number}", cpu="64", memory="512Gi", gpu=8, labels=labels)
    if cordoned:
        node["spec"] |= {
            "unschedulable": True,
            "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
        }
    return node


def a_worker(name: str, *, gpu: int, node: str = "", disk: str = "", job: bool = False) -> Json:
    selector = {"disk": disk} if disk else {}
    labels = {"job-name": "tune"} if job else {}
    pod = pod_object(
        name, cpu="8", memory="64Gi", gpu=gpu, pool="research", node=node, node_selector=selector, labels=labels
    )
    if job:
        pod["metadata"]["ownerReferences"] = [JOB]
    return pod


def objects() -> list[Json]:
    """Return the Pools and the nodes."""
    return [
        pool_crd(),
        pool_object("research", labels={"team": "research"}),
        pool_object("vision", labels={"team": "vision"}, disableSharing=True),
        pool_object("speech", labels={"team": "speech"}, lendingLimit={"nvidia.com/gpu": "4"}),
        *(a_machine("research", number) for number in range(3)),
        a_machine("research", 3, disk=""),
        a_machine("research", 4, cordoned=True),
        a_machine("vision", 0),
        a_machine("speech", 0),
    ]


def pods() -> list[Json]:
    """Return the pods, in the order in which they are created."""
    other = pod_object("web", scheduler_name="default-scheduler")
    done = pod_object("done", pool="research")
    gated = pod_object("later", pool="research", gates=["example.com/data"])
    return [
        *(a_worker(f"train-{number}", gpu=4, node=f"research-{number}") for number in range(3)),
        a_worker("eval-0", gpu=2, node="research-0"),
        a_worker("eval-1", gpu=2, node="research-1"),
        a_worker("sweep-0", gpu=2, node="speech-0"),
        a_worker("sweep-1", gpu=8, disk="ssd"),
        a_worker("tune-0", gpu=8, disk="ssd", job=True),
        other,
        gated,
        done,
    ]


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Path]:
    """Yield the kubeconfig of the cluster. The pod `done` has finished."""
    path = directory / "kubeconfig"
    now = time.time()
    server = ApiServer(now=now)
    async with HttpSandbox(server) as sandbox:
        path.write_text(sandbox.kubeconfig)
        async with Client(await connect(str(path), None, lambda: 0.0)) as client:
            await create(client, *objects())
            # At one time: pods are ordered by the second of their creation, and the page shows one order.
            for pod in pods():
                request = Request("POST", "/api/v1/namespaces/default/pods", body=orjson.dumps(pod))
                made = server.handle(request, now)
                assert isinstance(made, Response)
                assert made.status == HTTPStatus.CREATED
            done = "/api/v1/namespaces/default/pods/done/status"
            await client.patch(done, b'{"status":{"phase":"Succeeded"}}', "application/merge-patch+json")
        yield path


async def document(kubeconfig: Path, name: str) -> Any:
    async with Client(await connect(str(kubeconfig), None, lambda: 0.0)) as client:
        return json.loads(await client.get(f"/api/v1/namespaces/default/pods/{name}"))


async def carry_out(kubeconfig: Path, steps: list[Any]) -> None:
    """Send the steps as docs/cli.md describes."""
    async with Client(await connect(str(kubeconfig), None, lambda: 0.0)) as client:
        for step in steps:
            api = "/api/v1" if step["apiVersion"] == "v1" else f"/apis/{step['apiVersion']}"
            where = f"/namespaces/{step['namespace']}" if step["namespace"] else ""
            path = f"{api}{where}/{step['kind'].lower()}s"
            named, body = f"{path}/{step['name']}", json.dumps(step["body"]).encode()
            if step["verb"] == "patch":
                await client.patch(named, body, "application/merge-patch+json")
                if step["body"].get("spec") == {"unschedulable": False}:  # the node controller's part
                    await client.patch(named, b'{"spec":{"taints":null}}', "application/merge-patch+json")
            elif step["verb"] == "delete":
                await client._ask("DELETE", named, {}, (body, "application/json"))
                await client._ask("DELETE", named, {}, AT_ONCE)  # the kubelet's part
            else:
                pod = json.loads(await client.get(named))
                await client._ask("DELETE", named, {}, AT_ONCE)
                for field in ("uid", "resourceVersion", "creationTimestamp"):
                    del pod["metadata"][field]
                await client.post(path, json.dumps(merged(pod, step["body"])).encode())
