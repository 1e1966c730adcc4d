"""What scenarios with lagging watches add to `tests.scenarios`: methods, and initial states."""

from typing import Any

from tests.e2e.lagging_proxy import FOR_EVER, LaggingProxy
from tests.scenarios.environment_real import RealEnvironment
from tests.scenarios.stage import Stage

FULL = "4"
"""All cores of a node."""


class LaggedStage(Stage):
    """A scenario in which the watch of a kind may lag."""

    def __init__(self, environment: RealEnvironment, prefix: str, proxy: LaggingProxy) -> None:
        super().__init__(environment, prefix)
        self._proxy = proxy
        self._lags = False

    def hold(self, plural: str) -> None:
        """Let the scheduler get all present events, then no more events of the watch of this kind."""
        self.settle()
        self._proxy.hold(plural, FOR_EVER)
        self._lags = True

    def release(self, *pods: str) -> None:
        """Release all watches, or with `pods` remove deleted pods that were held."""
        if pods:
            super().release(*pods)
        else:
            self._proxy.release()
            self._lags = False

    def settle(self) -> None:
        """Wait until the scheduler has seen the pools and nodes, unless their watch is held."""
        if not self._lags:
            super().settle()

    def holds(self, kind: str, name: str, plural: str) -> float:
        """Wait until the proxy holds the present state of the object; return when the proxy got it."""
        version = self.get(kind, name)["metadata"]["resourceVersion"]
        return self._proxy.wait_for(plural, f'"resourceVersion":"{version}"'.encode())

    def let_through(self, plural: str, until: float) -> None:
        """Let the scheduler get the events up to a moment."""
        self._proxy.let_through(plural, until)

    def is_considered(self, pod: str) -> None:
        """Wait until the pod has a reason."""
        self.until(lambda: self.why(pod) != "")

    def evicted_nobody(self) -> None:
        """Check that no pod was evicted so far."""
        assert self.victims() == [], self.report()


def a_full_pool(stage: LaggedStage, **spec: Any) -> None:
    """Create pool a with one node, which `low` fills."""
    stage.node("a1", pool="a")
    stage.pools("a", **spec)
    stage.pod("low", pool="a", cpu=FULL)
    stage.runs("low")


def a_lent_pool(stage: LaggedStage, **spec: Any) -> None:
    """Create pool a with one node, which a borrower of pool b fills."""
    stage.node("a1", pool="a")
    stage.pools("a", **spec)
    stage.pools("b")
    stage.pod("borrower", pool="b", cpu=FULL)
    stage.goes(borrower="a1")
    stage.runs("borrower")


def a_pod_waits_for_preemption(stage: LaggedStage) -> None:
    """Create pool a, which `low` fills and which forbids preemption, so that `high` waits, and pool b without nodes."""
    a_full_pool(stage, disablePreemption=True)
    stage.pools("b", disableSharing=True)
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.waits("high", "Insufficient cpu")
