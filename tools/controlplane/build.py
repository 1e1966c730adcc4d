#!/usr/bin/env python3
"""Build the programs of the real control plane from their released Go modules.

Invariants:
- The cache is outside the repository. Its directory is named by a hash of the module files and the build flags.
- A program is built under a temporary name and then renamed, so the cache has no partial program. An interrupted build
  continues with the missing programs, and concurrent builds wait for each other.
- Programs in `KUBEBUILDER_ASSETS` have precedence and are not built.
- `KUBERNETES_VERSION` selects one of the versions with module files here. Each version has its own directory.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEFAULT_VERSION = "v1.36.3"
KUBERNETES_MODULES = {DEFAULT_VERSION: "kubernetes", "v1.31.0": "kubernetes-1.31"}
"""Kubernetes version -> directory of its module files: the newest version and the oldest supported version."""
OTHER_MODULES = ("etcd", "helm", "kwok", "prometheus")
REPORT_EVERY_SECONDS = 5.0

_VERSION_PACKAGE = "k8s.io/component-base/version"
_STRIPPED = "-s -w"


@dataclass(frozen=True, slots=True)
class Program:
    """One program: its file name, its module directory, its main package, its linker flags and its build tags."""

    name: str
    module: str
    package: str
    link: str
    tags: str = ""


ON_REQUEST = ("kwok",)
"""Programs that no test needs: built only with `--with`."""

REQUIRED_ASSETS = ("etcd", "kube-apiserver", "kubectl")
"""Programs that `KUBEBUILDER_ASSETS` must contain."""


class BuildError(Exception):
    """A program cannot be built; the text names the program and the reason."""


def kubernetes_version(env: Mapping[str, str]) -> str:
    """Return the version in `KUBERNETES_VERSION`, or the default.

    Raises BuildError for a version without module files, and if `KUBEBUILDER_ASSETS` is set too.
    """
    chosen = env.get("KUBERNETES_VERSION")
    if not chosen:
        return DEFAULT_VERSION
    if env.get("KUBEBUILDER_ASSETS"):
        raise BuildError("KUBERNETES_VERSION and KUBEBUILDER_ASSETS both choose the programs; set one of them")
    if chosen not in KUBERNETES_MODULES:
        known = ", ".join(KUBERNETES_MODULES)
        raise BuildError(f"KUBERNETES_VERSION={chosen} has no module files in {HERE}; these have: {known}")
    return chosen


def all_programs(version: str) -> tuple[Program, ...]:
    """Return all programs, with those of Kubernetes in this version."""
    module = KUBERNETES_MODULES[version]
    major, minor, _ = version.removeprefix("v").split(".")
    link = " ".join(
        (
            _STRIPPED,
            f"-X {_VERSION_PACKAGE}.gitVersion={version}",
            f"-X {_VERSION_PACKAGE}.gitMajor={major}",
            f"-X {_VERSION_PACKAGE}.gitMinor={minor}",
            f"-X {_VERSION_PACKAGE}.gitTreeState=clean",
        )
    )
    return (
        Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", _STRIPPED),
        Program("kube-apiserver", module, "k8s.io/kubernetes/cmd/kube-apiserver", link),
        Program("kubectl", module, "k8s.io/kubernetes/cmd/kubectl", link),
        Program("kube-controller-manager", module, "k8s.io/kubernetes/cmd/kube-controller-manager", link),
        Program("kube-scheduler", module, "k8s.io/kubernetes/cmd/kube-scheduler", link),
        Program("helm", "helm", "helm.sh/helm/v4/cmd/helm", _STRIPPED),
        Program("promtool", "prometheus", "github.com/prometheus/prometheus/cmd/promtool", _STRIPPED, "remove_all_sd"),
        Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", _STRIPPED),
    )


def cache_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of the built programs, which may not exist."""
    root = env.get("AI_SCHEDULER_CONTROLPLANE_CACHE")
    if root is None:
        caches = env.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        root = str(Path(caches) / "ai-scheduler" / "controlplane")
    return Path(root) / recipe_hash(kubernetes_version(env)) / "bin"


def recipe_hash(version: str) -> str:
    """Return 16 hex digits that depend on the module files and build flags of this version."""
    digest = hashlib.sha256(repr((all_programs(version), _build_flags())).encode())
    for module in (KUBERNETES_MODULES[version], *OTHER_MODULES):
        for name in ("go.mod", "go.sum"):
            digest.update(f"\0{module}/{name}\0".encode())
            digest.update((HERE / module / name).read_bytes())
    return digest.hexdigest()[:16]


def locate(program: Program, env: Mapping[str, str]) -> Path | None:
    """Return the path of `program` in the assets or in the cache, or None.

    Raises BuildError if the directory in `KUBEBUILDER_ASSETS` lacks a required program.
    """
    assets = env.get("KUBEBUILDER_ASSETS")
    if assets:
        absent = [name for name in REQUIRED_ASSETS if not _runnable(Path(assets) / name)]
        if absent:
            raise BuildError(f"KUBEBUILDER_ASSETS={assets} holds no {', '.join(absent)}")
        if _runnable(Path(assets) / program.name):
            return Path(assets) / program.name
    built = cache_dir(env) / program.name
    return built if _runnable(built) else None


def go_problem(env: Mapping[str, str]) -> str | None:
    """Return why Go cannot build (it is missing or too old), or None."""
    go = shutil.which("go", path=env.get("PATH"))
    if go is None:
        return "there is no `go` in PATH"
    tried = _go_list(KUBERNETES_MODULES[kubernetes_version(env)], ["-m"], env)
    if tried.returncode == 0:
        return None
    lines = tried.stderr.strip().splitlines() or [f"`go list -m` ended with status {tried.returncode}"]
    return f"{go} cannot read the module files: {lines[-1]}"


def build(programs: Iterable[Program], env: Mapping[str, str]) -> None:
    """Build the missing programs, one after the other. Raises BuildError."""
    missing = [program for program in programs if locate(program, env) is None]
    if not missing:
        return
    problem = go_problem(env)
    if problem is not None:
        raise BuildError(f"cannot build {', '.join(program.name for program in missing)}: {problem}")
    target = cache_dir(env)
    target.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another build is running; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for place, program in enumerate(missing, start=1):
            if locate(program, env) is None:
                _build_one(program, target, f"[{place}/{len(missing)}] {program.name}", env)


def _build_one(program: Program, target: Path, title: str, env: Mapping[str, str]) -> None:
    started = time.monotonic()
    _say(f"{title}: reading its packages")
    packages = _package_count(program, env)
    unfinished = target / f".{program.name}.{os.getpid()}"
    for left_behind in target.glob(f".{program.name}.*"):
        left_behind.unlink()
    flags = (*_build_flags(), "-tags", program.tags, "-ldflags", program.link)
    command = ["go", "build", "-v", *flags, "-o", str(unfinished), program.package]
    running = subprocess.Popen(
        command, cwd=HERE / program.module, env=_go_env(env), stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        last = _follow(running, title, packages, started)
    finally:
        if running.poll() is None:
            running.terminate()
        status = running.wait()
    if status != 0:
        raise BuildError(f"go build of {program.name} ended with status {status}:\n" + "\n".join(last))
    unfinished.rename(target / program.name)
    _say(f"{title}: built in {time.monotonic() - started:.0f} s")


def _follow(running: subprocess.Popen[str], title: str, packages: int, started: float) -> Sequence[str]:
    """Report progress from the lines of `go build -v`, one per package, and return the last twenty."""
    last: list[str] = []
    compiled = 0
    reported = started
    for line in running.stderr or ():
        last = [*last[-19:], line.rstrip()]
        if not line.startswith(("go:", "#")):
            compiled += 1
        now = time.monotonic()
        if now - reported >= REPORT_EVERY_SECONDS:
            reported = now
            _say(f"{title}: {compiled} packages compiled, at most {packages} to compile, {now - started:.0f} s")
    return last


def _package_count(program: Program, env: Mapping[str, str]) -> int:
    listed = _go_list(program.module, ["-mod=readonly", "-tags", program.tags, "-deps", program.package], env)
    if listed.returncode != 0:
        raise BuildError(f"the packages of {program.name} cannot be read:\n{listed.stderr.strip()[-2000:]}")
    return len(listed.stdout.splitlines())


def _go_list(module: str, arguments: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["go", "list", *arguments]
    return subprocess.run(command, cwd=HERE / module, env=_go_env(env), capture_output=True, text=True, check=False)


def _build_flags() -> tuple[str, ...]:
    return ("-mod=readonly", "-buildvcs=false", "-trimpath")


def _go_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which no setting of the user changes the build."""
    return {**env, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _say(text: str) -> None:
    print(f"controlplane: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit status; the last line of stdout is the directory of the programs."""
    parser = argparse.ArgumentParser(description="Build the control plane that the tests run against.")
    parser.add_argument("--with", dest="extra", default="", metavar="NAMES", help=f"also build {','.join(ON_REQUEST)}")
    parser.add_argument("--only", default="", metavar="NAMES", help="build only these programs")
    parser.add_argument(
        "--list", action="store_true", help="build nothing; print NAME<tab>PATH of each program that exists"
    )
    parser.add_argument("--go-problem", action="store_true", help="build nothing; print why Go cannot build")
    options = parser.parse_args(arguments)
    extra, only = (tuple(filter(None, names.split(","))) for names in (options.extra, options.only))
    try:
        programs = all_programs(kubernetes_version(os.environ))
        unknown = sorted({*extra, *only} - {program.name for program in programs})
        if unknown:
            parser.error(f"no such program: {', '.join(unknown)}")
        if options.list:
            places = [(program.name, locate(program, os.environ)) for program in programs]
            print("\n".join(f"{name}\t{path}" for name, path in places if path is not None))
        elif options.go_problem:
            print(go_problem(os.environ) or "")
        else:
            wanted = only or tuple(p.name for p in programs if p.name not in ON_REQUEST or p.name in extra)
            build([program for program in programs if program.name in wanted], os.environ)
            print(cache_dir(os.environ))
    except BuildError as error:
        print(f"controlplane: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("controlplane: interrupted; the next build goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
