"""Helm for the tests of the chart: found, or built where Go is here; else the tests that need it are left out."""

import pytest

from tests.chart.rendering import Helm, Rendered
from tests.controlplane.binaries import the_helm


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm(the_helm())


@pytest.fixture
def defaults(helm: Helm) -> Rendered:
    """The release with no value given."""
    return helm.render({})
