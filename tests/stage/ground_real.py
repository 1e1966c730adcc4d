"""The real control plane with the production program as a ground: one of each for all scenarios, swept in between."""

import json
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from aischeduler.model.names import DEFAULT_POOL, GROUP, VERSION
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.real.cluster import install
from tests.stage.kubelets import Kubelets
from tests.worlds.over_http import HttpStream, HttpTransport
from tests.worlds.world import JSON, MERGE_PATCH, Answer, Call, encode

MOMENT_SECONDS = 0.01
POOL = f"/apis/{GROUP}/{VERSION}/pools/{DEFAULT_POOL}"
LOG_CHARACTERS_SHOWN = 20_000


class RealGround:
    """etcd, kube-apiserver and its controllers, kubelets of ours, and `ai-scheduler run` in a process."""

    quiet_seconds = 0.2

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        install(plane)
        sweep(plane)
        self._transport = HttpTransport(plane.url, lambda: plane.restart("kube-apiserver"), plane.tls)
        self._kubelets = Kubelets(self._transport.watch, HttpTransport(plane.url, lambda: None, plane.tls))
        self._settings: dict[str, object] = {}
        self._log_read = self._saves_before = 0
        self._port = _free_port()
        self._scheduler = self._start({})

    def begin(self) -> None:
        if self._settings:
            self.restart_scheduler()
        self._log_read = len(self._log())
        self._saves_before = self._saves()

    def end(self) -> None:
        print(self._log()[self._log_read :][-LOG_CHARACTERS_SHOWN:])  # pytest shows it when the scenario has failed
        self._kubelets.check()
        sweep(self, kept_pool=DEFAULT_POOL)
        self.api("PATCH", POOL, {"spec": None})
        self.api("PATCH", POOL, {"spec": {}})

    def close(self) -> None:
        self._scheduler.kill()
        self._kubelets.close()
        self._transport.close()

    def request(self, call: Call) -> Answer:
        return self._transport.request(call)

    def api(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """One request for the sweep, on the connection that is open already."""
        content_type = MERGE_PATCH if method == "PATCH" else JSON
        return self.request(Call(method, path, b"" if body is None else encode(body), content_type))

    def watch(self, url: str) -> HttpStream:
        return self._transport.watch(url)

    def now(self) -> float:
        return time.monotonic()

    def pass_time(self, seconds: float = 0.0) -> None:
        time.sleep(max(seconds, MOMENT_SECONDS))

    def restart_scheduler(self, **settings: object) -> None:
        saves = self._saves()
        self._scheduler.kill()
        self._scheduler = self._start(settings)
        self._saves_before -= saves

    def nodes_of_pools(self) -> dict[str, int]:
        return {labels["pool"]: int(value) for labels, value in self._measured("ai_scheduler_pool_nodes")}

    def net_saves(self) -> int:
        return self._saves() - self._saves_before

    def _saves(self) -> int:
        return int(sum(value for _, value in self._measured("ai_scheduler_net_saves")))

    def _start(self, settings: dict[str, object]) -> Part:
        """Start the program; it is ready when it has listed everything."""
        self._settings = settings
        config = self._plane.directory / "stage.yaml"
        config.write_text(json.dumps(settings))
        options = ["--kubeconfig", str(self._plane.kubeconfig), "--config", str(config), "--no-leader-elect"]
        command = [sys.executable, "-m", "aischeduler", "run", *options, f"--http-address=127.0.0.1:{self._port}"]
        part = self._plane.program("ai-scheduler-on-stage", command, self._synced)
        part.log.unlink(missing_ok=True)
        self._log_read = 0
        part.start()
        return part

    def _measured(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Return the samples of one metric, each with its labels."""
        with urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as page:
            lines = [line for line in page.read().decode().splitlines(keepends=True) if name in line]
        (found,) = text_string_to_metric_families("".join(lines))
        return [(sample.labels, sample.value) for sample in found.samples if not sample.name.endswith("_created")]

    def _synced(self) -> bool:
        return '"event":"synced"' in self._log()

    def _log(self) -> str:
        path = self._plane.directory / "ai-scheduler-on-stage.log"
        return path.read_text() if path.exists() else ""


def _free_port() -> int:
    """Return a port that nobody has now."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port
