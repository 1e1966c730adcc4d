"""The real environment: a real control plane and the production program, shared by all scenarios."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aischeduler.model.names import DEFAULT_POOL, GROUP, VERSION
from tests.api_contract.over_http import HttpStream, HttpTransport
from tests.api_contract.world import JSON, MERGE_PATCH, Answer, Call, encode
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.e2e.cluster import install, wait_until
from tests.e2e.daemon import LOG_CHARACTERS_SHOWN, Daemon
from tests.scenarios.environment import BUSY, DEFINITIONS, RealTime, definitions
from tests.scenarios.kubelets import Kubelets

POOL = f"/apis/{GROUP}/{VERSION}/pools/{DEFAULT_POOL}"


class RealEnvironment(RealTime):
    """etcd, kube-apiserver and its controllers, the kubelets of the tests, and `ai-scheduler run` in a process."""

    def __init__(self, plane: ControlPlane, kubeconfig: Path | None = None) -> None:
        """Start the scheduler with this kubeconfig, or with one that has the permissions of the chart."""
        self._plane = plane
        install(plane)
        sweep(plane)
        self._transport = HttpTransport(plane.url, lambda: plane.restart("kube-apiserver"), plane.tls)
        self._define()
        self._kubelets = Kubelets(self._transport.watch, HttpTransport(plane.url, lambda: None, plane.tls))
        self._config = plane.directory / "stage.yaml"
        options = ("--config", str(self._config))
        self._scheduler = Daemon(plane, kubeconfig, *options, name="ai-scheduler-on-stage", metrics=True)
        self._log_read = self._saves_before = self._bugs_told = 0
        self._start({})

    def begin(self) -> None:
        if self._settings:
            self.restart_scheduler()
        self._log_read = len(self._scheduler.log)
        self._saves_before = self._scheduler.net_saves()

    def end(self) -> None:
        log = self._scheduler.log[self._log_read :]
        print(log[-LOG_CHARACTERS_SHOWN:])  # pytest shows it when the scenario has failed
        self._kubelets.check()
        sweep(self, kept_pool=DEFAULT_POOL)
        self.api("PATCH", POOL, {"spec": None})
        self.api("PATCH", POOL, {"spec": {}})
        assert self._scheduler.running(), "the scheduler has ended"
        bugs = self._scheduler.bugs()[self._bugs_told :]
        self._bugs_told += len(bugs)
        assert bugs == [], "the scheduler has logged an error"

    def close(self) -> None:
        self._scheduler.kill()
        self._kubelets.close()
        self._transport.close()

    def request(self, call: Call) -> Answer:
        return self._transport.request(call)

    def api(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Send a request of the sweep, on the open connection."""
        content_type = MERGE_PATCH if method == "PATCH" else JSON
        return self.request(Call(method, path, b"" if body is None else encode(body), content_type))

    def watch(self, url: str) -> HttpStream:
        return self._transport.watch(url)

    def rests(self, seen: Mapping[str, int]) -> bool:
        """Read the metrics, which do not show the resource versions seen."""
        busy = [one for one in self._scheduler.samples("ai_scheduler_pending_pods") if one.labels["queue"] in BUSY]
        return not any(one.value for one in (*busy, *self._scheduler.samples("ai_scheduler_backlog")))

    def restart_scheduler(self, **settings: object) -> None:
        self._saves_before -= self._scheduler.net_saves()
        self._scheduler.kill()
        self._start(settings)

    def nodes_of_pools(self) -> dict[str, int]:
        samples = self._scheduler.samples("ai_scheduler_pool_nodes")
        return {sample.labels["pool"]: int(sample.value) for sample in samples}

    def net_saves(self) -> int:
        return self._scheduler.net_saves() - self._saves_before

    def _define(self) -> None:
        """Define the kinds of gangs and queues, and wait until they are served: the scheduler looks for them rarely."""
        for definition in definitions():
            assert self.api("POST", DEFINITIONS, definition).status in {201, 409}, definition
            spec = definition["spec"]
            path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
            wait_until(lambda path=path: self.api("GET", path).status == 200, f"{path} served")  # type: ignore[misc]

    def _start(self, settings: dict[str, object]) -> None:
        self._settings = settings
        self._config.write_text(json.dumps(settings))
        self._log_read = 0
        self._scheduler.start()
