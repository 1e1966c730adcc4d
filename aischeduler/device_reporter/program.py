"""The device reporter as a program: it runs until a signal, or makes one report.

Invariant: the API server is reached by the credentials of the pod, or of a kubeconfig, as by the scheduler.
"""

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct

from aischeduler.device_reporter.agent import Agent, Report
from aischeduler.device_reporter.nvml import NvidiaNode
from aischeduler.kube.access.server import connect
from aischeduler.kube.http.backoff import Timing, unix_clock
from aischeduler.kube.http.client import Client


class Settings(Struct, frozen=True):
    """The settings of a device reporter; `root` is the folder in which the root of the node is mounted."""

    node: str
    interval_seconds: float
    root: Path
    kubeconfig: Path | None = None
    context: str | None = None


async def serve(settings: Settings) -> None:
    """Report until SIGTERM or SIGINT. Raises AccessError."""
    async with _agent(settings) as agent:
        structlog.get_logger().info("device reporter started", node=settings.node)
        await _until_signal(agent.run())
    structlog.get_logger().info("device reporter stopped", node=settings.node)


async def report_once(settings: Settings, *, write: bool) -> Report:
    """Return what the node is to say now, and write it where `write` says so. Raises ApiError."""
    async with _agent(settings) as agent:
        report = await agent.look()
        if write:
            await agent.write(report)
        return report


@asynccontextmanager
async def _agent(settings: Settings) -> AsyncIterator[Agent]:
    kubeconfig = str(settings.kubeconfig) if settings.kubeconfig else None
    server = await connect(kubeconfig, settings.context, time.monotonic, account_first=True)
    log = structlog.get_logger().bind()
    server.on_credential_failure = lambda reason: log.warning("credentials do not work", reason=reason)
    try:
        async with Client(server) as client:
            yield Agent(
                client,
                NvidiaNode(settings.root),
                settings.node,
                root=settings.root,
                interval_seconds=settings.interval_seconds,
                timing=Timing(unix_clock(), asyncio.sleep, secrets.SystemRandom()),
                log=log,
            )
    finally:
        await server.close()


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Do some work until SIGTERM or SIGINT."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        with suppress(asyncio.CancelledError):
            await task
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
