"""The build script with a fake `go`: builds, search order and interruptions."""

import re
import runpy
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane.binaries import BUILD_SCRIPT

DEFAULT = ["etcd", "helm", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "promtool"]

GO = """#!/bin/sh
if [ "$1" = list ]; then echo some/package; exit 0; fi
while [ "$1" != -o ]; do shift; done
echo "#!/bin/sh" > "$2"
chmod +x "$2"
case "$2" in *"$BREAK_AT"*) echo "go: no room" >&2; exit 3;; esac
"""


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An empty cache and a fake `go` that builds an empty program and fails at the program in BREAK_AT."""
    tools = tmp_path / "tools"
    tools.mkdir()
    program(tools / "go", GO)
    return {
        "PATH": f"{tools}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "AI_SCHEDULER_CONTROLPLANE_CACHE": str(tmp_path / "cache"),
        "BREAK_AT": "nothing",
    }


def script(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BUILD_SCRIPT), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def built(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def test_default_build_is_what_the_tests_need_and_its_directory_is_the_last_line(env: dict[str, str]) -> None:
    finished = script(env)
    assert finished.returncode == 0, finished.stderr
    assert built(Path(finished.stdout.splitlines()[-1])) == DEFAULT


def test_kwok_is_built_on_request(env: dict[str, str]) -> None:
    finished = script(env, "--with", "kwok")
    assert built(Path(finished.stdout.splitlines()[-1])) == sorted([*DEFAULT, "kwok"])


def test_broken_build_leaves_no_program_and_the_next_goes_on_from_there(env: dict[str, str]) -> None:
    broken = script({**env, "BREAK_AT": "kubectl"})
    assert broken.returncode == 1
    assert "kubectl ended with status 3" in broken.stderr
    assert "no room" in broken.stderr
    names = [line.split("\t")[0] for line in script(env, "--list").stdout.splitlines()]
    assert names == ["etcd", "kube-apiserver"]
    resumed = script(env)
    assert resumed.returncode == 0, resumed.stderr
    assert "[1/5] kubectl" in resumed.stderr
    directory = Path(resumed.stdout.splitlines()[-1])
    assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []


def test_what_is_built_is_not_built_again(env: dict[str, str]) -> None:
    script(env)
    (Path(env["PATH"].split(":")[0]) / "go").unlink()
    again = script(env)
    assert (again.returncode, again.stderr) == (0, "")


def test_without_go_the_error_names_the_programs_and_the_reason(env: dict[str, str]) -> None:
    finished = script({**env, "PATH": "/nowhere"}, "--only", "etcd")
    assert finished.returncode == 1
    assert finished.stderr == "controlplane: cannot build etcd: there is no `go` in PATH\n"


def test_assets_come_first_and_only_what_they_lack_is_built(env: dict[str, str], tmp_path: Path) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver", "kubectl"):
        program(assets / name)
    with_assets = {**env, "KUBEBUILDER_ASSETS": str(assets)}
    finished = script(with_assets)
    rest = ["helm", "kube-controller-manager", "kube-scheduler", "promtool"]
    assert built(Path(finished.stdout.splitlines()[-1])) == rest
    places = dict(line.split("\t") for line in script(with_assets, "--list").stdout.splitlines())
    assert places["kubectl"] == str(assets / "kubectl")
    assert sorted(places) == DEFAULT


def test_assets_that_lack_a_program_are_an_error_that_names_it(env: dict[str, str], tmp_path: Path) -> None:
    program(tmp_path / "etcd")
    finished = script({**env, "KUBEBUILDER_ASSETS": str(tmp_path)}, "--list")
    assert finished.returncode == 1
    assert finished.stderr == f"controlplane: KUBEBUILDER_ASSETS={tmp_path} holds no kube-apiserver, kubectl\n"


def test_module_files_name_the_cache(env: dict[str, str], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in sorted(BUILD_SCRIPT.parent.rglob("go.*")):
        (copy / path.parent.name).mkdir(exist_ok=True)
        (copy / path.parent.name / path.name).write_bytes(path.read_bytes())
    (copy / "build.py").write_bytes(BUILD_SCRIPT.read_bytes())

    def directory() -> str:
        command = [sys.executable, str(copy / "build.py"), "--only", "etcd"]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    def change(path: Path) -> None:
        with path.open("a") as sums:
            sums.write("\n")

    first = directory()
    assert first == script(env, "--only", "etcd").stdout
    change(copy / "kubernetes-1.31" / "go.sum")
    assert directory() == first, "another version's files are not of this build"
    change(copy / "etcd" / "go.sum")
    assert directory() != first


def test_each_version_is_built_from_module_files_that_name_it() -> None:
    modules = runpy.run_path(str(BUILD_SCRIPT))["KUBERNETES_MODULES"]
    for version, module in modules.items():
        required = re.findall(r"k8s.io/kubernetes (v[0-9.]+)", (BUILD_SCRIPT.parent / module / "go.mod").read_text())
        assert required == [version]


def test_chosen_version_is_built_into_a_directory_of_its_own(env: dict[str, str]) -> None:
    default = script(env).stdout
    chosen = script({**env, "KUBERNETES_VERSION": "v1.31.0"})
    assert chosen.returncode == 0, chosen.stderr
    assert chosen.stdout != default
    assert built(Path(chosen.stdout.strip())) == built(Path(default.strip())) == DEFAULT
    assert script({**env, "KUBERNETES_VERSION": ""}).stdout == default


def test_version_without_module_files_is_an_error_that_names_those_there_are(env: dict[str, str]) -> None:
    finished = script({**env, "KUBERNETES_VERSION": "v1.30.0"}, "--list")
    assert finished.returncode == 1
    assert "KUBERNETES_VERSION=v1.30.0 has no module files" in finished.stderr
    assert finished.stderr.endswith("these have: v1.36.3, v1.31.0\n")


def test_version_beside_assets_is_an_error_because_both_choose(env: dict[str, str], tmp_path: Path) -> None:
    finished = script({**env, "KUBERNETES_VERSION": "v1.31.0", "KUBEBUILDER_ASSETS": str(tmp_path)})
    assert finished.returncode == 1
    assert "KUBERNETES_VERSION and KUBEBUILDER_ASSETS both choose the programs" in finished.stderr


def test_two_builds_at_once_build_each_program_once(env: dict[str, str]) -> None:
    command = [sys.executable, str(BUILD_SCRIPT)]
    started = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    logs = [process.communicate()[1] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert sum(log.count(": built in") for log in logs) == len(DEFAULT)
