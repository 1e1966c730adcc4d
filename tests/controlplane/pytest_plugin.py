"""How the tests on the real API server take part in a run.

Laws:
- A test that asks for `control_plane`, or is marked so, is `real`.
- Missing programs are built before the first test when Go is here. Without them the real tests are left out, and the
  last lines of the run say so and say what to do; with `CI=true` that makes the run fail. Never a silent pass.
- A build that fails is a failure of the run, not a reason to leave tests out quietly.
- A test of what an older Kubernetes does not do is marked `newest`: where `KUBERNETES_VERSION` chooses an older one, it
  is left out, and the last line of the run counts it.
- `AI_SCHEDULER_REAL=0` leaves the real tests out by choice, and is reported all the same.
"""

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import pytest

from aischeduler.sandbox.discovery import KUBERNETES_VERSION
from tests.controlplane.absent import in_ci
from tests.controlplane.binaries import Binaries, BinariesUnavailableError, build_binaries, find_binaries, go_problem
from tests.controlplane.plane import ControlPlane
from tests.real.rights import grant, missing

HOW_TO_RUN = (
    "to run them: with Go 1.26 or later, `make controlplane` (once, 5 to 15 minutes on two cores) and"
    " `make test`; or set KUBEBUILDER_ASSETS to a directory with etcd, kube-apiserver, kubectl,"
    " kube-controller-manager and kube-scheduler"
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why the real tests are not run. `broken` when that is a fault, wherever the run happens."""

    reason: str
    broken: bool


class RealSuite:
    """What became of the real tests in this run."""

    def __init__(self) -> None:
        self.binaries: Binaries | None = None
        self.version: str | None = None
        self.left_out: LeftOut | None = None
        self._count_left_out = 0
        self._count_newest = 0
        self._ran: dict[str, None] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
        """Mark before `-m` and `-k` select; provide for what they have left."""
        for item in items:
            if "control_plane" in getattr(item, "fixturenames", ()):
                item.add_marker("real")
        yield
        self._leave_out_newest(config, items)
        real = [item for item in items if item.get_closest_marker("real")]
        if real and not config.option.collectonly:
            self._provide_for(real, config, items)

    def _leave_out_newest(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if os.environ.get("KUBERNETES_VERSION", "") in ("", KUBERNETES_VERSION):
            return
        newest = [one for one in items if one.get_closest_marker("real") and one.get_closest_marker("newest")]
        self._count_newest = len(newest)
        config.hook.pytest_deselected(items=newest)
        items[:] = [item for item in items if item not in newest]

    def _provide_for(self, real: list[pytest.Item], config: pytest.Config, items: list[pytest.Item]) -> None:
        """Find or build the programs, or leave the real tests out."""
        found = _provide(config)
        if isinstance(found, Binaries):
            self.binaries = found
            return
        self.left_out = found
        self._count_left_out = len(real)
        config.hook.pytest_deselected(items=real)
        items[:] = [item for item in items if item not in real]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the real tests whose body ran."""
        if report.when == "call" and "real" in report.keywords:
            self._ran[report.nodeid] = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Say it last, after pytest's own summary, and let the exit status follow."""
        yield
        lines = self.lines()
        if not lines:
            return
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            for line in lines:
                reporter.write_line(line)
        good = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self.fails() and session.exitstatus in good:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def lines(self) -> list[str]:
        """Answer what the last lines of the run say; nothing when no real test was selected."""
        if self.left_out is not None:
            verdict = "THE REAL SUITE FAILED TO START" if self.fails() else "the real suite was not run"
            return [
                f"{verdict}: {self._count_left_out} tests on the real API server left out: {self.left_out.reason}",
                HOW_TO_RUN,
            ]
        if self.binaries is None:
            return []
        ran = f"{len(self._ran)} tests ran on the real API server (kube-apiserver {self.version or 'not started'})"
        newest = f"; {self._count_newest} of what only {KUBERNETES_VERSION} does were left out"
        return [ran + (newest if self._count_newest else "")]

    def fails(self) -> bool:
        """Answer whether leaving the real tests out makes the run fail."""
        return self.left_out is not None and (self.left_out.broken or in_ci())


SUITE = pytest.StashKey[RealSuite]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the suite's record for this run."""
    suite = RealSuite()
    config.stash[SUITE] = suite
    config.pluginmanager.register(suite, "real-suite")


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The one running control plane of this run: etcd, kube-apiserver and kube-controller-manager.

    What schedulers asked for in all tests is compared in the end with what the chart grants.
    """
    suite = request.config.stash[SUITE]
    if suite.binaries is None:
        pytest.fail("a test that uses `control_plane` through request.getfixturevalue must be marked `real`")
    with ControlPlane(suite.binaries) as plane:
        suite.version = plane.api("GET", "/version").body["gitVersion"]
        grant(plane)
        yield plane
        assert missing(plane) == [], "schedulers asked for what the chart does not grant"


def _provide(config: pytest.Config) -> Binaries | LeftOut:
    if os.environ.get("AI_SCHEDULER_REAL") == "0":
        return LeftOut("AI_SCHEDULER_REAL=0", broken=False)
    try:
        found = find_binaries()
        if found is not None:
            return found
        problem = go_problem()
        if problem is not None:
            return LeftOut(f"no built control plane, and {problem}", broken=False)
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            return build_binaries()
    except BinariesUnavailableError as error:
        return LeftOut(str(error), broken=True)
