"""An executor with its workers and a scripted server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from structlog.testing import CapturingLogger

from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.executor import Executor, Workers
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.report.event_messages import ReportingController
from aischeduler.kube.report.reporter import Reporter
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.pod_reader import PodReader
from aischeduler.kube.watch.pre_eviction_reads import Reflectors, Refresher
from aischeduler.kube.watch.reflector import Handlers, Reflector
from aischeduler.kube.write.binder import Binder
from aischeduler.kube.write.evictor import Evictor
from aischeduler.kube.write.resizer import Resizer
from aischeduler.kube.write.volume_binder import VolumeBinder
from aischeduler.model.actions import (
    Bind,
    Condition,
    Evict,
    EvictionCause,
)
from aischeduler.model.event_reasons import ConditionReason
from aischeduler.model.events import (
    Event,
)
from tests.build import a_pod
from tests.kube.scripted_server import Counted, Script, Waits, broken, reply, serving

POD = a_pod("p", uid="uid-p")
PATH = "/api/v1/namespaces/default/pods/p"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
BIND = Bind(POD, "n1", "cpu", "home", "d-1", 12)
OWNER = a_pod("owner", namespace="team-a", uid="uid-owner")
EVICT = Evict(POD, "n1", "gpu", "cpu", EvictionCause.RECLAIMED, OWNER, "d-7")
REFUSED = Condition("Accepted", status=False, reason=ConditionReason.INVALID_SPEC, message="no")
EVICT_LINE = {
    "pod": "p",
    "namespace": "default",
    "uid": "uid-p",
    "pool": "gpu",
    "home_pool": "cpu",
    "node": "n1",
    "decision": "d-7",
    "cause": "Reclaimed",
    "beneficiary": "team-a/owner",
    "beneficiary_uid": "uid-owner",
}


@dataclass
class World:
    script: Script = field(default_factory=Script)
    waits: Waits = field(default_factory=Waits)
    events: list[Event] = field(default_factory=list)
    lines: CapturingLogger = field(default_factory=CapturingLogger)
    observed: list[tuple[Bind | Evict, str, float]] = field(default_factory=list)
    level: int = 20
    engine: Counted = field(default_factory=Counted)
    bugs: list[str] = field(default_factory=list)

    def failed(self, job: str, _: Exception) -> None:
        self.bugs.append(job)

    @asynccontextmanager
    async def running(self, limit: int = 4) -> AsyncIterator[Executor]:
        timing = self.waits.timing()
        self.script.always["post", EVENTS] = lambda _: reply(201)
        self.script.always["patch", f"{PATH}/status"] = lambda _: reply(200)
        async with serving(self.script) as server, Client(server) as client:
            connections, specs = ConnectionPool(server, limit), SpecCache()
            handlers = Handlers(self.events.append, lambda _: None, lambda *_: None)
            pods = Reflector(client, watched_resources.pods(specs), handlers, timing)
            reader = PodReader(client, pods, specs)
            log = structlog.wrap_logger(
                self.lines, processors=[], wrapper_class=structlog.make_filtering_bound_logger(self.level)
            ).bind()
            controller = ReportingController("ai-scheduler", "i")
            reports = Reporter(connections, client, timing, log, controller=controller, wall=lambda: 1.0)
            evictor = Evictor(
                connections,
                timing,
                broken,
                controller="ai-scheduler",
                honour_budgets=False,
                wall=lambda: 1.0,
                engine=self.engine,
            )
            others = (
                watched_resources.nodes(),
                watched_resources.pools(),
                watched_resources.budgets(),
                watched_resources.namespaces(),
            )
            reflectors = Reflectors(pods, *(Reflector(client, resource, handlers, timing) for resource in others))
            refresher = Refresher(client, reflectors, timing, self.events.append, log)
            binder = Binder(connections, reader.read, timing, broken, in_flight=2, engine=self.engine)
            volumes = VolumeBinder(connections, timing, self.engine, broken)
            resizer = Resizer(connections, timing, broken)
            workers = Workers(binder, volumes, evictor, resizer, reports, reader, refresher)
            executor = Executor(
                workers,
                self.events.append,
                log,
                self.failed,
                on_outcome=lambda *ended: self.observed.append(ended),
                clock=timing.clock,
            )
            task = asyncio.create_task(executor.run())
            try:
                yield executor
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                await connections.close()

    def logged(self) -> list[dict[str, Any]]:
        return [call.kwargs | {"level": call.method_name} for call in self.lines.calls]
