"""`ai-scheduler pools` and `kubectl pool`: print the pools of a cluster, once or on every change."""

import asyncio
import sys
import time
from collections.abc import Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text
from typer import TyperException

from aischeduler.cli.pools_json import pools_json
from aischeduler.cli.pools_snapshot import Snapshot, take_snapshot
from aischeduler.cli.pools_table import pool_table, print_trimmed
from aischeduler.cli.pools_watch import watch_pools
from aischeduler.cli.sandbox import stop_signal
from aischeduler.kube.client import Client
from aischeduler.kube.crds import NOT_INSTALLED
from aischeduler.kube.errors import ApiError, RefusedError, UnreachableError
from aischeduler.kube.server_access import Server, connect
from aischeduler.observability.logging import printable

WIDTH_MIN: Final = 80
WIDE_WIDTH_MIN: Final = 130
"""The least width of the table; a narrower terminal breaks its lines."""
PIPE_WIDTH: Final = 200


class PoolsOptions(Struct, frozen=True):
    """The command line."""

    kubeconfig: Path | None
    context: str | None
    wide: bool = False
    json: bool = False
    watch: bool = False


async def print_pools(options: PoolsOptions) -> None:
    """Print the pools; raises AccessError, and TyperException where the API server does not answer with Pools."""
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
                await _until_signal(_watch(client, options, console))
            else:
                _show(await take_snapshot(client, time.time()), options, console)
    except ApiError as error:
        raise TyperException(error_sentence(server, error)) from error


def _show(snapshot: Snapshot, options: PoolsOptions, console: Console) -> None:
    """Print the pools, and the notes on standard error."""
    if options.json:
        console.out(pools_json(snapshot.pools), highlight=False)
    else:
        print_trimmed(console, pool_table(snapshot.pools, wide=options.wide))
    for note in snapshot.notes():
        print(printable(note), file=sys.stderr, flush=True)


def error_sentence(server: Server, error: ApiError) -> str:
    """Return what the error means for listing Pools."""
    match error:
        case RefusedError(status=HTTPStatus.NOT_FOUND):
            return f"{server.url} does not serve Pools: {NOT_INSTALLED}"
        case RefusedError(status=HTTPStatus.FORBIDDEN):
            return f"{server.url} does not allow you to list Pools: {error.message}"
        case RefusedError(status=HTTPStatus.UNAUTHORIZED):
            return f"{server.url} does not accept your credentials: {error.message}"
        case UnreachableError():
            return f"{server.url} cannot be reached: {error}"
        case _:
            return f"the Pools of {server.url} cannot be read: {error}"


async def _watch(client: Client, options: PoolsOptions, console: Console) -> None:
    """Show the pools on every change: in place on a terminal, one table after the other elsewhere."""
    if console.is_terminal and not options.json:
        with Live(console=console, auto_refresh=False) as live:
            await watch_pools(client, lambda snapshot: live.update(_frame(snapshot, options), refresh=True))
    else:
        await watch_pools(client, lambda snapshot: _show(snapshot, options, console))


async def _until_signal(watching: Coroutine[Any, Any, None]) -> None:
    """Run until the coroutine ends or fails, or until SIGINT or SIGTERM."""
    tasks = [asyncio.create_task(watching), asyncio.create_task(stop_signal())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _frame(snapshot: Snapshot, options: PoolsOptions) -> RenderableType:
    table = pool_table(snapshot.pools, wide=options.wide)
    return Group(table, *(Text(printable(note), style="yellow") for note in snapshot.notes()))


def _console(width_min: int) -> Console:
    console = Console()
    console.width = max(width_min, console.width) if console.is_terminal else PIPE_WIDTH
    return console
