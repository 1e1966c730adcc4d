"""Prints the numbers of objects of a cluster, once or on every change: what `pools` and `queues` have in common."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from typer import TyperException

from aischeduler.cli.output import WIDTH_MIN, console, print_trimmed
from aischeduler.cli.sandbox import stop_signal
from aischeduler.kube.access.server import Server, connect
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError, RefusedError, UnreachableError
from aischeduler.observability.logging import printable


class Numbers(Protocol):
    """Numbers of objects."""

    def notes(self) -> list[str]:
        """Return a sentence for everything that is wrong with the numbers."""


N = TypeVar("N", bound=Numbers)


class ShowOptions(Struct, frozen=True, kw_only=True):
    """Which cluster is read, and how it is shown."""

    kubeconfig: Path | None
    context: str | None
    json: bool = False
    watch: bool = False


class View(Struct, Generic[N], frozen=True, kw_only=True):
    """How numbers are read and shown.

    `kinds` names the objects; `not_installed` is the message where the API server has none of them. `read` and `watch`
    raise ApiError.
    """

    kinds: str
    not_installed: str
    width_min: int = WIDTH_MIN
    read: Callable[[Client], Awaitable[N]]
    watch: Callable[[Client, Callable[[N], None]], Awaitable[None]]
    table: Callable[[N], Table]
    json: Callable[[N], str]

    def frame(self, numbers: N) -> Group:
        """Return the table with the notes below."""
        return Group(self.table(numbers), *(Text(printable(note), style="yellow") for note in numbers.notes()))

    def error_sentence(self, server: Server, error: ApiError) -> str:
        """Return what the error means for listing the objects."""
        match error:
            case RefusedError(status=HTTPStatus.NOT_FOUND):
                return f"{server.url} does not serve {self.kinds}: {self.not_installed}"
            case RefusedError(status=HTTPStatus.FORBIDDEN):
                return f"{server.url} does not allow you to list {self.kinds}: {error.message}"
            case RefusedError(status=HTTPStatus.UNAUTHORIZED):
                return f"{server.url} does not accept your credentials: {error.message}"
            case UnreachableError():
                return f"{server.url} cannot be reached: {error}"
            case _:
                return f"the {self.kinds} of {server.url} cannot be read: {error}"


async def show(view: View[N], options: ShowOptions) -> None:
    """Print the numbers; raises AccessError, and TyperException where the API server does not answer with objects."""
    server = await connect(
        str(options.kubeconfig) if options.kubeconfig else None,
        options.context,
        time.monotonic,
        terminal=sys.stdin.isatty(),
    )
    to = console(view.width_min)
    try:
        async with Client(server) as client:
            if options.watch:
                await _until_signal(_watch(view, client, options, to))
            else:
                _print(view, await view.read(client), options, to)
    except ApiError as error:
        raise TyperException(view.error_sentence(server, error)) from error


def _print(view: View[N], numbers: N, options: ShowOptions, to: Console) -> None:
    """Print the numbers, and the notes on standard error."""
    if options.json:
        to.out(view.json(numbers), highlight=False)
    else:
        print_trimmed(to, view.table(numbers))
    for note in numbers.notes():
        print(printable(note), file=sys.stderr, flush=True)


async def _watch(view: View[N], client: Client, options: ShowOptions, to: Console) -> None:
    """Show the numbers on every change: in place on a terminal, one table after the other elsewhere."""
    if to.is_terminal and not options.json:
        with Live(console=to, auto_refresh=False) as live:
            await view.watch(client, lambda numbers: live.update(view.frame(numbers), refresh=True))
    else:
        await view.watch(client, lambda numbers: _print(view, numbers, options, to))


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
