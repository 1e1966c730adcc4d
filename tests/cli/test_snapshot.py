"""`ai-scheduler snapshot`: the file has what scheduling reads of a cluster and nothing else."""

import asyncio
import gzip
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer import TyperException

from aischeduler.cli.app import main
from aischeduler.cli.cluster_source import ClusterSource, read_cluster
from aischeduler.cli.demo_cluster import cluster, create
from aischeduler.kube.access.server import connect
from aischeduler.kube.http.client import Client
from aischeduler.model.events import Seen, objects_of
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.sandbox.http_server import HttpSandbox
from tests.kube.api_objects import listing, pod
from tests.kube.kubeconfig_files import write
from tests.kube.scripted_server import Script, reply, serving
from tests.objects import pod_object

SECRET = "s3cr3t"
HEADER = b'{"snapshot":1,"takenSeconds":1,"gaps":[],"priorityClasses":[]}\n'


def a_pod_with_secrets() -> dict[str, Any]:
    """Return a pod that has a text in every part of it that scheduling does not read."""
    pod = pod_object("p", cpu="1500m", labels={"app": "web"}, annotations={"note": f"{SECRET}-annotation"}, pool="a")
    container = pod["spec"]["containers"][0]
    container |= {"image": f"{SECRET}/image", "args": [f"{SECRET}-argument"], "workingDir": f"/{SECRET}"}
    container["env"] = [{"name": "PASSWORD", "value": f"{SECRET}-value"}]
    container["ports"] = [{"name": SECRET, "containerPort": 80, "hostPort": 8080}]
    pod["spec"]["volumes"] = [{"name": SECRET, "secret": {"secretName": f"{SECRET}-name"}}]
    pod["status"] = {"message": SECRET, "conditions": [{"type": "Ready", "status": "False", "message": SECRET}]}
    return pod


@asynccontextmanager
async def place(tmp_path: Path) -> AsyncIterator[Path]:
    """A cluster with three Pools, twenty nodes and one pod; its kubeconfig."""
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        async with Client(await connect(str(path), None, lambda: 0.0)) as client:
            await create(client, *cluster())
            await client.post("/api/v1/namespaces/default/pods", orjson.dumps(a_pod_with_secrets()))
        yield path


async def taken(kubeconfig: Path, file: Path) -> int:
    return await asyncio.to_thread(main, ["snapshot", "-o", str(file), "--kubeconfig", str(kubeconfig)])


@pytest.mark.parametrize(("uid", "times"), [("u-old", 1), ("u-new", 2), ("", 1)])
async def test_cluster_is_listed_from_etcd_where_the_cache_lacks_the_pod_that_was_asked_for(
    uid: str, times: int, tmp_path: Path
) -> None:
    script, old, new = Script(), pod("old", uid="u-old"), pod("new", uid="u-new")
    for path in ("/api/v1/nodes", "/api/v1/pods", "/apis/resource.aibee.cn/v1alpha1/pools"):
        script.always["get", path] = lambda _: reply(200, listing())
    script.always["get", "/api/v1/pods"] = lambda asked: reply(
        200, listing(old) if asked.query.get("resourceVersion") == "0" else listing(old, new)
    )
    async with serving(script) as server:
        path = write(tmp_path / "kubeconfig", {"server": server.url}, {})
        found = await read_cluster(ClusterSource(Path(path), None), cached=True, with_pod=uid)
    assert len(script.asked("get", "/api/v1/pods")) == times
    assert len([event for event in found.events if isinstance(event, Seen) and isinstance(event.object, Pod)]) == times


async def test_file_is_read_again_as_the_cluster_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.jsonl"
    async with place(tmp_path) as kubeconfig:
        assert await taken(kubeconfig, file) == 0
        listed = await read_cluster(ClusterSource(kubeconfig, None))
    read = await read_cluster(ClusterSource(None, None, file))
    assert read.events == listed.events
    assert [len(objects_of(read.events, kind)) for kind in (Pool, Node, Pod)] == [3, 20, 1]
    assert capsys.readouterr() == ("", f"{file}: {len(read.events)} objects\n")


@pytest.mark.parametrize("name", ["cluster.jsonl", "cluster.jsonl.gz"])
async def test_file_has_nothing_that_scheduling_does_not_read(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    async with place(tmp_path) as kubeconfig:
        assert await taken(kubeconfig, file) == 0
    text = (gzip.decompress(file.read_bytes()) if name.endswith(".gz") else file.read_bytes()).decode()
    assert '"app":"web"' in text
    assert '"port":8080' in text
    assert "1500" in text
    assert SECRET not in text


async def test_only_its_owner_can_read_the_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.jsonl"
    file.write_text("an earlier file")
    file.chmod(0o644)
    async with place(tmp_path) as kubeconfig:
        assert await taken(kubeconfig, file) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.jsonl", "kubeconfig"]


async def test_directory_that_does_not_exist_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nowhere" / "cluster.jsonl"
    async with place(tmp_path) as kubeconfig:
        assert await taken(kubeconfig, file) == 1
    assert capsys.readouterr().err == f"ai-scheduler: {file}: cannot be written: No such file or directory\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"snapshot":9}\n', "the snapshot has version 9, and this program reads version 1: take it again"),
        (gzip.compress(HEADER + b'["NamespaceGone",1]' * 99, mtime=0)[:-9], "it is cut off or damaged: "),
        (HEADER, "it is cut off after 0 objects"),
        (b"\x1f\x8bno", "it is cut off or damaged: "),
    ],
    ids=["another version", "half", "nothing", "no gzip"],
)
async def test_file_that_is_no_whole_snapshot_is_one_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.jsonl"
    file.write_bytes(content)
    with pytest.raises(TyperException) as raised:
        await read_cluster(ClusterSource(None, None, file))
    assert str(raised.value.format_message()).startswith(f"{file}: {sentence}")


async def test_file_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TyperException) as raised:
        await read_cluster(ClusterSource(None, None, tmp_path / "nope"))
    assert raised.value.format_message() == f"{tmp_path / 'nope'}: cannot be read: No such file or directory"
