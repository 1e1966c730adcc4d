"""`ai-scheduler pools` and `kubectl pool`: print the pools of a cluster, once or on every change."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace
from rich.table import Table

from aischeduler.cli.live_objects import LiveObjects, watch_objects
from aischeduler.cli.output import WIDTH_MIN
from aischeduler.cli.pool_numbers import PoolNumbers, pool_numbers, read_pool_numbers
from aischeduler.cli.pools_output import pool_table, pools_json
from aischeduler.cli.shown_numbers import ShowOptions, View, show
from aischeduler.kube.crds import NOT_INSTALLED
from aischeduler.kube.http.client import Client
from aischeduler.kube.watch import watched_resources

WIDE_WIDTH_MIN: Final = 130


async def print_pools(options: ShowOptions, *, wide: bool = False) -> None:
    """Print the pools; raises AccessError, and TyperException where the API server does not answer with Pools."""
    await show(pools_view(wide=wide), options)


def pools_view(*, wide: bool = False) -> View[PoolNumbers]:
    """Return how pools are read and shown."""
    return View(
        kinds="Pools",
        not_installed=NOT_INSTALLED,
        width_min=WIDE_WIDTH_MIN if wide else WIDTH_MIN,
        read=_read,
        watch=watch_pools,
        table=partial(_table, wide=wide),
        json=lambda numbers: pools_json(numbers.pools),
    )


async def watch_pools(client: Client, draw: Callable[[PoolNumbers], None]) -> None:
    """Draw the pools on every change, until cancelled; raises ApiError where they cannot be listed."""
    pools = LiveObjects(watched_resources.pools(), "pool")

    def snapshot() -> PoolNumbers:
        numbers = pool_numbers(pools.objects(), time.time())
        unreadable = (*pools.unreadable(), *numbers.unreadable)
        return replace(numbers, unreadable=unreadable, watch_failure=pools.recent_failure())

    await watch_objects(client, (pools,), snapshot, draw)


async def _read(client: Client) -> PoolNumbers:
    return await read_pool_numbers(client, time.time())


def _table(numbers: PoolNumbers, *, wide: bool) -> Table:
    return pool_table(numbers.pools, wide=wide)
