"""`ai-scheduler run`: reads configuration and credentials, configures the logs, and runs the daemon."""

import asyncio
import gc
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from aischeduler.config.errors import ConfigError
from aischeduler.config.load import load_config
from aischeduler.config.schema import ADDRESS_FORM, Config, Http, LogFormat, Logging, LogLevel
from aischeduler.daemon.journal_file import JournalFile
from aischeduler.daemon.reload import Source
from aischeduler.daemon.service import serve
from aischeduler.kube.access.server import connect
from aischeduler.kube.http.errors import AccessError
from aischeduler.model.user_text import quoted
from aischeduler.observability.logging import configure
from aischeduler.observability.telemetry import listen

CANNOT_RUN: Final = 1
"""Exit status of a scheduler that cannot use its configuration, its credentials or the API server."""
BUG: Final = 4
"""Exit status of a scheduler that a bug ends."""
GC_PAUSE_SECONDS_MAX: Final = 60.0
"""How long the garbage collector is off before the first decision: failing requests leave garbage too."""


class RunOptions(Struct, frozen=True, kw_only=True):
    """The command line; None leaves a value to the configuration, or a file to its usual place."""

    kubeconfig: Path | None
    context: str | None
    config: Path | None
    log_format: LogFormat | None
    log_level: LogLevel | None
    http_address: str | None
    no_leader_elect: bool = False
    journal: Path | None = None


async def run_daemon(options: RunOptions) -> None:
    """Schedule until SIGTERM or SIGINT; logs and raises ConfigError or AccessError where the daemon cannot run.

    Raises SystemExit with status 4, and logs the traceback, where a bug ends the scheduler.
    """
    asyncio.get_running_loop().call_later(GC_PAUSE_SECONDS_MAX, gc.enable)
    configure_logs(Config(logging=_logging(options, Logging())))
    try:
        await _serve(options)
    except (ConfigError, AccessError) as error:
        structlog.get_logger().error("cannot run", reason=str(error), exit_status=CANNOT_RUN)
        raise
    except Exception as error:  # noqa: BLE001 - the log has the traceback
        structlog.get_logger().error("ended by a bug", exit_status=BUG, exc_info=error)
        raise SystemExit(BUG) from None


async def _serve(options: RunOptions) -> None:
    config = effective_config(options)
    configure_logs(config)
    kubeconfig = str(options.kubeconfig) if options.kubeconfig else None
    server = await connect(kubeconfig, options.context, time.monotonic, account_first=True)
    listener = listen(config.http.address)
    if listener is not None:
        structlog.get_logger().info("serving metrics and health", port=listener.getsockname()[1])
    journal = open_journal(options.journal) if options.journal is not None else None
    source = Source(options.config, partial(effective_config, options))
    await serve(server, config, source, configure_logs, listener=listener, journal=journal)


def open_journal(directory: Path) -> JournalFile:
    """Create the journal in a directory; raises ConfigError."""
    log = structlog.get_logger()
    try:
        journal = JournalFile(directory, log.bind(), time.monotonic, datetime.fromtimestamp(time.time(), UTC))
    except OSError as error:
        raise ConfigError(f"--journal: {error.filename}: {error.strerror}") from error
    log.info("writing a journal", file=str(journal.path))
    return journal


def configure_logs(config: Config) -> None:
    """Log to standard error as the configuration says."""
    configure(config.logging, sys.stderr.buffer)


def effective_config(options: RunOptions) -> Config:
    """Return the configuration file with the command line over it."""
    config = load_config(options.config)
    http = config.http if options.http_address is None else read_http(options.http_address)
    election = config.leader_election
    if options.no_leader_elect:
        election = msgspec.structs.replace(election, enabled=False)
    log = _logging(options, config.logging)
    return msgspec.structs.replace(config, logging=log, http=http, leader_election=election)


def read_http(address: str) -> Http:
    """Read `--http-address`; raises ConfigError."""
    try:
        return msgspec.convert({"address": address}, Http)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--http-address must be {ADDRESS_FORM}, not {quoted(address)}") from error


def _logging(options: RunOptions, configured: Logging) -> Logging:
    given = {"format": options.log_format, "level": options.log_level}
    return msgspec.structs.replace(configured, **{name: value for name, value in given.items() if value is not None})
