"""The virtual cluster: an API server, its controllers and kubelets, and schedulers, on one clock that only we move.

Laws:
- Time passes only between things that happen; an idle day costs nothing.
- The same seed and the same calls give the same run, byte for byte.
- Everything that happens at one instant is finished before the clock moves.
"""

from typing import Any, Final

import msgspec

from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.backoff import Chance
from aischeduler.kube.crds import pool_crd
from aischeduler.sandbox.api_server import ApiServer, Options
from aischeduler.sandbox.request import JSON, Response, request
from aischeduler.sandbox.standins.cluster import StandIns
from aischeduler.sandbox.standins.kubelet import KubeletOptions
from aischeduler.sandbox.watches import WatchStream
from aischeduler.sim.timer_heap import TimerHeap
from aischeduler.sim.virtual_shell import Network, VirtualShell

STARTED_AT: Final = 1_767_225_600.0
"""The first of January 2026, in unix seconds."""
TURNS_MAX: Final = 10_000
"""Turns within one instant; more would never end."""


class VirtualCluster:
    """One cluster; `now` is its clock in unix seconds, `shells` the schedulers that live in it.

    Its controllers always run; kubelets only where `kubelet` says how fast they are.
    """

    def __init__(self, seed: int = 0, kubelet: KubeletOptions | None = None) -> None:
        self.now = STARTED_AT
        self.agenda = TimerHeap()
        self.server = ApiServer(Options(seed=seed), self.now)
        self.shells: list[VirtualShell] = []
        self._stand_ins = StandIns(self.server, kubelet)
        self._stand_ins_wake: float | None = None
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        self.ask("POST", definitions, pool_crd())

    def start(self, scheduler: Scheduler, name: str, network: Network, chance: Chance) -> VirtualShell:
        """Let a scheduler live in the cluster from now on."""
        shell = VirtualShell(self, scheduler, name, network, chance)
        self.shells.append(shell)
        return shell

    def stop(self, shell: VirtualShell) -> None:
        """End a scheduler's process."""
        shell.stop()
        self.shells.remove(shell)

    def restart_server(self) -> None:
        """Restart the API server: watches end, history is gone, objects stay."""
        self.server.restart()

    def ask(self, method: str, url: str, document: Any = None, content_type: str = JSON) -> Response:
        """Send one request as any client may."""
        body = b"" if document is None else msgspec.json.encode(document)
        answer = self.server.handle(request(method, url, body, content_type), self.now)
        assert not isinstance(answer, WatchStream)
        return answer

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            self._finish_instant()
            following = self._next_time()
            if following is None or following > end:
                break
            self.now = max(self.now, following)
        self.now = end
        self._finish_instant()

    def _finish_instant(self) -> None:
        for _ in range(TURNS_MAX):
            moved = self.agenda.run_due(self.now)
            self._stand_ins_wake = self._stand_ins.step(self.now)
            for shell in self.shells:
                moved = shell.step() or moved
            if not moved:
                return
        raise RuntimeError(f"{TURNS_MAX} turns at {self.now}: something moves for ever without time passing")

    def _next_time(self) -> float | None:
        wakeups = [shell.scheduler.next_wakeup() for shell in self.shells]
        times = (self.agenda.next_time, self._stand_ins_wake, *wakeups)
        return min((time for time in times if time is not None), default=None)
