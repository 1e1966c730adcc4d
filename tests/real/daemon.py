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
"""The same program on a machine where uvloop is not installed."""


ALONE = ("--no-leader-elect",)


class Daemon:
    """`ai-scheduler run` against the control plane, with more `options`; ready means that it has listed everything.

    Without a `kubeconfig` of its own it has the rights of the chart and no more; see `rights`.
    As a context it ends by SIGKILL, and fails its test where it has met a bug of ours in any of its runs.
    """

    election: ClassVar[tuple[str, ...]] = ALONE
    """The options that say whether it is one of several."""

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
            assert self.bugs() == [], "the daemon met a bug of ours"

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
        self._bugs_before = self.bugs()
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

    def ready(self) -> bool:
        """Say whether `/readyz` says so."""
        try:
            with urlopen(f"http://{self._address}/readyz", timeout=10):
                return True
        except HTTPError as not_yet:
            not_yet.close()
        except OSError:  # nobody listens yet
            pass
        return False

    def samples(self, name: str = "") -> list[Sample]:
        """Return all that `/metrics` says now, or of one metric; one that is not there is an error."""
        with urlopen(f"http://{self._address}/metrics", timeout=10) as page:
            lines = [line for line in page.read().decode().splitlines(keepends=True) if name in line]
        families = [one for one in text_string_to_metric_families("".join(lines)) if name in ("", one.name)]
        assert families, f"/metrics says nothing of {name}"
        return [one for family in families for one in family.samples if not one.name.endswith("_created")]

    def net_saves(self) -> int:
        """Return how many pods its five-minute net had to save, by the pools that there are."""
        return int(sum(sample.value for sample in self.samples("ai_scheduler_net_saves")))

    @property
    def log(self) -> str:
        """What it has logged since it was started last."""
        return self._part.log.read_text() if self._part.log.exists() else ""

    def said(self, event: str) -> list[Line]:
        """Return the lines of log of this event."""
        return [line for line in self._lines() if line["event"] == event]

    def bugs(self) -> list[Line]:
        """Return the lines of level `error` of all its runs: no fault of the world leads to one, only a bug of ours."""
        return self._bugs_before + [line for line in self._lines() if line["level"] == "error"]

    def _lines(self) -> list[Line]:
        """Return the whole lines of its log; a line that is not one JSON object is an error."""
        return [json.loads(line) for line in self.log.rpartition("\n")[0].splitlines()]
