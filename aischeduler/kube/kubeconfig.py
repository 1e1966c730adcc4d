"""Read a plain kubeconfig: one file, and credentials that stand in it or in files that it names.

Laws:
- Whatever is not plain in shape (exec plugins, proxies, passwords, several files, fields that we do not know, names
  that do not fit together) is None, and is for the `kubernetes` package to read or to refuse: it takes a quarter of a
  second to import, a seventh of our whole start.
- Paths in the file are relative to it; what stands in the file wins over the file that it names.

Source: Kubernetes kubeconfig conventions (client-go tools/clientcmd).
"""

import binascii
from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml
from msgspec import Struct

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A kubeconfig has some kilobytes for each cluster; a file beyond this is not read quickly by anybody."""


@dataclass(slots=True)
class Access:
    """Where a kubeconfig leads; the first fields have the names under which the `kubernetes` package sets them.

    `ssl_ca_cert`, `cert_file` and `key_file` are paths; `ca_data` and `identity_data` are PEM that stood in the file.
    """

    host: str = ""
    api_key: dict[str, str] = field(default_factory=dict)
    ssl_ca_cert: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_ssl: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None
    ca_data: str | None = None
    identity_data: bytes | None = None


class _Cluster(Struct, rename="kebab", forbid_unknown_fields=True):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None


class _User(Struct, rename="kebab", forbid_unknown_fields=True):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)


class _Context(Struct):
    cluster: str
    user: str


class _NamedCluster(Struct):
    name: str
    cluster: Any


class _NamedUser(Struct):
    name: str
    user: Any


class _NamedContext(Struct):
    name: str
    context: _Context


class _Document(Struct, rename="kebab"):
    contexts: list[_NamedContext]
    clusters: list[_NamedCluster]
    users: list[_NamedUser]
    current_context: str = ""


N = TypeVar("N", _NamedCluster, _NamedUser, _NamedContext)


def read_plain(path: str, context: str | None) -> Access | None:
    """Read a context of the file, without one the current one; None where it is not plain. Raises OSError."""
    file = Path(path).expanduser()
    with file.open("rb") as opened:
        text = opened.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        return None
    try:
        document = msgspec.yaml.decode(text, type=_Document)
        chosen = _only(document.contexts, context or document.current_context).context
        cluster = msgspec.convert(_only(document.clusters, chosen.cluster).cluster, _Cluster)
        user = msgspec.convert(_only(document.users, chosen.user).user, _User)
        return _access(file.parent, cluster, user)
    except (msgspec.MsgspecError, yaml.YAMLError, ValueError, RecursionError, LookupError):
        return None


def _only(named: list[N], name: str) -> N:
    """Return the one of this name; raises LookupError where there is none, or more than one."""
    found = [one for one in named if one.name == name]
    if len(found) != 1:
        raise LookupError(name)
    return found[0]


def _access(directory: Path, cluster: _Cluster, user: _User) -> Access:
    """Put together what was read; raises OSError for a token file, and ValueError for what is not plain."""
    identity = (user.client_certificate_data, user.client_key_data)
    if any(identity) and not all(identity):
        raise ValueError("a certificate and its key stand in different places")
    if user.token and user.token_file:
        raise ValueError("two tokens")
    access = Access(
        host=cluster.server, verify_ssl=not cluster.insecure_skip_tls_verify, tls_server_name=cluster.tls_server_name
    )
    if cluster.certificate_authority_data:
        access.ca_data = _decoded(cluster.certificate_authority_data).decode("ascii")
    elif cluster.certificate_authority:
        access.ssl_ca_cert = str(directory / cluster.certificate_authority)
    if any(identity):
        access.identity_data = b"\n".join(_decoded(one or "") for one in identity)
    elif user.client_certificate:
        access.cert_file = str(directory / user.client_certificate)
        access.key_file = str(directory / user.client_key) if user.client_key else None
    token = user.token
    if user.token_file:
        token = (directory / user.token_file).read_text().strip()
    if token:
        access.api_key["BearerToken"] = f"Bearer {token}"
    return access


def _decoded(text: str) -> bytes:
    """Decode base64; raises ValueError."""
    try:
        return b64decode(text)
    except binascii.Error as error:
        raise ValueError("no base64") from error
