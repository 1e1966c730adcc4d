"""`ai-scheduler sandbox`: runs an API server in memory."""

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import yaml
from typer import TyperException

from aischeduler.sandbox.controllers.kubelet import KubeletOptions
from aischeduler.sandbox.http_server import CONTEXT, HttpSandbox


async def run_sandbox(port: int, kubeconfig_out: Path | None) -> None:
    """Serve until SIGINT or SIGTERM; raises TyperException where the port or the file cannot be used."""
    async with running_sandbox(port) as server:
        with kubeconfig_file(server, kubeconfig_out) as path:
            print(f"A Kubernetes API server in memory listens on {server.url}; Ctrl-C ends it. To use it:")
            print(f"  export KUBECONFIG={path}", flush=True)
            await stop_signal()


@asynccontextmanager
async def running_sandbox(port: int) -> AsyncIterator[HttpSandbox]:
    """Run a sandbox with kubelets on this port of 127.0.0.1; 0 takes a free port."""
    server = HttpSandbox(port=port, kubelet=KubeletOptions())
    try:
        await server.start()
    except OSError as error:
        raise TyperException(f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from error
    try:
        yield server
    finally:
        await server.stop()


@contextmanager
def kubeconfig_file(server: HttpSandbox, path: Path | None) -> Iterator[Path]:
    """Write the sandbox's kubeconfig; where `path` is None, to a temporary file that is deleted at the end.

    A file that exists is replaced only where it is a sandbox's kubeconfig.
    """
    with tempfile.TemporaryDirectory(prefix="ai-scheduler-") as directory:
        file = path or Path(directory) / "kubeconfig"
        try:
            if file.exists() and not _is_sandbox_kubeconfig(file.read_text(encoding="utf-8", errors="replace")):
                raise TyperException(f"{file}: exists and is not a sandbox's kubeconfig, so it is not overwritten")
            file.write_text(server.kubeconfig, encoding="utf-8")
        except OSError as error:
            raise TyperException(f"{file}: cannot be written: {error.strerror}") from error
        yield file


async def stop_signal() -> None:
    """Wait for SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def _is_sandbox_kubeconfig(text: str) -> bool:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    return isinstance(document, dict) and document.get("current-context") == CONTEXT
