"""`ai-scheduler run`: configuration, credentials and logs, then the daemon."""

import asyncio
import gc
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from aischeduler.config.load import ConfigError, load_config
from aischeduler.config.schema import ADDRESS_FORM, Config, Http, LogFormat, Logging, LogLevel
from aischeduler.daemon.reload import Source
from aischeduler.daemon.service import serve
from aischeduler.kube.errors import AccessError
from aischeduler.kube.server_access import connect
from aischeduler.model.quantity import shorten
from aischeduler.observability.listener import listen
from aischeduler.observability.logging import configure

CANNOT_RUN: Final = 1
"""Exit status of a scheduler that cannot use its configuration, its credentials or the API server."""
BUG: Final = 4
"""Exit status of a scheduler that an exception of its own ended."""
COLLECTOR_RESTS_SECONDS: Final = 60.0
"""Longest that the garbage collector rests while nothing is decided: a server that refuses us leaves garbage too."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says; None leaves it to the configuration or to the usual place."""

    kubeconfig: Path | None
    context: str | None
    config: Path | None
    log_format: LogFormat | None
    log_level: LogLevel | None
    http_address: str | None
    no_leader_elect: bool = False


async def run_daemon(options: Options) -> None:
    """Schedule until SIGTERM or SIGINT; raises ConfigError and AccessError where that cannot be, and logs why.

    Raises SystemExit with status 4, and logs the traceback, where an exception of our own ends it.
    """
    asyncio.get_running_loop().call_later(COLLECTOR_RESTS_SECONDS, gc.enable)
    logs(Config(logging=_logging(options, Logging())))
    try:
        await _serve(options)
    except (ConfigError, AccessError) as error:
        structlog.get_logger().error("cannot run", reason=str(error), exit_status=CANNOT_RUN)
        raise
    except Exception as error:  # noqa: BLE001 - it is logged, and the status says so
        structlog.get_logger().error("ended by a bug", exit_status=BUG, exc_info=error)
        raise SystemExit(BUG) from None


async def _serve(options: Options) -> None:
    config = settings(options)
    logs(config)
    server = await connect(str(options.kubeconfig) if options.kubeconfig else None, options.context, time.monotonic)
    listener = listen(config.http.address)
    if listener is not None:
        structlog.get_logger().info("serving metrics and health", port=listener.getsockname()[1])
    await serve(server, config, Source(options.config, partial(settings, options)), logs, listener)


def logs(config: Config) -> None:
    """Log to standard error as the configuration says."""
    configure(config.logging, sys.stderr.buffer)


def settings(options: Options) -> Config:
    """Return the configuration with what the command line says on top."""
    config = load_config(options.config)
    http = config.http if options.http_address is None else read_http(options.http_address)
    election = config.leader_election
    if options.no_leader_elect:
        election = msgspec.structs.replace(election, enabled=False)
    log = _logging(options, config.logging)
    return msgspec.structs.replace(config, logging=log, http=http, leader_election=election)


def read_http(address: str) -> Http:
    """Read what `--http-address` says; raises ConfigError."""
    try:
        return msgspec.convert({"address": address}, Http)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--http-address must be {ADDRESS_FORM}, not {shorten(address)}") from error


def _logging(options: Options, configured: Logging) -> Logging:
    given = {"format": options.log_format, "level": options.log_level}
    return msgspec.structs.replace(configured, **{name: value for name, value in given.items() if value is not None})
