"""A reporter and a scripted server: the written reports and their order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from structlog.testing import CapturingLogger

from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.report.event_messages import ReportingController
from aischeduler.kube.report.report_queue import REPORTS_IN_FLIGHT_MAX
from aischeduler.kube.report.reporter import Reporter
from aischeduler.model.actions import Bind, ReportWaiting
from aischeduler.model.pod import Pod
from tests.build import a_pod
from tests.kube.scripted_server import PATIENCE_SECONDS, Script, Waits, reply, serving

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
STATUS = "/api/v1/namespaces/default/pods/p/status"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
POOL = f"{POOLS}/cpu"
WALL = 1_767_323_045.25
POD = a_pod("p", uid="u1")


def a_bind(pod: Pod) -> Bind:
    """Return a Binding to node `n1` in the pod's home pool."""
    return Bind(pod, "n1", "cpu", "cpu", "d-1", 3)


def waiting(message: str, pod: str = "p") -> ReportWaiting:
    """Return a report of why a pod of pool `cpu` is pending."""
    return ReportWaiting(a_pod(pod, uid=f"u-{pod}"), "cpu", "cpu", message, "d")


@dataclass
class World:
    script: Script = field(default_factory=Script)
    waits: Waits = field(default_factory=Waits)
    binds_done: asyncio.Event = field(default_factory=asyncio.Event)
    lines: CapturingLogger = field(default_factory=CapturingLogger)
    connections: ConnectionPool = field(init=False)
    """The connection pool of the running reporter."""
    timing: Timing = field(init=False)
    log: structlog.BoundLogger = field(init=False)
    wall: float = WALL
    _task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.timing = self.waits.timing()
        self.binds_done.set()

    async def binds_first(self) -> None:
        await self.binds_done.wait()

    @asynccontextmanager
    async def running(self, bugs: int = 0) -> AsyncIterator[Reporter]:
        """Run a reporter; `bugs` is the number of expected internal errors."""
        controller = ReportingController("ai-scheduler", "ai-scheduler-h-1")
        async with serving(self.script) as server, Client(server) as client:
            connections = self.connections = ConnectionPool(server, REPORTS_IN_FLIGHT_MAX)
            log = structlog.wrap_logger(self.lines, processors=[], wrapper_class=structlog.BoundLogger).bind()
            reports = Reporter(connections, client, self.timing, log, controller=controller, wall=lambda: self.wall)
            self.log = log
            self._run(reports)
            try:
                yield reports
            finally:
                await self._end()
                await connections.close()
        assert len(self.logged("job failed")) == bugs, self.logged("job failed")

    async def run_again(self, reports: Reporter) -> None:
        """Cancel the reporter and run it again, as after an internal error of another part."""
        await self._end()
        self._run(reports)

    def _run(self, reports: Reporter) -> None:
        def failed(job: str, error: Exception) -> None:
            self.log.error("job failed", job=job, exc_info=error)

        self._task = asyncio.create_task(reports.run(self.binds_first, failed))

    async def _end(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def accept_all(self) -> "World":
        self.script.always["post", EVENTS] = lambda _: reply(201)
        self.script.always["patch", STATUS] = lambda _: reply(200)
        return self

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = [call.kwargs | {"level": call.method_name} for call in self.lines.calls]
        return [line for line in lines if line.pop("event") == event]

    @property
    def events(self) -> list[Any]:
        return [request.json for request in self.script.asked("post")]


async def written(reports: Reporter) -> None:
    """Return once every report is written, refused or dropped."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        await reports.wait_written()
