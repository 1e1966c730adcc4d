"""All controllers of one API server, as kube-controller-manager runs them, and optionally the kubelets."""

from typing import Protocol

from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.controllers.disruption_controller import DisruptionController
from aischeduler.sandbox.controllers.garbage_collector import (
    GarbageCollector,
    NamespaceController,
    PodGarbageCollector,
)
from aischeduler.sandbox.controllers.informer import earliest
from aischeduler.sandbox.controllers.job_controller import JobController
from aischeduler.sandbox.controllers.kubelet import Kubelet, KubeletOptions

PASSES_MAX = 1000


class Controller(Protocol):
    """One controller."""

    def step(self, now: float) -> float | None:
        """Act on the writes since the last step; returns when the next step is due without a further write."""
        ...


class ControllerManager:
    """Runs all controllers of one server. The kubelets run only when `kubelet` gives their options."""

    def __init__(self, server: ApiServer, kubelet: KubeletOptions | None = None) -> None:
        self._server = server
        self._controllers: list[Controller] = [
            JobController(server),
            DisruptionController(server),
            NamespaceController(server),
            GarbageCollector(server),
            PodGarbageCollector(server),
        ]
        if kubelet is not None:
            self._controllers.append(Kubelet(server, kubelet))

    def step(self, now: float) -> float | None:
        """Run the controllers until none has work at this time; returns when the next step is due."""
        due = None
        for _ in range(PASSES_MAX):
            due = self.pass_once(now)
            if due is None or due > now:
                break
        return due

    def pass_once(self, now: float) -> float | None:
        """Run each controller once, on a bounded part of its work; returns `now` when something was written."""
        revision = self._server.cluster.store.revision
        due = earliest(*[controller.step(now) for controller in self._controllers])
        return due if self._server.cluster.store.revision == revision else now
