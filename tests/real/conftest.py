"""What every test on the real control plane has: a namespace of its own, and a clean cluster after it."""

from collections.abc import Iterator
from itertools import count

import pytest

from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep

_numbers = count(1)


@pytest.fixture(autouse=True)
def clean_cluster(control_plane: ControlPlane) -> Iterator[None]:
    """After the test every part runs again, and its jobs, pods, budgets, nodes and pools are gone."""
    yield
    control_plane.heal()
    sweep(control_plane)


@pytest.fixture
def namespace(control_plane: ControlPlane, clean_cluster: None) -> str:
    """A namespace that no other test has used."""
    name = f"test-{next(_numbers)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    created = control_plane.api("POST", "/api/v1/namespaces", body)
    assert created.status == 201, created.body
    return name
