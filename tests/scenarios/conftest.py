"""The fixtures of the pool scenarios: each scenario gets a `stage`, which is the same in all three environments."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.controlplane.plane import ControlPlane
from tests.scenarios.environment import Environment
from tests.scenarios.environment_real import RealEnvironment
from tests.scenarios.environment_sandbox import SandboxEnvironment
from tests.scenarios.environment_virtual import VirtualEnvironment
from tests.scenarios.stage import Stage

WORLDS = [
    "virtual",
    pytest.param("sandbox", marks=pytest.mark.whole),
    pytest.param("real", marks=pytest.mark.real),
]

_numbers = count(1)


@pytest.fixture(scope="package", params=WORLDS)
def environment(request: pytest.FixtureRequest) -> Iterator[Environment]:
    """Yield one of the three environments, for all scenarios."""
    match request.param:
        case "virtual":
            environment: Environment = VirtualEnvironment()
        case "sandbox":
            environment = SandboxEnvironment()
        case _:
            plane: ControlPlane = request.getfixturevalue("control_plane")
            environment = RealEnvironment(plane)
    yield environment
    environment.close()


@pytest.fixture
def stage(environment: Environment) -> Iterator[Stage]:
    """Yield a scenario of its own; at its end the record is checked."""
    environment.begin()
    stage = Stage(environment, f"s{next(_numbers)}x-")
    try:
        yield stage
        stage.end()
    finally:
        environment.end()
