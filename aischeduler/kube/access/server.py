"""The address, TLS and credentials of an API server, from a kubeconfig or from a pod's service account.

Invariants:
- Credentials are read again every 60 seconds, earlier if they expire earlier, and once after a 401. If a read fails,
  the old ones stay; at the start the failure is an error.
- Client certificates and CA files are read again when they change; new connections use only the new ones. A certificate
  whose key is not written yet changes nothing: the old pair stays.
- Files are read in a thread once the program runs: a kubeconfig takes milliseconds to parse.
- A configured CA is the only trusted one; without it, the system's CAs are trusted.

Source: Kubernetes kubeconfig and service account conventions.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from aischeduler.kube.access.credentials import Credential, CredentialSource, TokenFile
from aischeduler.kube.access.dialer import Proxy, Resolve, parse_proxy, proxy_from_environment, resolve
from aischeduler.kube.access.exec_credential import ExecCredentialCache
from aischeduler.kube.access.kubeconfig import KubeconfigContext, read_kubeconfig_context
from aischeduler.kube.http.errors import AccessError, InterceptedError
from aischeduler.model.user_text import one_line

REREAD_SECONDS: Final = 60.0
"""How often credentials are read; the kubelet rotates a service account token long before it expires."""
REREAD_SECONDS_MIN: Final = 1.0
"""How soon a credential that is expired when it is read, as with a wrong clock, is read again."""
RENEW_INTERVAL_SECONDS: Final = 1.0
"""How long refused credentials that did not change are not read again."""
HOME_KUBECONFIG: Final = "~/.kube/config"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def _ignore(_: object) -> None:
    return


@dataclass(slots=True)
class Tls:
    """A TLS context and its files; `certificate_number` increases with each client certificate.

    `new_context` returns a context without CAs: a CA cannot be removed from a context.
    """

    context: ssl.SSLContext
    server_name: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    certificate_number: int = 0
    new_context: Callable[[], ssl.SSLContext] = field(default=lambda: _context(custom_ca=True))
    _mtimes: tuple[int, ...] = ()
    _client_certificate: bytes | None = None

    def reload(self) -> None:
        """Load the files into the context if they changed."""
        files = [name for name in (self.ca_file, self.certificate_file, self.key_file) if name]
        mtimes = tuple(Path(name).stat().st_mtime_ns for name in files)
        if mtimes == self._mtimes:
            return
        context = self.context
        if self.ca_file:
            context = self.new_context()
            context.load_verify_locations(cafile=self.ca_file)
            if self._client_certificate is not None:
                _load_certificate(context, self._client_certificate)
        if self.certificate_file:
            pair = [Path(name).read_bytes() for name in (self.certificate_file, self.key_file) if name]
            _load_certificate(context, b"\n".join(pair))
            self.certificate_number += 1
        self.context, self._mtimes = context, mtimes

    def use_certificate(self, certificate: bytes) -> None:
        """Use this client certificate with its key, in PEM, for new connections; raises OSError."""
        if certificate == self._client_certificate:
            return
        _load_certificate(self.context, certificate)
        self._client_certificate = certificate
        self.certificate_number += 1


@dataclass(slots=True)
class Server:
    """An API server and the credentials for it.

    `path_prefix` is the path before `/api`, usually empty; `impersonation` the header lines of impersonation; `proxy`
    the HTTP proxy, `resolver` the name resolution. `credential_failure` says why the credentials could not be read the
    last time. `on_intercepted` gets answers that no API server sent, `on_credential_failure` a sentence about
    credentials that cannot be read or are refused.
    """

    host: str
    port: int
    clock: Callable[[], float]
    tls: Tls | None = None
    path_prefix: str = ""
    credential_source: CredentialSource | None = None
    impersonation: bytes = b""
    proxy: Proxy | None = None
    resolver: Resolve = resolve
    credential_failure: str = ""
    on_intercepted: Callable[[InterceptedError], None] = field(default=_ignore)
    on_credential_failure: Callable[[str], None] = field(default=_ignore)
    _credential_where: str = ""
    _loaded: bool = False
    _renewable_at: float = field(default=float("-inf"))
    _header: bytes | None = field(default=None, repr=False)
    _reread_at: float = field(default=float("-inf"))
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def url(self) -> str:
        """The URL without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}{self.path_prefix}"

    @property
    def certificate_number(self) -> int:
        """The number of the client certificate; a connection opened with another one authenticates the old identity."""
        return self.tls.certificate_number if self.tls is not None else 0

    async def authorization(self) -> bytes | None:
        """Return the value of the Authorization header; None if a client certificate or nothing is needed."""
        if self.clock() >= self._reread_at and not (self._loaded and self._reading.locked()):
            async with self._reading:
                if self.clock() >= self._reread_at:
                    await self._reread(refused=False)
        return self._header

    async def renew_credentials(self, header: bytes | None, certificate_number: int) -> bool:
        """Read the credentials again after a 401 to these; return whether there are other ones to try.

        Of several requests that were refused with the same credentials, only the first one reads them.
        """
        async with self._reading:
            if self._are_current(header, certificate_number) and self.clock() >= self._renewable_at:
                await self._reread(refused=True)
                self._renewable_at = self.clock() + RENEW_INTERVAL_SECONDS
        if not self._are_current(header, certificate_number):
            return True
        self.on_credential_failure(
            self.credential_failure
            or f"{self._credential_where or 'no credentials'}: the API server answers 401 Unauthorized"
        )
        return False

    def _are_current(self, header: bytes | None, certificate_number: int) -> bool:
        return self._header == header and self.certificate_number == certificate_number

    async def load_credentials(self, *, refused: bool = False) -> None:
        """Read header and certificates; raises AccessError and OSError."""
        credential = (
            await self.credential_source.read(refused=refused) if self.credential_source is not None else Credential()
        )
        self._header, self._credential_where = credential.header, credential.where
        if self.tls is not None:
            self.tls.reload()
            if credential.client_certificate is not None:
                self.tls.use_certificate(credential.client_certificate)
        self._loaded, self.credential_failure = True, credential.failure
        if self.credential_failure:
            self.on_credential_failure(self.credential_failure)
        self._reread_at = self.clock() + min(max(credential.valid_seconds, REREAD_SECONDS_MIN), REREAD_SECONDS)

    async def close(self) -> None:
        """Stop an exec plugin that runs in the background."""
        if isinstance(self.credential_source, KubeconfigCredentials):
            await self.credential_source.close()

    async def _reread(self, *, refused: bool) -> None:
        """Read header and certificates; if that fails, the old ones stay."""
        try:
            await self.load_credentials(refused=refused)
        except (OSError, AccessError) as error:
            self.credential_failure = one_line(str(error))
            self.on_credential_failure(self.credential_failure)
            self._reread_at = self.clock() + REREAD_SECONDS


class KubeconfigCredentials(Struct):
    """Reads the credentials of a kubeconfig context again and again: token, token file, certificates, exec plugin.

    `initial` is the context that was just read, for the first read; `terminal` says that a plugin may prompt the user;
    `wall` is unix time, for expirations.
    """

    path: str
    context: str | None
    clock: Callable[[], float]
    initial: KubeconfigContext | None
    terminal: bool = False
    wall: Callable[[], float] = time.time
    _exec_cache: ExecCredentialCache | None = None

    async def read(self, *, refused: bool) -> Credential:
        """Read the files, and run the plugin if there is one and its credential is not valid."""
        target, self.initial = self.initial, None
        if target is None:
            target = await asyncio.to_thread(read_kubeconfig_context, self.path, self.context, terminal=self.terminal)
        if target.plugin is None:
            return Credential(target.header, target.client_certificate, where=target.where)
        if self._exec_cache is None or self._exec_cache.plugin != target.plugin:
            await self.close()
            self._exec_cache = ExecCredentialCache(target.plugin, self.clock, self.wall)
        return await self._exec_cache.read(refused=refused)

    async def close(self) -> None:
        """Stop the plugin if it runs."""
        if self._exec_cache is not None:
            await self._exec_cache.close()


async def connect(
    kubeconfig: str | None,
    context: str | None,
    clock: Callable[[], float],
    *,
    terminal: bool = False,
    account_first: bool = False,
) -> Server:
    """Find the API server: the given file, $KUBECONFIG, ~/.kube/config, then the pod's service account, as kubectl.

    `terminal` says that an exec plugin may prompt the user, `account_first` that the service account comes before
    ~/.kube/config, as for a program that runs in a pod of its own. Raises AccessError with a sentence that names the
    file.
    """
    path = kubeconfig or os.environ.get("KUBECONFIG") or None
    if path is None and context is None and _uses_account(account_first=account_first):
        return in_cluster(SERVICE_ACCOUNT, os.environ, clock)
    return await from_kubeconfig(path or HOME_KUBECONFIG, context, clock, terminal=terminal)


def _uses_account(*, account_first: bool) -> bool:
    """Say whether this is a pod whose service account is to be used; raises AccessError where it has no identity."""
    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        return False
    token, has_file = SERVICE_ACCOUNT / "token", Path(HOME_KUBECONFIG).expanduser().is_file()
    if token.is_file():
        return account_first or not has_file
    if not has_file:
        raise AccessError(f"{token}: there is no service account token, and there is no {HOME_KUBECONFIG}")
    return False


def in_cluster(directory: Path, environment: Any, clock: Callable[[], float]) -> Server:
    """Return the server of the pod's environment and service account files."""
    if not (directory / "token").is_file():
        raise AccessError(f"{directory / 'token'}: there is no service account token")
    host, port = environment["KUBERNETES_SERVICE_HOST"], int(environment.get("KUBERNETES_SERVICE_PORT", "443"))
    return Server(
        host=host,
        port=port,
        clock=clock,
        tls=_load_files(Tls(_context(custom_ca=True), ca_file=str(directory / "ca.crt"))),
        credential_source=TokenFile(directory / "token"),
        proxy=proxy_from_environment(True, host, port, environment),
    )


async def from_kubeconfig(
    path: str, context: str | None, clock: Callable[[], float], *, terminal: bool = False
) -> Server:
    """Return the server of a context of one kubeconfig file, or of several joined by `:`; raises AccessError."""
    target = read_kubeconfig_context(path, context, terminal=terminal)
    address = _address(path, target.server)
    secure = address.scheme == "https"
    host, port = address.hostname or "", address.port or (443 if secure else 80)
    configured = parse_proxy(target.proxy, f"{target.cluster}: proxy-url") if target.proxy else None
    server = Server(
        host=host,
        port=port,
        clock=clock,
        tls=_tls_of(path, target) if secure else None,
        path_prefix=address.path.rstrip("/"),
        credential_source=KubeconfigCredentials(path, context, clock, target, terminal),
        impersonation=target.impersonation,
        proxy=configured or proxy_from_environment(secure, host, port, os.environ),
    )
    try:
        await server.load_credentials()
    except OSError as error:
        raise AccessError(f"{path}: the client certificate cannot be read: {one_line(str(error))}") from error
    return server


def _address(path: str, server: str) -> SplitResult:
    """Return the parts of the URL; raises AccessError if host or port are invalid."""
    with suppress(ValueError):
        address = urlsplit(server)
        usable = address.scheme in ("http", "https") and address.hostname and address.port != 0
        if usable and server.isascii() and server.isprintable() and " " not in server:
            return address
    raise AccessError(f"{path}: cluster.server {server!r} is not an http or https address")


def _context(*, custom_ca: bool) -> ssl.SSLContext:
    """Return a TLS context that verifies the server: without CAs if `custom_ca`, else with the system's CAs.

    Loading the system's CAs takes 35 ms.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A cluster's CA may be an intermediate one; it is trusted, as in client-go.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # Many cluster CAs lack extensions that newer Python versions require by default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if not custom_ca:
        context.load_default_certs()
    return context


def _load_certificate(context: ssl.SSLContext, certificate: bytes) -> None:
    """Load a client certificate with its key, in PEM; raises OSError where they do not match, and changes nothing."""
    with NamedTemporaryFile() as file:  # a context loads client certificates from files only
        file.write(certificate)
        file.flush()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(file.name)  # a failure leaves half a pair in a context
        context.load_cert_chain(file.name)


def _tls_of(path: str, target: KubeconfigContext) -> Tls:
    context = _context(custom_ca=bool(target.ca_file or target.ca_data) or not target.verify_server)
    if not target.verify_server:
        _trust_all(context)
    try:
        if target.ca_data is not None:
            context.load_verify_locations(cadata=target.ca_data)
    except (OSError, ValueError) as error:
        raise AccessError(f"{path}: certificate-authority-data cannot be read: {one_line(str(error))}") from error
    tls = Tls(context, target.server_name, target.ca_file, target.certificate_file, target.key_file)
    if not target.verify_server:
        tls.new_context = lambda: _trust_all(_context(custom_ca=True))
    return _load_files(tls)


def _trust_all(context: ssl.SSLContext) -> ssl.SSLContext:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _load_files(tls: Tls) -> Tls:
    try:
        tls.reload()
    except OSError as error:
        files = ", ".join(name for name in (tls.ca_file, tls.certificate_file, tls.key_file) if name)
        raise AccessError(f"{files}: the certificates cannot be read: {one_line(str(error))}") from error
    return tls
