"""Runs or deselects the tests on the real API server.

Invariants:
- A test with the fixture `control_plane` or the mark `real` is a real test.
- If Go is available, missing programs are built before the first test. Otherwise the real tests are deselected, and the
  last lines of the run say so and what to do. With `CI=true` this fails the run.
- A failed build fails the run.
- Of the tests in `ROTATING` on the real API server, the seed of the run leaves three quarters to the soak, but none
  with the mark `daily`.
- Of a scenario that runs on the real API server today, the one on the sandbox is left to the soak.
- A test with the mark `newest` is deselected if `KUBERNETES_VERSION` selects an older version; the last line of the run
  has the number of these tests.
- `AI_SCHEDULER_REAL=0` deselects the real tests, and the last lines of the run say so.
"""

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import pytest

from aischeduler.sandbox.discovery import KUBERNETES_VERSION
from tests import seeds
from tests.controlplane.absent import in_ci
from tests.controlplane.binaries import Binaries, BinariesUnavailableError, build_binaries, find_binaries, go_problem
from tests.controlplane.plane import ControlPlane
from tests.e2e.rights import grant, missing

ROTATING = ("tests/e2e/", "tests/scenarios/")
DAYS = 4
"""Of the real tests there a quarter runs each day: all of them need two cores for longer than anyone waits."""
HOW_TO_RUN = (
    "to run them: with Go 1.26 or later, `make controlplane` (once, 5 to 15 minutes on two cores) and"
    " `make test`; or set KUBEBUILDER_ASSETS to a directory with etcd, kube-apiserver, kubectl,"
    " kube-controller-manager and kube-scheduler"
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why the real tests do not run. If `broken`, the run fails even without `CI=true`."""

    reason: str
    broken: bool


class RealSuite:
    """The state of the real tests in this run."""

    def __init__(self) -> None:
        self.binaries: Binaries | None = None
        self.version: str | None = None
        self.left_out: LeftOut | None = None
        self._count_left_out = 0
        self._count_newest = 0
        self._ran: dict[str, None] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
        """Set the marks before `-m` and `-k` select tests; then find the programs for the selected tests."""
        with_real = os.environ.get("AI_SCHEDULER_REAL") != "0"
        for item in items:
            if "control_plane" in getattr(item, "fixturenames", ()):
                item.add_marker("real")
            rotates = item.nodeid.startswith(ROTATING) and not item.get_closest_marker("daily")
            if item.get_closest_marker("real") and rotates and seeds.number(item.nodeid) % DAYS:
                item.add_marker("soak")
            on_real = item.nodeid.replace("[sandbox", "[real")
            if with_real and on_real != item.nodeid and rotates and not seeds.number(on_real) % DAYS:
                item.add_marker("soak")
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
        """Find or build the programs, or deselect the real tests."""
        found = _provide(config)
        if isinstance(found, Binaries):
            self.binaries = found
            return
        self.left_out = found
        self._count_left_out = len(real)
        config.hook.pytest_deselected(items=real)
        items[:] = [item for item in items if item not in real]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the real tests that ran."""
        if report.when == "call" and "real" in report.keywords:
            self._ran[report.nodeid] = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Print the last lines after the summary of pytest and set the exit status."""
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
        """Return the last lines of the run; empty if no real test was selected."""
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
        """Return whether the deselected real tests fail the run."""
        return self.left_out is not None and (self.left_out.broken or in_ci())


SUITE = pytest.StashKey[RealSuite]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the state of the real tests."""
    suite = RealSuite()
    config.stash[SUITE] = suite
    config.pluginmanager.register(suite, "real-suite")


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The control plane of this run: etcd, kube-apiserver and kube-controller-manager.

    At the end, all requests of schedulers are compared with the permissions of the chart.
    """
    suite = request.config.stash[SUITE]
    if suite.binaries is None:
        pytest.fail("a test that uses `control_plane` through request.getfixturevalue must be marked `real`")
    with ControlPlane(suite.binaries) as plane:
        suite.version = plane.api("GET", "/version").body["gitVersion"]
        grant(plane)
        yield plane
        assert missing(plane) == [], "schedulers sent requests that the chart does not permit"


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
