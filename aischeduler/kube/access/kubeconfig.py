"""The server and the credentials that a kubeconfig context names.

Invariants:
- The first file that has a name wins, and so does the first current-context; entries of several files do not merge.
- Paths are relative to their file; `...-data` fields win over the files that the other fields name.
- Unknown fields are ignored, as client-go does; a known field that is not supported is an error.
- Every error is one sentence that names the file and shows no secret.

Source: Kubernetes kubeconfig conventions (client-go tools/clientcmd).
"""

import os
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import quote

import msgspec
import yaml
from msgspec import Struct

from aischeduler.kube.access.credentials import basic, bearer, bearer_from_file, header_value
from aischeduler.kube.access.exec_credential import GROUP, VERSIONS, ExecPlugin
from aischeduler.kube.http.errors import AccessError
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.user_text import nearest

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Far above any real kubeconfig, which has some kilobytes per cluster; a larger file would take long to parse."""
EXEC_EXTENSION: Final = f"{GROUP}/exec"
"""The cluster extension whose content is passed to exec plugins."""
_HEADER_NAME: Final = "!#$&'*+^`|"
"""The characters that a header name allows besides letters, digits and what `quote` keeps, without `%`."""


@dataclass(frozen=True, slots=True)
class KubeconfigContext:
    """The server and the credentials of a context.

    `ca_data` and `client_certificate` (with its key) are PEM from the file, `..._file` are paths; `header` is the value
    of Authorization, `impersonation` the header lines of impersonation. With a `plugin` the file has no credential.
    `proxy` is the proxy-url of the cluster; `where` names the user and its file, `cluster` the cluster and its file.
    """

    server: str
    server_name: str | None = None
    verify_server: bool = True
    ca_data: str | None = None
    ca_file: str | None = None
    client_certificate: bytes | None = field(default=None, repr=False)
    certificate_file: str | None = None
    key_file: str | None = None
    header: bytes | None = field(default=None, repr=False)
    plugin: ExecPlugin | None = None
    impersonation: bytes = b""
    proxy: str | None = field(default=None, repr=False)
    cluster: str = field(default="", compare=False)
    where: str = field(default="", compare=False)


class _Extension(Struct):
    name: str = ""
    extension: Any = None


class _Cluster(Struct, rename="kebab"):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[_Extension] | None = None


class _Variable(Struct):
    name: str
    value: str | None = None


class _Exec(Struct, rename="camel"):
    command: str | None = None
    args: list[str] | None = None
    env: list[_Variable] | None = None
    api_version: str | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class _AuthProvider(Struct):
    name: str = ""


class _User(Struct, rename="kebab"):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    exec: _Exec | None = None
    auth_provider: _AuthProvider | None = None
    as_: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


_Kind = Literal["context", "cluster", "user"]


class _Context(Struct):
    cluster: str | None = None
    user: str | None = None


class _Named(Struct):
    """An entry of one of the three lists; the other two fields are not set."""

    name: str
    context: Any = None
    cluster: Any = None
    user: Any = None


class _Document(Struct, rename="kebab"):
    kind: str | None = None
    current_context: str | None = None
    contexts: list[_Named] | None = None
    clusters: list[_Named] | None = None
    users: list[_Named] | None = None

    def named(self, kind: _Kind) -> Sequence[_Named]:
        return {"context": self.contexts, "cluster": self.clusters, "user": self.users}[kind] or ()


T = TypeVar("T", _Context, _Cluster, _User)


class _Entry(Struct, Generic[T], frozen=True):
    """A context, cluster or user; `where` names it and its file."""

    file: Path
    where: str
    fields: T

    def path(self, name: str) -> Path:
        """Return a path of the entry as an absolute path; it is relative to the file."""
        return self.file.parent.absolute() / name


def read_kubeconfig_context(paths: str, context: str | None, *, terminal: bool = False) -> KubeconfigContext:
    """Read the given or the current context of one file, or of several joined by `:`; raises AccessError.

    A context without a user gives an anonymous user, as in kubectl. Missing files are ignored if another one exists.
    `terminal` says that a plugin may prompt the user.
    """
    cluster, user = _chosen(paths, context)
    if user.fields.auth_provider is not None:
        name = user.fields.auth_provider.name
        raise AccessError(
            f"{user.where}: auth-provider {name!r} is not supported; use exec with a credential plugin instead"
        )
    try:
        authority, authority_file = _authority(cluster)
        identity, certificate_file, key_file = _identity(user)
        header = _header(user)
        static = identity or certificate_file or header
        return KubeconfigContext(
            server=cluster.fields.server or "",
            server_name=cluster.fields.tls_server_name or None,
            verify_server=not cluster.fields.insecure_skip_tls_verify,
            ca_data=authority,
            ca_file=authority_file,
            client_certificate=identity,
            certificate_file=certificate_file,
            key_file=key_file,
            header=header,
            plugin=None if static else _plugin(user, cluster, terminal=terminal),
            impersonation=_impersonation(user),
            proxy=cluster.fields.proxy_url or None,
            cluster=cluster.where,
            where=user.where,
        )
    except OSError as error:
        raise AccessError(f"{user.file}: {error}") from error


def _chosen(paths: str, context: str | None) -> tuple[_Entry[_Cluster], _Entry[_User]]:
    """Return the cluster and the user of the given or the current context; raises AccessError."""
    documents = {file: _document(file) for file in _present(paths)}
    if not documents:
        raise AccessError(f"{paths}: there is no such kubeconfig file")
    name = context or next(
        (document.current_context for document in documents.values() if document.current_context), None
    )
    if name is None:
        known = any(document.contexts for document in documents.values())
        why = "current-context is not set" if known else "is not a kubeconfig: it has no context"
        raise AccessError(f"{paths}: {why}")
    chosen = _entry(documents, "context", name, _Context)
    if not chosen.fields.cluster:
        raise AccessError(f"{chosen.where} names no cluster")
    cluster = _entry(documents, "cluster", chosen.fields.cluster, _Cluster)
    if not chosen.fields.user:
        return cluster, _Entry(chosen.file, f"{chosen.where}, which names no user", _User())
    return cluster, _entry(documents, "user", chosen.fields.user, _User)


def _present(paths: str) -> list[Path]:
    """Return the files that exist."""
    found = []
    for part in paths.split(os.pathsep):
        path = Path(part)
        try:
            path = path.expanduser()
            if part and path.is_file():
                found.append(path)
        except RuntimeError:
            continue  # `~` of an unknown user
        except OSError as error:
            raise AccessError(f"{path}: {error.strerror}") from error
    return found


def _document(file: Path) -> _Document:
    try:
        with file.open("rb") as opened:
            text = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise AccessError(f"{file}: {error.strerror}") from error
    if len(text) > FILE_BYTES_MAX:
        raise AccessError(f"{file}: is larger than {FILE_BYTES_MAX} bytes")
    try:
        document = msgspec.yaml.decode(text, type=_Document | None) or _Document()
    except (msgspec.MsgspecError, yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise AccessError(f"{file}: is not a kubeconfig: {decode_problem(error)}") from error
    if document.kind not in (None, "", "Config"):
        raise AccessError(f"{file}: is not a kubeconfig: its kind is {document.kind}")
    return document


def _entry(documents: Mapping[Path, _Document], kind: _Kind, name: str, fields: type[T]) -> _Entry[T]:
    """Return the entry of this name in the first file that has it; raises AccessError."""
    for file, document in documents.items():
        found = [getattr(entry, kind) for entry in document.named(kind) if entry.name == name]
        where = f"{file}: {kind} {name!r}"
        if len(found) > 1:
            raise AccessError(f"{where} is defined {len(found)} times")
        if found:
            try:
                return _Entry(file, where, msgspec.convert({} if found[0] is None else found[0], fields))
            except (msgspec.ValidationError, RecursionError) as error:
                raise AccessError(f"{where}: {decode_problem(error)}") from error
    near = nearest(name, (entry.name for document in documents.values() for entry in document.named(kind)))
    files = os.pathsep.join(map(str, documents))
    raise AccessError(f"{files}: there is no {kind} {name!r}" + (f"; did you mean {near}?" if near else ""))


def _authority(cluster: _Entry[_Cluster]) -> tuple[str | None, str | None]:
    """Return the CA as PEM, or else the path of its file."""
    fields = cluster.fields
    if fields.certificate_authority_data:
        pem = _decoded(fields.certificate_authority_data, f"{cluster.where}: certificate-authority-data")
        return pem.decode("ascii", errors="ignore"), None  # other text may stand between certificates
    return None, str(cluster.path(fields.certificate_authority)) if fields.certificate_authority else None


def _identity(user: _Entry[_User]) -> tuple[bytes | None, str | None, str | None]:
    """Return certificate and key: as PEM if one of them is in the file, else their paths."""
    fields = user.fields
    certificate = user.path(fields.client_certificate) if fields.client_certificate else None
    key = user.path(fields.client_key) if fields.client_key else None
    if not fields.client_certificate_data and not (certificate and fields.client_key_data):
        return None, str(certificate) if certificate else None, str(key) if certificate and key else None
    pem = []
    for what, text, file in (
        ("client-certificate-data", fields.client_certificate_data, certificate),
        ("client-key-data", fields.client_key_data, key),
    ):
        if text:
            pem.append(_decoded(text, f"{user.where}: {what}"))
        elif file:
            pem.append(file.read_bytes())
    return b"\n".join(pem), None, None


def _header(user: _Entry[_User]) -> bytes | None:
    """Return the value of Authorization: from the token file, which is newer, the token, or name and password."""
    fields = user.fields
    tokens = fields.token or fields.token_file
    if (fields.username or fields.password) and tokens:
        raise AccessError(f"{user.where} has both a token and a user name with a password")
    if fields.username or fields.password:
        return basic(fields.username or "", fields.password or "")
    known = bearer(fields.token, f"{user.where}: token") if fields.token else None
    if fields.token_file:
        try:
            return bearer_from_file(user.path(fields.token_file))
        except (OSError, AccessError):
            if known is None:
                raise
    return known


def _impersonation(user: _Entry[_User]) -> bytes:
    """Return the header lines of impersonation."""
    fields = user.fields
    extra = fields.as_user_extra or {}
    if not fields.as_:
        if fields.as_uid or fields.as_groups or extra:
            raise AccessError(f"{user.where} has as-uid, as-groups or as-user-extra without as")
        return b""
    lines = [("User", fields.as_), *([("Uid", fields.as_uid)] if fields.as_uid else [])]
    lines += [("Group", group) for group in fields.as_groups or ()]
    lines += [(f"Extra-{quote(key, safe=_HEADER_NAME)}", value) for key, values in extra.items() for value in values]
    return b"".join(
        b"Impersonate-%b: %b\r\n" % (name.encode(), header_value(value, f"{user.where}: Impersonate-{name}"))
        for name, value in lines
    )


def _plugin(user: _Entry[_User], cluster: _Entry[_Cluster], *, terminal: bool) -> ExecPlugin | None:
    exec_entry, where = user.fields.exec, user.where
    if exec_entry is None:
        return None
    command = exec_entry.command
    if not command:
        raise AccessError(f"{where}: exec has no command")
    if exec_entry.api_version not in VERSIONS:
        raise AccessError(f"{where}: exec.apiVersion is {exec_entry.api_version!r}, not {' or '.join(VERSIONS)}")
    mode = exec_entry.interactive_mode or ("" if exec_entry.api_version == VERSIONS[0] else "IfAvailable")
    if mode == "Always" and not terminal:
        raise AccessError(f"{where}: {command!r} needs a terminal (exec.interactiveMode Always), and there is none")
    if mode not in ("Never", "IfAvailable", "Always"):
        raise AccessError(f"{where}: exec.interactiveMode is {mode!r}, not Never, IfAvailable or Always")
    interactive = terminal and mode != "Never"
    spec: dict[str, Any] = {"interactive": interactive}
    if exec_entry.provide_cluster_info:
        spec["cluster"] = _cluster_info(cluster)
    exec_info = {"apiVersion": exec_entry.api_version, "kind": "ExecCredential", "spec": spec}
    return ExecPlugin(
        where,
        command=str(user.path(command)) if "/" in command else command,
        arguments=tuple(exec_entry.args or ()),
        environment=tuple((variable.name, variable.value or "") for variable in exec_entry.env or ()),
        version=exec_entry.api_version,
        install_hint=exec_entry.install_hint or "",
        exec_info=msgspec.json.encode(exec_info).decode(),
        shows_stderr=terminal,
        interactive=interactive,
    )


def _cluster_info(cluster: _Entry[_Cluster]) -> dict[str, Any]:
    """Return the cluster information that a plugin may get."""
    fields = cluster.fields
    authority = fields.certificate_authority_data
    if not authority and fields.certificate_authority:
        authority = b64encode(cluster.path(fields.certificate_authority).read_bytes()).decode()
    known = {
        "server": fields.server,
        "tls-server-name": fields.tls_server_name,
        "insecure-skip-tls-verify": fields.insecure_skip_tls_verify,
        "certificate-authority-data": authority,
        "proxy-url": fields.proxy_url,
        "disable-compression": fields.disable_compression,
        "config": next(
            (extension.extension for extension in fields.extensions or () if extension.name == EXEC_EXTENSION), None
        ),
    }
    return {key: value for key, value in known.items() if value}


def _decoded(text: str, where: str) -> bytes:
    """Decode base64; raises AccessError."""
    try:
        return b64decode(text)
    except ValueError as error:
        raise AccessError(f"{where} is not base64") from error
