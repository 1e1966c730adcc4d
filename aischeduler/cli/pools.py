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

from aischeduler.cli.output import WIDTH_MIN, console, print_trimmed
from aischeduler.cli.pool_numbers import PoolNumbers, read_pool_numbers
from aischeduler.cli.pools_output import pool_table, pools_json
from aischeduler.cli.pools_watch import watch_pools
from aischeduler.cli.sandbox import stop_signal
from aischeduler.kube.access.server import Server, connect
from aischeduler.kube.crds import NOT_INSTALLED
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError, RefusedError, UnreachableError
from aischeduler.observability.logging import printable

WIDE_WIDTH_MIN: Final = 130


class PoolsOptions(Struct, frozen=True, kw_only=True):
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
    to = console(WIDE_WIDTH_MIN if options.wide else WIDTH_MIN)
    try:
        async with Client(server) as client:
            if options.watch:
                await _until_signal(_watch(client, options, to))
            else:
                _show(await read_pool_numbers(client, time.time()), options, to)
    except ApiError as error:
        raise TyperException(error_sentence(server, error)) from error


def _show(numbers: PoolNumbers, options: PoolsOptions, to: Console) -> None:
    """Print the pools, and the notes on standard error."""
    if options.json:
        to.out(pools_json(numbers.pools), highlight=False)
    else:
        print_trimmed(to, pool_table(numbers.pools, wide=options.wide))
    for note in numbers.notes():
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


async def _watch(client: Client, options: PoolsOptions, to: Console) -> None:
    """Show the pools on every change: in place on a terminal, one table after the other elsewhere."""
    if to.is_terminal and not options.json:
        with Live(console=to, auto_refresh=False) as live:
            await watch_pools(client, lambda numbers: live.update(_frame(numbers, options), refresh=True))
    else:
        await watch_pools(client, lambda numbers: _show(numbers, options, to))


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


def _frame(numbers: PoolNumbers, options: PoolsOptions) -> RenderableType:
    table = pool_table(numbers.pools, wide=options.wide)
    return Group(table, *(Text(printable(note), style="yellow") for note in numbers.notes()))
