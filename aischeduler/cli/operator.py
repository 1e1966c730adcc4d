"""`ai-scheduler operator`: runs the operator of BatchProcess and TrainingJob."""

import asyncio
import sys
from pathlib import Path
from typing import Final

import msgspec
import structlog

from aischeduler.config.errors import ConfigError
from aischeduler.config.schema import LogFormat, Logging, LogLevel
from aischeduler.kube.http.errors import AccessError
from aischeduler.model.user_text import quoted
from aischeduler.observability.logging import configure

BUG: Final = 4
"""Exit status of an operator that a bug, or an answer that kopf cannot use, ends; it may start again at once."""


def run_operator(
    *,
    kubeconfig: Path | None,
    context: str | None,
    scheduler_name: str,
    default_image: str,
    health_address: str,
    log_format: LogFormat,
    log_level: LogLevel,
) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises AccessError without credentials, ConfigError for a wrong address, and SystemExit with status 4 where the
    operator ends by itself; its log has the reason.
    """
    from aischeduler.operator.owner import Settings  # noqa: PLC0415
    from aischeduler.operator.program import serve  # noqa: PLC0415

    configure(msgspec.structs.replace(Logging(), format=log_format, level=log_level), sys.stderr.buffer)
    health = _health(health_address)
    try:
        asyncio.run(serve(kubeconfig, context, Settings(scheduler_name, default_image), health))
    except AccessError:
        raise
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
