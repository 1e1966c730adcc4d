"""Where the API server is and who we are to it: kubeconfig, in-cluster token, client certificates.

Laws:
- Tokens are read again every 60 seconds, and once when the server does not know us any more.
- Certificates and CA bundles are read again when their files change; new connections use them.
- A named authority is the only one that is trusted; without one, those of the machine are.
- The `kubernetes` package reads the kubeconfig files that are not plain (see `kubeconfig`) and nothing else; it is
  imported only for that.

Source: Kubernetes kubeconfig and service account conventions.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import yaml

from aischeduler.kube.errors import AccessError
from aischeduler.kube.kubeconfig import Access, read_plain

REREAD_SECONDS: Final = 60.0
"""The kubelet renews a service account's token long before it ends; this is soon enough."""
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Source(Protocol):
    """Where credentials come from."""

    async def header(self) -> bytes | None:
        """Return the value of the Authorization header as it is now; raises AccessError or OSError."""


@dataclass(slots=True)
class Tls:
    """A TLS context and the files that it was made of."""

    context: ssl.SSLContext
    server_name: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    _stamps: tuple[int, ...] = ()

    def reload(self) -> None:
        """Read the files into the context where they have changed since the last time."""
        files = [name for name in (self.ca_file, self.certificate_file, self.key_file) if name]
        stamps = tuple(Path(name).stat().st_mtime_ns for name in files)
        if stamps == self._stamps:
            return
        if self.ca_file:
            self.context.load_verify_locations(cafile=self.ca_file)
        if self.certificate_file:
            self.context.load_cert_chain(self.certificate_file, self.key_file)
        self._stamps = stamps


@dataclass(slots=True)
class Server:
    """An API server and our credentials to it; `prefix` is the path before `/api`, mostly empty."""

    host: str
    port: int
    clock: Callable[[], float]
    tls: Tls | None = None
    prefix: str = ""
    source: Source | None = None
    _header: bytes | None = None
    _read_at: float = field(default=float("-inf"))
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def url(self) -> str:
        """The address without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}{self.prefix}"

    async def authorization(self) -> bytes | None:
        """Return the value of the Authorization header, or None where a certificate or nothing is enough."""
        if self.clock() - self._read_at >= REREAD_SECONDS:
            async with self._reading:
                if self.clock() - self._read_at >= REREAD_SECONDS:
                    await self._read()
        return self._header

    async def renew(self, used: bytes | None) -> bool:
        """After a 401: read the credentials again; say whether there is something other than `used` to try."""
        async with self._reading:
            if self._header == used:
                await self._read()
        return self._header != used

    async def _read(self) -> None:
        """Read token and certificates; what cannot be read just now stays as it was."""
        with suppress(OSError, AccessError):
            if self.source is not None:
                self._header = await self.source.header()
            if self.tls is not None:
                self.tls.reload()
        self._read_at = self.clock()


@dataclass(frozen=True, slots=True)
class TokenFile:
    """The token of a service account."""

    path: Path

    async def header(self) -> bytes | None:
        """Read the file."""
        return b"Bearer " + self.path.read_bytes().strip()


@dataclass(slots=True)
class Kubeconfig:
    """A context of a kubeconfig file: certificates, tokens, token files, exec plugins."""

    path: str
    context: str | None
    _loader: Any = None

    def exists(self) -> bool:
        """Say whether any of the files is there; several are joined as in $KUBECONFIG."""
        return any(Path(one).expanduser().is_file() for one in self.path.split(os.pathsep) if one)

    async def load(self) -> Access:
        """Return where the context leads; raises AccessError."""
        try:
            read = read_plain(self.path, self.context) if os.pathsep not in self.path else None
        except OSError as error:
            raise AccessError(f"{self.path}: {_first_line(error)}") from error
        return read or await self._load_by_package()

    async def _load_by_package(self) -> Access:
        from kubernetes.aio import config  # noqa: PLC0415 - a quarter of a second that a plain file is not worth

        read = Access()
        try:
            if self._loader is None:
                load: Any = config.load_kube_config
                self._loader = await load(self.path, self.context, read, persist_config=False)
            else:
                await self._loader.load_and_set(read)
        except (KeyError, TypeError, AttributeError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise AccessError(f"{self.path}: is not a kubeconfig: {_first_line(error)}") from error
        except (config.ConfigException, OSError, ValueError) as error:
            raise AccessError(f"{self.path}: {_first_line(error)}") from error
        return read

    async def header(self) -> bytes | None:
        """Read token files again and ask the exec plugin again where its token has ended."""
        token = (await self.load()).api_key.get("BearerToken")
        return token.encode() if token else None


async def connect(kubeconfig: str | None, context: str | None, clock: Callable[[], float]) -> Server:
    """Find the API server: the given file, $KUBECONFIG, the pod's service account, then ~/.kube/config.

    Raises AccessError with one sentence that names the file.
    """
    path = kubeconfig or os.environ.get("KUBECONFIG") or None
    if path is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster(SERVICE_ACCOUNT, os.environ, clock)
    return await from_kubeconfig(path or "~/.kube/config", context, clock)


def in_cluster(directory: Path, environment: Any, clock: Callable[[], float]) -> Server:
    """Return the server that a pod is told of by its environment and the files of its service account."""
    if not (directory / "token").is_file():
        raise AccessError(f"{directory / 'token'}: there is no service account token")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    return Server(
        host=environment["KUBERNETES_SERVICE_HOST"],
        port=int(port),
        clock=clock,
        tls=_tls(Tls(_context(authority=True), ca_file=str(directory / "ca.crt"))),
        source=TokenFile(directory / "token"),
    )


async def from_kubeconfig(path: str, context: str | None, clock: Callable[[], float]) -> Server:
    """Return the server of a context of the file, or of several files joined by `:`."""
    source = Kubeconfig(path, context)
    if not source.exists():
        raise AccessError(f"{path}: there is no such kubeconfig file")
    read = await source.load()
    address = urlsplit(read.host)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise AccessError(f"{path}: cluster.server {read.host!r} is not an http or https address")
    if read.proxy:
        raise AccessError(f"{path}: cluster.proxy-url is not supported")
    secure = address.scheme == "https"
    return Server(
        host=address.hostname,
        port=address.port or (443 if secure else 80),
        clock=clock,
        tls=_tls_of(path, read) if secure else None,
        prefix=address.path.rstrip("/"),
        source=source,
    )


def _context(*, authority: bool) -> ssl.SSLContext:
    """Return a context that checks the server: by an authority that is still to be loaded, or by the machine's own.

    Loading those of the machine takes 35 ms.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # A cluster's authority may be an intermediate one: what is named is trusted, as client-go does.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not authority:
        context.load_default_certs()
    return context


def _tls_of(path: str, read: Access) -> Tls:
    context = _context(authority=bool(read.ssl_ca_cert or read.ca_data) or not read.verify_ssl)
    if not read.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if read.ca_data:
            context.load_verify_locations(cadata=read.ca_data)
        if read.identity_data:
            with NamedTemporaryFile() as file:  # a context takes certificates of ours from files only
                file.write(read.identity_data)
                file.flush()
                context.load_cert_chain(file.name)
    except (OSError, ssl.SSLError) as error:
        raise AccessError(f"{path}: the certificates cannot be read: {_first_line(error)}") from error
    return _tls(Tls(context, read.tls_server_name, read.ssl_ca_cert, read.cert_file, read.key_file))


def _tls(tls: Tls) -> Tls:
    # Many clusters' own authorities lack extensions that newer Pythons insist on by default.
    tls.context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    tls.context.set_alpn_protocols(["http/1.1"])
    try:
        tls.reload()
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(name for name in (tls.ca_file, tls.certificate_file, tls.key_file) if name)
        raise AccessError(f"{files}: the certificates cannot be read: {_first_line(error)}") from error
    return tls


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
