"""All stand-ins together: the controllers that matter here and, where asked for, the kubelets."""

from typing import Protocol

from aischeduler.sandbox.apiserver import ApiServer
from aischeduler.sandbox.standins.collectors import GarbageCollector, NamespaceController, PodCollector
from aischeduler.sandbox.standins.disruption import DisruptionController
from aischeduler.sandbox.standins.following import earliest
from aischeduler.sandbox.standins.job_controller import JobController
from aischeduler.sandbox.standins.kubelet import Kubelet, KubeletOptions

PASSES_MAX = 20


class StandIn(Protocol):
    """Something that acts on a cluster."""

    def step(self, now: float) -> float | None:
        """Act; returns when to act again although nothing is written."""
        ...


class StandIns:
    """Steps all stand-ins until none of them has anything to do at this time."""

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
        """Act; returns when to act again although nothing is written (None: never)."""
        wake = None
        for _ in range(PASSES_MAX):
            before = self._server.cluster.store.revision
            wake = earliest(*[member.step(now) for member in self._members])
            if self._server.cluster.store.revision == before and (wake is None or wake > now):
                return wake
        return now
