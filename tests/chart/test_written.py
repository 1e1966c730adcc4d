"""Generated files are up to date with their sources."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from aischeduler import __version__
from aischeduler.kube.crds import crd, pool_crd
from tests.chart.rendering import CHART, Helm, Rendered
from tests.test_documents import LINK
from tools import chart

OF_THE_OPERATOR = ("batchprocesses", "trainingjobs")


def test_schema_and_readme_are_up_to_date() -> None:
    for path, text in chart.written().items():
        assert path.read_text() == text, f"{path.name}: run `make chart`"


def test_links_of_the_readme_have_targets() -> None:
    targets = [path for path, _ in LINK.findall((CHART / "README.md").read_text())]
    assert targets != []
    assert [path for path in targets if not (CHART / path).resolve().exists()] == []


def test_manifests_are_up_to_date(helm: Helm) -> None:
    files = chart.manifests(str(helm.program))
    assert {path: path.read_text() for path in chart.written_manifests()} == dict(sorted(files.items()))


def test_manifests_are_the_chart_with_its_defaults_and_the_operator_beside_them(helm: Helm, defaults: Rendered) -> None:
    def listed(folder: Path) -> list[dict[str, Any]]:
        names = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
        return [found for name in names for found in yaml.safe_load_all((folder / name).read_text())]

    def named(objects: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
        return sorted((found["kind"], found["metadata"]["name"]) for found in objects if found["kind"] != "Pod")

    plain, operator = listed(chart.MANIFESTS), listed(chart.OPERATOR)
    operators = [("CustomResourceDefinition", f"{plural}.resource.aibee.cn") for plural in OF_THE_OPERATOR]
    assert named(plain) == sorted([*named(defaults.objects), *operators])
    assert named([*plain, *operator]) == named(helm.render({"operator": {"enabled": True}}).objects)
    assert [found for found in plain if "helm" in str(found["metadata"]).lower()] == []
    assert {found["metadata"].get("namespace", "kube-system") for found in [*plain, *operator]} == {"kube-system"}


def test_every_definition_stays_unless_the_values_say_otherwise(helm: Helm, defaults: Rendered) -> None:
    kept = defaults.all("CustomResourceDefinition")
    lost = helm.render({"crds": {"keep": False}}).all("CustomResourceDefinition")
    assert [found["metadata"]["annotations"] for found in kept] == [{"helm.sh/resource-policy": "keep"}] * 2
    assert [found for found in lost if "annotations" in found["metadata"]] == []
    installed = [pool_crd(), crd("queues")]
    for found in (kept, lost):
        assert [definition["spec"] for definition in found] == [definition["spec"] for definition in installed]
    assert [found["metadata"]["name"] for found in kept] == [found["metadata"]["name"] for found in installed]


def test_chart_is_of_the_version_of_the_package() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (about["version"], about["appVersion"]) == (__version__, __version__)
    assert about["kubeVersion"] == ">=1.31.0-0"
    example = yaml.safe_load(about["annotations"]["artifacthub.io/crdsExamples"])[0]
    assert example["kind"] == pool_crd()["spec"]["names"]["kind"]
