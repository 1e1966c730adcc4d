"""What the documentation points at exists, and what it shows of the product is so."""

import re
from pathlib import Path

import pytest
import yaml

from aischeduler.cli.app import main
from aischeduler.cli.demo_cluster import cluster, jobs
from aischeduler.model.names import GPU_DEFAULT

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    dead = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_package_that_is_named_exists(page: Path) -> None:
    modules = re.findall(r"`((?:cli|kube|sandbox|state|model|engine|config|tests)/[\w/]+\.py)`", page.read_text())
    missing = [m for m in modules if not (ROOT / "aischeduler" / m).exists() and not (ROOT / m).exists()]
    assert missing == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_example_is_yaml(path: Path) -> None:
    assert all(isinstance(document, dict) for document in yaml.safe_load_all(path.read_text()))


def test_check_finds_nothing_in_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *(str(path) for path in sorted((ROOT / "examples").glob("*.yaml")))]) == 0
    assert "nothing found" in capsys.readouterr().err


def test_demo_has_three_pools_and_twenty_nodes() -> None:
    kinds = [item["kind"] for item in cluster()]
    assert (kinds.count("Pool"), kinds.count("Node"), kinds.count("CustomResourceDefinition")) == (3, 20, 1)


def test_demo_has_a_job_that_fits_and_one_that_is_larger_than_its_pool() -> None:
    pods = {job["metadata"]["name"]: job["spec"]["parallelism"] for job in jobs()}
    assert pods == {"test-job-cpu": 10, "train-large": 80}
    gpus = [int(item["status"]["capacity"].get(GPU_DEFAULT, 0)) for item in cluster() if item["kind"] == "Node"]
    assert sum(gpus) == 64
