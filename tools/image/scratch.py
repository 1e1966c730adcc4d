"""Run programs that see a directory as `/`: what stands in for a container where there is no engine.

Laws:
- Everything of this machine that shows in there is mounted read-only, but for the directories that are named writable.
- The mounts are of a namespace of their own: they end with the program, whatever becomes of it.
- Without root the same is done in a user namespace. Where neither is allowed, UnavailableError says so.

Source: mount_namespaces(7), user_namespaces(7), util-linux.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

USER: Final = 65532
"""Who runs in a restricted root: `nonroot` of distroless."""
TMP_BYTES_MAX: Final = 16 * 1024 * 1024
"""As large as the chart makes the directory."""
SECONDS_MAX: Final = 300
_TOOLS: Final = ("unshare", "mount", "chroot", "sh")


class UnavailableError(Exception):
    """This machine cannot do it; the text says what it lacks."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of this machine that shows in the root under a path of its own."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Root:
    """A directory that is `/` for what runs in it.

    A `restricted` one is read-only but for an empty `/tmp` in memory, and its programs are not root.
    """

    path: Path
    mounts: tuple[Mount, ...]
    restricted: bool

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a program that stands in the root, with these variables and no others; both its outputs are one text."""
        script = "\n".join([*self._mounting(), f"exec {shlex.join(self._entering(command, environment))}"])
        return subprocess.run(
            [*_apart(), "sh", "-euc", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def _mounting(self) -> list[str]:
        """Make the places that things are mounted on, and write the commands that mount them."""
        lines = [shlex.join(["mount", "--bind", str(self.path), str(self.path)])] if self.restricted else []
        for mount in self.mounts:
            place = self.path / mount.target.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            if mount.source.is_dir():
                place.mkdir(exist_ok=True)
            else:
                place.touch()
            lines.append(shlex.join(["mount", "--rbind", str(mount.source), str(place)]))
            if not mount.writable:
                lines.append(shlex.join(["mount", "-o", "remount,bind,ro", str(place)]))
        if self.restricted:
            lines.append(shlex.join(["mount", "-o", "remount,bind,ro", str(self.path)]))
            memory = ["mount", "-t", "tmpfs", "-o", f"size={TMP_BYTES_MAX}", "tmpfs", str(self.path / "tmp")]
            lines.append(shlex.join(memory))
        return lines

    def _entering(self, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        clean = ["env", "-i", *(f"{name}={value}" for name, value in environment.items())]
        enter = [_tool("chroot"), str(self.path)]
        if self.restricted and os.geteuid() == 0:
            enter = [_tool("chroot"), f"--userspec={USER}:{USER}", str(self.path)]
        elif self.restricted:
            enter = [_tool("unshare"), "--user", f"--map-user={USER}", f"--map-group={USER}", "--root", str(self.path)]
        return [*clean, *enter, *command]


def _apart() -> list[str]:
    """Return the command under which mounts are seen by nobody else."""
    apart = ["unshare", "--mount", "--propagation", "private"]
    return apart if os.geteuid() == 0 else [*apart, "--user", "--map-root-user"]


def _tool(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))
    if found is None:
        raise UnavailableError(f"there is no program {name}")
    return found


def require_namespaces() -> None:
    """Raise UnavailableError where this machine does not let us mount in a namespace of our own."""
    for name in _TOOLS:
        _tool(name)
    tried = subprocess.run([*_apart(), "mount", "--rbind", "/usr", "/usr"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise UnavailableError(f"mounts in a namespace of our own are refused: {tried.stderr.strip()}")
