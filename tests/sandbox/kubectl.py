"""Real kubectl, configured for a sandbox over HTTP."""

import asyncio
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from aischeduler.sandbox.controllers.kubelet import KubeletOptions
from aischeduler.sandbox.http_server import HttpSandbox
from tests.controlplane.absent import leave_out
from tests.controlplane.binaries import find_binaries

SECONDS_MAX = 20


def find_kubectl() -> str:
    """Return the path of kubectl: from KUBECTL, the real control plane, or PATH; skip the test if there is none."""
    named = os.environ.get("KUBECTL")
    if named:
        return named
    built = find_binaries()
    program = str(built.kubectl) if built is not None else shutil.which("kubectl")
    if program is None:
        leave_out("no kubectl: set KUBECTL, put it on PATH, or build it with tools/controlplane/build.py")
    return program


@dataclass(frozen=True, slots=True)
class Said:
    """The output and exit status of kubectl."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with a home directory of its own, so that it does not read the machine's configuration."""

    program: str
    home: Path
    url: str

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), "KUBECONFIG": str(self.home / "kubeconfig"), "PATH": os.environ["PATH"]}

    def __call__(self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> Said:
        ran = subprocess.run(
            [self.program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            env=self.environment | (env or {}),
        )
        return Said(ran.returncode, ran.stdout, ran.stderr)

    def ok(self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> str:
        said = self(*arguments, stdin=stdin, env=env)
        assert said.code == 0, said
        return said.out

    def apply(self, *documents: Any) -> str:
        return self.ok("apply", "-f", "-", stdin=as_yaml(*documents))

    def get(self, *arguments: str) -> Any:
        return json.loads(self.ok("get", *arguments, "-o", "json"))

    def background(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.program, *arguments], stdout=subprocess.PIPE, text=True, env=self.environment, bufsize=1
        )


def as_yaml(*documents: Any) -> str:
    return yaml.safe_dump_all(documents)


@contextmanager
def kubectl_on_sandbox(home: Path, kubelet: KubeletOptions) -> Iterator[Kubectl]:
    """Yield kubectl with this home directory and a sandbox of its own."""
    program = find_kubectl()
    with running_sandbox(kubelet) as sandbox:
        (home / "kubeconfig").write_text(sandbox.kubeconfig)
        yield Kubectl(program, home, sandbox.url)


@contextmanager
def running_sandbox(kubelet: KubeletOptions) -> Iterator[HttpSandbox]:
    """Yield a sandbox on an event loop of its own, so that tests may block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="sandbox")
    thread.start()
    sandbox = HttpSandbox(kubelet=kubelet)
    try:
        asyncio.run_coroutine_threadsafe(sandbox.start(), loop).result(SECONDS_MAX)
        try:
            yield sandbox
        finally:
            asyncio.run_coroutine_threadsafe(sandbox.stop(), loop).result(SECONDS_MAX)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS_MAX)
        loop.close()
