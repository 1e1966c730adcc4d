"""A binder, a scripted server, and the answers to reads of its pods."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from aischeduler.kube.http.client import Client
from aischeduler.kube.http.connection_pool import ConnectionPool
from aischeduler.kube.http.errors import OnInternalError
from aischeduler.kube.write.binder import Binder, BindHooks, Outcome, bindings_in_flight_max
from aischeduler.kube.write.hami_binds import HamiBinds
from aischeduler.model.actions import Bind
from aischeduler.model.events import BindRefusal, BindRefused
from aischeduler.model.pod import Pod
from tests.build import a_pod
from tests.kube.scripted_server import PATIENCE_SECONDS, Answer, Counted, Script, Waits, broken, reply, serving, status

PATH = "/api/v1/namespaces/default/pods/p/binding"
BIND = Bind(a_pod("p", uid="u1"), "n1", "cpu", "cpu", "d1", 1)
BOUND = a_pod("p", uid="u1", node="n1")
FREE = a_pod("p", uid="u1")


@dataclass
class World:
    """A binder, a scripted server, and the answers to reads of the pod, in order."""

    script: Script = field(default_factory=Script)
    waits: Waits = field(default_factory=Waits)
    reads: list[Pod | Exception | None] = field(default_factory=list)
    asked: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    failed: OnInternalError = broken
    engine: Counted = field(default_factory=Counted)
    bugs: list[Exception] = field(default_factory=list)
    """The errors that the next calls of the outcome callback raise."""
    answer_seconds: float | None = None
    """How long the binder waits for an answer; None for what the script says."""
    hooks: BindHooks | None = None
    wall_seconds: float | None = None
    """The time of day where nodes of HAMi get pods."""

    def hear(self, _action: Bind, outcome: Outcome, _seconds: float) -> None:
        if self.bugs:
            raise self.bugs.pop()
        self.outcomes.append(outcome)

    async def read(self, _: Pod) -> Pod | None:
        self.asked += 1
        found = self.reads.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    @asynccontextmanager
    async def running(self, in_flight: int = 2) -> AsyncIterator[Binder]:
        async with serving(self.script) as server, Client(server) as client:
            seconds = self.answer_seconds or self.script.answer_seconds
            connections = ConnectionPool(server, bindings_in_flight_max(in_flight), answer_seconds=seconds)
            timing, hooks = self.waits.timing(), self.hooks
            now = self.wall_seconds
            binder = Binder(
                connections,
                self.read,
                timing,
                self.failed,
                in_flight=in_flight,
                engine=self.engine,
                hooks=hooks,
                hami=HamiBinds(client, lambda: now) if now is not None else None,
            )
            task = asyncio.create_task(binder.run(self.hear))
            try:
                yield binder
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                await connections.close()

    async def bind(self, *answers: Answer, action: Bind = BIND) -> Outcome:
        self.script.on("post", PATH, *answers)
        async with self.running() as binder:
            binder.submit(action)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await binder.work_queue.wait_finished()
        assert len(self.outcomes) == 1
        return self.outcomes[0]

    @property
    def posts(self) -> int:
        return len(self.script.asked("post"))


def conflict(text: str) -> Answer:
    return status(409, "Conflict", f'Operation cannot be fulfilled on pods/binding "p": {text}')


def refusal(outcome: Outcome) -> BindRefusal:
    assert isinstance(outcome, BindRefused)
    return outcome.refusal


def late_server() -> tuple[World, asyncio.Event]:
    """Return a world whose server accepts every Binding once the event is set."""
    world, release = World(answer_seconds=60.0), asyncio.Event()  # a loaded machine releases it late

    async def late(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await reply(201)(writer)

    world.script.always["post", PATH] = lambda _: late
    return world, release
