"""The scheduler under test: the production program in a process of its own."""

import json
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.controlplane.plane import ControlPlane

Line = dict[str, Any]


MODULE = ("-m", "aischeduler")
WITHOUT_UVLOOP = (
    "-c",
    "import sys; sys.modules['uvloop'] = None; from aischeduler.cli.app import main; sys.exit(main(sys.argv[1:]))",
)
"""The same program on a machine where uvloop is not installed."""


class Daemon:
    """`ai-scheduler run` against the control plane; ready means that it has listed everything."""

    def __init__(
        self,
        plane: ControlPlane,
        kubeconfig: Path | None = None,
        *,
        name: str = "ai-scheduler",
        program: tuple[str, ...] = MODULE,
        metrics: bool = False,
    ) -> None:
        path = str(kubeconfig or plane.kubeconfig)
        self._address = f"127.0.0.1:{_free_port()}" if metrics else "none"
        options = ["--kubeconfig", path, "--no-leader-elect", f"--http-address={self._address}", "--log-level=info"]
        command = [sys.executable, *program, "run", *options]
        self._part = plane.program(name, command, lambda: bool(self.said("synced")))
        self._part.log.unlink(missing_ok=True)

    @property
    def pid(self) -> int:
        return self._part.pid

    def running(self) -> bool:
        return self._part.running()

    def start(self) -> None:
        """Start and wait until it decides."""
        self.launch()
        self._part.wait_ready()

    def launch(self) -> None:
        """Start without waiting."""
        self._part.log.unlink(missing_ok=True)
        self._part.launch()

    def kill(self) -> None:
        """SIGKILL."""
        self._part.kill()

    def stop(self) -> int:
        """SIGTERM; return the exit status."""
        return self._part.stop()

    def pause(self) -> None:
        self._part.pause()

    def resume(self) -> None:
        self._part.resume()

    def samples(self) -> list[Sample]:
        """Return all that `/metrics` says now."""
        with urlopen(f"http://{self._address}/metrics", timeout=10) as page:
            families = text_string_to_metric_families(page.read().decode())
        return [sample for family in families for sample in family.samples]

    @property
    def log(self) -> str:
        """What it has logged since it was started last."""
        return self._part.log.read_text() if self._part.log.exists() else ""

    def said(self, event: str) -> list[Line]:
        """Return the lines of log of this event; a line that is not one JSON object is an error."""
        whole = self.log.rpartition("\n")[0]
        lines: list[Line] = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if line["event"] == event]


def _free_port() -> int:
    """Return a port that nobody has now."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port
