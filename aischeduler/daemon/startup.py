"""The start of a daemon: the check of the API server's version, and the wait for the first lists.

Invariants:
- The scheduler waits for an API server that cannot be reached, as kube-scheduler does: control planes start in any
  order, and the kubelet restarts a container that exits only after ever longer waits.
- The scheduler decides only once it knows that the API server's version is new enough, or that it cannot be read.
"""

import gc
from collections.abc import Collection
from typing import Any

from structlog.typing import FilteringBoundLogger

from aischeduler.kube.access.server_version import read_version, too_old
from aischeduler.kube.http.backoff import ExponentialBackoff, Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError, UnreachableError
from aischeduler.kube.watch.event_queue import EventQueue
from aischeduler.kube.watch.reflector import Reflector


async def check_server(client: Client, url: str, timing: Timing, log: FilteringBoundLogger) -> str:
    """Wait until the API server answers; return why it cannot be used, or nothing."""
    backoff = ExponentialBackoff(timing)
    logged = False
    while True:
        try:
            version = await read_version(client)
        except UnreachableError as error:
            if not logged:
                log.warning("API server not reached", server=url, reason=str(error))
            logged = True
            await backoff.wait()
        except ApiError as error:
            log.warning("API server version unknown", server=url, reason=str(error))
            return ""
        else:
            return too_old(url, version)


async def wait_for_sync(
    reflectors: Collection[Reflector[Any]], event_queue: EventQueue, log: FilteringBoundLogger
) -> None:
    """Return once every needed kind is listed and the engine has observed all listed objects."""
    needed = [reflector for reflector in reflectors if reflector.resource.needed]
    for reflector in needed:
        await reflector.synced.wait()
    await event_queue.wait_empty()
    gc.freeze()  # listed objects stay, so the garbage collector need not visit them
    gc.enable()
    log.info("synced", **{reflector.resource.kind.lower() + "s": len(reflector) for reflector in needed})
