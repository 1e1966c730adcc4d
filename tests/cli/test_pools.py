"""The pools as a user asks for them: as JSON, live, and when the API server is of no help."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from aischeduler.cli.app import main
from aischeduler.cli.demo import running_daemon
from aischeduler.cli.demo_cluster import Object, cluster, create
from aischeduler.cli.pool_numbers import read_pool_numbers
from aischeduler.cli.pools import pools_view
from aischeduler.cli.pools_output import FIELDS, WIDE_COLUMNS
from aischeduler.kube.access.server import Server, connect
from aischeduler.kube.crds import NOT_INSTALLED
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError, MalformedAnswerError, RefusedError, UnreachableError
from aischeduler.sandbox.http_server import HttpSandbox
from tests.cli.jq import filtered

POOLS = (sys.executable, "-m", "aischeduler", "pools")
MEMBERS = ["name", "nodes", "pods", "pendingPods", "preemption", "borrowing", "sharing"]
AMOUNTS = ["capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "free", "pending"]
NO_SUCH_SERVER = "http://127.0.0.1:1"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "pools.md"


@asynccontextmanager
async def place(tmp_path: Path) -> AsyncIterator[tuple[Client, Path, HttpSandbox]]:
    """A cluster with a scheduler, which has told the numbers of every pool."""
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        server = await connect(str(path), None, lambda: 0.0)
        async with Client(server) as client, running_daemon(server):
            await create(client, *cluster())
            await told(client, {"cpu-pool": 8, "default": 1, "gpu-pool": 8, "masters": 3})
            yield client, path, sandbox


async def told(client: Client, nodes: dict[str, int]) -> None:
    """Wait until the statuses of these pools have so many nodes."""
    async with asyncio.timeout(120):
        while True:
            pools = {pool.name: pool.nodes for pool in (await read_pool_numbers(client, time.time())).pools}
            if nodes.items() <= pools.items():
                return
            await asyncio.sleep(0.05)


async def started(path: Path, *options: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *POOLS, "--kubeconfig", str(path), *options, stdout=pipe, stderr=pipe, limit=2**20
    )


async def next_line(running: asyncio.subprocess.Process) -> str:
    assert running.stdout is not None
    return (await asyncio.wait_for(running.stdout.readline(), timeout=120)).decode()


def node(name: str, pool_label: str) -> Object:
    amounts = {"cpu": "100", "memory": "1Gi", "pods": "10", "example.com/fpga": "2"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {pool_label: "true"}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def test_documentation_names_every_field_and_column() -> None:
    text = PAGE.read_text()
    fields = [*MEMBERS, *AMOUNTS, *FIELDS.values(), "others"]
    assert [field for field in fields if f"`{field}`" not in text] == []
    assert [column for column in WIDE_COLUMNS if f"| {column} |" not in text] == []


async def test_json_has_documented_fields_with_units_in_their_names(tmp_path: Path) -> None:
    async with place(tmp_path) as (client, path, _):
        await create(client, node("odd", "cpu"))
        await told(client, {"cpu-pool": 9})
        out, err = await (await started(path, "-o", "json")).communicate()
    assert err == b""
    pools: list[dict[str, Any]] = json.loads(out)
    assert [pool["name"] for pool in pools] == ["cpu-pool", "default", "gpu-pool", "masters"]
    by_name = {pool["name"]: pool for pool in pools}
    for pool in pools:
        assert list(pool) == [*MEMBERS, *AMOUNTS, "cardsByType"]
        for kind in AMOUNTS:
            fields = ["cpuMilli", "memoryBytes", "ephemeralStorageBytes", "pods", "gpus", "others"]
            assert list(pool[kind]) == fields
    assert by_name["cpu-pool"]["nodes"] == 9
    assert by_name["cpu-pool"]["allocatable"]["cpuMilli"] == 8 * 31_000 + 100_000
    assert by_name["cpu-pool"]["capacity"]["others"]["example.com/fpga"] == 2
    assert by_name["gpu-pool"]["capacity"]["gpus"] == 64
    assert by_name["gpu-pool"]["capacity"]["memoryBytes"] == 8 * 2**40
    assert by_name["masters"]["sharing"] is False


async def test_jq_of_the_page_lists_name_free_gpus_and_pending_pods(tmp_path: Path) -> None:
    _, _, jq = PAGE.read_text().partition("$ kubectl pool -o json | jq ")
    async with place(tmp_path) as (_, path, _sandbox):
        out, _ = await (await started(path, "-o", "json")).communicate()
    rows = [(pool["name"], pool["free"]["gpus"], pool["pendingPods"]) for pool in json.loads(out)]
    assert filtered(out.decode(), jq.partition("\n")[0]).splitlines() == ["\t".join(map(str, row)) for row in rows]


async def test_wide_table_has_four_more_columns(tmp_path: Path) -> None:
    async with place(tmp_path) as (_, path, _sandbox):
        out, _ = await (await started(path, "-o", "wide")).communicate()
    columns = "Pools Resource Capacity Allocatable Used Own Shared System Borrowed Free Pending Total"
    assert out.decode().splitlines()[0].split() == columns.split()


@pytest.mark.whole
async def test_watch_through_a_pipe_prints_a_table_for_every_change_and_ends_quietly_on_ctrl_c(tmp_path: Path) -> None:
    async with place(tmp_path) as (client, path, _):
        running = await started(path, "--watch")
        tables = [await one_table(running)]
        await create(client, node("late", "cpu"))
        tables.append(await one_table(running))
        running.send_signal(signal.SIGINT)
        rest, err = await asyncio.wait_for(running.communicate(), timeout=120)
    assert (running.returncode, rest, err) == (0, b"", b"")
    assert [nodes_of_first_pool(table) for table in tables] == ["8", "9"]


async def one_table(running: asyncio.subprocess.Process) -> list[str]:
    """Read the four pools of one table."""
    lines: list[str] = []
    while len([line for line in lines if " pods " in line]) < 4:
        lines.append(await next_line(running))
    return lines


def nodes_of_first_pool(table: list[str]) -> str:
    return next(line for line in table if " nodes " in line).split()[1]


@pytest.mark.whole
async def test_watch_of_json_is_one_line_for_every_change_and_what_nobody_changed_is_not_repeated(
    tmp_path: Path,
) -> None:
    async with place(tmp_path) as (client, path, _):
        running = await started(path, "--watch", "-o", "json")
        first = json.loads(await next_line(running))
        await asyncio.sleep(2.2)  # two looks, and nothing new
        for number in range(5):
            await create(client, node(f"late-{number}", "cpu"))
        shown = [first]
        while shown[-1][0]["nodes"] < 13:
            shown.append(json.loads(await next_line(running)))
        running.send_signal(signal.SIGTERM)
        rest, err = await asyncio.wait_for(running.communicate(), timeout=120)
    assert first[0]["nodes"] == 8
    assert all(page != other for page, other in pairwise(shown))
    assert (running.returncode, rest, err) == (0, b"", b"")


@pytest.mark.whole
async def test_watch_on_a_terminal_redraws_in_state(tmp_path: Path) -> None:
    async with place(tmp_path) as (client, path, _):
        master, slave = pty.openpty()
        running = await asyncio.create_subprocess_exec(
            *POOLS, "--kubeconfig", str(path), "-w", stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"}
        )
        os.close(slave)
        said = ""
        while "masters" not in said:
            said += (await asyncio.to_thread(os.read, master, 2**16)).decode(errors="replace")
        await create(client, node("late", "cpu"))
        while said.count("masters") < 2:
            said += (await asyncio.to_thread(os.read, master, 2**16)).decode(errors="replace")
        running.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(running.wait(), timeout=120) == 0
    os.close(master)
    assert "cpu-pool" in said
    assert "\x1b[" in said
    assert "Traceback" not in said


@pytest.mark.whole
async def test_watch_whose_reader_goes_away_ends_without_a_word(tmp_path: Path) -> None:
    async with place(tmp_path) as (client, path, _):
        command = f"{' '.join(POOLS)} --kubeconfig {path} --watch | head -1"
        running = await asyncio.create_subprocess_shell(
            command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert running.stdout is not None
        await asyncio.wait_for(running.stdout.readline(), timeout=120)
        for number in range(3):
            await create(client, node(f"late-{number}", "cpu"))
            await asyncio.sleep(1.2)
        _, err = await asyncio.wait_for(running.communicate(), timeout=120)
    assert err == b""


@pytest.mark.whole
async def test_watch_says_when_its_numbers_may_be_old(tmp_path: Path) -> None:
    async with place(tmp_path) as (_, path, sandbox):
        running = await started(path, "--watch")
        await one_table(running)
        await sandbox.stop()
        assert running.stderr is not None
        said = (await asyncio.wait_for(running.stderr.readline(), timeout=120)).decode()
        running.send_signal(signal.SIGINT)
        await asyncio.wait_for(running.communicate(), timeout=120)
    assert said.startswith("the numbers may be old: the watch of ")
    assert running.returncode == 0


@pytest.mark.whole
@pytest.mark.parametrize("watch", [[], ["--watch"]])
async def test_cluster_that_does_not_know_pools_is_told_in_one_sentence(watch: list[str], tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        running = await started(path, *watch)
        out, err = await asyncio.wait_for(running.communicate(), timeout=120)
        text = f"{sandbox.url} does not serve Pools: {NOT_INSTALLED}"
    assert (running.returncode, out, err.decode()) == (1, b"", f"ai-scheduler: {text}\n")


@pytest.mark.parametrize("watch", [[], ["--watch"]])
def test_server_that_cannot_be_reached_is_told_in_one_sentence(
    watch: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(HttpSandbox(port=1).kubeconfig.replace("server: ''", f"server: {NO_SUCH_SERVER}"))
    assert main(["pools", "--kubeconfig", str(path), *watch]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"ai-scheduler: {NO_SUCH_SERVER} cannot be reached: ")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            RefusedError(403, "Forbidden", "pods is forbidden"),
            "URL does not allow you to list Pools: pods is forbidden",
        ),
        (RefusedError(401, "Unauthorized", "Unauthorized"), "URL does not accept your credentials: Unauthorized"),
        (UnreachableError("GET /x: refused"), "URL cannot be reached: GET /x: refused"),
        (MalformedAnswerError("half a list"), "the Pools of URL cannot be read: half a list"),
        (RefusedError(500, "InternalError", "etcd"), "the Pools of URL cannot be read: 500 InternalError: etcd"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_failure_says_what_it_means_to_a_user(error: ApiError, text: str) -> None:
    server = Server("127.0.0.1", 1, lambda: 0.0)
    assert pools_view().error_sentence(server, error) == text.replace("URL", server.url)


@pytest.mark.parametrize("output", ["yaml", ""])
def test_output_that_does_not_exist_names_those_that_do(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pools", "-o", output]) == 2
    assert "'table', 'wide', 'json'" in capsys.readouterr().err


def test_kubectl_pool_takes_the_same_options() -> None:
    code = "import sys; from aischeduler.cli.app import kubectl_pool; sys.exit(kubectl_pool())"
    shown = subprocess.run((sys.executable, "-c", code, "-h"), capture_output=True, text=True, check=True)
    assert all(option in shown.stdout for option in ("--watch", "--output", "--kubeconfig"))
