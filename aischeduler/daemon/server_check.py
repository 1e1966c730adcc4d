"""The first words with the API server: it may be away for now, but one that is too old is refused.

Laws:
- One that cannot be reached is waited for, as kube-scheduler does: control planes start in any order, and a scheduler
  that ended would be started again only after ever longer waits.
- Nothing is decided before it is known that it is new enough, or that it does not tell.
"""

from structlog.typing import FilteringBoundLogger

from aischeduler.kube.backoff import ExponentialBackoff, Timing
from aischeduler.kube.client import Client
from aischeduler.kube.errors import ApiError, UnreachableError
from aischeduler.kube.server_version import read_version, too_old


async def check_server(client: Client, url: str, timing: Timing, log: FilteringBoundLogger) -> str:
    """Wait until the API server answers; return why it cannot be used, or nothing."""
    backoff = ExponentialBackoff(timing)
    told = False
    while True:
        try:
            version = await read_version(client)
        except UnreachableError as error:
            if not told:
                log.warning("server not reached", server=url, reason=str(error))
            told = True
            await backoff.wait()
        except ApiError as error:
            log.warning("server version unknown", server=url, reason=str(error))
            return ""
        else:
            return too_old(url, version)
