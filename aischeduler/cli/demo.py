"""`ai-scheduler demo`: schedules two Jobs in a cluster in memory, shows the progress, and checks the result.

Invariants:
- The daemon is the one of production and talks HTTP to the sandbox.
- The result is what the API server says; a difference from the goals is an error.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from typer import TyperException

from aischeduler.cli.demo_cluster import GOALS, NODES, Goal, cluster, create, jobs
from aischeduler.cli.demo_progress import JobProgress, read_progress, status_problems
from aischeduler.cli.demo_view import ProgressView, summary
from aischeduler.cli.pools_snapshot import take_snapshot
from aischeduler.cli.pools_table import print_trimmed
from aischeduler.cli.sandbox import kubeconfig_file, running_sandbox, stop_signal
from aischeduler.config.schema import NO_ELECTION, Config, Logging
from aischeduler.daemon.process import Daemon
from aischeduler.kube.client import Client
from aischeduler.kube.server_access import Server, connect
from aischeduler.observability.logging import configure

POLL_SECONDS: Final = 0.1
HOLD_SECONDS: Final = 1.5
"""How long the goals have to hold."""
GOAL_SECONDS_MAX: Final = 20.0
"""How long a Job may take to reach its goal."""


async def run_demo(*, keep: bool) -> None:
    """Run the demo; raises TyperException where it misses a goal."""
    console = Console()
    count = sum(nodes.count for nodes in NODES)
    console.print(f"{count} nodes in three Pools and the Pool default. One Job is larger than its Pool.\n")
    async with running_sandbox(0) as sandbox:
        with kubeconfig_file(sandbox, None) as path, log_file(path.with_name("scheduler.log")) as log:
            server = await connect(str(path), None, time.monotonic)
            async with Client(server) as client, running_daemon(server):
                reached = await run_jobs(client, console)
                print_trimmed(console, summary(reached))
                if keep:
                    print_next_steps(console, reached, path, log)
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
    """Create the cluster and one Job after the other; return the progress of the Jobs at the end."""
    await create(client, *cluster())
    reached: list[JobProgress] = []
    with ProgressView(console) as view:
        for number, job in enumerate(jobs(), start=1):
            await create(client, job)
            reached = await wait_for_goals(client, GOALS[:number], view)
    return reached


async def wait_for_goals(client: Client, goals: Sequence[Goal], view: ProgressView) -> list[JobProgress]:
    """Show the progress until all goals are reached and hold; raises TyperException where that takes too long."""
    deadline = time.monotonic() + GOAL_SECONDS_MAX
    good = False
    while True:
        reached = await read_progress(client, goals)
        pools = (await take_snapshot(client, time.time())).pools
        view.show(reached, pools)
        problems = [problem for job in reached for problem in job.problems()]
        problems += status_problems(reached, pools)
        if good and not problems:
            return reached
        good = not problems
        if time.monotonic() > deadline:
            raise TyperException(f"the demo did not reach its goals: {'; '.join(problems)}")
        await asyncio.sleep(HOLD_SECONDS if good else POLL_SECONDS)


def print_next_steps(console: Console, reached: Sequence[JobProgress], kubeconfig: Path, log: Path) -> None:
    """Print commands to look at the running cluster."""
    waiting = next(pod for job in reached for pod in job.waiting)
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
