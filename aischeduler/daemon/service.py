"""The scheduler as a service: it runs until a signal ends it."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import structlog

from aischeduler.config.schema import Config
from aischeduler.daemon.journal_file import JournalFile
from aischeduler.daemon.process import Daemon
from aischeduler.daemon.reload import Apply, Reload, Source
from aischeduler.kube.access.server import Server


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop where uvloop is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def serve(
    server: Server,
    config: Config,
    source: Source,
    logs: Apply,
    *,
    listener: socket.socket | None = None,
    journal: JournalFile | None = None,
) -> None:
    """Schedule until SIGTERM or SIGINT.

    On SIGHUP, and when its file changes, the configuration is read from `source` again; `logs` applies its logging
    settings. Raises AccessError where the API server cannot be used.
    """
    stop = asyncio.Event()
    daemon = Daemon(server, config, stop, listener=listener, journal=journal)

    def apply(config: Config) -> None:
        logs(config)
        daemon.apply(config)

    reload = Reload(source, config, apply, structlog.get_logger().bind())
    daemon.more_jobs["configuration"] = reload.run
    with _signal_handlers({signal.SIGTERM: stop.set, signal.SIGINT: stop.set, signal.SIGHUP: reload.request}):
        await daemon.run()


@contextmanager
def _signal_handlers(handlers: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Let each signal call its handler in the running event loop while the context is open."""
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
