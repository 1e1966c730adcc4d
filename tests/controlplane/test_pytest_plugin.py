"""Output and exit status of pytest without a real control plane."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

ROOT = Path(__file__).resolve().parents[2]

SUITE = """
import pytest

def test_plain(tmp_path):
    assert tmp_path.is_dir()

def test_on_the_plane(control_plane):
    raise AssertionError("ran without a control plane")

@pytest.mark.real
@pytest.mark.newest
def test_marked():
    raise AssertionError("ran without a control plane")
"""


def run_pytest(tmp_path: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run one plain and two real tests without the programs and without Go."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    real: on the real API server\n    newest: n\n")
    outer = ("CI", "KUBEBUILDER_ASSETS", "AI_SCHEDULER_REAL", "KUBERNETES_VERSION")
    kept = {name: value for name, value in os.environ.items() if name not in outer}
    bare = {"PATH": "/nowhere", "AI_SCHEDULER_CONTROLPLANE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "pytest", "-p", "tests.controlplane.pytest_plugin", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-c", str(tmp_path / "pytest.ini"), str(tmp_path / "test_suite.py"), *arguments],
        cwd=ROOT,
        env={**kept, **bare, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_go_the_rest_runs_and_the_last_lines_say_what_did_not(tmp_path: Path) -> None:
    finished = run_pytest(tmp_path)
    assert finished.returncode == 0, finished.stdout
    assert "1 passed, 2 deselected" in finished.stdout
    verdict, how = finished.stdout.splitlines()[-2:]
    assert verdict == (
        "the real suite was not run: 2 tests on the real API server left out: "
        "no built control plane, and there is no `go` in PATH"
    )
    assert "make controlplane" in how
    assert "KUBEBUILDER_ASSETS" in how


def test_in_ci_leaving_the_real_tests_out_is_a_failure(tmp_path: Path) -> None:
    finished = run_pytest(tmp_path, CI="true")
    assert finished.returncode == 1
    assert finished.stdout.splitlines()[-2].startswith("THE REAL SUITE FAILED TO START: 2 tests")


def test_switching_the_real_tests_off_is_reported_too(tmp_path: Path) -> None:
    finished = run_pytest(tmp_path, AI_SCHEDULER_REAL="0")
    assert finished.returncode == 0
    assert finished.stdout.splitlines()[-2].endswith("left out: AI_SCHEDULER_REAL=0")


def test_older_version_leaves_out_what_only_the_newest_does(tmp_path: Path) -> None:
    finished = run_pytest(tmp_path, KUBERNETES_VERSION="v1.31.0")
    assert "the real suite was not run: 1 tests on the real API server left out" in finished.stdout
    newest = run_pytest(tmp_path, KUBERNETES_VERSION="v1.36.3")
    assert "the real suite was not run: 2 tests on the real API server left out" in newest.stdout


def test_unusable_assets_are_a_failure_anywhere(tmp_path: Path) -> None:
    finished = run_pytest(tmp_path, KUBEBUILDER_ASSETS=str(tmp_path))
    assert finished.returncode == 1
    assert "holds no etcd, kube-apiserver, kubectl" in finished.stdout.splitlines()[-2]


@pytest.mark.parametrize("selection", [("-m", "not real"), ("-k", "plain")])
def test_selection_without_a_real_test_says_nothing_and_passes_in_ci(
    tmp_path: Path, selection: tuple[str, str]
) -> None:
    finished = run_pytest(tmp_path, *selection, CI="true")
    assert finished.returncode == 0, finished.stdout
    assert "1 passed" in finished.stdout.splitlines()[-1]


@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
def test_seed_leaves_most_of_the_real_tests_to_the_soak_but_none_that_runs_daily(seed: str) -> None:
    suites = [
        f"tests/e2e/test_{name}.py" for name in ("peer_probes", "bad_input", "crowd", "gangs", "handover", "volumes")
    ]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "real and not soak", *suites]
    finished = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "AI_SCHEDULER_SEED": seed}, capture_output=True, text=True, check=False
    )
    assert "test_both_schedulers_give_random_pods_the_same_verdict[0]" in finished.stdout
    assert "test_both_schedulers_give_random_pods_the_same_verdict[1]" not in finished.stdout
    others = [f"{suite}::" for suite in suites[1:]]
    everything = subprocess.run(
        [*command[:6], "real", *suites[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    selected, existing = (sum(map(said.count, others)) for said in (finished.stdout, everything))
    assert 0 < selected < existing


def test_each_scenario_runs_on_the_virtual_cluster_and_on_one_server_each_day() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not soak", "tests/scenarios"]
    environment = {name: value for name, value in os.environ.items() if name != "AI_SCHEDULER_REAL"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    names = {world: set(re.findall(rf"::(test_\w+\[){world}(.*)", found)) for world in ("virtual", "sandbox", "real")}
    assert names["virtual"] == names["sandbox"] | names["real"]
    assert names["sandbox"] & names["real"] == set()
    assert min(len(found) for found in names.values()) > 0
