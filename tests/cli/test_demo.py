"""The demo as a user sees it, and that it believes nothing but the API server."""

import asyncio
import io
import signal
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml
from rich.console import Console
from typer import TyperException

from aischeduler.cli import demo
from aischeduler.cli.demo_cluster import GOALS, Goal
from aischeduler.cli.demo_progress import JobProgress
from aischeduler.cli.demo_view import ProgressView, summary
from aischeduler.kube.client import Client
from aischeduler.kube.server_access import connect
from aischeduler.sandbox.http_server import HttpSandbox

pytestmark = pytest.mark.whole

DEMO = (sys.executable, "-m", "aischeduler", "demo")
GOAL = Goal("train", "gpu-pool", "gpu", pods=3, bound=2)
TOLD: dict[str, tuple[str, ...]] = {"a": ("Scheduled",), "b": ("Scheduled",), "c": ("FailedScheduling",)}


def a_progress(
    *,
    bound: dict[str, str] | None = None,
    waiting: dict[str, str] | None = None,
    misplaced: tuple[str, ...] = (),
    events: dict[str, tuple[str, ...]] | None = None,
) -> JobProgress:
    return JobProgress(
        GOAL,
        bound={"a": "gpu-0", "b": "gpu-1"} if bound is None else bound,
        misplaced=misplaced,
        waiting={"c": "0/8 nodes are available: 8 Insufficient nvidia.com/gpu."} if waiting is None else waiting,
        events=TOLD if events is None else events,
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
    async with aiohttp.ClientSession() as http, http.get(f"{url}/api/v1/nodes") as answer:
        assert len((await answer.json())["items"]) == 20
    assert len([line for line in lines if line.strip().startswith("kubectl ")]) == 3
    running.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(running.communicate(), timeout=120)
    assert (running.returncode, out, err) == (0, b"", b"")
    assert not path.exists()


async def test_demo_without_a_scheduler_fails_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "GOAL_SECONDS_MAX", 0.5)
    path = tmp_path / "kubeconfig"
    async with HttpSandbox() as sandbox:
        path.write_text(sandbox.kubeconfig)
        async with Client(await connect(str(path), None, lambda: 0.0)) as client:
            with pytest.raises(TyperException) as caught:
                await demo.run_jobs(client, Console(file=io.StringIO()))
    assert "did not reach its goals: 0 pods of test-job-cpu are bound instead of 10" in caught.value.message


def test_progress_that_reaches_the_goal_has_no_problems() -> None:
    assert a_progress().problems() == []


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (a_progress(bound={"a": "gpu-0"}), "1 pods of train are bound instead of 2"),
        (a_progress(waiting={}), "train has 2 pods instead of 3"),
        (a_progress(misplaced=("a",)), "a of train are bound outside of gpu-pool"),
        (a_progress(waiting={"c": ""}), "1 pods of train wait without a reason: c"),
        (a_progress(events={"c": ("FailedScheduling",)}), "no pod of train has an event Scheduled"),
        (a_progress(events={"a": ("Scheduled",)}), "no pod of train has an event FailedScheduling"),
    ],
)
def test_every_difference_from_the_goal_is_named(job: JobProgress, problem: str) -> None:
    assert problem in job.problems()


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_bars_on_a_terminal_and_lines_elsewhere(terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, width=100, height=60, force_terminal=terminal)
    with ProgressView(console) as view:
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


def test_goals_add_up_to_their_pools() -> None:
    assert [(goal.job, goal.pods - goal.bound) for goal in GOALS] == [("test-job-cpu", 0), ("train-large", 16)]
