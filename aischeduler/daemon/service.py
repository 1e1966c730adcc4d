"""The scheduler as a service: runs until a signal ends it, and reloads its configuration.

Invariants:
- Fields in `RELOADED` of the schema are applied at once; a log line names the others, which wait for the next start.
- A file that cannot be used changes nothing; the log names the error once.
- A file counts as changed when it was written, or when its path leads to another file, as with a mounted ConfigMap.
"""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from aischeduler.config.errors import ConfigError
from aischeduler.config.schema import Config, differing, taken_over
from aischeduler.daemon.journal_file import JournalFile
from aischeduler.daemon.process import Daemon
from aischeduler.kube.access.server import Server

INTERVAL_SECONDS: Final = 10.0
"""How often the file is checked; the kubelet renews a mounted ConfigMap about once a minute."""

Apply = Callable[[Config], None]


class Source(Struct, frozen=True):
    """The file of the configuration, if any, and a function that reads it again or raises ConfigError."""

    path: Path | None
    read: Callable[[], Config]


class Reload:
    """Reloads the configuration from its source; `config` is the configuration in force."""

    def __init__(self, source: Source, config: Config, apply: Apply, log: FilteringBoundLogger) -> None:
        self.config = config
        self._source = source
        self._apply = apply
        self._log = log
        self._requested = asyncio.Event()
        self._stamp = _stamp(source.path)

    def request(self) -> None:
        """Request that the configuration is read again now, changed or not."""
        self._requested.set()

    async def run(self, interval_seconds: float = INTERVAL_SECONDS) -> None:
        """Read the configuration again whenever it was requested or the file changed, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_seconds):
                    await self._requested.wait()
            stamp = _stamp(self._source.path)
            if self._requested.is_set() or stamp != self._stamp:
                cause = "SIGHUP" if self._requested.is_set() else "the file changed"
                self._requested.clear()
                self._stamp = stamp
                await self._read_again(cause)

    async def _read_again(self, cause: str) -> None:
        try:
            read = await asyncio.to_thread(self._source.read)
        except ConfigError as error:
            self._log.error("configuration not applied", cause=cause, reason=str(error))
            return
        config = taken_over(self.config, read)
        changed = ", ".join(field.path for field in differing(self.config, config))
        waiting = ", ".join(field.path for field in differing(config, read))
        if changed:
            self._apply(config)
            self.config = config
        self._log.info("configuration reloaded", cause=cause, changed=changed or "nothing")
        if waiting:
            self._log.warning("restart needed", fields=waiting)


def _stamp(path: Path | None) -> tuple[int, ...]:
    """Return numbers that differ once the file was written or replaced; empty where there is no file."""
    if path is None:
        return ()
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


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
