"""The sandbox environment: sandbox over HTTP and production daemon, new for each scenario, in a thread.

Invariant: the scheduler's clock is faster than real time, so that a check that nothing happens outlasts every backoff.
"""

import asyncio
import gc
import json
import secrets
import selectors
import time
from collections.abc import Coroutine, Mapping
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from aischeduler.config.schema import Config
from aischeduler.daemon.process import Daemon
from aischeduler.kube.access.server import Server
from aischeduler.kube.crds import pool_crd
from aischeduler.kube.http.backoff import Timing, unix_clock
from aischeduler.sandbox.controllers.kubelet import KubeletOptions
from aischeduler.sandbox.http_server import HttpSandbox
from tests.api_contract.over_http import HttpStream, HttpTransport
from tests.api_contract.world import Answer, Call, encode
from tests.scenarios.environment import BUSY, DEFINITIONS, RealTime, definitions

T = TypeVar("T")

KUBELET = KubeletOptions(start_seconds=0.01, stop_seconds=0.05)
WITHIN_SECONDS = 60.0
HURRY = 10
"""How many seconds of the scheduler's clock pass in one second."""


class _HurriedSelector(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(timeout if timeout is None else timeout / HURRY)


class HurriedLoop(asyncio.SelectorEventLoop):
    """An event loop on which every wait is shorter."""

    def time(self) -> float:
        return time.monotonic() * HURRY


class SandboxEnvironment(RealTime):
    """An HttpSandbox and a Daemon on one event loop of their own."""

    quiet_seconds = 2.0
    """More than the first backoff."""

    def __init__(self) -> None:
        self._loop = HurriedLoop(_HurriedSelector())
        self._clock = unix_clock(self._loop.time)
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._sandbox: HttpSandbox | None = None
        self._transport: HttpTransport | None = None
        self._daemon: Daemon | None = None
        self._daemon_task: asyncio.Task[None] | None = None
        self._saves = 0

    def begin(self) -> None:
        self._sandbox = HttpSandbox(kubelet=KUBELET)
        self._wait_for(self._sandbox.start())
        self._transport = HttpTransport(self._sandbox.url, _never_restarted)
        self._saves = 0
        try:
            for definition in (pool_crd(), *definitions()):
                defined = self.request(Call("POST", DEFINITIONS, encode(definition)))
                assert defined.status == 201, defined
            self._wait_for(self._start({}))
        except BaseException:  # `end` is not called for it, and an open socket fails another test
            self._transport.close()
            self._wait_for(self._sandbox.stop())
            raise

    def end(self) -> None:
        assert self._sandbox is not None
        assert self._transport is not None
        self._transport.close()
        try:
            self._wait_for(self._kill())
        finally:
            self._wait_for(self._sandbox.stop())

    def close(self) -> None:
        self._wait_for(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def request(self, call: Call) -> Answer:
        assert self._transport is not None
        return self._transport.request(call)

    def watch(self, url: str) -> HttpStream:
        assert self._transport is not None
        return self._transport.watch(url)

    def scheduler_now(self) -> float:
        return self._clock()

    def rests(self, seen: Mapping[str, int]) -> bool:
        return self._wait_for(self._rests(seen))

    def restart_scheduler(self, **settings: object) -> None:
        self._wait_for(self._kill())
        self._wait_for(self._start(settings))

    def nodes_of_pools(self) -> dict[str, int]:
        return self._wait_for(self._count())

    def net_saves(self) -> int:
        assert self._daemon is not None
        return self._saves + self._daemon.scheduler.net_saves()

    async def _count(self) -> dict[str, int]:
        assert self._daemon is not None
        return {summary.name: summary.nodes for summary in self._daemon.scheduler.summary()}

    async def _rests(self, seen: Mapping[str, int]) -> bool:
        assert self._daemon is not None
        components = self._daemon.components
        assert components is not None
        heard = {one.resource.kind: int(one.version or 0) for one in components.reflectors}
        binder, evictor = components.workers.binder.work_queue, components.workers.evictor.work_queue
        in_hand = len(self._daemon._event_queue) + binder.unfinished + evictor.unfinished
        queues = self._daemon.scheduler.waiting().values()
        return (
            all(heard[kind] >= version for kind, version in seen.items())
            and not in_hand
            and not any(counts.get(place) for counts in queues for place in BUSY)
        )

    async def _start(self, settings: dict[str, object]) -> None:
        assert self._sandbox is not None
        address = urlsplit(self._sandbox.url)
        server = Server(address.hostname or "", address.port or 0, self._loop.time)
        alone = {"leaderElection": {"enabled": False}}  # a killed scheduler holds the Lease for a while
        config = msgspec.convert(json.loads(json.dumps(settings | alone)), Config)
        gc.freeze()  # a daemon that starts runs the garbage collector, which need not visit the objects of the tests
        timing = Timing(self._clock, asyncio.sleep, secrets.SystemRandom())
        self._daemon = Daemon(server, config, asyncio.Event(), timing)
        self._daemon_task = asyncio.create_task(self._daemon.run(), name="daemon")
        deciding = asyncio.create_task(self._daemon.deciding.wait(), name="deciding")
        await asyncio.wait([self._daemon_task, deciding], return_when=asyncio.FIRST_COMPLETED)
        assert not self._daemon_task.done(), "the daemon ended"

    async def _kill(self) -> None:
        """Cancel the daemon before it finishes anything; a daemon that has ended by itself has failed."""
        assert self._daemon is not None
        assert self._daemon_task is not None
        if self._daemon_task.done():
            raise AssertionError("the daemon has ended") from self._daemon_task.exception()
        self._saves += self._daemon.scheduler.net_saves()
        self._daemon_task.cancel()
        await asyncio.wait([self._daemon_task])

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN_SECONDS)


async def _cancel_others() -> None:
    """Cancel the tasks of a scenario that failed at its begin or end, because they would fail other tests."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for one in others:
        one.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _never_restarted() -> None:
    raise AssertionError("no scenario restarts the server")
