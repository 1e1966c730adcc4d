"""Helm for the tests of the chart: found, or built where Go is here; else the tests that need it are left out."""

import pytest

from tests.chart.rendering import Helm, Rendered
from tests.controlplane.absent import leave_out
from tests.controlplane.binaries import build_helm, find_helm, go_problem


@pytest.fixture(scope="session")
def helm() -> Helm:
    found = find_helm()
    if found is None:
        problem = go_problem()
        if problem is not None:
            leave_out(f"no built helm, and {problem}")
        found = build_helm()
    return Helm(found)


@pytest.fixture
def defaults(helm: Helm) -> Rendered:
    """The release with no value given."""
    return helm.render({})
