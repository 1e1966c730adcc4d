"""The credentials sent to an API server: an Authorization header, a client certificate, or both.

Invariants:
- Text that would break a header is rejected.
- A message names where a secret is stored and never contains the secret.

Source: RFC 6750, RFC 7617, Kubernetes authentication.
"""

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from aischeduler.kube.http.errors import AccessError

_NO_EXPIRY: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Credential:
    """`header` is the value of Authorization, `client_certificate` a certificate and its key in PEM, or None.

    `valid_seconds` is how long the credential is valid without another read, as far as known; `where` names its source,
    `failure` is why a newer one could not be read.
    """

    header: bytes | None = field(default=None, repr=False)
    client_certificate: bytes | None = field(default=None, repr=False)
    valid_seconds: float = _NO_EXPIRY
    where: str = field(default="", compare=False)
    failure: str = ""


class CredentialSource(Protocol):
    """A source of credentials."""

    async def read(self, *, refused: bool) -> Credential:
        """Return the current credential; `refused` says that the server answered 401 to the last one.

        Raises AccessError or OSError.
        """


class TokenFile(Struct, frozen=True):
    """The token of a service account."""

    path: Path

    async def read(self, *, refused: bool) -> Credential:  # noqa: ARG002 - the file has no other token
        """Read the token file."""
        return Credential(bearer_from_file(self.path), where=str(self.path))


def bearer(token: str, where: str) -> bytes:
    """Return the Authorization header of a token; raises AccessError, which begins with `where`."""
    if not token.isascii():
        raise AccessError(f"{where} contains characters that a token cannot have")
    return b"Bearer " + header_value(token, where)


def bearer_from_file(path: Path) -> bytes:
    """Return the header of the token in a file; raises OSError, and AccessError if the file has no token."""
    token = path.read_bytes().strip().decode(errors="replace")
    if not token:
        raise AccessError(f"{path}: the file has no token")
    return bearer(token, f"{path}: the token")


def basic(username: str, password: str) -> bytes:
    """Return the Authorization header of a user name and a password."""
    return b"Basic " + b64encode(f"{username}:{password}".encode())


def header_value(text: str, where: str) -> bytes:
    """Return the text as header bytes; raises AccessError for line ends and other unprintable characters."""
    if not text.isprintable():
        raise AccessError(f"{where} contains characters that a header cannot have")
    return text.encode()
