"""All stand-ins together: the controllers that matter here and, where asked for, the kubelets."""

from typing import Protocol

from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.standins.collectors import GarbageCollector, NamespaceController, PodCollector
from aischeduler.sandbox.standins.disruption import DisruptionController
from aischeduler.sandbox.standins.following import earliest
from aischeduler.sandbox.standins.job_controller import JobController
from aischeduler.sandbox.standins.kubelet import Kubelet, KubeletOptions

PASSES_MAX = 1000


class StandIn(Protocol):
    """Something that acts on a cluster."""

    def step(self, now: float) -> float | None:
        """Act; returns when to act again although nothing is written."""
        ...


class StandIns:
    """All stand-ins of one server."""

    def __init__(self, server: ApiServer, kubelet: KubeletOptions | None = None) -> None:
        self._server = server
        self._members: list[StandIn] = [
            JobController(server),
            DisruptionController(server),
            NamespaceController(server),
            GarbageCollector(server),
            PodCollector(server),
        ]
        if kubelet is not None:
            self._members.append(Kubelet(server, kubelet))

    def step(self, now: float) -> float | None:
        """Act until nothing is left to do at this time; returns when to act again although nothing is written."""
        wake = None
        for _ in range(PASSES_MAX):
            wake = self.pass_once(now)
            if wake is None or wake > now:
                break
        return wake

    def pass_once(self, now: float) -> float | None:
        """Let each act once, on a bounded part of its work; returns `now` where that may have made more."""
        before = self._server.cluster.store.revision
        wake = earliest(*[member.step(now) for member in self._members])
        return wake if self._server.cluster.store.revision == before else now
