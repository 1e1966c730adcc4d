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

PLUGIN_SECONDS: Final = 30.0
"""Longest that a plugin may take: it asks a server of its own, and where nothing holds our requests wait for it."""
USER_SECONDS: Final = 300.0
"""Longest that a plugin may take that can ask its user."""
EARLY_SECONDS: Final = 120.0
"""So long before its end what a plugin said is asked for anew; half of its life where that is less."""
LOOK_SECONDS: Final = 1.0
"""How often we look for the answer of a plugin that runs beside requests."""
PLUGIN_AGAIN_SECONDS: Final = 10.0
KILLED_SECONDS: Final = 1.0
"""How long we wait for a plugin to be gone that was killed."""
OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""A token has some kilobytes, a certificate with its chain some ten."""
COMPLAINT_BYTES_MAX: Final = 4096
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
    hint: str
    asked: str = field(repr=False)
    shows: bool = False
    interactive: bool = False

    @property
    def seconds(self) -> float:
        """Longest that it may take."""
        return USER_SECONDS if self.shows else PLUGIN_SECONDS

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
    _said: Credential | None = None
    _ends_at: float = 0.0
    _early_seconds: float = 0.0
    _asked_at: float = _NEVER
    _failure: str = ""
    _asking: asyncio.Task[None] | None = None

    async def read(self, *, refused: bool) -> Credential:
        """Return what is still good of what it said, else ask it; raises AccessError.

        What ends soon is returned while the plugin is asked beside it.
        """
        soon = self.clock() - self._asked_at < PLUGIN_AGAIN_SECONDS
        if self._said is None or refused or self._left_seconds <= 0:
            await self._answer(soon=soon)
        elif self._left_seconds <= self._early_seconds and not soon and self._asking is None:
            self._asking = asyncio.create_task(self._ask_beside(), name=f"credentials of {self.plugin.where}")
        assert self._said is not None
        said = self._said
        return Credential(said.header, said.identity, self._again_seconds, self.plugin.name, self._failure)

    async def close(self) -> None:
        """End the plugin where it runs beside requests."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait((self._asking,))

    @property
    def _left_seconds(self) -> float:
        return self._ends_at - self.wall()

    @property
    def _again_seconds(self) -> float:
        """How long what is known is good without another look."""
        if self._asking is not None:
            return LOOK_SECONDS
        if self._failure:
            return self._asked_at + PLUGIN_AGAIN_SECONDS - self.clock()
        return self._left_seconds - self._early_seconds

    async def _answer(self, *, soon: bool) -> None:
        """Wait for an answer where none that was given holds, unless the last one was given just now."""
        if self._asking is not None:
            await asyncio.wait((self._asking,))
        elif not soon:
            await self._ask()
        if self._failure:
            raise AccessError(self._failure)

    async def _ask_beside(self) -> None:
        try:
            await self._ask()
        except AccessError:
            pass  # it is told with what still holds
        finally:
            self._asking = None

    async def _ask(self) -> None:
        self._asked_at = self.clock()
        try:
            self._said, self._ends_at = _understood(self.plugin, await _output(self.plugin))
        except AccessError as error:
            self._failure = str(error)
            raise
        self._failure = ""
        self._early_seconds = min(EARLY_SECONDS, max(self._left_seconds, 0.0) / 2)


class _Run(asyncio.SubprocessProtocol):
    """What a running plugin prints; `over` is done when it has ended and all is read, or when it prints too much."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.printed = bytearray()
        self.complaint = b""
        self.excessive = False
        self.over: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take in what it prints."""
        if fd == 2:
            self.complaint = (self.complaint + data)[-COMPLAINT_BYTES_MAX:]
        elif len(self.printed) + len(data) <= OUTPUT_BYTES_MAX:
            self.printed += data
        elif not self.over.done():
            self.excessive = True
            self.over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """Take in that it has ended and that its output is closed."""
        for future in (self.over, self.gone):
            if not future.done():
                future.set_result(None)


async def _output(plugin: ExecPlugin) -> bytes:
    """Run the plugin and return what it prints; raises AccessError."""
    transport, run = await _start(plugin)
    try:
        async with asyncio.timeout(plugin.seconds):
            await run.over
    except TimeoutError as error:
        raise AccessError(f"{plugin.name} did not end within {plugin.seconds:g} s and was killed") from error
    finally:
        await _end(transport, run, alone=plugin.interactive)
    if run.excessive:
        raise AccessError(f"{plugin.name} printed more than {OUTPUT_BYTES_MAX} bytes")
    status = transport.get_returncode()
    if status:
        ended = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
        said = [line for line in run.complaint.decode(errors="replace").splitlines() if line.strip()]
        complaint = one_line(said[-1]) if said else ""
        raise AccessError(f"{plugin.name} {ended}" + (f": {complaint}" if complaint else ""))
    return bytes(run.printed)


async def _start(plugin: ExecPlugin) -> tuple[asyncio.SubprocessTransport, _Run]:
    environment = os.environ | dict(plugin.environment) | {"KUBERNETES_EXEC_INFO": plugin.asked}
    program = shutil.which(plugin.command) or plugin.command  # our PATH finds it, not the one that it is given
    try:
        return await asyncio.get_running_loop().subprocess_exec(
            _Run,
            program,
            *plugin.arguments,
            stdin=None if plugin.interactive else asyncio.subprocess.DEVNULL,
            stderr=None if plugin.shows else asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=not plugin.interactive,  # a new session would have no terminal
        )
    except FileNotFoundError as error:
        hint = f": {one_line(plugin.hint)}" if plugin.hint else ""
        raise AccessError(f"{plugin.name} cannot be found{hint}") from error
    except (OSError, ValueError) as error:
        raise AccessError(f"{plugin.name} cannot be started: {one_line(str(error))}") from error


async def _end(transport: asyncio.SubprocessTransport, run: _Run, *, alone: bool) -> None:
    """Kill the plugin where it still runs, and what it started unless it is to be killed `alone`."""
    if transport.get_returncode() is None:
        with suppress(ProcessLookupError):
            if alone:
                transport.kill()
            else:
                os.killpg(transport.get_pid(), signal.SIGKILL)  # it leads a session, so a group too
    transport.close()
    await asyncio.wait((run.gone,), timeout=KILLED_SECONDS)


def _understood(plugin: ExecPlugin, printed: bytes) -> tuple[Credential, float]:
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
