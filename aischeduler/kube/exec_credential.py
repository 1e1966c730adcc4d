"""Credentials that a program prints: the `exec` of a kubeconfig.

Laws:
- The program runs beside the event loop, within limits of time and of output; past them it is killed with what it
  started. A daemon gives it no terminal; a command line that has one lends it, so that it can ask its user.
- It is asked anew before what it said ends. Requests go on with what still holds, however long it takes.
- What it said is good until the time that it names. A server that does not know it makes us ask again, but not
  within PLUGIN_AGAIN_SECONDS: a program that is asked for each request would be all that we do.
- Every failure is one sentence that names file, user and command, and shows nothing of what was printed as credential.

Source: Kubernetes client.authentication.k8s.io/v1 and v1beta1 (client-go plugin/pkg/client/auth/exec).
"""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Struct

from aischeduler.kube.credentials import Credential, bearer
from aischeduler.kube.errors import AccessError, one_line

PLUGIN_TIMEOUT_SECONDS: Final = 30.0
"""Longest that a plugin may take: it asks a server of its own, and where nothing holds our requests wait for it."""
INTERACTIVE_TIMEOUT_SECONDS: Final = 300.0
"""Longest that a plugin may take that can ask its user."""
REFRESH_BEFORE_SECONDS: Final = 120.0
"""So long before its end what a plugin said is asked for anew; half of its life where that is less."""
POLL_SECONDS: Final = 1.0
"""How often we look for the answer of a plugin that runs beside requests."""
RERUN_SECONDS: Final = 10.0
KILL_WAIT_SECONDS: Final = 1.0
"""How long we wait for a plugin to be gone that was killed."""
OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""A token has some kilobytes, a certificate with its chain some ten."""
STDERR_BYTES_MAX: Final = 4096
"""How much of the end of what a plugin complains of is kept."""
GROUP: Final = "client.authentication.k8s.io"
VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program to run; `where` names file and user, `asked` is what it is told in KUBERNETES_EXEC_INFO.

    `shows` where it has our standard error, and our terminal too if it is `interactive`.
    """

    where: str
    command: str
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = field(repr=False)
    version: str
    install_hint: str
    exec_info: str = field(repr=False)
    shows_stderr: bool = False
    interactive: bool = False

    @property
    def timeout_seconds(self) -> float:
        """Longest that it may take."""
        return INTERACTIVE_TIMEOUT_SECONDS if self.shows_stderr else PLUGIN_TIMEOUT_SECONDS

    @property
    def name(self) -> str:
        """File, user and command, as a sentence begins with them."""
        return f"{self.where}: the command {self.command!r}"


class _Status(Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


@dataclass(slots=True)
class ExecCredentialCache:
    """A plugin and what it said last; `clock` is monotonic, `wall` is the time that its answers speak of."""

    plugin: ExecPlugin
    clock: Callable[[], float]
    wall: Callable[[], float] = time.time
    _credential: Credential | None = None
    _expires_at: float = 0.0
    _refresh_before_seconds: float = 0.0
    _run_at: float = _NEVER
    _failure: str = ""
    _running: asyncio.Task[None] | None = None

    async def read(self, *, refused: bool) -> Credential:
        """Return what is still good of what it said, else ask it; raises AccessError.

        What ends soon is returned while the plugin is asked beside it.
        """
        soon = self.clock() - self._run_at < RERUN_SECONDS
        if self._credential is None or refused or self._valid_seconds <= 0:
            await self._wait_or_run(soon=soon)
        elif self._valid_seconds <= self._refresh_before_seconds and not soon and self._running is None:
            self._running = asyncio.create_task(self._run_in_background(), name=f"credentials of {self.plugin.where}")
        assert self._credential is not None
        said = self._credential
        return Credential(said.header, said.client_certificate, self._reread_seconds, self.plugin.name, self._failure)

    async def close(self) -> None:
        """End the plugin where it runs beside requests."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))

    @property
    def _valid_seconds(self) -> float:
        return self._expires_at - self.wall()

    @property
    def _reread_seconds(self) -> float:
        """How long what is known is good without another look."""
        if self._running is not None:
            return POLL_SECONDS
        if self._failure:
            return self._run_at + RERUN_SECONDS - self.clock()
        return self._valid_seconds - self._refresh_before_seconds

    async def _wait_or_run(self, *, soon: bool) -> None:
        """Wait for an answer where none that was given holds, unless the last one was given just now."""
        if self._running is not None:
            await asyncio.wait((self._running,))
        elif not soon:
            await self._run()
        if self._failure:
            raise AccessError(self._failure)

    async def _run_in_background(self) -> None:
        try:
            await self._run()
        except AccessError:
            pass  # it is told with what still holds
        finally:
            self._running = None

    async def _run(self) -> None:
        self._run_at = self.clock()
        try:
            self._credential, self._expires_at = _parse(self.plugin, await _run_plugin(self.plugin))
        except AccessError as error:
            self._failure = str(error)
            raise
        self._failure = ""
        self._refresh_before_seconds = min(REFRESH_BEFORE_SECONDS, max(self._valid_seconds, 0.0) / 2)


class _PluginProtocol(asyncio.SubprocessProtocol):
    """What a running plugin prints; `over` is done when it has ended and all is read, or when it prints too much."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.stdout = bytearray()
        self.stderr = b""
        self.too_large = False
        self.finished: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take in what it prints."""
        if fd == 2:
            self.stderr = (self.stderr + data)[-STDERR_BYTES_MAX:]
        elif len(self.stdout) + len(data) <= OUTPUT_BYTES_MAX:
            self.stdout += data
        elif not self.finished.done():
            self.too_large = True
            self.finished.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """Take in that it has ended and that its output is closed."""
        for future in (self.finished, self.exited):
            if not future.done():
                future.set_result(None)


async def _run_plugin(plugin: ExecPlugin) -> bytes:
    """Run the plugin and return what it prints; raises AccessError."""
    transport, run = await _start(plugin)
    try:
        async with asyncio.timeout(plugin.timeout_seconds):
            await run.finished
    except TimeoutError as error:
        raise AccessError(f"{plugin.name} did not end within {plugin.timeout_seconds:g} s and was killed") from error
    finally:
        await _end(transport, run, alone=plugin.interactive)
    if run.too_large:
        raise AccessError(f"{plugin.name} printed more than {OUTPUT_BYTES_MAX} bytes")
    status = transport.get_returncode()
    if status:
        ended = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
        said = [line for line in run.stderr.decode(errors="replace").splitlines() if line.strip()]
        complaint = one_line(said[-1]) if said else ""
        raise AccessError(f"{plugin.name} {ended}" + (f": {complaint}" if complaint else ""))
    return bytes(run.stdout)


async def _start(plugin: ExecPlugin) -> tuple[asyncio.SubprocessTransport, _PluginProtocol]:
    environment = os.environ | dict(plugin.environment) | {"KUBERNETES_EXEC_INFO": plugin.exec_info}
    program = shutil.which(plugin.command) or plugin.command  # our PATH finds it, not the one that it is given
    try:
        return await asyncio.get_running_loop().subprocess_exec(
            _PluginProtocol,
            program,
            *plugin.arguments,
            stdin=None if plugin.interactive else asyncio.subprocess.DEVNULL,
            stderr=None if plugin.shows_stderr else asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=not plugin.interactive,  # a new session would have no terminal
        )
    except FileNotFoundError as error:
        hint = f": {one_line(plugin.install_hint)}" if plugin.install_hint else ""
        raise AccessError(f"{plugin.name} cannot be found{hint}") from error
    except (OSError, ValueError) as error:
        raise AccessError(f"{plugin.name} cannot be started: {one_line(str(error))}") from error


async def _end(transport: asyncio.SubprocessTransport, run: _PluginProtocol, *, alone: bool) -> None:
    """Kill the plugin where it still runs, and what it started unless it is to be killed `alone`."""
    if transport.get_returncode() is None:
        with suppress(ProcessLookupError):
            if alone:
                transport.kill()
            else:
                os.killpg(transport.get_pid(), signal.SIGKILL)  # it leads a session, so a group too
    transport.close()
    await asyncio.wait((run.exited,), timeout=KILL_WAIT_SECONDS)


def _parse(plugin: ExecPlugin, printed: bytes) -> tuple[Credential, float]:
    """Return the credential that was printed and the wall time at which it ends; raises AccessError."""
    try:
        said = msgspec.json.decode(printed, type=_ExecCredential)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise AccessError(f"{plugin.name} printed no ExecCredential: {one_line(str(error))}") from error
    if said.kind != "ExecCredential" or said.api_version != plugin.version:
        kind = one_line(f"{said.api_version or 'nothing'} {said.kind}")
        raise AccessError(f"{plugin.name} printed {kind} instead of {plugin.version} ExecCredential")
    status = said.status or _Status()
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise AccessError(f"{plugin.name} printed only one of clientCertificateData and clientKeyData")
    if not status.token and not status.client_certificate_data:
        raise AccessError(f"{plugin.name} printed neither a token nor a certificate")
    ends_at = status.expiration_timestamp.timestamp() if status.expiration_timestamp else float("inf")
    return Credential(
        bearer(status.token, f"{plugin.name} printed a token that") if status.token else None,
        f"{status.client_certificate_data}\n{status.client_key_data}".encode() if status.client_key_data else None,
    ), ends_at
