"""`ai-scheduler pools` and `kubectl pool`: the table of the cluster, as it is now or as it changes."""

import asyncio
import sys
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text
from typer import TyperException

from aischeduler.cli.pools_live import follow
from aischeduler.cli.sandbox import stop_signal
from aischeduler.cli.snapshot import Snapshot, take_snapshot
from aischeduler.cli.summary_json import summaries_json
from aischeduler.cli.table import pool_table, print_trimmed
from aischeduler.kube.client import Client
from aischeduler.kube.errors import ApiError, RefusedError, UnreachableError
from aischeduler.kube.pool_crd import NOT_INSTALLED
from aischeduler.kube.server_access import Server, connect
from aischeduler.observability.logging import printable

WIDTH_MIN: Final = 80
WIDE_WIDTH_MIN: Final = 130
"""The table is not squeezed below these; a narrower terminal breaks its lines."""
PIPE_WIDTH: Final = 200


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says; JSON has all columns."""

    kubeconfig: Path | None
    context: str | None
    wide: bool = False
    json: bool = False
    watch: bool = False


async def print_pools(options: Options) -> None:
    """Print the pools; raises AccessError, and TyperException where the API server is of no help."""
    server = await connect(
        str(options.kubeconfig) if options.kubeconfig else None,
        options.context,
        time.monotonic,
        terminal=sys.stdin.isatty(),
    )
    console = _console(WIDE_WIDTH_MIN if options.wide else WIDTH_MIN)
    try:
        async with Client(server) as client:
            if options.watch:
                await until_stopped(watch(client, options, console))
            else:
                show(await take_snapshot(client, time.time()), options, console)
    except ApiError as error:
        raise TyperException(sentence(server, error)) from error


def show(snapshot: Snapshot, options: Options, console: Console) -> None:
    """Print the pools, and on standard error what is not in them."""
    if options.json:
        console.out(summaries_json(snapshot.pools), highlight=False)
    else:
        print_trimmed(console, pool_table(snapshot.pools, wide=options.wide))
    for note in snapshot.notes():
        print(printable(note), file=sys.stderr, flush=True)


def sentence(server: Server, error: ApiError) -> str:
    """Return what a failure means to somebody who wanted to see pools."""
    match error:
        case RefusedError(status=HTTPStatus.NOT_FOUND):
            return f"{server.url} does not know Pools: {NOT_INSTALLED}"
        case RefusedError(status=HTTPStatus.FORBIDDEN):
            return f"you may not see the pools of {server.url}: {error.message}"
        case RefusedError(status=HTTPStatus.UNAUTHORIZED):
            return f"{server.url} does not accept your credentials: {error.message}"
        case UnreachableError():
            return f"{server.url} cannot be reached: {error}"
        case _:
            return f"the pools of {server.url} cannot be read: {error}"


async def watch(client: Client, options: Options, console: Console) -> None:
    """Show the pools whenever they change: in place on a terminal, one after the other elsewhere."""
    if console.is_terminal and not options.json:
        with Live(console=console, auto_refresh=False) as live:
            await follow(client, lambda snapshot: live.update(_frame(snapshot, options), refresh=True))
    else:
        await follow(client, lambda snapshot: show(snapshot, options, console))


async def until_stopped(showing: Coroutine[Any, Any, None]) -> None:
    """Run until it ends or fails, or until SIGINT or SIGTERM."""
    tasks = [asyncio.create_task(showing), asyncio.create_task(stop_signal())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _frame(snapshot: Snapshot, options: Options) -> RenderableType:
    table = pool_table(snapshot.pools, wide=options.wide)
    return Group(table, *(Text(printable(note), style="yellow") for note in snapshot.notes()))


def _console(width_min: int) -> Console:
    console = Console()
    console.width = max(width_min, console.width) if console.is_terminal else PIPE_WIDTH
    return console
