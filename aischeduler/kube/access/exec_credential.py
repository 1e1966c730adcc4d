"""Credentials from an exec credential plugin of a kubeconfig, cached until they expire.

Invariants:
- The plugin runs in a subprocess with limits of time and output; beyond them it is killed with its children. A daemon
  gives it no terminal; a command line passes its own, so that the plugin can prompt the user.
- The plugin runs again before its credential expires; requests use the old credential meanwhile.
- A credential is valid until its expiration time. After a 401 the plugin runs again, but not within RERUN_SECONDS:
  otherwise it would run for every request.
- An error names file, user and command, and shows nothing of the printed credential.

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

from aischeduler.kube.access.credentials import Credential, bearer
from aischeduler.kube.http.errors import AccessError
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.user_text import one_line

PLUGIN_TIMEOUT_SECONDS: Final = 30.0
"""The timeout of a plugin; without a valid credential all requests wait for it."""
INTERACTIVE_TIMEOUT_SECONDS: Final = 300.0
REFRESH_BEFORE_SECONDS: Final = 120.0
"""How long before it expires a credential is refreshed; half of its lifetime if that is shorter."""
POLL_SECONDS: Final = 1.0
"""How often requests look for the result of a plugin that runs in the background."""
RERUN_SECONDS: Final = 10.0
KILL_WAIT_SECONDS: Final = 1.0
OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""The longest output of a plugin: far above a token (kilobytes) and a certificate chain (tens of kilobytes)."""
STDERR_BYTES_MAX: Final = 4096
"""How much of the end of stderr is kept."""
GROUP: Final = "client.authentication.k8s.io"
VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A plugin to run; `where` names file and user, `exec_info` is the value of KUBERNETES_EXEC_INFO.

    With `shows_stderr` the plugin inherits stderr; if `interactive`, it inherits the terminal as stdin too.
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
        """The timeout of the plugin."""
        return INTERACTIVE_TIMEOUT_SECONDS if self.shows_stderr else PLUGIN_TIMEOUT_SECONDS

    @property
    def name(self) -> str:
        """File, user and command, as the beginning of a message."""
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


class ExecCredentialCache(Struct):
    """A plugin and its last credential; `clock` is monotonic, `wall` is unix time, for the expiration."""

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
        """Return the valid credential, or run the plugin; raises AccessError.

        A credential that expires soon is returned while the plugin runs in the background.
        """
        ran_recently = self.clock() - self._run_at < RERUN_SECONDS
        if self._credential is None or refused or self._valid_seconds <= 0:
            await self._wait_or_run(ran_recently=ran_recently)
        elif self._valid_seconds <= self._refresh_before_seconds and not ran_recently and self._running is None:
            self._running = asyncio.create_task(self._run_in_background(), name=f"credentials of {self.plugin.where}")
        assert self._credential is not None
        known = self._credential
        return Credential(known.header, known.client_certificate, self._reread_seconds, self.plugin.name, self._failure)

    async def close(self) -> None:
        """Stop the plugin if it runs in the background."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))

    @property
    def _valid_seconds(self) -> float:
        return self._expires_at - self.wall()

    @property
    def _reread_seconds(self) -> float:
        """How long the credential may be used without another `read`."""
        if self._running is not None:
            return POLL_SECONDS
        if self._failure:
            return self._run_at + RERUN_SECONDS - self.clock()
        return self._valid_seconds - self._refresh_before_seconds

    async def _wait_or_run(self, *, ran_recently: bool) -> None:
        """Wait for the running plugin, or run it unless it ran just now; raises AccessError."""
        if self._running is not None:
            await asyncio.wait((self._running,))
        elif not ran_recently:
            await self._run()
        if self._failure:
            raise AccessError(self._failure)

    async def _run_in_background(self) -> None:
        try:
            await self._run()
        except AccessError:
            pass  # `read` returns the failure with the valid credential
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
    """The output of a running plugin; `finished` is done when it exited and closed its output, or printed too much."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.stdout = bytearray()
        self.stderr = b""
        self.too_large = False
        self.finished: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Collect output."""
        if fd == 2:
            self.stderr = (self.stderr + data)[-STDERR_BYTES_MAX:]
        elif len(self.stdout) + len(data) <= OUTPUT_BYTES_MAX:
            self.stdout += data
        elif not self.finished.done():
            self.too_large = True
            self.finished.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """Finish: the plugin exited and its output is closed."""
        for future in (self.finished, self.exited):
            if not future.done():
                future.set_result(None)


async def _run_plugin(plugin: ExecPlugin) -> bytes:
    """Run the plugin and return its stdout; raises AccessError."""
    transport, run = await _start(plugin)
    try:
        async with asyncio.timeout(plugin.timeout_seconds):
            await run.finished
    except TimeoutError as error:
        raise AccessError(f"{plugin.name} did not exit within {plugin.timeout_seconds:g} s and was killed") from error
    finally:
        await _end(transport, run, alone=plugin.interactive)
    if run.too_large:
        raise AccessError(f"{plugin.name} printed more than {OUTPUT_BYTES_MAX} bytes")
    status = transport.get_returncode()
    if status:
        exit_text = f"exited with status {status}" if status > 0 else f"was killed by signal {-status}"
        document = [line for line in run.stderr.decode(errors="replace").splitlines() if line.strip()]
        last_line = one_line(document[-1]) if document else ""
        raise AccessError(f"{plugin.name} {exit_text}" + (f": {last_line}" if last_line else ""))
    return bytes(run.stdout)


async def _start(plugin: ExecPlugin) -> tuple[asyncio.SubprocessTransport, _PluginProtocol]:
    environment = os.environ | dict(plugin.environment) | {"KUBERNETES_EXEC_INFO": plugin.exec_info}
    program = shutil.which(plugin.command) or plugin.command  # found in the PATH of this process, not in the plugin's
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
    """Kill the plugin if it still runs, and its children unless `alone`."""
    if transport.get_returncode() is None:
        with suppress(ProcessLookupError):
            if alone:
                transport.kill()
            else:
                os.killpg(transport.get_pid(), signal.SIGKILL)  # it leads a session, hence a process group
    transport.close()
    await asyncio.wait((run.exited,), timeout=KILL_WAIT_SECONDS)


def _parse(plugin: ExecPlugin, printed: bytes) -> tuple[Credential, float]:
    """Return the printed credential and its expiration in unix seconds; raises AccessError."""
    try:
        document = msgspec.json.decode(printed, type=_ExecCredential)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise AccessError(f"{plugin.name} printed no ExecCredential: {decode_problem(error)}") from error
    if document.kind != "ExecCredential" or document.api_version != plugin.version:
        kind = one_line(f"{document.api_version or 'nothing'} {document.kind}")
        raise AccessError(f"{plugin.name} printed {kind} instead of {plugin.version} ExecCredential")
    status = document.status or _Status()
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise AccessError(f"{plugin.name} printed only one of clientCertificateData and clientKeyData")
    if not status.token and not status.client_certificate_data:
        raise AccessError(f"{plugin.name} printed neither a token nor a certificate")
    ends_at = status.expiration_timestamp.timestamp() if status.expiration_timestamp else float("inf")
    return Credential(
        bearer(status.token, f"{plugin.name} printed a token that") if status.token else None,
        f"{status.client_certificate_data}\n{status.client_key_data}".encode() if status.client_key_data else None,
    ), ends_at
