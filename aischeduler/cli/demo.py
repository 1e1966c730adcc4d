"""`ai-scheduler demo`: a cluster in memory, the daemon, two Jobs; shown while it goes, checked at the end.

Laws:
- The daemon is the one of production and talks HTTP to the sandbox.
- What the API server says at the end is compared with what was promised; a difference is a failure.
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
from aischeduler.cli.demo_standing import Standing, standings, untold
from aischeduler.cli.demo_view import Progress, story
from aischeduler.cli.sandbox import kubeconfig_file, running_sandbox, stop_signal
from aischeduler.cli.snapshot import take_snapshot
from aischeduler.cli.table import print_trimmed
from aischeduler.config.schema import NO_ELECTION, Config, Logging
from aischeduler.daemon.process import Daemon
from aischeduler.kube.client import Client
from aischeduler.kube.server_access import Server, connect
from aischeduler.observability.logging import configure

LOOK_SECONDS: Final = 0.1
HOLD_SECONDS: Final = 1.5
"""A state that is as promised is shown and watched for so long."""
GOAL_SECONDS_MAX: Final = 20.0
"""A Job that is not as promised after so long has failed."""


async def run_demo(*, keep: bool) -> None:
    """Run the demo; raises TyperException when it does not end as promised."""
    console = Console()
    count = sum(nodes.count for nodes in NODES)
    console.print(f"{count} nodes in three pools, a Job that fits its pool and one that is larger.\n")
    async with running_sandbox(0) as sandbox:
        with kubeconfig_file(sandbox, None) as path, log_file(path.with_name("scheduler.log")) as log:
            server = await connect(str(path), None, time.monotonic)
            async with Client(server) as client, running_daemon(server):
                reached = await perform(client, console)
                print_trimmed(console, story(reached))
                if keep:
                    invite(console, reached, path, log)
                    await stop_signal()


@contextmanager
def log_file(path: Path) -> Iterator[Path]:
    """Let the daemon log into this file; a failure tells its last line."""
    with path.open("wb") as file:
        configure(Logging(), file)
        try:
            yield path
        except TyperException as error:
            last = path.read_text(encoding="utf-8").splitlines()[-1:]
            raise TyperException(f"{error.message}; the scheduler's last words: {''.join(last)}") from error


@asynccontextmanager
async def running_daemon(server: Server) -> AsyncIterator[None]:
    """Run the daemon beside what is inside, to its clean end."""
    stop = asyncio.Event()
    daemon = asyncio.create_task(Daemon(server, Config(leader_election=NO_ELECTION), stop).run())
    try:
        yield
    finally:
        stop.set()
        await daemon


async def perform(client: Client, console: Console) -> list[Standing]:
    """Make the cluster and apply one Job after the other; return how they stand at the end."""
    await create(client, *cluster())
    reached: list[Standing] = []
    with Progress(console) as progress:
        for number, job in enumerate(jobs(), start=1):
            await create(client, job)
            reached = await watch(client, GOALS[:number], progress)
    return reached


async def watch(client: Client, goals: Sequence[Goal], progress: Progress) -> list[Standing]:
    """Show how it goes until all is as promised, and still is a moment later."""
    deadline = time.monotonic() + GOAL_SECONDS_MAX
    good = False
    while True:
        reached = await standings(client, goals)
        pools = (await take_snapshot(client, time.time())).pools
        progress.show(reached, pools)
        problems = [problem for standing in reached for problem in standing.problems()]
        problems += untold(reached, pools)
        if good and not problems:
            return reached
        good = not problems
        if time.monotonic() > deadline:
            raise TyperException(f"the demo did not end as promised: {'; '.join(problems)}")
        await asyncio.sleep(HOLD_SECONDS if good else LOOK_SECONDS)


def invite(console: Console, reached: Sequence[Standing], kubeconfig: Path, log: Path) -> None:
    """Say how to look around."""
    waiting = next(pod for standing in reached for pod in standing.waiting)
    lines = (
        "",
        "It keeps running until Ctrl-C. In another terminal:",
        f"  export KUBECONFIG={kubeconfig}",
        "  kubectl get pods -o wide",
        f"  kubectl describe pod {waiting}",
        "  kubectl label node spare-0 cpu=true     # moves the node into cpu-pool; see `ai-scheduler pools`",
        f"The scheduler's log is {log}",
    )
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)
