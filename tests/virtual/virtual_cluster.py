"""The virtual cluster: an API server, its controllers and kubelets, and schedulers on one virtual clock.

Invariants:
- The clock moves from one due time to the next; an idle day costs nothing.
- The same seed and the same calls give the same run, byte for byte.
- All work of one instant is finished before the clock moves.
"""

from typing import Any, Final

import msgspec

from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.crds import pool_crd
from aischeduler.kube.http.backoff import RandomSource
from aischeduler.sandbox.api_server import ApiServer, Options
from aischeduler.sandbox.controllers.controller_manager import ControllerManager
from aischeduler.sandbox.controllers.kubelet import KubeletOptions
from aischeduler.sandbox.request import JSON, Response, request
from aischeduler.sandbox.watches import WatchStream
from tests.virtual.timer_heap import TimerHeap
from tests.virtual.virtual_daemon import Network, VirtualDaemon

STARTED_AT: Final = 1_767_225_600.0
"""1 January 2026, in Unix seconds."""
ROUNDS_MAX: Final = 10_000
"""Rounds of work within one instant; more rounds count as endless work."""


class VirtualCluster:
    """One cluster. `now` is its clock in Unix seconds, `daemons` are its schedulers.

    The controllers always run. The kubelets run only when `kubelet` gives their options.
    """

    def __init__(self, seed: int = 0, kubelet: KubeletOptions | None = None) -> None:
        self.now = STARTED_AT
        self.timers = TimerHeap()
        self.server = ApiServer(Options(seed=seed), self.now)
        self.daemons: list[VirtualDaemon] = []
        self._controllers = ControllerManager(self.server, kubelet)
        self._controllers_due: float | None = None
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        self.request("POST", definitions, pool_crd())

    def start(self, scheduler: Scheduler, name: str, network: Network, chance: RandomSource) -> VirtualDaemon:
        """Start a scheduler in the cluster."""
        daemon = VirtualDaemon(self, scheduler, name, network, chance)
        self.daemons.append(daemon)
        return daemon

    def stop(self, daemon: VirtualDaemon) -> None:
        """Stop a scheduler as SIGKILL does."""
        daemon.stop()
        self.daemons.remove(daemon)

    def restart_server(self) -> None:
        """Restart the API server: watches end, the watch history is lost, objects stay."""
        self.server.restart()

    def request(self, method: str, url: str, document: Any = None, content_type: str = JSON) -> Response:
        """Send a request as a client does."""
        body = b"" if document is None else msgspec.json.encode(document)
        response = self.server.handle(request(method, url, body, content_type), self.now)
        assert not isinstance(response, WatchStream)
        return response

    def run(self, seconds: float) -> None:
        """Move the clock forward and do all work that is due on the way."""
        end = self.now + seconds
        while True:
            self._finish_instant()
            next_time = self._next_time()
            if next_time is None or next_time > end:
                break
            self.now = max(self.now, next_time)
        self.now = end
        self._finish_instant()

    def _finish_instant(self) -> None:
        for _ in range(ROUNDS_MAX):
            worked = self.timers.run_due(self.now)
            self._controllers_due = self._controllers.step(self.now)
            for daemon in self.daemons:
                worked = daemon.step() or worked
            if not worked:
                return
        raise RuntimeError(f"{ROUNDS_MAX} rounds at {self.now}: the work of this instant does not end")

    def _next_time(self) -> float | None:
        wakeups = [daemon.scheduler.next_wakeup() for daemon in self.daemons]
        times = (self.timers.next_time, self._controllers_due, *wakeups)
        return min((time for time in times if time is not None), default=None)
