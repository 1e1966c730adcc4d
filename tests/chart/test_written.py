"""Generated files are up to date with their sources."""

from typing import Any

import yaml

from aischeduler import __version__
from aischeduler.kube.crds import pool_crd
from tests.chart.rendering import CHART, Helm, Rendered
from tests.test_documents import LINK
from tools import chart


def test_schema_and_readme_are_up_to_date() -> None:
    for path, text in chart.written().items():
        assert path.read_text() == text, f"{path.name}: run `make chart`"


def test_links_of_the_readme_have_targets() -> None:
    targets = [path for path, _ in LINK.findall((CHART / "README.md").read_text())]
    assert targets != []
    assert [path for path in targets if not (CHART / path).resolve().exists()] == []


def test_manifests_are_up_to_date(helm: Helm) -> None:
    files = chart.manifests(str(helm.program))
    assert {path: path.read_text() for path in sorted(chart.MANIFESTS.glob("*.yaml"))} == dict(sorted(files.items()))


def test_manifests_are_the_chart_with_its_defaults(defaults: Rendered) -> None:
    kustomization = yaml.safe_load((chart.MANIFESTS / "kustomization.yaml").read_text())
    plain = [
        found
        for name in kustomization["resources"]
        for found in yaml.safe_load_all((chart.MANIFESTS / name).read_text())
    ]

    def named(objects: list[dict[str, Any]]) -> list[tuple[str, str]]:
        return sorted((found["kind"], found["metadata"]["name"]) for found in objects)

    installed = [found for found in defaults.objects if found["kind"] != "Pod"]
    assert named(plain) == named(installed)
    assert [found for found in plain if "helm" in str(found["metadata"]).lower()] == []
    assert {found["metadata"].get("namespace", "kube-system") for found in plain} == {"kube-system"}


def test_every_definition_stays_unless_the_values_say_otherwise(helm: Helm, defaults: Rendered) -> None:
    (kept,) = defaults.all("CustomResourceDefinition")
    (lost,) = helm.render({"crds": {"keep": False}}).all("CustomResourceDefinition")
    assert kept["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in lost["metadata"]
    assert kept["spec"] == lost["spec"] == pool_crd()["spec"]
    assert kept["metadata"]["name"] == pool_crd()["metadata"]["name"]


def test_chart_is_of_the_version_of_the_package() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == (__version__, __version__)
    assert about["kubeVersion"] == ">=1.31.0-0"
    example = yaml.safe_load(about["annotations"]["artifacthub.io/crdsExamples"])[0]
    assert example["kind"] == pool_crd()["spec"]["names"]["kind"]
