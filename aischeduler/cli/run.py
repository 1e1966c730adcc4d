"""`ai-scheduler run`: configuration, credentials and logs, then the daemon."""

import asyncio
import gc
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import structlog

from aischeduler.config.load import ConfigError, load_config
from aischeduler.config.schema import ADDRESS_FORM, Config, Http, LogFormat, LogLevel
from aischeduler.daemon.process import run
from aischeduler.kube.auth import connect
from aischeduler.model.quantity import shorten
from aischeduler.observability.listener import listen
from aischeduler.observability.logging import configure

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
    """Schedule until SIGTERM or SIGINT; raises ConfigError and AccessError before anything has begun."""
    asyncio.get_running_loop().call_later(COLLECTOR_RESTS_SECONDS, gc.enable)
    config = settings(options)
    server = await connect(str(options.kubeconfig) if options.kubeconfig else None, options.context, time.monotonic)
    listener = listen(config.http.address)
    configure(config.logging, sys.stderr.buffer)
    if listener is not None:
        structlog.get_logger().info("serving metrics and health", port=listener.getsockname()[1])
    await run(server, config, listener=listener)


def settings(options: Options) -> Config:
    """Return the configuration with what the command line says on top."""
    config = load_config(options.config)
    given = {"format": options.log_format, "level": options.log_level}
    chosen = {name: value for name, value in given.items() if value is not None}
    http = config.http if options.http_address is None else read_http(options.http_address)
    election = config.leader_election
    if options.no_leader_elect:
        election = msgspec.structs.replace(election, enabled=False)
    log = msgspec.structs.replace(config.logging, **chosen)
    return msgspec.structs.replace(config, logging=log, http=http, leader_election=election)


def read_http(address: str) -> Http:
    """Read what `--http-address` says; raises ConfigError."""
    try:
        return msgspec.convert({"address": address}, Http)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--http-address must be {ADDRESS_FORM}, not {shorten(address)}") from error
