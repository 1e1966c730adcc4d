"""Carry out the steps of a Dockerfile in scratch roots, as far as that goes without an engine.

Laws:
- A step is run as it is written, by the shell, in a root whose own files are only those that the steps made.
- In place of the images stand this machine's system, read-only, and its interpreter of the same minor version. The last
  stage sees of that the interpreter, and the libraries that the distroless image has too; there is no shell.
- pip asks the index that this machine is set up for.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, assert_never

from tools.image.dockerfile import Copy, Run, Stage
from tools.image.scratch import Mount, Root, UnavailableError

PASSED_ON: Final = [
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
    "PIP_CERT",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_EXTRA_INDEX_URL",
    "PIP_INDEX_URL",
    "PIP_TRUSTED_HOST",
]
"""Variables of this machine that pip needs to reach an index."""

LIBRARIES: Final = [
    "libbz2.so.1.0",
    "libc.so.6",
    "libcrypt.so.1",
    "libcrypto.so.3",
    "libdl.so.2",
    "libexpat.so.1",
    "libffi.so.8",
    "libgcc_s.so.1",
    "libgomp.so.1",
    "liblzma.so.5",
    "libm.so.6",
    "libncursesw.so.6",
    "libpthread.so.0",
    "libreadline.so.8",
    "libresolv.so.2",
    "librt.so.1",
    "libsqlite3.so.0",
    "libssl.so.3",
    "libstdc++.so.6",
    "libtinfo.so.6",
    "libutil.so.1",
    "libuuid.so.1",
    "libz.so.1",
    "libzstd.so.1",
]
"""System libraries of distroless python3, by its packages: base, cc and what the interpreter needs."""

LOADERS: Final = (Path("/lib64/ld-linux-x86-64.so.2"), Path("/lib/ld-linux-aarch64.so.1"))
"""Where every program of the architecture looks for the loader."""

IGNORED: Final = ("__pycache__",)
"""What .dockerignore keeps out of directories that it lets in."""

_SYSTEM: Final = ("bin", "lib", "lib64", "sbin")
_FACTS: Final = """
import json, sys, sysconfig
library = sysconfig.get_config_var("INSTSONAME") if sysconfig.get_config_var("Py_ENABLE_SHARED") else ""
print(json.dumps({
    "version": sys.version.split()[0],
    "program": sys._base_executable,
    "modules": sysconfig.get_path("stdlib"),
    "shared": f"{sysconfig.get_config_var('LIBDIR')}/{library}" if library else "",
}))
"""


class StepError(Exception):
    """A step failed; the text has the step and what it said."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python of this machine: its program, its standard library, and its own library where it is in one."""

    version: str
    program: Path
    modules: Path
    shared: Path | None

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """Where it is found in a root: under the same paths as here, which are built into it."""
        parts = [self.program, self.modules, *([self.shared] if self.shared else [])]
        return tuple(Mount(part, str(part)) for part in parts)


def find_interpreter(version: str) -> Interpreter:
    """Find a Python of this minor version in the path, or among those of pyenv; raises UnavailableError."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = shutil.which(name)
    programs = [Path(found)] if found else []
    for program in (*programs, *sorted(pyenv.glob(f"{version}.*/bin/{name}"))):
        # One in the path may be a shim that knows of no such version.
        asked = subprocess.run([program, "-c", _FACTS], capture_output=True, check=False)
        if asked.returncode == 0:
            facts = json.loads(asked.stdout)
            shared = Path(facts["shared"]) if facts["shared"] else None
            return Interpreter(facts["version"], Path(facts["program"]).resolve(), Path(facts["modules"]), shared)
    raise UnavailableError(f"there is no {name}, neither in the path nor in {pyenv}")


def build(stage: Stage, context: Path, interpreter: Interpreter, path: Path) -> None:
    """Carry out the first stage in a new root at `path`; raises StepError."""
    root = Root(path, _builder_mounts(interpreter), restricted=False)
    _lay_out(path)
    (path / "python").mkdir()
    (path / "python/python3").symlink_to(interpreter.program)
    machine = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    for step in stage.steps:
        match step:
            case Copy():
                _copy(step, context, path, IGNORED)
            case Run():
                environment = {"PATH": "/python:/usr/bin:/bin", "HOME": "/root", **machine, **step.environment}
                (path / step.directory.lstrip("/")).mkdir(parents=True, exist_ok=True)
                ran = root.run(["/bin/sh", "-c", f"cd {step.directory} || exit 1\n{step.command}"], environment)
                if ran.returncode != 0:
                    raise StepError(f"RUN {step.command}\nended with {ran.returncode}:\n{ran.stdout}")
            case _:
                assert_never(step)


def assemble(stage: Stage, built: Path, interpreter: Interpreter, path: Path) -> Root:
    """Make the root of the last stage at `path` from what the first one left."""
    (path / "tmp").mkdir(parents=True)
    nothing = path / "nothing"
    nothing.mkdir()
    for step in stage.steps:
        if not isinstance(step, Copy):
            raise StepError(f"there is no shell for {step}")
        _copy(step, built, path, ())
    (path / "usr/bin").mkdir(parents=True)
    (path / "usr/bin/python3").symlink_to(interpreter.program)
    for library in _libraries():
        place = path / str(library).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    mounts = [
        *interpreter.mounts,
        # What is installed beside the interpreter here is not part of the image.
        Mount(nothing, f"{interpreter.modules}/site-packages"),
        *(Mount(Path(one), one, writable=True) for one in ("/proc", "/dev")),
        *(Mount(Path(one), one) for one in ("/etc/hosts", "/etc/resolv.conf") if Path(one).exists()),
    ]
    return Root(path, tuple(mounts), restricted=True)


def start(root: Root, stage: Stage, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Start the image as a kubelet does: its entry point with these arguments."""
    return root.run([*stage.entrypoint, *arguments], _runtime_environment(stage))


def ask(root: Root, stage: Stage, program: str) -> str:
    """Have the image's interpreter run a program; raises StepError."""
    ran = root.run([stage.entrypoint[0], "-c", program], _runtime_environment(stage))
    if ran.returncode != 0:
        raise StepError(ran.stdout)
    return ran.stdout


def _runtime_environment(stage: Stage) -> Mapping[str, str]:
    return {"PATH": "/usr/bin", "HOME": "/home/nonroot", "LANG": "C.UTF-8", **stage.environment}


def _builder_mounts(interpreter: Interpreter) -> tuple[Mount, ...]:
    system = [Path("/usr"), Path("/etc"), *(Path("/", name) for name in _SYSTEM if not Path("/", name).is_symlink())]
    mounts = [Mount(one, str(one)) for one in system if one.exists()]
    mounts += [Mount(Path(one), one, writable=True) for one in ("/proc", "/dev")]
    mounts += [one for one in interpreter.mounts if not one.target.startswith("/usr/")]
    home = Path.home()
    settings = [(home / ".config/pip", "/root/.config/pip", False), (home / ".cache/pip", "/root/.cache/pip", True)]
    return (*mounts, *(Mount(source, target, writable) for source, target, writable in settings if source.is_dir()))


def _lay_out(path: Path) -> None:
    for name in ("tmp", "root"):
        (path / name).mkdir(parents=True)
    for name in _SYSTEM:
        here = Path("/", name)
        if here.is_symlink():
            (path / name).symlink_to(here.readlink())


def _copy(step: Copy, origin: Path, root: Path, ignored: tuple[str, ...]) -> None:
    """Copy as COPY does: files into a directory or to a name, a directory's contents into the target."""
    target = root / step.target.lstrip("/")
    for source in step.sources:
        found = origin / source.lstrip("/")
        if found.is_dir():
            shutil.copytree(found, target, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns(*ignored))
        else:
            place = target / found.name if step.target.endswith("/") else target
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, place)


def _libraries() -> list[Path]:
    """Find the loader and LIBRARIES on this machine; those that it has not are left out."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found: dict[str, Path] = {}
    for line in listed.splitlines()[1:]:
        name, _, place = line.strip().partition(" => ")
        found.setdefault(name.split(" ")[0], Path(place))
    return [*(path for path in LOADERS if path.exists()), *(found[name] for name in LIBRARIES if name in found)]
