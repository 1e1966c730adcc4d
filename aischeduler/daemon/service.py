"""The scheduler as a service: runs until a signal ends it, and keeps up with its configuration."""

import asyncio
import signal
import socket
from collections.abc import Callable

import structlog

from aischeduler.config.schema import Config
from aischeduler.daemon.process import Daemon
from aischeduler.daemon.reload import Apply, Reload, Source
from aischeduler.daemon.signals import reacting
from aischeduler.kube.server_access import Server


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop where uvloop is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def serve(
    server: Server, config: Config, source: Source, logs: Apply, listener: socket.socket | None = None
) -> None:
    """Schedule until SIGTERM or SIGINT; metrics and health are served on `listener`.

    On SIGHUP, and when its file changes, the configuration is read from `source` again; `logs` takes over what it says
    of them. Raises AccessError where the API server cannot be used.
    """
    stop = asyncio.Event()
    daemon = Daemon(server, config, stop, listener=listener)

    def apply(config: Config) -> None:
        logs(config)
        daemon.apply(config)

    reload = Reload(source, config, apply, structlog.get_logger().bind())
    following = asyncio.create_task(reload.follow(), name="configuration")
    try:
        with reacting({signal.SIGTERM: stop.set, signal.SIGINT: stop.set, signal.SIGHUP: reload.ask}):
            await daemon.run()
    finally:
        following.cancel()
        await asyncio.wait([following])
