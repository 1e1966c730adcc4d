"""Read kubeconfig files: the chosen context with its cluster and its user.

Invariants:
- The first file that has a name wins, and so does the first current-context; entries of several files do not merge.
- Unknown fields are ignored, as client-go does.
- Every error is one sentence that names the file.

Source: Kubernetes kubeconfig conventions (client-go tools/clientcmd).
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
import yaml
from msgspec import Struct

from aischeduler.config.spelling import nearest
from aischeduler.kube.errors import AccessError, decode_problem

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Far above any real kubeconfig, which has some kilobytes per cluster; a larger file would take long to parse."""


class Extension(Struct):
    """An extension of a cluster entry."""

    name: str = ""
    extension: Any = None


class Cluster(Struct, rename="kebab"):
    """A cluster entry: the address of an API server, and how to verify it."""

    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[Extension] | None = None


class Variable(Struct):
    """An environment variable of an exec credential plugin."""

    name: str
    value: str | None = None


class Exec(Struct, rename="camel"):
    """The exec entry of a user: a credential plugin."""

    command: str | None = None
    args: list[str] | None = None
    env: list[Variable] | None = None
    api_version: str | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class AuthProvider(Struct):
    """The auth-provider entry of a user, which is not supported; an error names it."""

    name: str = ""


class User(Struct, rename="kebab"):
    """A user entry: the credentials."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    exec: Exec | None = None
    auth_provider: AuthProvider | None = None
    as_: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None


class _Context(Struct):
    cluster: str | None = None
    user: str | None = None


class _NamedCluster(Struct):
    name: str
    fields: Any = msgspec.field(name="cluster", default=None)


class _NamedUser(Struct):
    name: str
    fields: Any = msgspec.field(name="user", default=None)


class _NamedContext(Struct):
    name: str
    fields: Any = msgspec.field(name="context", default=None)


class _Document(Struct, rename="kebab"):
    kind: str | None = None
    current_context: str | None = None
    contexts: list[_NamedContext] | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None


Kind = Literal["context", "cluster", "user"]
_LISTS: Final[dict[Kind, Callable[[_Document], Sequence[_NamedContext | _NamedCluster | _NamedUser]]]] = {
    "context": lambda document: document.contexts or (),
    "cluster": lambda document: document.clusters or (),
    "user": lambda document: document.users or (),
}
T = TypeVar("T", _Context, Cluster, User)


class _KubeconfigFile(Struct, frozen=True):
    """One kubeconfig file."""

    file: Path
    document: _Document


class Entry(Struct, Generic[T], frozen=True):
    """A context, cluster or user entry; `where` names the entry and its file."""

    file: Path
    where: str
    fields: T

    def path(self, name: str) -> Path:
        """Return a path of the entry as an absolute path; it is relative to the file."""
        return self.file.parent.absolute() / name


def read_entries(paths: str, context: str | None) -> tuple[Entry[Cluster], Entry[User]]:
    """Read the given or the current context of one file, or of several joined by `:`. Raises AccessError.

    A context without a user gives an anonymous user, as in kubectl. Missing files are ignored if another one exists.
    """
    parts = [_KubeconfigFile(file, _document(file)) for file in _present(paths)]
    if not parts:
        raise AccessError(f"{paths}: there is no such kubeconfig file")
    name = context or next((one.document.current_context for one in parts if one.document.current_context), None)
    if name is None:
        known = any(part.document.contexts for part in parts)
        why = "current-context is not set" if known else "is not a kubeconfig: it has no context"
        raise AccessError(f"{paths}: {why}")
    chosen = _entry(parts, "context", name, _Context)
    if not chosen.fields.cluster:
        raise AccessError(f"{chosen.where} names no cluster")
    cluster = _entry(parts, "cluster", chosen.fields.cluster, Cluster)
    if not chosen.fields.user:
        return cluster, Entry(chosen.file, f"{chosen.where}, which names no user", User())
    return cluster, _entry(parts, "user", chosen.fields.user, User)


def _present(paths: str) -> list[Path]:
    """Return the files that exist."""
    found = []
    for one in paths.split(os.pathsep):
        path = Path(one)
        try:
            path = path.expanduser()
            if one and path.is_file():
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


def _entry(parts: Sequence[_KubeconfigFile], kind: Kind, name: str, fields: type[T]) -> Entry[T]:
    """Return the entry of this name in the first file that has it; raises AccessError."""
    for part in parts:
        found = [one.fields for one in _LISTS[kind](part.document) if one.name == name]
        where = f"{part.file}: {kind} {name!r}"
        if len(found) > 1:
            raise AccessError(f"{where} is defined {len(found)} times")
        if found:
            try:
                return Entry(part.file, where, msgspec.convert({} if found[0] is None else found[0], fields))
            except (msgspec.ValidationError, RecursionError) as error:
                raise AccessError(f"{where}: {decode_problem(error)}") from error
    near = nearest(name, (one.name for part in parts for one in _LISTS[kind](part.document)))
    files = os.pathsep.join(str(part.file) for part in parts)
    raise AccessError(f"{files}: there is no {kind} {name!r}" + (f"; did you mean {near}?" if near else ""))
