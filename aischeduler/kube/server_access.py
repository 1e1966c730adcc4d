"""An API server and our credentials to it: from kubeconfig files, or from a pod's service account.

Laws:
- Tokens are read again every 60 seconds, sooner where they end sooner, and once when the server does not know us any
  more. What cannot be read just now stays as it was; at the start it is refused.
- Certificates and CA bundles are read again when their files change; new connections use them and them alone.
- A named authority is the only one that is trusted; without one, those of the machine are.

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

from aischeduler.kube.credentials import Credential, CredentialSource, TokenFile
from aischeduler.kube.dialer import Proxy, Resolve, parse_proxy, proxy_from_environment, resolve
from aischeduler.kube.errors import AccessError, InterceptedError, one_line
from aischeduler.kube.exec_credential import ExecCredentialCache
from aischeduler.kube.kubeconfig_context import KubeconfigContext, read_kubeconfig_context

REREAD_SECONDS: Final = 60.0
"""The kubelet renews a service account's token long before it ends; this is soon enough."""
REREAD_SECONDS_MIN: Final = 1.0
"""A token that has ended when we get it, as a wrong clock makes it, is not read again for each request."""
RENEW_INTERVAL_SECONDS: Final = 1.0
"""How long credentials that are refused, and that are the same when they are read again, are not read once more."""
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def _ignore(_: object) -> None:
    return


@dataclass(slots=True)
class Tls:
    """A TLS context and the files that it was made of; `number` rises with each certificate of ours that it takes.

    `fresh` makes a context that trusts no authority yet: one that was trusted once cannot be taken out of a context.
    """

    context: ssl.SSLContext
    server_name: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    certificate_number: int = 0
    new_context: Callable[[], ssl.SSLContext] = field(default=lambda: _context(authority=True))
    _mtimes: tuple[int, ...] = ()
    _client_certificate: bytes | None = None

    def reload(self) -> None:
        """Read the files into the context where they have changed since the last time."""
        files = [name for name in (self.ca_file, self.certificate_file, self.key_file) if name]
        stamps = tuple(Path(name).stat().st_mtime_ns for name in files)
        if stamps == self._mtimes:
            return
        context = self.context
        if self.ca_file:
            context = self.new_context()
            context.load_verify_locations(cafile=self.ca_file)
            if self._client_certificate is not None:
                _load_identity(context, self._client_certificate)
        if self.certificate_file:
            context.load_cert_chain(self.certificate_file, self.key_file)
            self.certificate_number += 1
        self.context, self._mtimes = context, stamps

    def use_certificate(self, identity: bytes) -> None:
        """Use this certificate and its key, in PEM, for new connections; raises OSError."""
        if identity == self._client_certificate:
            return
        _load_identity(self.context, identity)
        self._client_certificate = identity
        self.certificate_number += 1


@dataclass(slots=True)
class Server:
    """An API server and our credentials to it.

    `prefix` is the path before `/api`, mostly empty; `impersonation` further lines of each request's head; `proxy` what
    stands before it, `lookup` what knows the addresses of its name. `failure`
    what kept the credentials from being read the last time. `intercepted` hears of answers that no API server gave,
    `troubled` in a sentence of credentials that cannot be read or are refused.
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
        """The address without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}{self.path_prefix}"

    @property
    def certificate_number(self) -> int:
        """The number of our certificate: a connection that was opened with another one tells the server who we were."""
        return self.tls.certificate_number if self.tls is not None else 0

    async def authorization(self) -> bytes | None:
        """Return the value of the Authorization header, or None where a certificate or nothing is enough."""
        if self.clock() >= self._reread_at and not (self._loaded and self._reading.locked()):
            async with self._reading:
                if self.clock() >= self._reread_at:
                    await self._reread(refused=False)
        return self._header

    async def renew_credentials(self, header: bytes | None, identity_number: int) -> bool:
        """After a 401 to these: read the credentials again; say whether there are others to try.

        Of many requests that were refused with the same credentials, the first has them read again.
        """
        async with self._reading:
            if self._are_current(header, identity_number) and self.clock() >= self._renewable_at:
                await self._reread(refused=True)
                self._renewable_at = self.clock() + RENEW_INTERVAL_SECONDS
        if not self._are_current(header, identity_number):
            return True
        self.on_credential_failure(
            self.credential_failure
            or f"{self._credential_where or 'no credentials'}: the API server answers 401 Unauthorized"
        )
        return False

    def _are_current(self, header: bytes | None, identity_number: int) -> bool:
        return self._header == header and self.certificate_number == identity_number

    async def load_credentials(self, *, refused: bool = False) -> None:
        """Read token and certificates; raises AccessError and OSError."""
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
        """End what reads credentials beside requests."""
        if isinstance(self.credential_source, KubeconfigCredentials):
            await self.credential_source.close()

    async def _reread(self, *, refused: bool) -> None:
        """Read token and certificates; what cannot be read just now stays as it was."""
        try:
            await self.load_credentials(refused=refused)
        except (OSError, AccessError) as error:
            self.credential_failure = one_line(str(error))
            self.on_credential_failure(self.credential_failure)
            self._reread_at = self.clock() + REREAD_SECONDS


@dataclass(slots=True)
class KubeconfigCredentials:
    """A context of kubeconfig files as they are now: their tokens, token files, certificates and plugins.

    `unused` is what was just read there, good for the first time; `terminal` where a plugin may ask its user. `wall`
    is the time that credentials speak of.
    """

    path: str
    context: str | None
    clock: Callable[[], float]
    initial: KubeconfigContext | None
    terminal: bool = False
    wall: Callable[[], float] = time.time
    _exec_cache: ExecCredentialCache | None = None

    async def read(self, *, refused: bool) -> Credential:
        """Read the files, and ask the plugin where one is named and what it said is not good any more."""
        access = self.initial or read_kubeconfig_context(self.path, self.context, terminal=self.terminal)
        self.initial = None
        if access.plugin is None:
            return Credential(access.header, access.client_certificate, where=access.where)
        if self._exec_cache is None or self._exec_cache.plugin != access.plugin:
            await self.close()
            self._exec_cache = ExecCredentialCache(access.plugin, self.clock, self.wall)
        return await self._exec_cache.read(refused=refused)

    async def close(self) -> None:
        """End the plugin where it runs."""
        if self._exec_cache is not None:
            await self._exec_cache.close()


async def connect(
    kubeconfig: str | None, context: str | None, clock: Callable[[], float], *, terminal: bool = False
) -> Server:
    """Find the API server: the given file, $KUBECONFIG, the pod's service account, then ~/.kube/config.

    `terminal` says that a user is there whom a credential program may ask.
    Raises AccessError with one sentence that names the file.
    """
    path = kubeconfig or os.environ.get("KUBECONFIG") or None
    if path is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster(SERVICE_ACCOUNT, os.environ, clock)
    return await from_kubeconfig(path or "~/.kube/config", context, clock, terminal=terminal)


def in_cluster(directory: Path, environment: Any, clock: Callable[[], float]) -> Server:
    """Return the server that a pod is told of by its environment and the files of its service account."""
    if not (directory / "token").is_file():
        raise AccessError(f"{directory / 'token'}: there is no service account token")
    host, port = environment["KUBERNETES_SERVICE_HOST"], int(environment.get("KUBERNETES_SERVICE_PORT", "443"))
    return Server(
        host=host,
        port=port,
        clock=clock,
        tls=_load_files(Tls(_context(authority=True), ca_file=str(directory / "ca.crt"))),
        credential_source=TokenFile(directory / "token"),
        proxy=proxy_from_environment(True, host, port, environment),
    )


async def from_kubeconfig(
    path: str, context: str | None, clock: Callable[[], float], *, terminal: bool = False
) -> Server:
    """Return the server of a context of the file, or of several files joined by `:`; raises AccessError."""
    access = read_kubeconfig_context(path, context, terminal=terminal)
    address = _address(path, access.server)
    secure = address.scheme == "https"
    host, port = address.hostname or "", address.port or (443 if secure else 80)
    named = parse_proxy(access.proxy, f"{access.cluster}: proxy-url") if access.proxy else None
    server = Server(
        host=host,
        port=port,
        clock=clock,
        tls=_tls_of(path, access) if secure else None,
        path_prefix=address.path.rstrip("/"),
        credential_source=KubeconfigCredentials(path, context, clock, access, terminal),
        impersonation=access.impersonation,
        proxy=named or proxy_from_environment(secure, host, port, os.environ),
    )
    try:
        await server.load_credentials()
    except OSError as error:
        raise AccessError(f"{path}: the certificate of ours cannot be read: {one_line(str(error))}") from error
    return server


def _address(path: str, server: str) -> SplitResult:
    """Return the parts of the address; raises AccessError where host or port cannot be read in it."""
    with suppress(ValueError):
        address = urlsplit(server)
        if address.scheme in ("http", "https") and address.hostname and address.port != 0:
            return address
    raise AccessError(f"{path}: cluster.server {server!r} is not an http or https address")


def _context(*, authority: bool) -> ssl.SSLContext:
    """Return a context that checks the server: by an authority that is still to be loaded, or by the machine's own.

    Loading those of the machine takes 35 ms.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A cluster's authority may be an intermediate one: what is named is trusted, as client-go does.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # Many clusters' own authorities lack extensions that newer Pythons insist on by default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if not authority:
        context.load_default_certs()
    return context


def _load_identity(context: ssl.SSLContext, identity: bytes) -> None:
    with NamedTemporaryFile() as file:  # a context takes certificates of ours from files only
        file.write(identity)
        file.flush()
        context.load_cert_chain(file.name)


def _tls_of(path: str, read: KubeconfigContext) -> Tls:
    context = _context(authority=bool(read.ca_file or read.ca_data) or not read.verify_server)
    if not read.verify_server:
        _trust_all(context)
    try:
        if read.ca_data is not None:
            context.load_verify_locations(cadata=read.ca_data)
    except (OSError, ValueError) as error:
        raise AccessError(f"{path}: certificate-authority-data cannot be read: {one_line(str(error))}") from error
    tls = Tls(context, read.server_name, read.ca_file, read.certificate_file, read.key_file)
    if not read.verify_server:
        tls.new_context = lambda: _trust_all(_context(authority=True))
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
