"""`ai-scheduler pools` and `kubectl pool`: the table of the cluster as it is now."""

import sys
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from typer import TyperException

from aischeduler.cli.snapshot import Snapshot, take_snapshot
from aischeduler.cli.table import pool_table
from aischeduler.config.load import load_config
from aischeduler.engine.profile import default_profile
from aischeduler.kube.auth import connect
from aischeduler.kube.client import Client
from aischeduler.kube.errors import ApiError
from aischeduler.observability.logging import printable

WIDTH_MIN: Final = 80
"""The table is not squeezed below this; a narrower terminal breaks its lines."""
PIPE_WIDTH: Final = 200


async def print_pools(kubeconfig: Path | None, context: str | None, config: Path | None) -> None:
    """Print the table; raises ConfigError, AccessError, and TyperException where the API server is of no help."""
    settings = load_config(config)
    server = await connect(str(kubeconfig) if kubeconfig else None, context, time.monotonic)
    profile = default_profile(settings.scheduler_name, settings.gpu_resources)
    async with Client(server) as client:
        try:
            snapshot = await take_snapshot(client, profile)
        except ApiError as error:
            raise TyperException(f"the pools of {server.url} cannot be read: {error}") from error
    show(snapshot)


def show(snapshot: Snapshot) -> None:
    """Print the table, and on standard error what is not in it."""
    console = Console()
    console.width = max(WIDTH_MIN, console.width) if console.is_terminal else PIPE_WIDTH
    console.print(pool_table(snapshot.pools))
    for text in snapshot.unreadable:
        print(f"not counted, because it cannot be read: {printable(text)}", file=sys.stderr)
