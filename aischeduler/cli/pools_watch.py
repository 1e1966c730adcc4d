"""Watches the Pools, and draws their numbers on every change."""

import time
from collections.abc import Callable

from msgspec.structs import replace

from aischeduler.cli.live_objects import LiveObjects, watch_objects
from aischeduler.cli.pool_numbers import PoolNumbers, pool_numbers
from aischeduler.kube.http.client import Client
from aischeduler.kube.watch import watched_resources


async def watch_pools(client: Client, draw: Callable[[PoolNumbers], None]) -> None:
    """Draw the pools on every change, until cancelled; raises ApiError where they cannot be listed."""
    pools = LiveObjects(watched_resources.pools(), "pool")

    def snapshot() -> PoolNumbers:
        numbers = pool_numbers(pools.objects(), time.time())
        unreadable = (*pools.unreadable(), *numbers.unreadable)
        return replace(numbers, unreadable=unreadable, watch_failure=pools.recent_failure())

    await watch_objects(client, (pools,), snapshot, draw)
