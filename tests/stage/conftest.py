"""One suite of scenarios, three worlds with a scheduler in each: a scenario gets `stage` and cannot tell which."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.controlplane.plane import ControlPlane
from tests.stage.ground import Ground
from tests.stage.ground_real import RealGround
from tests.stage.ground_sandbox import SandboxGround
from tests.stage.ground_virtual import VirtualGround
from tests.stage.stage import Stage

WORLDS = [
    "virtual",
    pytest.param("sandbox", marks=pytest.mark.whole),
    pytest.param("real", marks=pytest.mark.real),
]

_numbers = count(1)


@pytest.fixture(scope="package", params=WORLDS)
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """One of the three, for all scenarios."""
    match request.param:
        case "virtual":
            ground: Ground = VirtualGround()
        case "sandbox":
            ground = SandboxGround()
        case _:
            plane: ControlPlane = request.getfixturevalue("control_plane")
            ground = RealGround(plane)
    yield ground
    ground.close()


@pytest.fixture
def stage(ground: Ground) -> Iterator[Stage]:
    """A scenario of its own; at its end the judges are heard."""
    ground.begin()
    stage = Stage(ground, f"s{next(_numbers)}x-")
    try:
        yield stage
        stage.end()
    finally:
        ground.end()
