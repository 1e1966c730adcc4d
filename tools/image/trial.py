"""Carry out a Dockerfile's steps, start what came of it, and say claim by claim what holds.

Law: a claim that was not tried is not in the list; NOT_TRIED names what cannot be tried without an engine.
"""

import platform
import struct
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.image.dockerfile import Stage, parse
from tools.image.rules import ARGUMENTS, Context
from tools.image.scratch import USER, Root
from tools.image.steps import Interpreter, ask, assemble, build, find_interpreter, start

BYTES_MAX: Final = 150_000_000
"""Of our package and everything that it depends on, bytecode included; the interpreter is the base image's."""

MACHINES: Final = {"amd64": 62, "arm64": 183}
"""The architectures that the image is for, and ELF's numbers of them: EM_X86_64, EM_AARCH64."""

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Docker's names of the architectures that the kernel names."""

NOT_TRIED: Final = (
    "the base images: this machine's system, and its Python of the same minor version, stood in for them",
    "the layers, the labels and the user as an engine writes them: they were only read in the Dockerfile",
    "the program on other architectures than this machine's: its libraries were only looked at",
)

_PROBE: Final = """
import os
try:
    open(os.path.join(os.environ["PYTHONPATH"], "written"), "w").close()
    written = "may write"
except OSError as error:
    written = error.strerror
shells = [name for name in ("/bin/sh", "/usr/bin/sh", "/bin/bash") if os.path.exists(name)]
print(os.getuid(), os.getgid(), written, shells)
"""

# A program for credentials is started in the image as well, which has nothing to start it with but the interpreter.
_KUBECONFIG: Final = """
apiVersion: v1
kind: Config
current-context: there
contexts: [{name: there, context: {cluster: there, user: program}}]
clusters: [{name: there, cluster: {server: "http://127.0.0.1:1"}}]
users:
  - name: program
    user:
      exec:
        apiVersion: client.authentication.k8s.io/v1
        command: /usr/bin/python3
        interactiveMode: Never
        args:
          - -c
          - |
            print('{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",')
            print(' "status": {"token": "token"}}')
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """What was to be shown, whether it holds, and what was seen."""

    text: str
    holds: bool
    seen: str


def try_image(context: Context, scratch: Path) -> Iterator[Claim]:
    """Build for every architecture and start the one of this machine, in new directories of `scratch`.

    Raises DockerfileError, StepError where a step fails, UnavailableError where this machine cannot do it.
    """
    ours = ARCHITECTURES.get(platform.machine(), "")
    for architecture, machine in MACHINES.items():
        stage, runtime = parse(context.dockerfile, {**ARGUMENTS, "TARGETARCH": architecture})
        interpreter = find_interpreter(stage.values["PYTHON_VERSION"])
        built, image = scratch / f"build-{architecture}", scratch / architecture
        build(stage, context.root, interpreter, built)
        root = assemble(runtime, built, interpreter, image)
        installed = image / runtime.environment["PYTHONPATH"].lstrip("/")
        yield from _installed(architecture, machine, [path for path in installed.rglob("*") if path.is_file()])
        if architecture == ours:
            (image / "kubeconfig").write_text(_KUBECONFIG)
            yield from _started(root, runtime, context, interpreter)


def _installed(architecture: str, machine: int, files: list[Path]) -> Iterator[Claim]:
    size_bytes = sum(path.stat().st_size for path in files)
    yield Claim(
        f"{architecture}: what is installed has at most {BYTES_MAX // 1_000_000} MB",
        size_bytes <= BYTES_MAX,
        f"{size_bytes / 1e6:.1f} MB in {len(files)} files",
    )
    libraries = [path for path in files if ".so" in path.suffixes]
    strange = sorted(path.name for path in libraries if elf_machine(path) != machine)
    yield Claim(
        f"{architecture}: every library is for it",
        bool(libraries) and not strange,
        f"{len(libraries)} libraries, others: {strange}",
    )
    uncompiled = sorted(path.name for path in files if path.suffix == ".py" and not _is_compiled(path))
    yield Claim(f"{architecture}: every module is compiled", not uncompiled, f"not compiled: {uncompiled}")
    programs = sorted({"pip", "setuptools", "hatchling"} & {path.parent.name for path in files})
    yield Claim(f"{architecture}: nothing that installs is installed", not programs, f"found: {programs}")


def elf_machine(path: Path) -> int | None:
    """Return the number of the architecture that a little-endian ELF file is for; None where it is another file."""
    with path.open("rb") as file:
        head = file.read(20)
    return struct.unpack_from("<H", head, 18)[0] if head[:4] == b"\x7fELF" and head[5] == 1 else None


def _is_compiled(path: Path) -> bool:
    return any((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))


def _started(root: Root, stage: Stage, context: Context, interpreter: Interpreter) -> Iterator[Claim]:
    probe = ask(root, stage, _PROBE).strip()
    yield Claim(
        f"Python {interpreter.version} runs there as nobody, cannot write, and finds no shell",
        probe == f"{USER} {USER} Read-only file system []",
        probe,
    )
    version = start(root, stage, "version")
    yield Claim("`version` answers", version.stdout == f"ai-scheduler {context.version}\n", version.stdout.strip())
    described = start(root, stage, "run", "--help")
    yield Claim("`run --help` answers", described.returncode == 0, _summary(described))
    demo = start(root, stage, "demo")
    yield Claim("a whole cluster in memory is scheduled", demo.returncode == 0, _summary(demo))
    pools = start(root, stage, "pools", "--kubeconfig", "/kubeconfig")
    yield Claim(
        "a kubeconfig with a program for credentials is read, and leads to its server",
        pools.returncode == 1 and "127.0.0.1:1" in pools.stdout and "Traceback" not in pools.stdout,
        _summary(pools),
    )


def _summary(ran: subprocess.CompletedProcess[str]) -> str:
    """Return the status and the first and last words that were said."""
    said = " ".join(ran.stdout.split())
    return f"status {ran.returncode}: {textwrap.shorten(said, 60)} ... {said[-100:]}"
