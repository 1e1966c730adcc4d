"""An executor with its crew against a scripted server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from structlog.testing import CapturingLogger

from aischeduler.kube import resources
from aischeduler.kube.binder import Binder, BindTerms
from aischeduler.kube.client import Client
from aischeduler.kube.evictor import Evictor, Mandate
from aischeduler.kube.executor import Crew, Executor, Instruments
from aischeduler.kube.notes import Reporter
from aischeduler.kube.podreader import PodReader
from aischeduler.kube.podspec import SpecCache
from aischeduler.kube.reflector import Ears, Reflector
from aischeduler.kube.refresher import Refresher, Watches
from aischeduler.kube.reports import Reports, Voice
from aischeduler.kube.wire import Wire
from aischeduler.model.actions import (
    Bind,
    Cause,
    Condition,
    Evict,
)
from aischeduler.model.events import (
    Event,
)
from aischeduler.model.reasons import ConditionReason
from tests.build import a_pod
from tests.kube.scripted import Counted, Script, Waits, broken, reply, serving

POD = a_pod("p", uid="uid-p")
PATH = "/api/v1/namespaces/default/pods/p"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
POOLS = "/apis/resource.aibee.cn/v1alpha1/pools"
BIND = Bind(POD, "n1", "cpu", "home", "d-1", 12)
OWNER = a_pod("owner", namespace="team-a", uid="uid-owner")
EVICT = Evict(POD, "n1", "gpu", "cpu", Cause.RECLAIMED, OWNER, "d-7")
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
    async def running(self, connections: int = 4) -> AsyncIterator[Executor]:
        pace = self.waits.pace()
        self.script.always["post", EVENTS] = lambda _: reply(201)
        self.script.always["patch", f"{PATH}/status"] = lambda _: reply(200)
        async with serving(self.script) as server, Client(server) as client:
            wire, specs = Wire(server, connections), SpecCache()
            ears = Ears(self.events.append, lambda _: None, lambda *_: None)
            pods = Reflector(client, resources.pods(specs), ears, pace)
            reader = PodReader(client, pods, specs)
            log = structlog.wrap_logger(
                self.lines, processors=[], wrapper_class=structlog.make_filtering_bound_logger(self.level)
            ).bind()
            reports = Reports(wire, client, pace, Voice(Reporter("ai-scheduler", "i"), lambda: 1.0), log)
            mandate = Mandate("ai-scheduler", honour_budgets=False, wall=lambda: 1.0)
            evictor = Evictor(wire, pace, mandate, broken)
            others = (resources.nodes(), resources.pools(), resources.budgets(), resources.namespaces())
            watches = Watches(pods, *(Reflector(client, resource, ears, pace) for resource in others))
            refresher = Refresher(client, watches, pace, self.events.append, log)
            binder = Binder(wire, reader.read, pace, BindTerms(2, self.engine), broken)
            crew = Crew(binder, evictor, reports, reader, refresher)
            instruments = Instruments(self.failed, lambda *ended: self.observed.append(ended), pace.clock)
            executor = Executor(crew, self.events.append, log, instruments)
            task = asyncio.create_task(executor.run())
            try:
                yield executor
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                await wire.close()

    def logged(self) -> list[dict[str, Any]]:
        return [call.kwargs | {"level": call.method_name} for call in self.lines.calls]
