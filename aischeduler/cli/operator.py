"""`ai-scheduler operator`: runs the operator of BatchProcess."""

import asyncio
import sys
from pathlib import Path
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from aischeduler.config.errors import ConfigError
from aischeduler.config.schema import LogFormat, Logging, LogLevel
from aischeduler.model.user_text import quoted
from aischeduler.observability.logging import configure

BUG: Final = 4
"""Exit status of an operator that a bug, or an answer that kopf cannot use, ends; it may start again at once."""


class OperatorOptions(Struct, frozen=True):
    """The command line; None leaves a value to its default."""

    kubeconfig: Path | None
    context: str | None
    scheduler_name: str
    default_image: str
    health_address: str
    log_format: LogFormat
    log_level: LogLevel


def run_operator(options: OperatorOptions) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises ConfigError without credentials and for a wrong address, and SystemExit with status 4 where the operator ends
    by itself; its log has the reason.
    """
    from aischeduler.operator.batch_process import Settings  # noqa: PLC0415
    from aischeduler.operator.program import Access, AccessError, serve  # noqa: PLC0415

    logging = msgspec.structs.replace(Logging(), format=options.log_format, level=options.log_level)
    configure(logging, sys.stderr.buffer)
    settings = Settings(options.scheduler_name, options.default_image)
    health = _health(options.health_address)
    try:
        asyncio.run(serve(Access(options.kubeconfig, options.context), settings, health))
    except AccessError as error:
        raise ConfigError(str(error)) from error
    except Exception as error:  # noqa: BLE001 - the log has the traceback
        structlog.get_logger().error("ended by a bug", exit_status=BUG, exc_info=error)
        raise SystemExit(BUG) from None


def _health(address: str) -> str | None:
    """Return the host and port of the health checks; raises ConfigError."""
    if address == "none":
        return None
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise ConfigError(f"--health-address must be HOST:PORT, :PORT or none, not {quoted(address)}")
    return f"{host or '0.0.0.0'}:{port}"  # noqa: S104 - the kubelet connects to the pod's address
