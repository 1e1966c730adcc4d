"""`ai-scheduler pools` and `kubectl pool`: print the pools of a cluster, once or on every change."""

import time
from functools import partial
from typing import Final

from rich.table import Table

from aischeduler.cli.output import WIDTH_MIN
from aischeduler.cli.pool_numbers import PoolNumbers, read_pool_numbers
from aischeduler.cli.pools_output import pool_table, pools_json
from aischeduler.cli.pools_watch import watch_pools
from aischeduler.cli.shown_numbers import ShowOptions, View, show
from aischeduler.kube.crds import NOT_INSTALLED
from aischeduler.kube.http.client import Client

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


async def _read(client: Client) -> PoolNumbers:
    return await read_pool_numbers(client, time.time())


def _table(numbers: PoolNumbers, *, wide: bool) -> Table:
    return pool_table(numbers.pools, wide=wide)
