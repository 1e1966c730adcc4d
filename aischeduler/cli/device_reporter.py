"""`ai-scheduler device-reporter`: reports the devices of a node, or prints what it would report."""

import asyncio
import sys

import msgspec
import structlog
import yaml

from aischeduler.config.schema import LogFormat, Logging, LogLevel
from aischeduler.device_reporter.agent import Report
from aischeduler.device_reporter.program import Settings, report_once, serve
from aischeduler.device_reporter.report import without_nulls
from aischeduler.kube.http.errors import ApiError
from aischeduler.observability.logging import configure

BUG = 4
"""Exit status of a device reporter that a bug ends."""


def run_device_reporter(
    settings: Settings, *, once: bool, dry_run: bool, log_format: LogFormat, log_level: LogLevel
) -> None:
    """Report until SIGTERM or SIGINT, or `once`; a `dry_run` prints one report and writes nothing.

    Raises ApiError, and SystemExit with status 4 where a bug ends the program; its log has the reason.
    """
    configure(msgspec.structs.replace(Logging(), format=log_format, level=log_level), sys.stderr.buffer)
    try:
        if not once and not dry_run:
            asyncio.run(serve(settings))
            return
        report = asyncio.run(report_once(settings, write=not dry_run))
    except ApiError:
        raise
    except Exception as error:  # noqa: BLE001 - the log has the traceback
        structlog.get_logger().error("ended by a bug", exit_status=BUG, exc_info=error)
        raise SystemExit(BUG) from None
    if dry_run:
        print(as_yaml(report), end="")


def as_yaml(report: Report) -> str:
    """Return the Device object, and what the node is to have, as YAML documents."""
    if report.device is None:
        return "# The node has no devices.\n"
    device = without_nulls(report.device)
    metadata = without_nulls({"name": device["metadata"]["name"], "labels": dict(report.labels)})
    amounts = {name: str(report.capacity[name]) for name in sorted(report.capacity)}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"capacity": amounts}}
    return yaml.safe_dump_all([device, node], sort_keys=False, explicit_start=True)
