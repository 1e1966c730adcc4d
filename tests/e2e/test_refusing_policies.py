"""Policies that refuse what the scheduler writes, on a real API server: what they refuse costs no other pod."""

import time
from collections.abc import Iterator
from itertools import count

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.refusals import AFTER_SECONDS, create_policy, delete_policy
from tests.scenarios.environment_real import RealEnvironment
from tests.scenarios.stage import PATIENCE_SECONDS, Stage

NAME = "refuses"
NOT_STUCK = "!has(oldObject.metadata.labels) || !('stuck' in oldObject.metadata.labels)"
STUCK = {"stuck": "yes"}
TURNS = count(1)


@pytest.fixture(scope="module")
def environment(control_plane: ControlPlane) -> Iterator[RealEnvironment]:
    environment = RealEnvironment(control_plane)
    yield environment
    environment.close()


@pytest.fixture
def stage(control_plane: ControlPlane, environment: RealEnvironment) -> Iterator[Stage]:
    """Yield a scenario, and remove its policies at the end."""
    environment.begin()
    stage = Stage(environment, f"refused-{next(TURNS)}-")  # the namespace of the test before is still going
    try:
        yield stage
        delete_policy(control_plane, NAME)
        stage.end()
    finally:
        delete_policy(control_plane, NAME)
        environment.end()


def refuse(control_plane: ControlPlane, operation: str, resource: str, reason: str) -> None:
    """Let a policy refuse an operation of the scheduler on pods with the label `stuck`, with this reason."""
    create_policy(control_plane, NAME, [(operation, resource)], "it is stuck", reason, unless=NOT_STUCK)
    time.sleep(AFTER_SECONDS)


def test_policy_that_forbids_to_delete_a_pod_costs_no_pod_beside_it(control_plane: ControlPlane, stage: Stage) -> None:
    refuse(control_plane, "DELETE", "pods", "Invalid")
    stage.node("a1", pool="a")
    stage.pools("a", "b")
    stage.pod("kept", pool="b", cpu="2", labels=STUCK)
    stage.pod("beside", pool="b", cpu="2")
    stage.runs("kept", "beside")
    stage.pod("home", pool="a", cpu="4")
    stage.waits("home", "The API server refused to evict 1 pod")
    assert list(stage.victims()) == [], "a dry run leaves no condition"
    stage.runs("kept", "beside")
    delete_policy(control_plane, NAME)
    stage.let_pass(32)  # after 30 seconds the pod that was refused is asked again
    stage.goes(home="a1")


@pytest.mark.parametrize("reason", ["Forbidden", "Invalid"], ids=["403", "422"])
def test_policy_that_refuses_the_status_of_a_waiting_pod_stops_no_eviction(
    control_plane: ControlPlane, stage: Stage, reason: str
) -> None:
    refuse(control_plane, "UPDATE", "pods/status", reason)
    for pool in ("a", "b"):
        stage.node(f"{pool}1", pool=pool)
    stage.pools("a", "b", disableBorrowing=True)
    stage.pod("low-a", pool="a", cpu="4")
    stage.pod("low-b", pool="b", cpu="4")
    stage.runs("low-a", "low-b")
    stage.pod("high-a", pool="a", cpu="4", priority=10, labels=STUCK)
    stage.goes(high_a="a1")
    stage.pod("high-b", pool="b", cpu="4", priority=10)
    stage.goes(high_b="b1")
    assert sorted(stage.victims()) == ["low-a", "low-b"]
    assert PATIENCE_SECONDS < 30, "an eviction that waits for a backoff would be too late"
