"""The configuration of a running scheduler, read again on SIGHUP and when its file changes.

Laws:
- What the schema marks as `RELOADED` is taken over at once; of the rest it is said that it waits for the next start.
- A file that cannot be used changes nothing, and is told once.
- A file counts as changed when another file lies behind its name, as where a ConfigMap is mounted, or it was written.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from aischeduler.config.fields import differing, taken_over
from aischeduler.config.load import ConfigError
from aischeduler.config.schema import Config

LOOK_SECONDS: Final = 10.0
"""How often the file is looked at; the kubelet renews a mounted ConfigMap about once a minute."""

Apply = Callable[[Config], None]
"""Takes a configuration over, as far as a running scheduler can."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the configuration came from: its file, if any, and what reads it again; that raises ConfigError."""

    path: Path | None
    read: Callable[[], Config]


class Reload:
    """Keeps up with the source; `config` is what is in force."""

    def __init__(self, source: Source, config: Config, apply: Apply, log: FilteringBoundLogger) -> None:
        self.config = config
        self._source = source
        self._apply = apply
        self._log = log
        self._asked = asyncio.Event()
        self._stamp = _stamp(source.path)

    def ask(self) -> None:
        """Have it read again now, changed or not: somebody said so."""
        self._asked.set()

    async def follow(self, look_seconds: float = LOOK_SECONDS) -> None:
        """Read it again whenever that is due, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(look_seconds):
                    await self._asked.wait()
            stamp = _stamp(self._source.path)
            if self._asked.is_set() or stamp != self._stamp:
                cause = "SIGHUP" if self._asked.is_set() else "the file changed"
                self._asked.clear()
                self._stamp = stamp
                await self._read_again(cause)

    async def _read_again(self, cause: str) -> None:
        try:
            read = await asyncio.to_thread(self._source.read)
        except ConfigError as error:
            self._log.error("configuration not taken over", cause=cause, reason=str(error))
            return
        config = taken_over(self.config, read)
        changed = ", ".join(field.path for field in differing(self.config, config))
        waiting = ", ".join(field.path for field in differing(config, read))
        if changed:
            self.config = config
            self._apply(config)
        self._log.info("configuration read again", cause=cause, changed=changed or "nothing")
        if waiting:
            self._log.warning("restart to use", fields=waiting)


def _stamp(path: Path | None) -> tuple[int, ...]:
    """Return what tells one state of a file from the next; nothing where there is none."""
    if path is None:
        return ()
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
