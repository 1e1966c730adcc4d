"""Reload: the configuration of a running daemon is read again on SIGHUP, and when its file changes.

Invariants:
- Fields in `RELOADED` of the schema are applied at once; a log line names the others, which wait for the next start.
- A file that cannot be used changes nothing; the log names the error once.
- A file counts as changed when it was written, or when its path leads to another file, as with a mounted ConfigMap.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from aischeduler.config.errors import ConfigError
from aischeduler.config.schema import Config, differing, taken_over

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
