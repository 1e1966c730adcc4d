"""`ai-scheduler demo`: schedules two Jobs in a cluster in memory, and shows what happens.

Invariants:
- The daemon is the one of production and talks HTTP to the sandbox.
- What is shown is what the API server says.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import orjson
from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text
from typer import TyperException

from aischeduler.cli.demo_cluster import NAMESPACE, Object, cluster, create, jobs
from aischeduler.cli.output import print_trimmed
from aischeduler.cli.pool_numbers import read_pool_numbers
from aischeduler.cli.pools_output import pool_table
from aischeduler.cli.sandbox import kubeconfig_file, running_sandbox, stop_signal
from aischeduler.config.schema import NO_ELECTION, Config, Logging
from aischeduler.daemon.process import Daemon
from aischeduler.kube.access.server import Server, connect
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.paths import collection_path
from aischeduler.model.names import POOL_KEY
from aischeduler.model.pool_summary import PoolSummary
from aischeduler.observability.logging import configure

POLL_SECONDS: Final = 0.1
REST_SECONDS: Final = 1.5
"""How long nothing changes once the Jobs are at rest."""
JOB_SECONDS_MAX: Final = 20.0
"""How long a Job may take until it is at rest."""
BAR_WIDTH: Final = 24
NAMES_SHOWN_MAX: Final = 3


class JobProgress(Struct, frozen=True):
    """A Job of this many pods: the nodes of those that are bound, and the reasons of those that wait."""

    name: str
    pool: str
    pods: int
    bound: dict[str, str]
    waiting: dict[str, str]

    def text(self) -> str:
        """Return how many pods are bound."""
        return f"{len(self.bound)} of {self.pods} pods are bound in {self.pool}"

    def at_rest(self, pools: Sequence[PoolSummary]) -> bool:
        """Return whether every pod is bound or has a reason to wait, and its pool counts them all."""
        counts = {pool.name: (pool.pods, pool.pending_pods) for pool in pools}
        bound, waiting = len(self.bound), len(self.waiting)
        return bound + waiting == self.pods and all(self.waiting.values()) and counts.get(self.pool) == (bound, waiting)


async def run_demo(*, keep: bool) -> None:
    """Run the demo; raises TyperException where a Job does not come to rest."""
    console = Console()
    count = sum(item["kind"] == "Node" for item in cluster())
    console.print(f"{count} nodes in three Pools and the Pool default. One Job is larger than its Pool.\n")
    async with running_sandbox(0) as sandbox:
        with kubeconfig_file(sandbox, None) as path, log_file(path.with_name("scheduler.log")) as log:
            server = await connect(str(path), None, time.monotonic)
            async with Client(server) as client, running_daemon(server):
                found = await run_jobs(client, console)
                print_trimmed(console, summary(found))
                if keep:
                    print_next_steps(console, found, path, log)
                    await stop_signal()


@contextmanager
def log_file(path: Path) -> Iterator[Path]:
    """Let the daemon log into this file; an error quotes the last line."""
    with path.open("wb") as file:
        configure(Logging(), file)
        try:
            yield path
        except TyperException as error:
            last = path.read_text(encoding="utf-8").splitlines()[-1:]
            raise TyperException(f"{error.message}; the last line of the scheduler's log: {''.join(last)}") from error


@asynccontextmanager
async def running_daemon(server: Server) -> AsyncIterator[None]:
    """Run the daemon during the block, and stop it at the end."""
    stop = asyncio.Event()
    daemon = asyncio.create_task(Daemon(server, Config(leader_election=NO_ELECTION), stop).run())
    try:
        yield
    finally:
        stop.set()
        await daemon


async def run_jobs(client: Client, console: Console) -> list[JobProgress]:
    """Create the cluster and one Job after the other, each when those before are at rest; return how they end."""
    await create(client, *cluster())
    created: list[Object] = []
    found: list[JobProgress] = []
    with progress_view(console) as view:
        for job in jobs():
            await create(client, job)
            created.append(job)
            found = await _wait_for_rest(client, created, view)
    return found


async def _wait_for_rest(client: Client, created: Sequence[Object], view: "ProgressView") -> list[JobProgress]:
    """Show the progress until the Jobs are at rest and stay so; raises TyperException where that takes too long."""
    deadline = time.monotonic() + JOB_SECONDS_MAX
    before: list[JobProgress] | None = None
    while True:
        found = await read_progress(client, created)
        pools = (await read_pool_numbers(client, time.time())).pools
        view.show(found, pools)
        busy = [job for job in found if not job.at_rest(pools)]
        if not busy and found == before:
            return found
        before = None if busy else found
        if time.monotonic() > deadline:
            left = "; ".join(f"{job.name}: {job.text()}, {len(job.waiting)} wait" for job in busy or found)
            raise TyperException(f"the Jobs did not come to rest in {JOB_SECONDS_MAX:.0f} s: {left}")
        await asyncio.sleep(POLL_SECONDS if busy else REST_SECONDS)


async def read_progress(client: Client, created: Sequence[Object]) -> list[JobProgress]:
    """Return the progress of each of these Jobs; raises ApiError."""
    pods = orjson.loads(await client.get(collection_path("v1", "pods", NAMESPACE)))["items"]
    return [_progress(job, sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))) for job in created]


def _progress(job: Object, pods: Sequence[Any]) -> JobProgress:
    name, spec = job["metadata"]["name"], job["spec"]
    bound: dict[str, str] = {}
    waiting: dict[str, str] = {}
    for pod in pods:
        metadata, conditions = pod["metadata"], pod.get("status", {}).get("conditions", ())
        if all(owner["name"] != name for owner in metadata.get("ownerReferences", ())):
            continue
        if node := pod["spec"].get("nodeName"):
            bound[metadata["name"]] = node
        else:
            reasons = (condition.get("message", "") for condition in conditions if condition["type"] == "PodScheduled")
            waiting[metadata["name"]] = next(reasons, "")
    return JobProgress(name, spec["template"]["metadata"]["annotations"][POOL_KEY], spec["parallelism"], bound, waiting)


class ProgressView:
    """Shows the progress of the Jobs and the table of pools; `live` changes in place on a terminal."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self.last: RenderableType = ""
        self._console = console
        self._live = live
        self._lines: dict[str, str] = {}

    def show(self, found: Sequence[JobProgress], pools: Sequence[PoolSummary]) -> None:
        """Show the progress; without a terminal, only a line for each Job that changed."""
        bars = Table.grid(Column(no_wrap=True), Column(), Column(no_wrap=True), padding=(0, 2))
        for job in found:
            bars.add_row(job.name, ProgressBar(job.pods, len(job.bound), width=BAR_WIDTH), job.text())
            if self._live is None and self._lines.get(job.name) != job.text():
                self._lines[job.name] = job.text()
                self._console.print(f"{job.name}: {job.text()}")
        self.last = Group(bars, "", pool_table(pools))
        if self._live is not None:
            self._live.update(self.last, refresh=True)


@contextmanager
def progress_view(console: Console) -> Iterator[ProgressView]:
    """Yield a view; without a terminal, print what it showed last at the end."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield ProgressView(console, live)
        return
    view = ProgressView(console, None)
    try:
        yield view
    finally:
        print_trimmed(console, "", view.last)


def summary(found: Sequence[JobProgress]) -> RenderableType:
    """Return the nodes of the bound pods, and the reasons of the waiting pods."""
    parts: list[RenderableType] = []
    for job in found:
        parts.append(f"\n[bold]{job.name}[/bold]: {job.text()}")
        nodes = Table.grid(padding=(0, 2))
        for node in sorted(set(job.bound.values())):
            pods = [pod for pod, where in job.bound.items() if where == node]
            named = ", ".join(pods[:NAMES_SHOWN_MAX]) + (", …" if len(pods) > NAMES_SHOWN_MAX else "")
            nodes.add_row("", f"[cyan]{node}[/cyan]", f"{len(pods)}", named)
        parts.append(nodes)
        for reason, count in sorted(Counter(job.waiting.values()).items()):
            waiting = f"{count} pods wait" if count > 1 else "1 pod waits"
            text = Text.from_markup(f"[yellow]{waiting}[/yellow]: {escape(reason)}")
            parts.append(Padding(text, (0, 0, 0, 2), expand=False))
    return Group(*parts)


def print_next_steps(console: Console, found: Sequence[JobProgress], kubeconfig: Path, log: Path) -> None:
    """Print commands to look at the running cluster."""
    waiting = next(pod for job in found for pod in job.waiting)
    lines = (
        "",
        "The cluster keeps running until Ctrl-C. In another terminal:",
        f"  export KUBECONFIG={kubeconfig}",
        "  kubectl get pods -o wide",
        f"  kubectl describe pod {waiting}",
        "  kubectl label node spare-0 cpu=true     # moves the node into cpu-pool; see `ai-scheduler pools`",
        f"The scheduler logs to {log}",
    )
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
