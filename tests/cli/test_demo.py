"""The demo as a user sees it, and whether what it shows is so."""

import asyncio
import io
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from msgspec.structs import replace
from rich.console import Console
from typer import TyperException

from aischeduler.cli import demo
from aischeduler.cli.demo import JobProgress, progress_view, summary
from aischeduler.kube.access.server import connect
from aischeduler.kube.http.client import Client
from aischeduler.model.names import MARK_POOL
from aischeduler.sandbox.http_server import HttpSandbox
from tests.cli.test_pools_table import GPU_POOL

pytestmark = pytest.mark.whole

DEMO = (sys.executable, "-m", "aischeduler", "demo")
NO_ROOM = "0/8 nodes are available: 8 Insufficient nvidia.com/gpu."


def a_progress(*, bound: dict[str, str] | None = None, waiting: dict[str, str] | None = None) -> JobProgress:
    return JobProgress(
        "train",
        "gpu-pool",
        pods=3,
        bound={"a": "gpu-0", "b": "gpu-1"} if bound is None else bound,
        waiting={"c": NO_ROOM} if waiting is None else waiting,
    )


async def test_demo_ends_by_itself_and_tells_who_was_bound_where_and_why_the_rest_waits() -> None:
    shown = await asyncio.create_subprocess_exec(*DEMO, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, err = await asyncio.wait_for(shown.communicate(), timeout=120)
    text = out.decode()
    assert (shown.returncode, err) == (0, b"")
    assert "test-job-cpu: 10 of 10 pods are bound in cpu-pool" in text
    assert "train-large: 64 of 80 pods are bound in gpu-pool" in text
    waiting = "16 pods wait: pool gpu-pool: 0/8 nodes are available: 8 Insufficient nvidia.com/gpu."
    assert waiting in " ".join(text.split())
    assert "gpu-7  8  train-large-" in text
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    gpu = text[text.index("gpu-pool  cpu") :].splitlines()
    assert gpu[1].split()[-6:] == ["64", "64", "64", "0", "16", "64"]


async def items(http: aiohttp.ClientSession, url: str) -> list[Any]:
    async with http.get(url) as answer:
        found: list[Any] = (await answer.json())["items"]
        return found


async def judge(http: aiohttp.ClientSession, url: str) -> None:
    """Check the pods of both Jobs at the API server, and wait for an event about a bound and a waiting pod of each."""
    pods = await items(http, f"{url}/api/v1/namespaces/default/pods")
    bound: dict[str, set[str]] = {}
    waiting: dict[str, set[str]] = {}
    for pod in pods:
        name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
        job = pod["metadata"]["ownerReferences"][0]["name"]
        (bound if node else waiting).setdefault(job, set()).add(name)
        if node:
            pool, kind = ("cpu-pool", "cpu") if job == "test-job-cpu" else ("gpu-pool", "gpu")
            assert (node.rpartition("-")[0], pod["metadata"]["annotations"][MARK_POOL]) == (kind, pool)
    assert {job: len(names) for job, names in bound.items()} == {"test-job-cpu": 10, "train-large": 64}
    assert {job: len(names) for job, names in waiting.items()} == {"train-large": 16}
    wanted = [("Scheduled", bound["test-job-cpu"]), ("Scheduled", bound["train-large"])]
    wanted.append(("FailedScheduling", waiting["train-large"]))
    while wanted:
        events = await items(http, f"{url}/apis/events.k8s.io/v1/namespaces/default/events")
        told = {(event["reason"], event["regarding"]["name"]) for event in events}
        wanted = [(reason, names) for reason, names in wanted if not any((reason, name) in told for name in names)]
        await asyncio.sleep(0.1)


async def test_kept_demo_says_how_to_look_around_and_ends_quietly_on_ctrl_c() -> None:
    running = await asyncio.create_subprocess_exec(
        *DEMO, "--keep", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert running.stdout is not None
    lines: list[str] = []
    async with asyncio.timeout(120):
        while not lines or "logs to" not in lines[-1]:
            lines.append((await running.stdout.readline()).decode())
    path = Path(next(line for line in lines if "KUBECONFIG=" in line).partition("=")[2].strip())
    url = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
    async with aiohttp.ClientSession() as http, asyncio.timeout(60):
        assert len(await items(http, f"{url}/api/v1/nodes")) == 20
        await judge(http, url)
    assert len([line for line in lines if line.strip().startswith("kubectl ")]) == 3
    running.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(running.communicate(), timeout=120)
    assert (running.returncode, out, err) == (0, b"", b"")
    assert not path.exists()


async def test_demo_without_a_scheduler_fails_and_says_which_pods_are_not_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "JOB_SECONDS_MAX", 1.0)
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        async with Client(await connect(str(path), None, lambda: 0.0)) as client:
            with pytest.raises(TyperException) as caught:
                await demo.run_jobs(client, Console(file=io.StringIO()))
    assert "did not come to rest in 1 s: test-job-cpu: 0 of 10 pods are bound in cpu-pool" in caught.value.message


@pytest.mark.parametrize(
    ("job", "counted", "at_rest"),
    [
        (a_progress(), (2, 1), True),
        (a_progress(bound={"a": "gpu-0"}), (1, 1), False),
        (a_progress(waiting={"c": ""}), (2, 1), False),
        (a_progress(), (2, 0), False),
    ],
)
def test_job_is_at_rest_when_every_pod_has_a_node_or_a_reason_and_its_pool_counts_it(
    job: JobProgress, counted: tuple[int, int], *, at_rest: bool
) -> None:
    pool = replace(GPU_POOL, pods=counted[0], pending_pods=counted[1])
    assert job.at_rest([pool]) is at_rest


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_bars_on_a_terminal_and_lines_elsewhere(terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, height=60, force_terminal=terminal)
    with progress_view(console) as view:
        view.show([a_progress(bound={})], ())
        view.show([a_progress(bound={})], ())
        view.show([a_progress()], ())
    assert ("━" in out.getvalue()) is True
    assert ("\x1b" in out.getvalue()) is terminal
    if not terminal:
        assert [line for line in out.getvalue().splitlines() if line.startswith("train:")] == [
            "train: 0 of 3 pods are bound in gpu-pool",
            "train: 2 of 3 pods are bound in gpu-pool",
        ]


def test_reason_is_shown_as_it_is() -> None:
    out = io.StringIO()
    Console(file=out, width=100).print(summary([a_progress(waiting={"c": "taint [red]x[/red]"})]))
    assert "1 pod waits: taint [red]x[/red]" in out.getvalue()
