"""The scheduler under test: the production program in its own process."""

import json
import sys
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.error import HTTPError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.controlplane.plane import ControlPlane
from tests.controlplane.ports import free_ports

Line = dict[str, Any]

LOG_CHARACTERS_SHOWN = 20_000
MODULE = ("-m", "aischeduler")
WITHOUT_UVLOOP = (
    "-c",
    "import sys; sys.modules['uvloop'] = None; from aischeduler.cli.app import main; sys.exit(main(sys.argv[1:]))",
)
"""The same program without uvloop."""


ALONE = ("--no-leader-elect",)


class Daemon:
    """`ai-scheduler run` with the control plane and these `options`; it is ready once it has listed everything.

    Without a `kubeconfig` of its own it has exactly the permissions of the chart; see `rights`.
    At the end of the context it is killed; the test fails if any of its runs has logged an error.
    """

    election: ClassVar[tuple[str, ...]] = ALONE
    """The options about leader election."""

    def __init__(
        self,
        plane: ControlPlane,
        kubeconfig: Path | None = None,
        *options: str,
        name: str = "ai-scheduler",
        program: tuple[str, ...] = MODULE,
        metrics: bool = False,
    ) -> None:
        path = str(kubeconfig or plane.scheduler_kubeconfig)
        self._address = f"127.0.0.1:{free_ports(1)[0]}" if metrics else "none"
        usual = ["--kubeconfig", path, *self.election, f"--http-address={self._address}", "--log-level=info"]
        command = [sys.executable, *program, "run", *usual, *options]
        self._part = plane.program(name, command, lambda: bool(self.said("synced")))
        self._part.log.unlink(missing_ok=True)
        self._bugs_before: list[Line] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.kill()
        print(self.log[-LOG_CHARACTERS_SHOWN:])  # pytest shows it when the test has failed
        if kind is None:
            assert self.bugs() == [], "the daemon has logged an error"

    @property
    def pid(self) -> int:
        return self._part.pid

    def running(self) -> bool:
        return self._part.running()

    def start(self) -> None:
        """Start and wait until the scheduler decides."""
        self.launch()
        self._part.wait_ready()

    def launch(self) -> None:
        """Start without waiting."""
        self._bugs_before = self.bugs()
        self._part.log.unlink(missing_ok=True)
        self._part.launch()

    def kill(self) -> None:
        """SIGKILL."""
        self._part.kill()

    def stop(self) -> int:
        """Send SIGTERM; return the exit status."""
        return self._part.stop()

    def pause(self) -> None:
        self._part.pause()

    def resume(self) -> None:
        self._part.resume()

    def ready(self) -> bool:
        """Return whether `/readyz` answers 200."""
        try:
            with urlopen(f"http://{self._address}/readyz", timeout=10):
                return True
        except HTTPError as not_yet:
            not_yet.close()
        except OSError:  # the port is not open yet
            pass
        return False

    def samples(self, name: str = "") -> list[Sample]:
        """Return all samples of `/metrics`, or those of one metric; a missing metric is an error."""
        with urlopen(f"http://{self._address}/metrics", timeout=10) as page:
            lines = [line for line in page.read().decode().splitlines(keepends=True) if name in line]
        families = [one for one in text_string_to_metric_families("".join(lines)) if name in ("", one.name)]
        assert families, f"/metrics has no {name}"
        return [one for family in families for one in family.samples if not one.name.endswith("_created")]

    def net_saves(self) -> int:
        """Return how many pods only the five-minute flush woke, over the existing pools."""
        return int(sum(sample.value for sample in self.samples("ai_scheduler_net_saves")))

    @property
    def log(self) -> str:
        """Return the log since the last start."""
        return self._part.log.read_text() if self._part.log.exists() else ""

    def said(self, event: str) -> list[Line]:
        """Return the log lines with this event."""
        return [line for line in self.lines() if line["event"] == event]

    def bugs(self) -> list[Line]:
        """Return the lines of level `error` of all runs: only a bug of the scheduler causes one."""
        return self._bugs_before + [line for line in self.lines() if line["level"] == "error"]

    def lines(self) -> list[Line]:
        """Return the complete lines of the log; a line that is not one JSON object is an error."""
        return [json.loads(line) for line in self.log.rpartition("\n")[0].splitlines()]
