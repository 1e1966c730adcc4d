"""What a release publishes: one name of the image everywhere, the version of the tag, and actions by digest."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler import __version__
from tests.chart.rendering import CHART, ROOT, Helm

WORKFLOWS = ROOT / ".github" / "workflows"
REPOSITORY = "aibee/ai-scheduler"
"""The repository that releases: the owner's name is that of the image and of the chart in the registry."""


def workflow(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((WORKFLOWS / f"{name}.yaml").read_text())
    return found


def step(job: str, name: str) -> str:
    """Return the commands of a step of release.yaml by the beginning of its name."""
    (found,) = [one["run"] for one in workflow("release")["jobs"][job]["steps"] if one.get("name", "").startswith(name)]
    command: str = found
    return command


def run(command: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the commands of a step as the runner does; GITHUB_OUTPUT is the file `output`."""
    env = {"PATH": "/usr/bin:/bin", "GITHUB_OUTPUT": str(directory / "output"), **environment}
    shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", command]
    return subprocess.run(shell, cwd=directory, env=env, capture_output=True, text=True, check=False)


def test_chart_names_the_image_that_the_workflow_and_make_push() -> None:
    image = yaml.safe_load((CHART / "values.yaml").read_text())["image"]["repository"]
    pushed = workflow("image")["env"]["IMAGE"].replace("${{ github.repository }}", REPOSITORY)
    made = re.findall(r"^IMAGE \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert image == pushed == made[0] == f"ghcr.io/{REPOSITORY}"


def test_only_a_release_pushes_the_image_and_its_tag_is_the_version() -> None:
    *_, login, build = workflow("image")["jobs"]["build"]["steps"]
    assert login["if"] == "inputs.version"
    assert build["with"]["push"] == "${{ inputs.version != '' }}"
    assert build["with"]["tags"] == "${{ env.IMAGE }}:${{ inputs.version || 'unreleased' }}"
    release = workflow("release")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key `on` as true
    assert release["jobs"]["image"]["uses"] == "./.github/workflows/image.yaml"
    assert release["jobs"]["image"]["with"] == {"version": "${{ needs.version.outputs.version }}"}
    assert release["jobs"]["publish"]["env"]["VERSION"] == "${{ needs.version.outputs.version }}"
    assert set(release["jobs"]["publish"]["needs"]) == {"version", "image"}


@pytest.mark.parametrize(("tag", "version"), [(f"v{__version__}", __version__), ("v99.0.0", None), ("v", None)])
def test_version_is_that_of_the_tag_and_must_be_that_of_the_package(
    tmp_path: Path, tag: str, version: str | None
) -> None:
    shutil.copytree(
        ROOT / "aischeduler", tmp_path / "aischeduler", ignore=lambda _, names: set(names) - {"__init__.py"}
    )
    ran = run(step("version", "Take the version"), tmp_path, GITHUB_REF_NAME=tag)
    assert (ran.returncode == 0) == (version is not None)
    if version is not None:
        assert (tmp_path / "output").read_text() == f"version={version}\n"


def test_released_chart_has_the_version_of_the_tag_and_its_alerts_link_the_runbooks_of_that_tag(
    helm: Helm, tmp_path: Path
) -> None:
    shutil.copytree(CHART, tmp_path / "helm" / "ai-scheduler")
    home = f"https://github.com/{REPOSITORY}"
    path = f"{helm.program.parent}:/usr/bin:/bin"
    ran = run(step("publish", "Package the chart"), tmp_path, PATH=path, VERSION="1.2.3", HOME_PAGE=home)
    assert ran.returncode == 0, ran.stderr
    chart = str(tmp_path / "dist" / "ai-scheduler-1.2.3.tgz")
    about = yaml.safe_load(helm.run(["show", "chart", chart], {}))
    assert (about["version"], about["appVersion"], about["home"], about["sources"]) == ("1.2.3", "1.2.3", home, [home])
    text = helm.run(["template", "x", chart, "-f", "-"], {"metrics": {"prometheusRule": {"enabled": True}}})
    (url,) = set(re.findall(r"runbook_url: \"([^#\"]*)", text))
    page, _, runbooks = url.partition("/v1.2.3/")
    assert page == f"{home}/blob"
    assert "# Runbooks" in (ROOT / runbooks).read_text()
    assert "ghcr.io/aibee/ai-scheduler:1.2.3" in text


def test_chart_is_pushed_beside_the_image() -> None:
    charts = workflow("release")["jobs"]["publish"]["env"]["CHARTS"]
    owner = REPOSITORY.partition("/")[0]
    assert charts.replace("${{ github.repository_owner }}", owner) == "oci://ghcr.io/aibee/charts"
    assert 'helm push "dist/ai-scheduler-${VERSION}.tgz" "${CHARTS}"' in step("publish", "Push the chart")


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yaml")), ids=lambda path: path.stem)
def test_actions_of_others_are_pinned_by_digest_and_say_their_version(path: Path) -> None:
    used = re.findall(r"uses: (.+)$", path.read_text(), re.MULTILINE)
    assert used != []
    pinned = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/\w+\.yaml")
    assert [action for action in used if not pinned.fullmatch(action)] == []


def test_an_action_has_one_digest_in_all_workflows() -> None:
    text = "".join(path.read_text() for path in WORKFLOWS.glob("*.yaml"))
    pins = set(re.findall(r"uses: ([\w-]+/[\w-]+)@(\S+) # (\S+)", text))
    assert len({action for action, _, _ in pins}) == len(pins)


def test_bug_report_asks_for_version_reason_and_logs() -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text())
    asked = {field["id"]: field["attributes"].get("description", "") for field in form["body"] if "id" in field}
    assert "`ai-scheduler version`" in asked["version"]
    assert "`ai-scheduler explain" in asked["explain"]
    assert "logs" in asked


def test_dependabot_watches_actions_and_python() -> None:
    updates = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "pip"}
