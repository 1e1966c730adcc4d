"""Helm for the tests of the chart: found or built with Go; otherwise the tests that need it are skipped."""

import pytest

from tests.chart.rendering import Helm, Rendered
from tests.controlplane.binaries import the_helm


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm(the_helm())


@pytest.fixture
def defaults(helm: Helm) -> Rendered:
    """The release with the default values."""
    return helm.render({})
