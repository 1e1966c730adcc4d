"""docs/install.md supports what the package, the chart and the tests name; docs/operate.md sizes as the chart."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler.kube.access.server_version import OLDEST_VERSION

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm" / "ai-scheduler"
SUPPORT = (ROOT / "docs" / "install.md").read_text().partition("\n## Support\n")[2].partition("\n## ")[0]
OPERATE = (ROOT / "docs" / "operate.md").read_text()


def cells(page: str, subject: str) -> list[str]:
    """Return the cells of the row whose first cell contains this subject."""
    (row,) = [line for line in page.splitlines() if line.startswith("|") and subject in line.split("|")[1]]
    return [cell.strip() for cell in row.strip("|").split("|")[1:]]


def test_supported_kubernetes_is_that_of_the_scheduler_and_the_chart() -> None:
    oldest = ".".join(map(str, OLDEST_VERSION))
    assert cells(SUPPORT, "Kubernetes")[0].startswith(f"{oldest} and newer")
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"] == f">={oldest}.0-0"


def test_tested_kubernetes_is_that_of_the_control_planes_that_the_tests_build() -> None:
    modules = [path.read_text() for path in (ROOT / "tools" / "controlplane").glob("kubernetes*/go.mod")]
    versions = sorted(version for text in modules for version in re.findall(r"k8s\.io/kubernetes v(\S+)", text))
    assert cells(SUPPORT, "Kubernetes")[1] == " and ".join(versions)


def test_supported_python_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [name.rpartition(" ")[2] for name in project["classifiers"] if name.startswith("Programming Language")]
    assert cells(SUPPORT, "Python")[0] == ", ".join(versions)


@pytest.mark.parametrize(
    ("column", "kind", "resource"), [(0, "requests", "cpu"), (1, "requests", "memory"), (2, "limits", "memory")]
)
def test_default_size_is_that_of_the_chart(column: int, kind: str, resource: str) -> None:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    assert cells(OPERATE, "the chart's default")[column] == values["resources"][kind][resource]
