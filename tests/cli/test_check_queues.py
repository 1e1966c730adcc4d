"""`ai-scheduler check` on tenant queues: their own fields, who names one that is missing, and what can never fit."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest
import yaml

from aischeduler.cli.demo_cluster import cluster, create
from aischeduler.kube.access.server import connect
from aischeduler.kube.crds import crd
from aischeduler.kube.http.client import Client
from aischeduler.model.names import POOL_KEY
from aischeduler.sandbox.http_server import HttpSandbox
from tests.cli.test_check import Checked
from tests.objects import NOTHING, Json
from tests.queue_objects import queue_object, volcano_queue_object

QUEUE = "resource.aibee.cn/queue"
SERVICE = "volcano.sh/service.type"


@pytest.fixture
def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Checked:
    return Checked(tmp_path, capsys)


def a_workload(
    kind: str = "Deployment", *, on: Mapping[str, str] = NOTHING, pods: Mapping[str, str] = NOTHING, cpu: str = "1"
) -> Json:
    """Return a workload with annotations on itself, and on its pods."""
    requests = {"cpu": cpu}
    spec = {
        "schedulerName": "ai-scheduler",
        "containers": [{"name": "a", "image": "x", "resources": {"requests": requests}}],
    }
    return {
        "apiVersion": "apps/v1" if kind != "Job" else "batch/v1",
        "kind": kind,
        "metadata": {"name": "w", "annotations": dict(on)},
        "spec": {"template": {"metadata": {"annotations": dict(pods)}, "spec": spec}},
    }


def a_node() -> Json:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": amounts}}


def lines(checked: Checked, *documents: Json) -> list[str]:
    return checked(*(yaml.safe_dump(document) for document in documents))


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        (queue_object("q", cards={"H200": "8"}), "spec.cards.H200: must be a whole number, not '8'"),
        (queue_object("q", card={"H200": 8}), "spec.card: is not a field; did you mean cards?"),
        (
            queue_object("q", cards={"H200": -1}),
            "spec.cards['H200']: must be a whole number from 0 to 2147483647, not -1",
        ),
        (queue_object("q", state="Open", priority=True), "spec.priority: must be a whole number, not true"),
        (
            queue_object("q", state="Closd"),
            "spec.state: must be Open, Closed or Draining, not 'Closd'; did you mean Closed?",
        ),
        (queue_object("q", parent="q"), "spec.parent: a queue cannot be its own parent"),
        (queue_object("q", parent="up"), "spec.parent: its parent up does not exist"),
        (queue_object("q", minRuntime="1d"), "spec.minRuntime: '1d' is not a duration such as 90s or 1h30m"),
        (queue_object("Q"), "metadata.name: 'Q' is not the name of a Queue"),
        (
            volcano_queue_object("q", annotations={"volcano.sh/card.quota": "8"}),
            "metadata.annotations[volcano.sh/card.quota]: must be a mapping, not 8",
        ),
    ],
)
def test_queue_is_checked_against_its_definition_and_by_its_reader(checked: Checked, queue: Json, said: str) -> None:
    assert lines(checked, queue) == [f"1 Queue/{queue['metadata']['name']}: {said}"]


def test_queues_in_order_are_silent(checked: Checked) -> None:
    up, down = queue_object("up", state="Closed", cards={"NVIDIA-H200": 8}), queue_object("q", parent="up")
    process = {"apiVersion": "resource.aibee.cn/v1alpha1", "kind": "BatchProcess", "metadata": {"name": "b"}}
    assert lines(checked, a_node(), up, down, process, a_workload(on={QUEUE: "q", SERVICE: "inference"})) == []


@pytest.mark.parametrize(
    ("workload", "where"),
    [
        (a_workload(pods={QUEUE: "visoin"}), f"spec.template.metadata.annotations[{QUEUE}]"),
        (a_workload(on={QUEUE: "visoin"}), f"metadata.annotations[{QUEUE}]"),
        (
            a_workload("StatefulSet", on={"scheduling.volcano.sh/queue-name": "visoin"}),
            "metadata.annotations[scheduling.volcano.sh/queue-name]",
        ),
        (a_workload("Job", on={QUEUE: "visoin"}), f"metadata.annotations[{QUEUE}]"),
    ],
)
def test_queue_that_no_object_has_is_found_where_it_is_named(checked: Checked, workload: Json, where: str) -> None:
    said = f"2 {workload['kind']}/w: {where}: there is no Queue 'visoin'; did you mean vision?"
    assert lines(checked, queue_object("vision"), workload) == [said]
    assert lines(checked, workload) == [], "without any Queue nothing says that names mean something"


def test_service_type_that_is_none_is_found(checked: Checked) -> None:
    found = lines(checked, queue_object("q"), a_workload(on={QUEUE: "q", SERVICE: "trainig"}))
    assert found == [
        f"2 Deployment/w: metadata.annotations[{SERVICE}]: 'trainig' is no service type; did you mean training?"
    ]


def test_pod_beyond_the_whole_quota_of_its_queue_can_never_run(checked: Checked) -> None:
    queues = queue_object("up", capability={"cpu": "2"}), queue_object("q", parent="up")
    (found,) = lines(checked, a_node(), *queues, a_workload(on={QUEUE: "q"}, cpu="3"))
    assert found == (
        "4 Deployment/w: spec.template.spec: cannot run even when all nodes are empty: Queue up has insufficient CPU"
        " quota: requested 3, total would be 3, but capability is 2"
    )


def test_keys_of_tenants_that_do_not_reach_the_pods_are_found(checked: Checked) -> None:
    moved = a_workload(on={"volcano.sh/card.name": "H200"})
    keys = {"volcano.sh/service-type": "training", "scheduling.volcano.sh/group-name": "g"}
    first, second = lines(checked, moved, a_workload("StatefulSet", pods=keys))
    assert first.endswith("does not reach the pods; move it to spec.template.metadata.annotations")
    assert second.endswith("[volcano.sh/service-type]: has no effect; did you mean volcano.sh/service.type?")


async def test_queues_of_the_cluster_count(tmp_path: Path) -> None:
    path, file = tmp_path / "kubeconfig", tmp_path / "w.yaml"
    file.write_text(yaml.safe_dump(a_workload(on={QUEUE: "visoin"}, pods={POOL_KEY: "gpu-pool"})))
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        async with Client(await connect(str(path), None, lambda: 0.0)) as client:
            await create(client, *cluster(), crd("queues"))
            await client.post("/apis/resource.aibee.cn/v1alpha1/queues", orjson.dumps(queue_object("vision")))
        command = (sys.executable, "-m", "aischeduler", "check", "-f", str(file), "--kubeconfig", str(path))
        running = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await running.communicate()
    assert out.decode().endswith("there is no Queue 'visoin'; did you mean vision?\n")
